"""Timeouts of async attempts. A timer cancels its task, but never hides the caller's cancellation.

Attempts with the same timeout end in the order in which they start. Their timers wait in one queue
for each event loop and duration, and one handle of the loop watches the first of them. That costs a
third of a `call_later` and a `cancel` for each attempt.
"""

from __future__ import annotations

import asyncio as asyncio  # noqa: PLC0414  # for the fast path
import sys
from asyncio import AbstractEventLoop, CancelledError, Task, TimerHandle, current_task
from collections import deque
from time import monotonic
from types import FrameType
from typing import Any

MAX_STOPPED_TIMERS = 100
"""Stopped timers that may stay in a queue, in addition to half of its length."""

MAX_CHAINED_ERRORS = 50
"""Errors of a `__context__` chain that are searched. It also guards against cyclic chains."""


class QueuedTimer:
    """The timeout of one attempt, without a handle of its own. It belongs to its task."""

    __slots__ = ("_has_fired", "_queue", "cancellations_before", "end", "task")

    def __init__(self, queue: TimerQueue, task: Task[Any], end: float) -> None:
        self.task: Task[Any] | None = task
        self.end = end
        self.cancellations_before = task.cancelling()
        self._has_fired = False
        self._queue = queue
        queue.timers.append(self)
        if queue.handle is None:
            queue.watch_from(end)

    def fire(self) -> None:
        """Cancel the attempt."""
        self._has_fired = True
        if self.task is not None:
            self.task.cancel()

    def stop(self, cancelled: bool) -> bool:
        """Stop the timer at the end of the attempt.

        Args:
            cancelled: Whether the attempt ended with a CancelledError.

        Returns:
            True if only this timer cancelled the attempt.
        """
        task, self.task = self.task, None
        if self._has_fired and task is not None:
            # Withdraw our cancellation, even if the attempt swallowed it. If more are pending, the
            # caller cancelled too, and that must take effect.
            return task.uncancel() <= self.cancellations_before and cancelled
        timers = self._queue.timers
        if timers and timers[-1] is self:
            timers.pop()
        elif task is not None:
            self._queue.count_stopped()
        return False


class TimerQueue:
    """The timers of one duration in one event loop, in the order of their ends."""

    __slots__ = ("_stopped", "event_loop", "handle", "timers")

    def __init__(self, event_loop: AbstractEventLoop | None) -> None:
        self.event_loop = event_loop
        self.timers: deque[QueuedTimer] = deque()
        self.handle: TimerHandle | None = None
        self._stopped = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return TimerQueue, (None,)  # another process has another event loop

    def watch_from(self, end: float) -> None:
        """Check the first timer at this time on the monotonic clock."""
        assert self.event_loop is not None
        self.handle = self.event_loop.call_later(max(0.0, end - monotonic()), self._fire_due)

    def count_stopped(self) -> None:
        """Count a stopped timer, and remove all of them when there are many."""
        self._stopped += 1
        if self._stopped > MAX_STOPPED_TIMERS + len(self.timers) // 2:
            running = [timer for timer in self.timers if timer.task is not None]
            self.timers.clear()
            self.timers.extend(running)
            self._stopped = 0

    def _fire_due(self) -> None:
        now, timers = monotonic(), self.timers
        while timers and (timers[0].task is None or timers[0].end <= now):
            timers.popleft().fire()
        self.handle = None
        if timers:
            self.watch_from(timers[0].end)


class TimerQueues:
    """The queues of one function, one for each open event loop. Threads may share it."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[int, TimerQueue] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return TimerQueues, ()

    def of(self, event_loop: AbstractEventLoop) -> TimerQueue:
        """Return the queue of this event loop, and drop those of closed event loops."""
        queue = self._queues.get(id(event_loop))
        if queue is not None and queue.event_loop is event_loop:
            return queue
        for key, other in list(self._queues.items()):
            if other.event_loop is None or other.event_loop.is_closed():
                self._queues.pop(key, None)
        queue = self._queues[id(event_loop)] = TimerQueue(event_loop)
        return queue


class AttemptTimer:
    """A timeout with a handle of its own, for any duration. It belongs to the running task."""

    __slots__ = ("_handle", "_has_fired", "_task", "cancellations_before")

    def __init__(self, seconds: float) -> None:
        task = running_task()
        if task is None:
            raise RuntimeError("an async attempt with a timeout must run in an asyncio task")
        self.cancellations_before = task.cancelling()
        self._has_fired = False
        self._task: Task[Any] | None = task
        handle = task.get_loop().call_later(max(0.0, seconds), self._fire)
        self._handle: TimerHandle | None = handle

    def _fire(self) -> None:
        self._has_fired = True
        if self._task is not None:
            self._task.cancel()

    def stop(self, cancelled: bool) -> bool:
        """Stop the timer at the end of the attempt, as `QueuedTimer.stop` does."""
        task, self._task = self._task, None
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()  # otherwise the event loop keeps it until it is due
        if not self._has_fired or task is None:
            return False
        return task.uncancel() <= self.cancellations_before and cancelled


def running_task() -> Task[Any] | None:
    """Return the running asyncio task.

    Raises:
        RuntimeError: No asyncio event loop is running, for example under trio.
    """
    try:
        return current_task()
    except RuntimeError:
        raise RuntimeError(
            "retry: async functions are retried on asyncio, and no asyncio event loop is running; "
            "trio is not supported"
        ) from None


def pending_cancellations() -> int:
    """Return how many cancellations of the running task are pending. 0 outside of a task."""
    try:
        task = current_task()  # called directly, because each attempt calls this function twice
    except RuntimeError:
        task = running_task()
    return 0 if task is None else task.cancelling()


def cancelled_inside(error: BaseException, cancellations_before: int = 0) -> bool:
    """Return whether a cancellation of the task led to this error, for example in its clean-up.

    A higher number of pending cancellations is not enough: until Python 3.13, a TaskGroup whose
    task has failed leaves one. A cancellation that code further up is handling does not count.

    Args:
        error: The error of the attempt.
        cancellations_before: `pending_cancellations()` when the attempt started.
    """
    if pending_cancellations() <= cancellations_before:
        return False
    context: BaseException | None = error
    for _ in range(MAX_CHAINED_ERRORS):
        if context is None:
            return False
        if isinstance(context, CancelledError) and context.__traceback__ is not None:
            return not _is_caller(context.__traceback__.tb_frame)
        context = context.__context__
    return False


def _is_caller(caught_by: FrameType) -> bool:
    """Return whether this frame is one of those that called us."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame is not caught_by:
        frame = frame.f_back
    return frame is not None
