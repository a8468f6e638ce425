"""Bytes a decorated function and a call in flight take; informative, no target."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks.candidate import Function, Wrap
from benchmarks.sleeps import asyncio_sleep

MANY = 500


def _function() -> Function:
    def fn() -> int:
        return 1

    return fn


def per_function(wrap: Wrap) -> float:
    """Bytes of one decorated function, the function itself included."""

    def build(count: int) -> list[Any]:
        return [wrap(_function()) for _ in range(count)]

    build(20)
    return _traced(lambda: build(MANY))


def per_call(wrap: Wrap) -> float:
    """Bytes of one async call that waits in its first attempt, its task included."""
    return asyncio.run(_in_flight(wrap))


async def _in_flight(wrap: Wrap) -> float:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    fn = wrap(wait)

    async def one() -> None:
        await fn()

    size = 0.0
    for count in (20, MANY):
        gate.clear()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tasks = [asyncio.ensure_future(one()) for _ in range(count)]
        for _ in range(6):
            await asyncio_sleep(0)
        gc.collect()
        size = (tracemalloc.get_traced_memory()[0] - before) / count
        tracemalloc.stop()
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
    return size


def _traced(build: Callable[[], list[Any]]) -> float:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = build()
    gc.collect()
    size = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
    tracemalloc.stop()
    return size
