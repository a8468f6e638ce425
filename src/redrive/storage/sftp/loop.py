"""Loop: an event loop in a thread of its own, for a client that is async where its callers are not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

GRACE = 1.0
"""Seconds for what is about to end."""


class Loop:
    """An event loop that runs until `close`. Threads may share it; a forked child may not: its thread stays with the parent."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]], /, timeout: float | None) -> T:
        """What it gives, or TimeoutError. Ctrl+C leaves at once, and takes the work with it."""

        async def bounded() -> T:
            async with asyncio.timeout(timeout):
                return await work()

        future = self.start(bounded)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Callable[[], Awaitable[T]], /) -> Future[T]:
        """Begin it, and do not wait. Cancelled, it ends at once."""

        async def begun() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(begun(), self._loop)

    def close(self) -> None:
        """Stop it; no thread is left."""
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if others:  # those that waited for a connection which is gone end by themselves, and look at each other's errors
        await asyncio.wait(others, timeout=GRACE)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
