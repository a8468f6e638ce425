"""Hedge: a second call that starts while the first is slow. The first success is the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.context import END, SLOT, ContextSlot
from ..journal.bus import emit, is_wanted
from ..journal.sinks.logging import INFO
from .run import RetryRun

CLEAN_UP_SECONDS = 0.1
"""Time to wait for a cancelled call, so that its clean-up has ended when the result is returned."""


async def race(
    run: RetryRun, start: Callable[[], Coroutine[Any, Any, Any]], slot: ContextSlot
) -> Any:
    """Run one attempt, and start a second one after `hedge` seconds if that is allowed.

    The second is an attempt of its own: it counts, and the budget pays for it. An error that is
    not worth a retry ends both.

    Args:
        run: The run of the call.
        start: Function that starts the call.
        slot: The slot of the attempt around this code.
    """
    settings = run.settings
    calls: set[asyncio.Future[Any]] = {asyncio.ensure_future(start())}
    try:
        await asyncio.wait(calls, timeout=settings.hedge)
        end = run.end if slot.scope is None else slot.scope[END]
        if not any(call.done() for call in calls) and run.may_hedge(end):
            calls.add(_start_second(run, start, slot))
        return await _first_success(calls, run)
    finally:
        await _cancel(calls)
        calls.clear()  # they refer to the error, which refers to this frame


def _start_second(
    run: RetryRun, start: Callable[[], Coroutine[Any, Any, Any]], slot: ContextSlot
) -> asyncio.Future[Any]:
    run.attempt += 1
    run.recorded = is_wanted(INFO)
    if run.recorded:
        settings = run.settings
        fields = {
            "operation": settings.operation,
            "attempt": run.attempt,
            "max_attempts": settings.max_attempts,
            "wait": settings.hedge,
        }
        emit("hedge", {**settings.fields, **fields})
    scope = slot.scope
    if scope is not None:
        slot = ContextSlot((scope[END], run.attempt, *scope[2:]), slot.thread)
    token = SLOT.set(slot)
    try:
        return asyncio.ensure_future(start())
    finally:
        SLOT.reset(token)


async def _first_success(calls: set[asyncio.Future[Any]], run: RetryRun) -> Any:
    running, done = set(calls), set[asyncio.Future[Any]]()
    call: asyncio.Future[Any] | None = None
    last_error: Exception | None = None
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                try:
                    return call.result()
                except Exception as error:
                    last_error = error
                    if not run.is_retryable(error):
                        raise
        assert last_error is not None
        raise last_error
    finally:
        running.clear()
        done.clear()
        del calls, call, last_error  # all of them refer to the error, which refers to this frame


async def _cancel(calls: set[asyncio.Future[Any]]) -> None:
    running = {call for call in calls if not call.done()}
    for call in running:
        call.cancel()
        call.add_done_callback(_retrieve_error)
    if running:
        await asyncio.wait(running, timeout=CLEAN_UP_SECONDS)


def _retrieve_error(call: asyncio.Future[Any]) -> None:
    """Retrieve the error of a cancelled call, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()
