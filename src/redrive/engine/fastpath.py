"""The fast path: the same results as the reference loops in `loop.py`, for a fraction of the cost.

A wrapper makes the first attempt itself if nothing special is going on, and leaves the rest to the
loop. Without a time limit it reads no clock and publishes no scope before something fails, and it
makes the second attempt, too. Most retried calls succeed then. The code here is repeated, flat and
full of local names on purpose: each call frame and each attribute that it saves is several per cent
of a call that succeeds (benchmarks/call.md). A change of `loop.py` or `run.py` belongs here, too:
tests/property/test_fastpath.py checks that both agree.
"""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Callable, Coroutine
from time import monotonic, sleep
from types import NoneType
from typing import Any

from ..core.clock import SYSTEM
from ..core.context import CLOCK_USERS, SLOT, SLOW_PATH_USERS, ContextSlot, own_slot
from ..journal import bus
from ..journal.sinks import logging as logging_sink
from ..journal.sinks.logging import INFO
from . import loop
from .nesting import GIVE_UPS
from .run import (
    CallLimits,
    RetryRun,
    call_limits,
    ensure_not_awaitable,
    random_draw,
    timeout_message,
)
from .settings import RetrySettings

# Names of the module, because each variable that a wrapper closes over costs time at every call.
get_slot, set_slot, reset_slot = SLOT.get, SLOT.set, SLOT.reset
inf, nan = math.inf, math.nan


def wrap_sync(settings: RetrySettings, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sync function with retries."""
    limits = call_limits(settings, fn)
    if limits.needs_full_loop:
        return loop.wrap_sync(settings, fn, limits)
    if limits.shortest < inf:
        return _wrap_timed_sync(settings, fn, limits)
    return _wrap_untimed_sync(settings, fn, limits)


def _wrap_untimed_sync(
    settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits
) -> Callable[..., Any]:
    budget, failures = settings.budget, _Failures(settings, loop.sync_loop(settings, fn, limits))
    usual_type: type = NoneType  # of the last result: it was not awaitable

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal usual_type
        slot = get_slot()
        if CLOCK_USERS or (slot is not None and slot.scope is not None):
            return failures.run_loop(None, args, kwargs)
        giveups_before = GIVE_UPS.count
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as error:
            began, kind = monotonic(), type(error)
            run: RetryRun | None = None
            wait = failures.quick_wait(kind, giveups_before)
            if wait is None:
                run = failures.untimed_run(began)
                wait = run.record_failure(error, giveups_before)
                if wait is None:
                    raise
                if wait > 0:
                    sleep(wait)
                if not run.may_continue(error):
                    raise
            elif wait > 0:
                sleep(wait)
        else:
            if type(result) is not usual_type:
                usual_type = ensure_not_awaitable(result, failures.settings)
            if budget.below_capacity:
                budget.refund()
            return result
        if run is not None:
            return failures.run_loop(run, args, kwargs)
        # The second attempt, still without a run.
        if slot is None or slot.thread != get_ident():
            slot = own_slot()
        started = monotonic() if wait > 0 else began
        giveups_before = GIVE_UPS.count
        slot.scope = (inf, 2, failures.settings, None, None)
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as error:
            slot.scope = None
            run = failures.run_after_quick_wait(began, wait, kind, started)
            wait = run.record_failure(error, giveups_before)
            if wait is None:
                raise
            if wait > 0:
                sleep(wait)
            if not run.may_continue(error):
                raise
        else:
            if type(result) is not usual_type:
                usual_type = ensure_not_awaitable(result, failures.settings)
            budget.refund(budget.cost)
            return result
        finally:
            slot.scope = None
        return failures.run_loop(run, args, kwargs)

    return wrapper


def _wrap_timed_sync(
    settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits
) -> Callable[..., Any]:
    run_loop, budget = loop.sync_loop(settings, fn, limits), settings.budget
    total, shortest = limits.total, limits.shortest
    usual_type: type = NoneType

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal usual_type
        slot = get_slot()
        if SLOW_PATH_USERS or slot is None or slot.scope is not None or slot.thread != get_ident():
            return run_loop(None, args, kwargs)
        started = monotonic()
        giveups_before = GIVE_UPS.count
        slot.scope = (started + shortest, 1, settings, None, None)
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as error:
            slot.scope = None
            run = RetryRun(settings, SYSTEM, started, started + total, None)
            wait = run.record_failure(error, giveups_before)
            if wait is None:
                raise
            if wait > 0:
                sleep(wait)
            if not run.may_continue(error):
                raise
        else:
            if type(result) is not usual_type:
                usual_type = ensure_not_awaitable(result, settings)
            if budget.below_capacity:
                budget.refund()
            return result
        finally:
            slot.scope = None
        return run_loop(run, args, kwargs)

    return wrapper


def wrap_async(
    settings: RetrySettings, fn: Callable[..., Any]
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return an async function with retries."""
    limits = call_limits(settings, fn)
    if limits.needs_full_loop:
        return loop.wrap_async(settings, fn, limits)
    if limits.shortest == inf:
        return _wrap_untimed_async(settings, fn, limits)
    if settings.attempt_timeout == limits.shortest:
        return _wrap_timed_async(settings, fn, limits)
    return loop.wrap_async(settings, fn, limits)  # only a limit for the whole call: rare


def _wrap_untimed_async(
    settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits
) -> Callable[..., Coroutine[Any, Any, Any]]:
    from . import timer  # noqa: PLC0415  # imports asyncio

    budget, failures = settings.budget, _Failures(settings, loop.async_loop(settings, fn, limits))

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        slot = get_slot()
        if CLOCK_USERS or (slot is not None and slot.scope is not None):
            return await failures.run_loop(None, args, kwargs)
        giveups_before = GIVE_UPS.count
        try:
            result = await (fn(*args, **kwargs) if kwargs else fn(*args))
        except Exception as error:
            began, kind = monotonic(), type(error)
            run: RetryRun | None = None
            cancellations_before = timer.pending_cancellations()
            if cancellations_before and timer.cancelled_inside(error):
                failures.untimed_run(began).record_cancellation(error)
                raise
            wait = failures.quick_wait(kind, giveups_before)
            if wait is None:
                run = failures.untimed_run(began)
                wait = run.record_failure(error, giveups_before)
                if wait is None:
                    raise
            await timer.asyncio.sleep(wait)  # without the frame of `SYSTEM.asleep`
            if run is not None and not run.may_continue(error):
                raise
        else:
            if budget.below_capacity:
                budget.refund()
            return result
        if run is not None:
            return await failures.run_loop(run, args, kwargs)
        # The second attempt, as in the sync wrapper.
        started = monotonic()
        giveups_before = GIVE_UPS.count
        token = set_slot(ContextSlot((inf, 2, failures.settings, None, None), get_ident()))
        try:
            try:
                result = await (fn(*args, **kwargs) if kwargs else fn(*args))
            finally:
                try:
                    reset_slot(token)
                except ValueError:
                    pass  # closed by another context, which has no slot of ours to restore
        except Exception as error:
            run = failures.run_after_quick_wait(began, wait, kind, started)
            if timer.cancelled_inside(error, cancellations_before):
                run.record_cancellation(error)
                raise
            wait = run.record_failure(error, giveups_before)
            if wait is None:
                raise
            await timer.asyncio.sleep(wait)
            if not run.may_continue(error):
                raise
        else:
            budget.refund(budget.cost)
            return result
        return await failures.run_loop(run, args, kwargs)

    return wrapper


def _wrap_timed_async(
    settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits
) -> Callable[..., Coroutine[Any, Any, Any]]:
    # Imported here: asyncio takes 45 ms that sync programs must not pay.
    from asyncio import CancelledError, current_task  # noqa: PLC0415

    from .timer import QueuedTimer, TimerQueue, TimerQueues, cancelled_inside, running_task  # noqa: PLC0415

    run_loop, budget = loop.async_loop(settings, fn, limits), settings.budget
    total, limit = limits.total, limits.attempt
    queues, latest_queue = TimerQueues(), TimerQueue(None)

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal latest_queue
        slot = get_slot()
        try:
            task = current_task()
        except RuntimeError:
            task = running_task()  # raises with a message that says what is missing
        if SLOW_PATH_USERS or task is None or (slot is not None and slot.scope is not None):
            return await run_loop(None, args, kwargs)
        event_loop = task.get_loop()
        queue = latest_queue  # another thread with its own event loop may change it at any time
        if queue.event_loop is not event_loop:
            queue = latest_queue = queues.of(event_loop)
        started = monotonic()
        end = started + limit
        giveups_before = GIVE_UPS.count
        token = set_slot(ContextSlot((end, 1, settings, None, None), get_ident()))
        timer = QueuedTimer(queue, task, end)
        del task  # it refers to the error, which refers to this frame
        try:
            try:
                result = await (fn(*args, **kwargs) if kwargs else fn(*args))
            except CancelledError:
                if timer.stop(True):
                    message = timeout_message(settings, 1, limit)
                    raise settings.timeout_error(message) from None
                raise
            finally:
                timer.stop(False)
                try:
                    reset_slot(token)
                except ValueError:
                    pass  # closed by another context, which has no slot of ours to restore
        except Exception as error:
            run = RetryRun(settings, SYSTEM, started, started + total, None)
            if cancelled_inside(error, timer.cancellations_before):
                run.record_cancellation(error)
                raise
            wait = run.record_failure(error, giveups_before)
            if wait is None:
                raise
            await SYSTEM.asleep(wait)
            if not run.may_continue(error):
                raise
        else:
            if budget.below_capacity:
                budget.refund()
            return result
        return await run_loop(run, args, kwargs)

    return wrapper


class _Failures:
    """What a wrapper without a time limit needs when a call fails.

    The wrapper closes over this one object. The options of the first failure are copies, because
    attributes of attributes would take a tenth of the retry.
    """

    __slots__ = ("budget", "jitter", "known_faults", "run_loop", "settings", "wait")

    def __init__(self, settings: RetrySettings, run_loop: Callable[..., Any]) -> None:
        self.settings, self.run_loop = settings, run_loop
        self.budget, self.jitter = settings.budget, settings.jitter
        is_simple = settings.precomputed > 1
        self.known_faults = settings.known_faults if is_simple else {}
        self.wait = settings.waits[1] if is_simple else nan

    def quick_wait(self, kind: type[Exception], giveups_before: int) -> float | None:
        """Decide a first failure about which there is nothing to consider, and pay for its retry.

        That is so for a known transient type of error, if no inner layer gave up, nothing listens,
        and the budget has enough tokens. `RetryRun.record_failure` would decide the same.

        Returns:
            Seconds to wait. None: a `RetryRun` must decide.
        """
        if (
            kind in self.known_faults
            and GIVE_UPS.count == giveups_before
            and not (bus.SUBSCRIPTIONS or logging_sink.is_enabled(INFO))
            and self.budget.spend("transient") is not None
        ):
            return self.wait + self.jitter * random_draw() if self.jitter else self.wait
        return None

    def untimed_run(self, began: float) -> RetryRun:
        """Return the run of a call whose first attempt was not measured."""
        run = RetryRun(self.settings, SYSTEM, began, inf, None)
        run.started = nan
        return run

    def run_after_quick_wait(
        self, began: float, wait: float, kind: type[Exception], started: float
    ) -> RetryRun:
        """Return the run of the second attempt, as `record_failure` and `may_continue` leave it."""
        run = RetryRun(self.settings, SYSTEM, began, inf, None)
        run.attempt = 2
        run.paid = self.budget.cost
        run.history = (None, wait, kind)
        run.started = started
        return run
