"""The loops: plain and async, side by side. Each calls the function, asks the run about a failure, waits, and calls again.

A wrapper makes its first attempt itself where nothing special is going on, and leaves all else to `again`, the whole loop:
without a time limit or a key, no clock is read and nothing is published before something fails. Errors are raised again from
the `except` that caught them: one frame each in the traceback, and no reference cycle left behind.
"""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic, sleep
from types import NoneType
from typing import Any

from ..core.clock import SYSTEM, Clock
from ..core.context import CELL, STAGE, TIMED, WATCH, Cell, own_cell, scope_around
from ..core.lock import GIL
from .gate import begin, late, refuse
from .nesting import GIVEUPS
from .run import Run, first_failure
from .settings import Settings
from .work import Limits, limits, settled

# Module names, since each variable that a wrapper closes over costs something at every call.
cell_around, set_cell, reset_cell, inf = CELL.get, CELL.set, CELL.reset, math.inf


def plain(settings: Settings, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper of a plain function."""
    if settings.hedge is not None:
        raise TypeError(f"{settings.operation} is sync; hedge= needs async code, in which the slower call can be cancelled")
    bounds = limits(settings, fn)
    if bounds.special:
        return _whole(settings, fn, bounds)
    return _plain_timed(settings, fn, bounds) if bounds.shortest < math.inf else _plain_untimed(settings, fn, bounds)


def _plain_untimed(settings: Settings, fn: Callable[..., Any], bounds: Limits) -> Callable[..., Any]:
    again, budget = _plain_again(settings, fn, bounds), settings.budget
    usual: type = NoneType

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal usual
        cell = cell_around()
        if TIMED or (cell is not None and cell.scope is not None):
            return again(None, args, kwargs)
        seen = GIVEUPS.count
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as error:
            run = first_failure(settings, error, seen)
            wait = run.wait
            if wait is None:
                raise
            started = run.began
            if wait > 0:
                sleep(wait)
                started = monotonic()
            elif run.heard:  # the failure was recorded; otherwise the next attempt starts less than 1 µs after it
                started = monotonic()
        else:
            if type(result) is not usual:
                usual = settled(result, settings)
            if budget.short:
                budget.earn()
            return result
        if cell is None or cell.thread != get_ident():
            cell = own_cell()
        while True:
            seen = GIVEUPS.count
            cell.scope = (inf, run.attempt, settings, None, None)
            try:
                result = fn(*args, **kwargs) if kwargs else fn(*args)
            except Exception as error:
                cell.scope = None
                wait = run.failed(error, seen, started)
                if wait is None:
                    raise
                if wait > 0:
                    sleep(wait)
                started = monotonic()
            else:
                if type(result) is not usual:
                    usual = settled(result, settings)
                filled = budget._tokens + run.paid
                if not GIL or not run.paid:
                    budget.earn(run.paid)
                elif filled < budget.capacity:  # what `earn` does in one step, without the call
                    budget._tokens = filled
                else:
                    budget._tokens, budget.short = budget.capacity, False
                if run.heard:
                    run.recovered(started)
                return result
            finally:
                cell.scope = None

    return wrapper


def _plain_timed(settings: Settings, fn: Callable[..., Any], bounds: Limits) -> Callable[..., Any]:
    again, budget = _plain_again(settings, fn, bounds), settings.budget
    timeout, shortest = bounds.timeout, bounds.shortest
    usual: type = NoneType

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal usual
        cell = cell_around()
        if WATCH or cell is None or cell.scope is not None or cell.thread != get_ident():
            return again(None, args, kwargs)
        started = monotonic()
        seen = GIVEUPS.count
        cell.scope = (started + shortest, 1, settings, None, None)
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as error:
            cell.scope = None
            run = Run(settings, SYSTEM, started, started + timeout, None)
            wait = run.failed(error, seen, started)
            if wait is None:
                raise
            if wait > 0:
                sleep(wait)
            if not run.goes_on(error):
                raise
        else:
            if type(result) is not usual:
                usual = settled(result, settings)
            if budget.short:
                budget.earn()
            return result
        finally:
            cell.scope = None
        return again(run, args, kwargs)

    return wrapper


def _whole(settings: Settings, fn: Callable[..., Any], bounds: Limits) -> Callable[..., Any]:
    again = _plain_again(settings, fn, bounds)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return again(None, args, kwargs)

    return wrapper


def _plain_again(
    settings: Settings, fn: Callable[..., Any], bounds: Limits
) -> Callable[[Run | None, tuple[Any, ...], dict[str, Any]], Any]:
    reject, breaker = settings.reject, settings.breaker

    def again(run: Run | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, clock = _on_stage(settings, fn) if WATCH else (fn, SYSTEM)
        cell = own_cell()
        outer = cell.scope
        key = None if settings.key is None else bounds.key(args, kwargs)
        if run is None:
            run = begin(settings, clock, bounds.timeout, key, outer)
        while True:
            started = run.started
            end = min(started + bounds.attempt, run.end)
            seen = GIVEUPS.count
            cell.scope = scope = (end, run.attempt, settings, key, outer)
            try:
                result = call(*args, **kwargs)
                if reject is not None and not hasattr(type(result), "__await__"):  # else `settled` says what is wrong
                    refuse(reject, result, settings)
            except Exception as error:
                if cell.scope is scope:
                    cell.scope = outer
                wait = run.failed(error, seen, started)
                if wait is None:
                    raise
                if wait > 0:
                    clock.sleep(wait)
                if not run.goes_on(error):
                    raise
            except BaseException:
                if breaker is not None:
                    breaker.abandon()
                raise
            else:
                settled(result, settings)
                run.succeeded(started)
                return result
            finally:
                if cell.scope is scope:  # else a greenlet has changed it meanwhile, and `outer` may be one that is long over
                    cell.scope = outer

    return again


def coroutine(settings: Settings, fn: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The wrapper of an async function."""
    bounds = limits(settings, fn)
    if not bounds.special and settings.attempt_timeout == bounds.shortest:
        return _coroutine_timed(settings, fn, bounds)
    from .timer import cancelled_inside  # noqa: PLC0415  # brings asyncio

    again, budget = _coroutine_again(settings, fn, bounds), settings.budget
    whole = bounds.special or bounds.shortest < math.inf

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        cell = cell_around()
        if whole or TIMED or (cell is not None and cell.scope is not None):
            return await again(None, args, kwargs)
        seen = GIVEUPS.count
        try:
            result = await (fn(*args, **kwargs) if kwargs else fn(*args))
        except Exception as error:
            if cancelled_inside(error):
                Run(settings, SYSTEM, monotonic(), math.inf, None).stopped(error)
                raise
            run = first_failure(settings, error, seen)
            wait = run.wait
            if wait is None:
                raise
            await SYSTEM.asleep(wait)
            if not run.goes_on(error):
                raise
        else:
            if budget.short:
                budget.earn()
            return result
        return await again(run, args, kwargs)

    return wrapper


def _coroutine_timed(settings: Settings, fn: Callable[..., Any], bounds: Limits) -> Callable[..., Coroutine[Any, Any, Any]]:
    from asyncio import CancelledError, current_task  # noqa: PLC0415  # 45 ms that plain programs must not pay

    from .timer import Row, Rows, Timer, cancelled_inside, running_task  # noqa: PLC0415  # the same

    again, budget = _coroutine_again(settings, fn, bounds), settings.budget
    timeout, limit = bounds.timeout, bounds.attempt
    rows, latest = Rows(), Row(None)

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal latest
        cell = cell_around()
        try:
            task = current_task()
        except RuntimeError:
            task = running_task()  # raises, and says what is missing
        if WATCH or task is None or (cell is not None and cell.scope is not None):
            return await again(None, args, kwargs)
        loop = task.get_loop()
        row = latest  # another thread with a loop of its own may change it at any time
        if row.loop is not loop:
            row = latest = rows.of(loop)
        started = monotonic()
        end = started + limit
        seen = GIVEUPS.count
        token = set_cell(Cell((end, 1, settings, None, None), get_ident()))
        timer = Timer(row, task, end)
        del task  # it knows the error, which knows this frame
        try:
            try:
                result = await (fn(*args, **kwargs) if kwargs else fn(*args))
            except CancelledError:
                if timer.stop(True):
                    raise settings.overdue(late(settings, 1, limit)) from None
                raise
            finally:
                timer.stop(False)
                try:
                    reset_cell(token)
                except ValueError:
                    pass  # closed by another context than the one it ran in, which has nothing of ours to undo
        except Exception as error:
            run = Run(settings, SYSTEM, started, started + timeout, None)
            if cancelled_inside(error, timer.before):
                run.stopped(error, started)
                raise
            wait = run.failed(error, seen, started)
            if wait is None:
                raise
            await SYSTEM.asleep(wait)
            if not run.goes_on(error):
                raise
        else:
            if budget.short:
                budget.earn()
            return result
        return await again(run, args, kwargs)

    return wrapper


def _coroutine_again(
    settings: Settings, fn: Callable[..., Any], bounds: Limits
) -> Callable[[Run | None, tuple[Any, ...], dict[str, Any]], Coroutine[Any, Any, Any]]:
    from asyncio import CancelledError  # noqa: PLC0415  # 45 ms that plain programs must not pay

    from .timer import LoneTimer, cancellations, cancelled_inside  # noqa: PLC0415  # the same

    reject, breaker, timed = settings.reject, settings.breaker, settings.attempt_timeout is not None
    if settings.hedge is not None:
        from .hedge import race  # noqa: PLC0415  # only for those who have one

    async def again(run: Run | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, clock = _on_stage(settings, fn) if WATCH else (fn, SYSTEM)
        outer = None if cell_around() is None else scope_around()
        key = None if settings.key is None else bounds.key(args, kwargs)
        if run is None:
            run = begin(settings, clock, bounds.timeout, key, outer)
        while True:
            started, before = run.started, cancellations()
            end = min(started + bounds.attempt, run.end)
            seen = GIVEUPS.count
            timer = LoneTimer(end - started) if timed else None
            cell = Cell((end, run.attempt, settings, key, outer), get_ident())
            token = set_cell(cell)
            try:
                try:
                    if settings.hedge is None:
                        result = await call(*args, **kwargs)
                    else:
                        result = await race(run, partial(call, *args, **kwargs), cell)
                except CancelledError:
                    if timer is not None and timer.stop(True):
                        raise settings.overdue(late(settings, run.attempt, end - started)) from None
                    raise
                finally:
                    if timer is not None:
                        timer.stop(False)
                    try:
                        reset_cell(token)
                    except ValueError:
                        pass  # closed by another context than the one it ran in, which has nothing of ours to undo
                if reject is not None:
                    refuse(reject, result, settings)
            except Exception as error:
                if cancelled_inside(error, before):
                    run.stopped(error, started)
                    raise
                wait = run.failed(error, seen, started)
                if wait is None:
                    raise
                await clock.asleep(wait)
                if not run.goes_on(error):
                    raise
            except BaseException:
                if breaker is not None:
                    breaker.abandon()
                raise
            else:
                run.succeeded(started)
                return result

    return again


def _on_stage(settings: Settings, fn: Callable[..., Any]) -> tuple[Callable[..., Any], Clock]:
    """The function and the clock of the test around. Only asked while WATCH is not empty."""
    stage = STAGE.get()
    if stage is None:
        return fn, SYSTEM
    return (fn if stage.faults is None else stage.faults(settings, fn)), stage.clock
