"""EventLoopThread: an asyncio event loop in a thread, for sync code that uses async functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
CANCEL_SECONDS = 5.0
"""Time that a coroutine of `run` has to end after its timeout."""


class EventLoopThread:
    """An event loop in a daemon thread, which starts at the first use and runs until `close`.

    Threads may share one. A forked child must create its own: the thread stays in the parent.
    """

    def __init__(self, name: str, /) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def run(self, work: Callable[[], Awaitable[T]], /, timeout: float | None) -> T:
        """Run a coroutine and return its result. A timeout or an interrupt cancels it.

        A coroutine that ignores its cancellation is abandoned after `CANCEL_SECONDS`: clients of
        servers may wait for a connection that is lost.
        """

        async def run_until_timeout() -> T:
            async with asyncio.timeout(timeout):
                return await work()

        future = self.submit(run_until_timeout)
        try:
            return future.result(None if timeout is None else timeout + CANCEL_SECONDS)
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Callable[[], Awaitable[T]], /) -> Future[T]:
        """Start a coroutine and return its future. Cancelling the future cancels the coroutine."""

        async def run_work() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run_work(), self._running_loop())

    def call(self, callback: Callable[..., object], /, *args: Any) -> None:
        """Call a function in the thread of the loop, without waiting."""
        self._running_loop().call_soon_threadsafe(callback, *args)

    def start_task(self, key: Hashable, work: Coroutine[Any, Any, None], context: Context) -> None:
        """Start a task that reports its own result. Only functions passed to `call` may call this.

        The key identifies it for `cancel`. Many tasks in one `call` wake up the loop once.
        """
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks[key] = task
        task.add_done_callback(partial(self._forget_task, key))

    def cancel(self, keys: Iterable[Hashable] | None = None, /) -> None:
        """Cancel tasks of `start_task` by key. None: all of them."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_tasks, None if keys is None else list(keys))

    def close(self, *, grace_seconds: float = 0.0, cancel_seconds: float | None = None) -> None:
        """Stop the loop and its thread. The object starts again if it is used again.

        Running tasks have `grace_seconds` to end before they are cancelled. A task that ignores
        its cancellation is abandoned after `cancel_seconds`.
        """
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_stop(grace_seconds, cancel_seconds), loop)
        thread.join(None if cancel_seconds is None else grace_seconds + 2 * cancel_seconds)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is not None:
            return loop
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(loop,), name=self._name, daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop

    def _forget_task(self, key: Hashable, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]

    def _cancel_tasks(self, keys: list[Hashable] | None) -> None:
        for key in list(self._tasks) if keys is None else keys:
            if task := self._tasks.get(key):
                # After the first step of a new task: cancelled before it, the task would end
                # without running any of its code.
                asyncio.get_running_loop().call_soon(task.cancel)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _stop(grace_seconds: float, cancel_seconds: float | None) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks and grace_seconds:
        await asyncio.wait(tasks, timeout=grace_seconds)
    for task in tasks:
        task.cancel()
    if tasks:
        ended, _ = await asyncio.wait(tasks, timeout=cancel_seconds)
        for task in ended:
            if not task.cancelled():
                task.exception()  # Retrieved, so that asyncio does not log it.
    asyncio.get_running_loop().stop()
