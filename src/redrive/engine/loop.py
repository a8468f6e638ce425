"""The reference loops: how a call is retried, once for sync and once for async functions.

One turn of a loop is one attempt: publish it to the code inside, call the function, let the
`RetryRun` decide about a failure, wait. `fastpath.py` makes the first attempt of an ordinary call
with less machinery, and continues here. tests/property/test_fastpath.py checks that both agree.

An error is raised again by the `except` block that caught it. The traceback then has one frame for
each loop, and no reference cycle is left.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from ..core.clock import SYSTEM, Clock
from ..core.context import (
    SIMULATION,
    SLOT,
    SLOW_PATH_USERS,
    ContextSlot,
    own_slot,
    scope_around,
)
from .nesting import GIVE_UPS
from .run import (
    CallLimits,
    RetryRun,
    call_limits,
    ensure_not_awaitable,
    is_awaitable,
    reject_result,
    start_run,
    timeout_message,
)
from .settings import RetrySettings

SyncLoop: TypeAlias = Callable[[RetryRun | None, tuple[Any, ...], dict[str, Any]], Any]
"""Takes (run, args, kwargs). `run` continues a call that has made attempts; None starts one."""
AsyncLoop: TypeAlias = Callable[
    [RetryRun | None, tuple[Any, ...], dict[str, Any]], Coroutine[Any, Any, Any]
]
"""The same for async functions."""


def wrap_sync(
    settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits | None = None
) -> Callable[..., Any]:
    """Return a sync function with retries."""
    run_loop = sync_loop(settings, fn, limits or call_limits(settings, fn))

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return run_loop(None, args, kwargs)

    return wrapper


def sync_loop(settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits) -> SyncLoop:
    """Return the loop around a sync function.

    Raises:
        TypeError: `hedge=` is set.
    """
    if settings.hedge is not None:
        raise TypeError(
            f"{settings.operation} is sync; "
            "hedge= needs async code, in which the slower call can be cancelled"
        )
    reject, breaker = settings.reject, settings.breaker

    def run_loop(run: RetryRun | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, clock = _simulation_target(settings, fn) if SLOW_PATH_USERS else (fn, SYSTEM)
        slot = own_slot()
        scope = outer = slot.scope
        key = None if settings.key is None else limits.key_of(args, kwargs)
        if run is None:
            run = start_run(settings, clock, limits.total, key, outer)
        while True:
            end = min(run.started + limits.attempt, run.end)
            giveups_before = GIVE_UPS.count
            slot.scope = scope = (end, run.attempt, settings, key, outer)
            try:
                result = call(*args, **kwargs)
                if reject is not None and not is_awaitable(result):
                    reject_result(reject, result, settings)
            except Exception as error:
                if slot.scope is scope:
                    slot.scope = scope = outer
                wait = run.record_failure(error, giveups_before)
                if wait is None:
                    raise
                if wait > 0:
                    clock.sleep(wait)
                if not run.may_continue(error):
                    raise
            except BaseException:
                if breaker is not None:
                    breaker.abandon()
                raise
            else:
                ensure_not_awaitable(result, settings)
                run.record_success()
                return result
            finally:
                if slot.scope is scope:
                    slot.scope = outer
                else:  # A greenlet changed the slot meanwhile, and `outer` may have ended.
                    slot.scope = outer = slot.base

    return run_loop


def wrap_async(
    settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits | None = None
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return an async function with retries."""
    run_loop = async_loop(settings, fn, limits or call_limits(settings, fn))

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await run_loop(None, args, kwargs)

    return wrapper


def async_loop(settings: RetrySettings, fn: Callable[..., Any], limits: CallLimits) -> AsyncLoop:
    """Return the loop around an async function."""
    from asyncio import CancelledError  # noqa: PLC0415  # 45 ms that sync programs must not pay

    from .timer import AttemptTimer, cancelled_inside, pending_cancellations  # noqa: PLC0415  # likewise

    reject, breaker = settings.reject, settings.breaker
    has_timeout = settings.attempt_timeout is not None
    if settings.hedge is not None:
        from .hedge import race  # noqa: PLC0415  # rarely used

    async def run_loop(run: RetryRun | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, clock = _simulation_target(settings, fn) if SLOW_PATH_USERS else (fn, SYSTEM)
        outer = scope_around()
        key = None if settings.key is None else limits.key_of(args, kwargs)
        if run is None:
            run = start_run(settings, clock, limits.total, key, outer)
        while True:
            started, cancellations_before = run.started, pending_cancellations()
            end = min(started + limits.attempt, run.end)
            giveups_before = GIVE_UPS.count
            timer = AttemptTimer(end - started) if has_timeout else None
            slot = ContextSlot((end, run.attempt, settings, key, outer), get_ident())
            token = SLOT.set(slot)
            try:
                try:
                    if settings.hedge is None:
                        result = await call(*args, **kwargs)
                    else:
                        result = await race(run, partial(call, *args, **kwargs), slot)
                except CancelledError:
                    if timer is not None and timer.stop(True):
                        message = timeout_message(settings, run.attempt, end - started)
                        raise settings.timeout_error(message) from None
                    raise
                finally:
                    if timer is not None:
                        timer.stop(False)
                    try:
                        SLOT.reset(token)
                    except ValueError:
                        pass  # closed by another context, which has no slot of ours to restore
                if reject is not None:
                    reject_result(reject, result, settings)
            except Exception as error:
                if cancelled_inside(error, cancellations_before):
                    run.record_cancellation(error)
                    raise
                wait = run.record_failure(error, giveups_before)
                if wait is None:
                    raise
                await clock.asleep(wait)
                if not run.may_continue(error):
                    raise
            except BaseException:
                if breaker is not None:
                    breaker.abandon()
                raise
            else:
                run.record_success()
                return result

    return run_loop


def _simulation_target(
    settings: RetrySettings, fn: Callable[..., Any]
) -> tuple[Callable[..., Any], Clock]:
    """Return the function and the clock that the simulation around this code wants."""
    simulation = SIMULATION.get()
    if simulation is None:
        return fn, SYSTEM
    if simulation.faults is None:
        return fn, simulation.clock
    return simulation.faults(settings, fn), simulation.clock
