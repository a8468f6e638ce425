"""What the loops share: the limits and the key of a call, its start, and checks of its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from ..core.clock import Clock
from ..core.context import Scope, end_of
from ..core.decision import Reason
from ..core.key import Key, KeyLike, Template
from ..errors import AttemptTimeout, BreakerOpen, RedriveError, Rejected
from ..journal.bus import emit, is_wanted
from ..journal.sinks.logging import WARNING
from .nesting import GIVE_UPS, Outcome, attach_spill, mark
from .run import RetryRun
from .settings import RetrySettings

KeyMaker: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], KeyLike | None]


class CallLimits:
    """Seconds for the calls of one function, and how to make their key. Infinite: no limit."""

    __slots__ = ("attempt", "key_of", "needs_full_loop", "shortest", "total")

    def __init__(
        self, attempt: float, total: float, key_of: KeyMaker, needs_full_loop: bool
    ) -> None:
        self.attempt = attempt
        self.total = total
        self.shortest = min(attempt, total)
        self.key_of = key_of
        self.needs_full_loop = needs_full_loop
        """Whether the first attempt needs the loop: for a key, a breaker, a hedge, or `reject=`."""


def call_limits(settings: RetrySettings, fn: Callable[..., Any]) -> CallLimits:
    """Return the limits of calls of `fn` with these settings."""
    total = settings.policy.timeout
    return CallLimits(
        attempt=math.inf if settings.attempt_timeout is None else settings.attempt_timeout,
        total=math.inf if total is None else total,
        key_of=_key_maker(settings.key, fn),
        needs_full_loop=settings.needs_full_loop,
    )


def _key_maker(key: Any, fn: Callable[..., Any]) -> KeyMaker:
    if key is None or isinstance(key, Key):
        return lambda _args, _kwargs: key
    if isinstance(key, str):
        return Template.over(key, fn).key
    return lambda args, kwargs: key(*args, **kwargs)


def start_run(
    settings: RetrySettings, clock: Clock, timeout: float, key: KeyLike | None, outer: Scope | None
) -> RetryRun:
    """Return a run whose first attempt may start now.

    Raises:
        AttemptTimeout: The deadline has passed.
        BreakerOpen: The breaker is open.
    """
    now = clock.monotonic()
    end = min(now + timeout, end_of(outer))
    check_may_start(settings, clock, now, end, key)
    return RetryRun(
        settings, clock, now, end, outer if key is None else (end, 1, settings, key, outer)
    )


def check_may_start(
    settings: RetrySettings, clock: Clock, now: float, end: float, key: KeyLike | None = None
) -> None:
    """Raise if a first attempt has no time left, or if the breaker is open."""
    refusal: RedriveError
    retry_at = None
    if end <= now:
        reason: Reason = "timeout"
        late = f"{settings.operation}: the deadline had passed before the attempt could start"
        error = settings.timeout_error(late)
        refusal = error if isinstance(error, AttemptTimeout) else AttemptTimeout(*error.args)
    elif settings.breaker is not None and (open_for := settings.breaker.allow(now)):
        reason = "breaker_open"
        retry_at = clock.now() + timedelta(seconds=open_for)
        message = f"{settings.operation}: the breaker is open for {open_for:.3g} s more"
        refusal = BreakerOpen(message, retry_at=retry_at)
    else:
        return
    ended = Outcome(0, 0.0, reason, retry_at, settings.operation, GIVE_UPS.next())
    mark(refusal, ended, None)
    if settings.spill is not None:
        attach_spill(refusal, settings, ended, None, key)
    if is_wanted(WARNING):
        fields = {"operation": settings.operation, "attempt": 0, "reason": reason}
        emit("giveup", {**settings.fields, **fields, "retry_at": retry_at})
    raise refusal


def timeout_message(settings: RetrySettings, number: int, limit: float) -> str:
    """Return the message of an attempt that took too long."""
    return f"{settings.operation}: attempt {number} took longer than {limit:.3g} s"


def reject_result(reject: Callable[[Any], bool], result: object, settings: RetrySettings) -> None:
    """Raise `Rejected` if `reject` says that the result counts as a failure."""
    if reject(result):
        raise Rejected(f"{settings.operation}: the result was rejected", result=result)


def is_awaitable(value: object) -> bool:
    """Return whether a value is a coroutine or another awaitable."""
    return hasattr(type(value), "__await__")


def ensure_not_awaitable(result: object, settings: RetrySettings) -> type:
    """Return the type of a sync function's result. Raise TypeError if it is awaitable."""
    kind = type(result)
    if is_awaitable(result):
        if hasattr(result, "close"):
            result.close()  # otherwise Python warns that it was never awaited, far from here
        raise TypeError(
            f"{settings.operation} is a sync function, but returned an awaitable "
            f"({kind.__name__}), whose failures cannot be seen here; "
            "decorate the `async def` itself, or use acall"
        )
    return kind
