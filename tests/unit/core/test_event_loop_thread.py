"""EventLoopThread: results, timeouts, cancellation and closing."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextvars import ContextVar, copy_context

import pytest

from redrive.core import event_loop_thread
from redrive.core.event_loop_thread import EventLoopThread

PATIENCE_SECONDS = 60
SETTING: ContextVar[str] = ContextVar("setting", default="unset")


def is_running(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_run_returns_the_result_and_raises_the_error() -> None:
    loop = EventLoopThread("loop-run")

    async def divide(by: int) -> float:
        await asyncio.sleep(0)
        return 6 / by

    assert loop.run(lambda: divide(3), None) == 2
    with pytest.raises(ZeroDivisionError):
        loop.run(lambda: divide(0), None)
    loop.close()


def test_run_cancels_the_work_at_the_timeout() -> None:
    loop = EventLoopThread("loop-timeout")
    was_cancelled = threading.Event()

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        loop.run(wait_forever, 0.01)
    assert was_cancelled.wait(PATIENCE_SECONDS)
    loop.close()


def test_run_abandons_work_that_ignores_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop_thread, "CANCEL_SECONDS", 0.01)
    loop = EventLoopThread("loop-stubborn")
    ignored, release = threading.Event(), asyncio.Event()

    async def ignore_cancellation() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                ignored.set()

    with pytest.raises(TimeoutError):
        loop.run(ignore_cancellation, 0.01)
    assert ignored.wait(PATIENCE_SECONDS)
    loop.call(release.set)
    assert loop.run(lambda: asyncio.sleep(0, "usable"), None) == "usable"
    loop.close()


def test_the_thread_starts_at_the_first_use_and_ends_with_close() -> None:
    loop = EventLoopThread("loop-lazy")
    loop.close()
    loop.cancel()
    assert not is_running("loop-lazy")
    for _ in range(2):  # It may be used again after closing.
        loop.run(lambda: asyncio.sleep(0), None)
        assert is_running("loop-lazy")
        loop.close()
        assert not is_running("loop-lazy")


def test_threads_share_one_event_loop() -> None:
    loop = EventLoopThread("loop-shared")
    ready = threading.Barrier(4)
    loops: list[asyncio.AbstractEventLoop] = []

    async def running_loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def use() -> None:
        ready.wait(PATIENCE_SECONDS)
        loops.append(loop.run(running_loop, None))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(loops) == 4
    assert len(set(map(id, loops))) == 1
    loop.close()


def test_tasks_run_in_their_context_and_are_cancelled_by_key() -> None:
    loop = EventLoopThread("loop-tasks")
    started, ended = threading.Semaphore(0), threading.Semaphore(0)
    cancelled: list[tuple[str, str]] = []

    async def wait_until_cancelled(name: str) -> None:
        try:
            started.release()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append((name, SETTING.get()))
            ended.release()
            raise

    context = copy_context()
    context.run(SETTING.set, "of the task")

    def start_both() -> None:
        for name in ("a", "b"):
            loop.start_task(name, wait_until_cancelled(name), context.copy())

    loop.call(start_both)
    assert started.acquire(timeout=PATIENCE_SECONDS)
    assert started.acquire(timeout=PATIENCE_SECONDS)
    loop.cancel(["a", "unknown"])
    assert ended.acquire(timeout=PATIENCE_SECONDS)
    assert cancelled == [("a", "of the task")]
    loop.cancel()
    assert ended.acquire(timeout=PATIENCE_SECONDS)
    assert cancelled == [("a", "of the task"), ("b", "of the task")]
    loop.close()


def test_close_lets_tasks_end_within_the_grace_time() -> None:
    loop = EventLoopThread("loop-grace")
    ended = threading.Event()

    async def end_soon() -> None:
        await asyncio.sleep(0.01)
        ended.set()

    loop.submit(end_soon)
    loop.close(grace_seconds=PATIENCE_SECONDS)
    assert ended.is_set()


def test_close_cancels_tasks_and_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    loop = EventLoopThread("loop-cancel")

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("while cancelled") from None

    with caplog.at_level(logging.ERROR, "asyncio"):
        loop.call(lambda: loop.start_task("failing", fail_when_cancelled(), copy_context()))
        loop.run(lambda: asyncio.sleep(0), None)
        loop.close()
    assert not caplog.records


def test_close_abandons_a_task_that_ignores_its_cancellation() -> None:
    loop = EventLoopThread("loop-stubborn")
    release = threading.Event()

    async def ignore_cancellation() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass

    future = loop.submit(ignore_cancellation)
    loop.run(lambda: asyncio.sleep(0), None)
    loop.close(cancel_seconds=0.05)
    assert not future.done()
    release.set()
