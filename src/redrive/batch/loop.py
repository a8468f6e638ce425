"""The loops, both colours side by side: send, write down what it means, wait, send again. Decisions are in decision.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..core.context import clock_around
from .call import OPERATION, Call, Work
from .left import Leaves, aleave, leave
from .report import Report

Ids = Callable[..., Any]


def plain(work: Work, ids: Ids | None, left: Leaves | None, send: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Send; again while something is pending and there are retries. What `send` raises goes through."""
    token = OPERATION.set(work.operation)
    try:
        work.check()
        call = Call(work, None if ids is None else list(ids(*args, **kwargs)))
        while True:
            result = send(*args, **kwargs)
            if hasattr(type(result), "__await__"):
                if hasattr(result, "close"):
                    result.close()  # or Python warns that it was never awaited, far from here
                raise TypeError(f"{work.operation} returns an awaitable: declare it `async def`, so that it can be awaited")
            report = call.checked(result)
            split = call.begin_split(report) if call.splits(report) else None
            while split is not None and (group := call.next_group(split)) is not None:
                call.settle_group(split, group, send(*args, **{**kwargs, str(work.split): group}))
            settled = call.settle(report, split)
            if isinstance(settled, Report):
                return call.result(settled if left is None else leave(work.operation, left, settled, args, kwargs))
            clock_around().sleep(settled)  # everything is written down: Ctrl+C here leaves nothing half-done
    finally:
        OPERATION.reset(token)


async def coroutine(
    work: Work, ids: Ids | None, left: Leaves | None, send: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> Any:
    """The same for async senders. The store is synchronous: it is asked in a thread."""
    from asyncio import to_thread  # noqa: PLC0415  # 45 ms that plain programs must not pay

    token = OPERATION.set(work.operation)
    try:
        if work.is_unchecked:
            await to_thread(work.check)
        call = Call(work, None if ids is None else list(ids(*args, **kwargs)))
        while True:
            report = call.checked(await send(*args, **kwargs))
            split = await to_thread(call.begin_split, report) if call.splits(report) else None
            while split is not None and (group := call.next_group(split)) is not None:
                result = await send(*args, **{**kwargs, str(work.split): group})
                await to_thread(call.settle_group, split, group, result)
            settled = await to_thread(call.settle, report, split)
            if isinstance(settled, Report):
                return call.result(settled if left is None else await aleave(work.operation, left, settled, args, kwargs))
            await clock_around().asleep(settled)
    finally:
        OPERATION.reset(token)
