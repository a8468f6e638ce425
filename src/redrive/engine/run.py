"""Run: what one call has tried so far, and what its next failure leads to."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any

from ..core.clock import SYSTEM, Clock
from ..core.context import STAGE, WATCH, Scope, job_around, key_around
from ..core.decision import HANDOVER, PATIENCE, Reason, decide
from ..core.fault import UNKNOWN, Fault
from ..core.lock import GIL, before_fork
from ..errors import BreakerOpen, Final
from ..journal.bus import SUBSCRIPTIONS, emit, is_success_wanted, is_wanted
from ..journal.sinks import logging as logging_sink
from ..journal.sinks.logging import INFO, level_of
from .nesting import GIVEUPS, Outcome, Trail, add_note, leave, left_inside, mark, outcome, place, spent_inside
from .settings import Settings

inf = math.inf
SHOWN = 10
"""How many waits and errors of a long run its note tells."""
WORDS: dict[Reason, str] = {
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


class Run:
    """One call's attempts so far. Belongs to that call alone; made when its first attempt has failed, or needs a clock."""

    __slots__ = ("around", "attempt", "began", "clock", "end", "heard", "paid", "settings", "started", "trail", "wait")

    def __init__(self, settings: Settings, clock: Clock, began: float, end: float, around: Scope | None) -> None:
        self.settings = settings
        self.clock = clock
        self.began = began
        self.end = end
        self.around = around
        self.attempt = 1
        self.paid = 0.0
        self.heard = False
        self.trail: Trail | None = None
        self.wait: float | None = None
        self.started = began
        """When the attempt in hand began."""

    def failed(self, error: Exception, seen: int, started: float | None = None) -> float | None:
        """Seconds to wait before the next attempt, or None: the error is to be raised, and says why.

        seen: how many give-ups there had been when the attempt began. started: when it began, where that is known.
        """
        settings, now = self.settings, self.clock.monotonic()
        reason, wait, fault = self._decided(error, seen, now)
        if reason is None:
            paid = settings.budget.take(fault.kind)
            if paid is None and not settings.budget.spare(now):
                reason = "budget"
            self.paid = paid or 0.0
        if reason is not None:
            self._give_up(error, reason, wait, fault, now, started)
            return None
        self.heard = is_wanted(INFO)
        if self.heard:
            self._record("retry", error, fault, now, started, wait=wait)
        if self.attempt <= SHOWN:
            self.trail = (self.trail, wait, type(error))
        self.attempt += 1
        return wait

    def _decided(self, error: Exception, seen: int, now: float) -> tuple[Reason | None, float, Fault]:
        settings, fault, breaker = self.settings, UNKNOWN, self.settings.breaker
        try:
            fault = settings.judge(error)
            if breaker is not None:
                self.tell_breaker(fault.retryable)
            if settings.final and (fault.spent or (GIVEUPS.count != seen and spent_inside(error, seen, settings))):
                return "nested", math.nan, fault
            if isinstance(error, Final):
                return ("breaker_open" if isinstance(error, BreakerOpen) else "stopped"), math.nan, fault
            wait = float(settings.backoff(self.attempt, drawn()))
            patience = PATIENCE if fault.after is None else self._patience()
            reason, wait = decide(fault, self.attempt, settings.max_attempts, settings.idempotent, wait, self.end - now, patience)
            if reason in ("not_retryable", "not_idempotent") and GIVEUPS.count != seen and spent_inside(error, seen, settings):
                return "nested", math.nan, fault  # nested="allow", but it does not want it: what was spent inside stays spent
        except Exception as problem:  # a rule or a backoff of the user's raised: its bug must not hide this error
            add_note(
                error, f"redrive: not retried, because the rule or the backoff raised {type(problem).__name__}: {_said(problem)}"
            )
            return "not_retryable", math.nan, fault
        if reason is None and breaker is not None and (closed_for := breaker.closed_for(now + wait)):
            return "breaker_open", wait + closed_for, fault
        return reason, wait, fault

    def _patience(self) -> float:
        """The longest Retry-After to wait for: short where a job can take over what this call would hold up."""
        return HANDOVER if self.settings.spill is not None or job_around(self.around) is not None else PATIENCE

    def may_hedge(self, end: float) -> bool:
        """Whether a second call may start beside this attempt: one is left, there is time, and the budget pays for it."""
        settings, now = self.settings, self.clock.monotonic()
        if self.attempt >= settings.max_attempts or now >= end:
            return False
        if settings.breaker is not None and settings.breaker.closed_for(now):
            return False
        # Not given back by a success, unlike the price of a retry: a service that is slow for all must not get twice the load.
        return settings.budget.take("transient") is not None

    def is_retryable(self, error: Exception) -> bool:
        """Whether an error is worth another attempt; not where a rule of the user's raises."""
        try:
            return self.settings.judge(error).retryable
        except Exception:  # its bug must not hide this error
            return False

    def goes_on(self, error: Exception) -> bool:
        """After the wait: whether the next attempt may start now. If not, the last error says why, and is raised after all."""
        self.started = now = self.clock.monotonic()
        breaker = self.settings.breaker
        if now >= self.end:  # the wait took longer than it should have
            self._end_after_all(error, "timeout", 0.0, now)
            return False
        if breaker is not None and (closed_for := breaker.allow(now)):  # others met failures meanwhile
            self._end_after_all(error, "breaker_open", closed_for, now)
            return False
        return True

    def _end_after_all(self, error: Exception, reason: Reason, wait: float, now: float) -> None:
        self.attempt -= 1
        self.settings.budget.earn(self.paid)  # for a retry that was not made
        try:
            fault = self.settings.judge(error)
        except Exception:  # a rule of the user's that changed its mind
            fault = UNKNOWN
        self._give_up(error, reason, wait, fault, now, None)

    def stopped(self, error: Exception, started: float | None = None) -> None:
        """The caller was cancelled in this attempt, whose clean-up made an error of that: whatever it is, it is the last."""
        if self.settings.breaker is not None:
            self.settings.breaker.abandon()
        self._give_up(error, "stopped", math.nan, UNKNOWN, self.clock.monotonic(), started)

    def _give_up(self, error: Exception, reason: Reason, wait: float, fault: Fault, now: float, started: float | None) -> None:
        settings = self.settings
        if reason == "attempts" and settings.max_attempts == 1 and settings.spill is None:
            return  # switched off: nothing was spent, and a layer around it may have its say
        retry_at = None if math.isnan(wait) else self.clock.now() + timedelta(seconds=min(wait, 1e9))
        around, key = self.around, None
        if around is not None and around[2] is settings:
            key, around = around[3], around[4]  # its own key, not a layer around it
        ended = Outcome(self.attempt, now - self.began, reason, retry_at, settings.operation, GIVEUPS.next(), place(around))
        spills = settings.spill is not None
        if reason == "nested":
            add_note(error, f"redrive: {settings.operation} did not retry: {WORDS['nested']}")
            spills = spills and not left_inside(error) and self._may_come_back(fault)
            if outcome(error) is None:  # the mark is on its cause, or a foreign layer's: the error itself says nothing yet
                mark(error, ended, None)
        else:
            quiet = self.attempt == 1 and reason in ("not_retryable", "stopped")
            mark(error, ended, None if quiet else self._story(ended))
        if spills:
            leave(error, settings, ended, self.trail, key)
        if is_wanted(level_of("giveup", reason)):
            self._record("giveup", error, fault, now, started, reason=reason, retry_at=retry_at)

    def _may_come_back(self, fault: Fault) -> bool:
        """Whether somebody with more time may try what this layer met, although it may not itself."""
        reason, _ = decide(fault, 1, 2, self.settings.idempotent, 0.0, inf)
        return reason is None or bool(fault.spent)

    def succeeded(self, started: float | None = None) -> None:
        """The last attempt worked: give back what its retry had cost, and say so."""
        settings = self.settings
        if settings.breaker is not None:
            self.tell_breaker(False)
        if self.attempt > 1:
            settings.budget.earn(self.paid)
            if self.heard:
                self.recovered(started)
            return
        if settings.budget.short:
            settings.budget.earn()
        if is_success_wanted():
            self._record("success", None, None, self.clock.monotonic(), started)

    def recovered(self, started: float | None = None) -> None:
        """Say that it worked after retries."""
        self._record("recovered", None, None, self.clock.monotonic(), started)

    def tell_breaker(self, failed: bool) -> None:
        """Let the breaker know how an attempt ended."""
        breaker = self.settings.breaker
        if breaker is not None and breaker.record(failed, self.clock.monotonic()):
            emit("breaker_opened" if failed else "breaker_closed", {"operation": self.settings.operation})

    def _record(
        self, kind: str, error: Exception | None, fault: Fault | None, now: float, started: float | None, **more: Any
    ) -> None:
        settings = self.settings
        fields: dict[str, Any] = {
            **settings.fields,
            "operation": settings.operation,
            "attempt": self.attempt,
            "max_attempts": settings.max_attempts,
            "latency_ms": None if started is None else round((now - started) * 1000, 3),
            "idempotency_key": _text(key_around(self.around)),
            **more,
        }
        if error is not None and fault is not None:
            fields["error"] = _said(error)
            fields["error_class"] = type(error).__name__
            fields["retryable"] = fault.retryable
            fields["http_status"] = fault.status
        emit(kind, fields)

    def _story(self, ended: Outcome) -> str:
        times = "1 attempt" if ended.attempts == 1 else f"{ended.attempts} attempts"
        waits: list[str] = []
        names: list[str] = []
        trail = self.trail
        while trail is not None:
            trail, wait, kind = trail
            waits.insert(0, f"{wait:.3g}")
            names.insert(0, kind.__name__)
        more = ", …" if self.attempt > SHOWN + 1 else ""
        waited = f" (waits {', '.join(waits)}{more} s)" if waits else ""
        others = "" if len(set(names)) < 2 else f"; before it: {', '.join(names)}{more}"
        why = WORDS[ended.reason]
        if ended.reason == "retry_after" and ended.retry_at is not None:
            why = f"{why}, retry at {ended.retry_at:%Y-%m-%dT%H:%M:%SZ}"
        elapsed = "0.00" if 0 < ended.elapsed < 0.005 else f"{ended.elapsed:.3g}"
        return f"redrive: gave up on {ended.layer} after {times} in {elapsed} s{waited}: {why}{others}"


def first_failure(settings: Settings, error: Exception, seen: int) -> Run:
    """A run whose first attempt failed, without a time limit; its `wait` says what `failed` would.

    At a glance, and in one frame, where nothing is in question: a kind of error that needs no look, no inner layer, a budget
    that has enough. Most of what one retry costs beside the two calls is made here.
    """
    run = _new(Run)
    run.settings = settings
    run.clock = SYSTEM
    run.began = now = monotonic()
    run.end = inf
    run.around = None
    fault = settings.known.get(type(error))
    if fault is not None and settings.tabled > 1 and GIVEUPS.count == seen:
        budget = settings.budget
        if GIL and budget._tokens >= budget.cost:  # what `take` does in one step, without the call: these faults are transient
            budget._tokens -= budget.cost
            budget.short = budget._tokens < budget.capacity
            paid: float | None = budget.cost
        else:
            paid = budget.take(fault.kind)
        if paid is not None:
            run.paid = paid
            run.wait = wait = settings.waits[1] + settings.jitter * drawn() if settings.jitter else settings.waits[1]
            run.heard = heard = True if SUBSCRIPTIONS else logging_sink.is_enabled(INFO)  # a call less than bool
            if heard:
                run.attempt = 1
                run._record("retry", error, fault, now, None, wait=wait)
            run.trail = (None, wait, type(error))
            run.attempt = 2
            return run
    run.attempt = 1
    run.trail = None
    run.wait = run.failed(error, seen)
    return run


_new = Run.__new__


def drawn() -> float:
    """A throw of the dice, or a test's own."""
    stage = STAGE.get() if WATCH else None
    return dice() if stage is None or stage.draw is None else stage.draw()


def _first_throw() -> float:
    global dice  # noqa: PLW0603  # found once
    from random import random  # noqa: PLC0415  # 2 ms that a program without a single failure need not pay

    dice = random
    return dice()


dice: Callable[[], float] = _first_throw
before_fork(_first_throw)


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # an error that cannot even say itself is still an error
        return "(its message cannot be read)"


def _text(key: object) -> str | None:
    return None if key is None else str(key)
