"""RetryRun: the attempts of one call so far, and the decision after each failure.

Both loops and the fast path use it. The functions below it are the limits and the key of a call,
its start, and checks of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.clock import Clock, time_after
from ..core.context import (
    KEY,
    LAYER,
    OUTER,
    SIMULATION,
    SLOW_PATH_USERS,
    Scope,
    end_of,
    job_around,
    key_around,
)
from ..core.fault import (
    MAX_RETRY_AFTER_IN_JOB_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    UNKNOWN,
    Fault,
    Reason,
    decide,
)
from ..core.lock import before_fork
from ..core.text import safe_str
from ..errors import AttemptTimeout, BreakerOpen, Final, RedriveError, Rejected
from ..journal.bus import emit, is_success_wanted, is_wanted
from ..journal.sinks.logging import INFO, WARNING, level_of
from .nesting import (
    GIVE_UPS,
    AttemptHistory,
    Outcome,
    add_note,
    attach_spill,
    mark,
    origin,
    outcome,
    spent_inside,
    was_spilled_inside,
)
from .settings import RetrySettings

if TYPE_CHECKING:
    from ..core.key import KeyLike

MAX_LISTED_ATTEMPTS = 10
"""Attempts whose waits and errors the note of a long run lists."""
REASON_TEXT: dict[Reason, str] = {
    "attempts": "attempts spent",
    "timeout": "the next backoff does not fit in the remaining time",
    "retry_after": "the server asks for a longer wait than the call may take",
    "budget": "the retry budget is empty",
    "not_retryable": "this error is not retried",
    "not_idempotent": "it may have been executed, and is not idempotent",
    "nested": "an inner layer already used its retries",
    "breaker_open": "the breaker is open",
    "stopped": "stopped",
}


class RetryRun:
    """The attempts of one call so far. It belongs to that call.

    The loops tell it how each attempt ended. It decides whether to retry, pays from the budget,
    updates the breaker, writes log records, and marks the error of a call that gave up.
    """

    __slots__ = (
        "attempt",
        "began",
        "clock",
        "end",
        "history",
        "paid",
        "recorded",
        "scope",
        "settings",
        "started",
    )

    def __init__(
        self, settings: RetrySettings, clock: Clock, began: float, end: float, scope: Scope | None
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.began = began
        self.end = end
        self.scope = scope
        """The scope around the call, with the call's own key if it has one."""
        self.started = began
        """Start of the current attempt. NaN: not measured."""
        self.attempt = 1
        self.paid = 0.0
        """Tokens that the latest retry took from the budget."""
        self.recorded = False
        """Whether the latest failure was recorded. If so, a success afterwards is, too."""
        self.history: AttemptHistory | None = None

    def record_failure(self, error: Exception, giveups_before: int) -> float | None:
        """Decide what follows the failure of the current attempt.

        Args:
            error: The error of the attempt.
            giveups_before: `GIVE_UPS.count` when the attempt started.

        Returns:
            Seconds to wait before the next attempt. None: give up and raise the error, which is
            marked with the outcome.
        """
        settings, now = self.settings, self.clock.monotonic()
        reason, wait, fault = self._decide(error, giveups_before, now)
        if reason is None:
            paid = settings.budget.spend(fault.kind)
            if paid is None and not settings.budget.allow_by_floor(now):
                reason = "budget"
            self.paid = paid or 0.0
        if reason is not None:
            self._give_up(error, reason, wait, fault, now)
            return None
        self.recorded = is_wanted(INFO)
        if self.recorded:
            self._record("retry", error, fault, now, wait=wait)
        if self.attempt <= MAX_LISTED_ATTEMPTS:
            self.history = (self.history, wait, type(error))
        self.attempt += 1
        return wait

    def _decide(
        self, error: Exception, giveups_before: int, now: float
    ) -> tuple[Reason | None, float, Fault]:
        """Return the reason to give up or None, the wait (NaN: none), and the fault."""
        settings, fault, breaker = self.settings, UNKNOWN, self.settings.breaker
        try:
            fault = settings.classify(error)
            if breaker is not None:
                self._update_breaker(fault.retryable)
            if settings.nested_is_final and (
                fault.spent or self._is_spent_inside(error, giveups_before)
            ):
                return "nested", math.nan, fault
            if isinstance(error, Final):
                reason: Reason = "breaker_open" if isinstance(error, BreakerOpen) else "stopped"
                return reason, math.nan, fault
            backoff = float(settings.backoff(self.attempt, random_draw()))
            decision, wait = decide(
                fault,
                self.attempt,
                settings.max_attempts,
                settings.idempotent,
                backoff,
                self.end - now,
                MAX_RETRY_AFTER_SECONDS if fault.after is None else self._max_retry_after(),
            )
            # With nested="allow", an error that is not retried here keeps the inner outcome.
            if decision in ("not_retryable", "not_idempotent") and self._is_spent_inside(
                error, giveups_before
            ):
                return "nested", math.nan, fault
        except Exception as problem:  # a bug in a rule or backoff must not hide the error itself
            cause = f"{type(problem).__name__}: {safe_str(problem)}"
            add_note(error, f"redrive: not retried, because the rule or the backoff raised {cause}")
            return "not_retryable", math.nan, fault
        open_for = (
            0.0 if decision is not None or breaker is None else breaker.closed_for(now + wait)
        )
        if open_for:
            return "breaker_open", wait + open_for, fault
        return decision, wait, fault

    def _is_spent_inside(self, error: Exception, giveups_before: int) -> bool:
        if GIVE_UPS.count == giveups_before:
            return False
        return spent_inside(error, giveups_before, self.settings) is not None

    def _max_retry_after(self) -> float:
        """Return the longest Retry-After to wait for. It is shorter if a job can take over."""
        has_job = self.settings.spill is not None or job_around(self.scope) is not None
        return MAX_RETRY_AFTER_IN_JOB_SECONDS if has_job else MAX_RETRY_AFTER_SECONDS

    def may_continue(self, error: Exception) -> bool:
        """Return whether the next attempt may start, after the wait.

        If not, the last error is marked with the outcome and must be raised.
        """
        self.started = now = self.clock.monotonic()
        breaker = self.settings.breaker
        if now >= self.end:  # the wait took longer than it should have
            self._cancel_retry(error, "timeout", 0.0, now)
            return False
        if breaker is not None and (open_for := breaker.allow(now)):  # other calls failed meanwhile
            self._cancel_retry(error, "breaker_open", open_for, now)
            return False
        return True

    def _cancel_retry(self, error: Exception, reason: Reason, wait: float, now: float) -> None:
        self.attempt -= 1
        self.started = math.nan
        self.settings.budget.refund(self.paid)
        try:
            fault = self.settings.classify(error)
        except Exception:  # a rule of the user's that did not raise before
            fault = UNKNOWN
        self._give_up(error, reason, wait, fault, now)

    def record_cancellation(self, error: Exception) -> None:
        """Give up: the caller was cancelled, and clean-up in the attempt raised this error."""
        if self.settings.breaker is not None:
            self.settings.breaker.abandon()
        self._give_up(error, "stopped", math.nan, UNKNOWN, self.clock.monotonic())

    def _give_up(
        self, error: Exception, reason: Reason, wait: float, fault: Fault, now: float
    ) -> None:
        settings = self.settings
        if reason == "attempts" and settings.max_attempts == 1 and settings.spill is None:
            return  # retries are off: nothing was used up, and an outer layer may retry
        retry_at = None
        if not math.isnan(wait):
            retry_at = time_after(self.clock, min(wait, 1e9))
        outer, key = self.scope, None
        if outer is not None and outer[LAYER] is settings:
            key, outer = outer[KEY], outer[OUTER]  # the scope that `start_run` made for the key
        elapsed, operation = now - self.began, settings.operation
        ended = Outcome(
            self.attempt, elapsed, reason, retry_at, operation, GIVE_UPS.next(), origin(outer)
        )
        spills = settings.spill is not None
        if reason == "nested":
            add_note(error, f"redrive: {operation} did not retry: {REASON_TEXT['nested']}")
            spills = spills and not was_spilled_inside(error) and self._may_spill(fault)
            if outcome(error) is None:  # the mark is on a cause, or another library retried
                mark(error, ended, None)
        else:
            is_quiet = self.attempt == 1 and reason in ("not_retryable", "stopped")
            mark(error, ended, None if is_quiet else self._note(ended))
        if spills:
            attach_spill(error, settings, ended, self.history, key)
        if is_wanted(level_of("giveup", reason)):
            self._record("giveup", error, fault, now, reason=reason, retry_at=retry_at)

    def _may_spill(self, fault: Fault) -> bool:
        """Return whether a job may retry a fault that this layer may not retry itself."""
        reason, _ = decide(fault, 1, 2, self.settings.idempotent, 0.0, math.inf)
        return reason is None or bool(fault.spent)

    def record_success(self) -> None:
        """End the run after a successful attempt: refund its retry, and record it."""
        settings = self.settings
        if settings.breaker is not None:
            self._update_breaker(False)
        if self.attempt > 1:
            settings.budget.refund(self.paid)
            if self.recorded:
                self._record("recovered", None, None, self.clock.monotonic())
            return
        if settings.budget.below_capacity:
            settings.budget.refund()
        if is_success_wanted():
            self._record("success", None, None, self.clock.monotonic())

    def may_hedge(self, end: float) -> bool:
        """Return whether a second call may start beside this attempt, and pay for it."""
        settings, now = self.settings, self.clock.monotonic()
        if self.attempt >= settings.max_attempts or now >= end:
            return False
        if settings.breaker is not None and settings.breaker.closed_for(now):
            return False
        # A success does not refund this: a service that is slow must not get twice the load.
        return settings.budget.spend("transient") is not None

    def is_retryable(self, error: Exception) -> bool:
        """Return whether an error is worth a retry. False if a rule raises."""
        try:
            return self.settings.classify(error).retryable
        except Exception:  # a bug in a rule must not hide the error itself
            return False

    def _update_breaker(self, failed: bool) -> None:
        breaker = self.settings.breaker
        if breaker is not None and breaker.record(failed, self.clock.monotonic()):
            kind = "breaker_opened" if failed else "breaker_closed"
            emit(kind, {"operation": self.settings.operation})

    def _record(
        self, kind: str, error: Exception | None, fault: Fault | None, now: float, **more: Any
    ) -> None:
        settings, key = self.settings, key_around(self.scope)
        is_timed = not math.isnan(self.started)
        fields: dict[str, Any] = {
            **settings.fields,
            "operation": settings.operation,
            "attempt": self.attempt,
            "max_attempts": settings.max_attempts,
            "latency_ms": round((now - self.started) * 1000, 3) if is_timed else None,
            "idempotency_key": None if key is None else str(key),
            **more,
        }
        if error is not None and fault is not None:
            fields["error"] = safe_str(error)
            fields["error_class"] = type(error).__name__
            fields["retryable"] = fault.retryable
            fields["http_status"] = fault.status
        emit(kind, fields)

    def _note(self, ended: Outcome) -> str:
        """Return the line below the traceback of an error on which the call gave up."""
        waits: list[str] = []
        errors: list[str] = []
        history = self.history
        while history is not None:
            history, wait, kind = history
            waits.insert(0, f"{wait:.3g}")
            errors.insert(0, kind.__name__)
        count = "1 attempt" if ended.attempts == 1 else f"{ended.attempts} attempts"
        elapsed = "0.00" if 0 < ended.elapsed < 0.005 else f"{ended.elapsed:.3g}"
        more = ", …" if self.attempt > MAX_LISTED_ATTEMPTS + 1 else ""
        waited = f" (waits {', '.join(waits)}{more} s)" if waits else ""
        why = REASON_TEXT[ended.reason]
        if ended.reason == "retry_after" and ended.retry_at is not None:
            why = f"{why}, retry at {ended.retry_at:%Y-%m-%dT%H:%M:%SZ}"
        earlier = "" if len(set(errors)) < 2 else f"; before it: {', '.join(errors)}{more}"
        return (
            f"redrive: gave up on {ended.layer} after {count} in {elapsed} s{waited}: "
            f"{why}{earlier}"
        )


def random_draw() -> float:
    """Return a random number from 0 to 1, or the draw of the simulation around."""
    simulation = SIMULATION.get() if SLOW_PATH_USERS else None
    if simulation is None or simulation.draw is None:
        return system_draw()
    return simulation.draw()


def _load_random() -> float:
    global system_draw  # noqa: PLW0603  # replaces itself at the first draw
    from random import random  # noqa: PLC0415  # 2 ms that a program without failures does not pay

    system_draw = random
    return system_draw()


system_draw: Callable[[], float] = _load_random
before_fork(_load_random)

KeyMaker: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], "KeyLike | None"]


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
    if isinstance(key, str):
        from ..core.key import Template  # noqa: PLC0415  # 1 ms that calls without a key do not pay

        return Template.over(key, fn).key
    if callable(key):
        return lambda args, kwargs: key(*args, **kwargs)
    return lambda _args, _kwargs: key


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
        retry_at = time_after(clock, open_for)
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
