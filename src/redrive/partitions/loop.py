"""Loop: the event loop of async extractions, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any


class Loop:
    """One event loop, started when first needed. Threads may share it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def give(self, name: str, work: Callable[[], Coroutine[Any, Any, None]], context: Context, /) -> None:
        """Run this, under a name, in a context."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(self._begin, self._loop, name, work, context)

    def _begin(
        self, loop: asyncio.AbstractEventLoop, name: str, work: Callable[[], Coroutine[Any, Any, None]], context: Context
    ) -> None:
        task = loop.create_task(work(), context=context)
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    def cancel(self, name: str | None = None, /) -> None:
        """Stop this, or all."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, name)

    def _cancel(self, name: str | None) -> None:
        for each in list(self._tasks) if name is None else [name]:
            if task := self._tasks.get(each):
                task.cancel()

    def close(self) -> None:
        """End; what still runs is cancelled, and not waited for much longer."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._end, self._loop)
            self._thread.join(2)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._cancel(None)
        loop.call_soon(loop.call_soon, loop.stop)  # what was cancelled gets its turn before

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
