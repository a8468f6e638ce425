"""Memory of a decorated function and of a running call. It has no target."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks.candidate import Function, Wrap
from benchmarks.sleeps import asyncio_sleep

COUNT = 500


def _function() -> Function:
    def fn() -> int:
        return 1

    return fn


def measure_function(wrap: Wrap) -> float:
    """Return the bytes of a decorated function, including the function itself."""

    def build(count: int) -> list[Any]:
        return [wrap(_function()) for _ in range(count)]

    build(20)
    return _measure_bytes(lambda: build(COUNT))


def measure_call(wrap: Wrap) -> float:
    """Return the bytes of an async call in its first attempt, including its task."""
    return asyncio.run(_measure_running_calls(wrap))


async def _measure_running_calls(wrap: Wrap) -> float:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    fn = wrap(wait)

    async def call() -> None:
        await fn()

    size = 0.0
    for count in (20, COUNT):
        gate.clear()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tasks = [asyncio.ensure_future(call()) for _ in range(count)]
        for _ in range(6):
            await asyncio_sleep(0)
        gc.collect()
        size = (tracemalloc.get_traced_memory()[0] - before) / count
        tracemalloc.stop()
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
    return size


def _measure_bytes(build: Callable[[], list[Any]]) -> float:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    functions = build()
    gc.collect()
    size = (tracemalloc.get_traced_memory()[0] - before) / len(functions)
    tracemalloc.stop()
    return size
