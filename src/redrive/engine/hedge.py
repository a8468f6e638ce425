"""Hedge: a second call started while the first is slow. Whichever succeeds first is the result; the other is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.context import CELL, Cell
from ..journal.bus import emit, is_wanted
from ..journal.sinks.logging import INFO
from .run import Run

GRACE = 0.1
"""Seconds for which a cancelled call is waited for, so that its clean-up is over when the result is handed out."""


async def race(run: Run, start: Callable[[], Coroutine[Any, Any, Any]], cell: Cell) -> Any:
    """Run one attempt, and a second one after `hedge` seconds if there may be one. cell: the attempt around this code.

    The second is an attempt of its own: it counts, and is paid from the budget. An error that is not worth a retry ends both.
    """
    settings = run.settings
    calls: set[asyncio.Future[Any]] = {asyncio.ensure_future(start())}
    try:
        await asyncio.wait(calls, timeout=settings.hedge)
        if not any(call.done() for call in calls) and run.may_hedge(cell.scope[0] if cell.scope else run.end):
            calls.add(_second(run, start, cell))
        return await _first_success(calls, run)
    finally:
        await _stop(calls)
        calls.clear()  # they know the error, which knows this frame


def _second(run: Run, start: Callable[[], Coroutine[Any, Any, Any]], cell: Cell) -> asyncio.Future[Any]:
    run.attempt += 1
    run.heard = is_wanted(INFO)
    if run.heard:
        settings = run.settings
        fields = {"attempt": run.attempt, "max_attempts": settings.max_attempts, "wait": settings.hedge}
        emit("hedge", {**settings.fields, "operation": settings.operation, **fields})
    scope = cell.scope
    token = CELL.set(cell if scope is None else Cell((scope[0], run.attempt, *scope[2:]), cell.thread))
    try:
        return asyncio.ensure_future(start())
    finally:
        CELL.reset(token)


async def _first_success(calls: set[asyncio.Future[Any]], run: Run) -> Any:
    running, done = set(calls), set[asyncio.Future[Any]]()
    call: asyncio.Future[Any] | None = None
    error: Exception | None = None
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                try:
                    return call.result()
                except Exception as failed:
                    error = failed
                    if not run.is_retryable(failed):
                        raise
        assert error is not None
        raise error
    finally:
        running.clear()
        done.clear()
        del calls, call, error  # all of them know the error, which knows this frame


async def _stop(calls: set[asyncio.Future[Any]]) -> None:
    left = {call for call in calls if not call.done()}
    for call in left:
        call.cancel()
        call.add_done_callback(_ignore)
    if left:
        await asyncio.wait(left, timeout=GRACE)


def _ignore(call: asyncio.Future[Any]) -> None:
    """Whatever the loser raised, nobody waits for it."""
    if not call.cancelled():
        call.exception()
