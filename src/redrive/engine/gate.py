"""The gates of an attempt: without time, or behind an open breaker, it does not start; with a bad result, it has failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..core.clock import Clock
from ..core.context import Scope, end_of
from ..core.decision import Reason
from ..core.key import KeyLike
from ..errors import AttemptTimeout, BreakerOpen, RedriveError, Rejected
from ..journal.bus import emit, is_wanted
from ..journal.sinks.logging import WARNING
from .nesting import GIVEUPS, Outcome, leave, mark
from .run import Run
from .settings import Settings


def begin(settings: Settings, clock: Clock, timeout: float, key: KeyLike | None, outer: Scope | None) -> Run:
    """A run whose first attempt may start now; raises where none may."""
    now = clock.monotonic()
    end = min(now + timeout, end_of(outer))
    admit(settings, clock, now, end, key)
    return Run(settings, clock, now, end, outer if key is None else (end, 1, settings, key, outer))


def admit(settings: Settings, clock: Clock, started: float, end: float, key: KeyLike | None = None) -> None:
    """Refuse an attempt that has no time left, or whose breaker is open."""
    refused: RedriveError
    retry_at = None
    if end <= started:
        reason: Reason = "timeout"
        made = settings.overdue(f"{settings.operation}: the deadline had passed before the attempt could start")
        refused = made if isinstance(made, AttemptTimeout) else AttemptTimeout(*made.args)
    elif settings.breaker is not None and (closed_for := settings.breaker.allow(started)):
        reason = "breaker_open"
        retry_at = clock.now() + timedelta(seconds=closed_for)
        refused = BreakerOpen(f"{settings.operation}: the breaker is open for {closed_for:.3g} s more", retry_at=retry_at)
    else:
        return
    ended = Outcome(0, 0.0, reason, retry_at, settings.operation, GIVEUPS.next())
    mark(refused, ended, None)
    if settings.spill is not None:
        leave(refused, settings, ended, None, key)
    if is_wanted(WARNING):
        emit(
            "giveup",
            {**settings.fields, "operation": settings.operation, "attempt": 0, "reason": reason, "retry_at": retry_at},
        )
    raise refused


def late(settings: Settings, number: int, limit: float) -> str:
    """What an overdue attempt says."""
    return f"{settings.operation}: attempt {number} took longer than {limit:.3g} s"


def refuse(reject: Callable[[Any], bool], result: object, settings: Settings) -> None:
    """Raise where a result counts as a failure."""
    if reject(result):
        raise Rejected(f"{settings.operation}: the result was rejected", result=result)
