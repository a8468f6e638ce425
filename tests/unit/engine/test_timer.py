"""Timers: when they fire, which tasks they cancel, and their handles in the event loop. The test moves the time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from redrive import RetryPolicy, deadline, retry
from redrive.engine import timer as module
from redrive.engine.timer import MAX_STOPPED_TIMERS, AttemptTimer, QueuedTimer, TimerQueue, TimerQueues

pytestmark = pytest.mark.req("C-2")


class Moment:
    """A clock for the module under test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Loop:
    """A minimal event loop for a timer queue: records its callbacks."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.closed = False

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self.calls.append((delay, callback))
        return object()

    def is_closed(self) -> bool:
        return self.closed


class Task:
    """A minimal task for a timer: counts cancellations like the real one."""

    def __init__(self) -> None:
        self.asked = 0

    def cancelling(self) -> int:
        return self.asked

    def cancel(self) -> None:
        self.asked += 1

    def uncancel(self) -> int:
        self.asked -= 1
        return self.asked


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Moment:
    moment = Moment()
    monkeypatch.setattr(module, "monotonic", moment)
    return moment


def start_timer(row: TimerQueue, task: Task, end: float) -> QueuedTimer:
    return QueuedTimer(row, cast("asyncio.Task[Any]", task), end)


def new_row() -> tuple[TimerQueue, Loop]:
    loop = Loop()
    return TimerQueue(cast(asyncio.AbstractEventLoop, loop)), loop


def test_one_handle_serves_all_timers_of_a_loop(moment: Moment) -> None:
    row, loop = new_row()
    tasks = [Task() for _ in range(5)]
    timers = [start_timer(row, task, 1010.0 + number) for number, task in enumerate(tasks)]
    assert [delay for delay, _ in loop.calls] == [10.0]
    moment.now = 1012.5
    loop.calls.pop()[1]()
    assert [task.asked for task in tasks] == [1, 1, 1, 0, 0]
    assert [delay for delay, _ in loop.calls] == [0.5]
    assert [timer.stop(True) for timer in timers] == [True, True, True, False, False]
    assert [task.asked for task in tasks] == [0] * 5


def test_a_stopped_timer_cancels_no_task(moment: Moment) -> None:
    row, loop = new_row()
    task, other = Task(), Task()
    first, last = start_timer(row, task, 1001.0), start_timer(row, other, 1001.0)
    assert not first.stop(True)
    assert not first.stop(False)
    moment.now = 1002.0
    loop.calls.pop()[1]()
    assert (task.asked, other.asked) == (0, 1)
    assert last.stop(True)
    assert not loop.calls


def test_an_early_handle_is_scheduled_again(moment: Moment) -> None:
    row, loop = new_row()
    task = Task()
    start_timer(row, task, 1001.0)
    moment.now = 1000.9999
    loop.calls.pop()[1]()
    assert task.asked == 0
    assert len(loop.calls) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancellation_by_the_caller_is_kept(moment: Moment, times: int) -> None:
    row, _ = new_row()
    task = Task()
    timer = start_timer(row, task, 1001.0)
    for _ in range(times):
        task.cancel()
    timer.fire()
    assert not timer.stop(True)
    assert task.cancelling() == times


def test_an_earlier_cancellation_is_ignored(moment: Moment) -> None:
    row, _ = new_row()
    task = Task()
    task.cancel()
    timer = start_timer(row, task, 1001.0)
    timer.fire()
    assert timer.stop(True)
    assert task.cancelling() == 1


def test_a_swallowed_cancellation_is_withdrawn(moment: Moment) -> None:
    row, _ = new_row()
    task = Task()
    timer = start_timer(row, task, 1001.0)
    timer.fire()
    assert not timer.stop(False)
    assert task.cancelling() == 0


def test_stopped_timers_are_removed(moment: Moment) -> None:
    row, _ = new_row()
    longest = start_timer(row, Task(), 2000.0)
    for number in range(20 * MAX_STOPPED_TIMERS):
        timer = start_timer(row, Task(), 2000.0 + number)
        start_timer(row, Task(), 2000.0 + number).stop(False)  # the last one is removed immediately
        newest = start_timer(row, Task(), 2000.0 + number)
        timer.stop(False)
        newest.stop(False)
    assert len(row.timers) <= 2 * MAX_STOPPED_TIMERS + 2
    assert row.timers[0] is longest


def test_each_open_loop_has_one_timer_queue(moment: Moment) -> None:
    rows = TimerQueues()
    first, second = (cast(asyncio.AbstractEventLoop, Loop()) for _ in range(2))
    assert rows.of(first) is rows.of(first)
    assert rows.of(first) is not rows.of(second)
    cast(Loop, first).closed = True
    third = cast(asyncio.AbstractEventLoop, Loop())
    rows.of(third)
    assert len(rows._queues) == 2


def test_a_single_timer_leaves_nothing_in_the_loop() -> None:
    async def main() -> None:
        timer = AttemptTimer(60)
        timer.stop(False)
        loop = asyncio.get_running_loop()
        assert all(handle.cancelled() for handle in loop._scheduled)  # type: ignore[attr-defined]

    asyncio.run(main())


def test_calls_inside_a_deadline_leave_no_handles() -> None:
    @retry
    async def fetch() -> int:
        return 1

    async def main() -> None:
        with deadline(100):
            for _ in range(300):
                await fetch()
                await asyncio.sleep(0)
        waiting = [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert waiting == []

    asyncio.run(main())


def test_a_single_timer_needs_a_task() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[BaseException] = loop.create_future()

        def outside() -> None:
            try:
                AttemptTimer(1)
            except RuntimeError as error:
                failed.set_result(error)

        loop.call_soon(outside)
        assert "asyncio task" in str(await failed)

    asyncio.run(main())


def test_threads_with_their_own_loops_share_a_function() -> None:
    """A timer must be in the queue of its own loop, even if other threads call the function at the same time."""
    strangers: list[object] = []

    @retry(RetryPolicy(max_attempts=1))
    async def fetch() -> int:
        return 1

    class Own(asyncio.SelectorEventLoop):
        def call_later(self, *args: Any, **more: Any) -> asyncio.TimerHandle:  # type: ignore[override]
            if threading.get_ident() != self.home:
                strangers.append(self)
            return super().call_later(*args, **more)

        home = 0

    def work() -> None:
        loop = Own()
        loop.home = threading.get_ident()

        async def many() -> None:
            for _ in range(500):
                await fetch()

        try:
            loop.run_until_complete(many())
            assert len(loop._scheduled) <= 2  # type: ignore[attr-defined]  # one queue, one handle
        finally:
            loop.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert strangers == []
