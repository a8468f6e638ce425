"""Timer: the end of an async attempt. Cancels the task it runs in, and never eats a cancellation of the caller's.

Attempts with the same time-out end in the order in which they began. So those of one event loop and one length stand in a row,
and one handle of the loop watches its head: a third of the cost of the `call_later` and `cancel` that each attempt would pay.
"""

from __future__ import annotations

import sys
from asyncio import AbstractEventLoop, CancelledError, Task, TimerHandle, current_task
from collections import deque
from time import monotonic
from types import FrameType
from typing import Any

SLACK = 100
"""Timers that are over may stay in the middle of a row until they are so many more than the others: swept out in one go."""

DEPTH = 50
"""How far a chain of errors is followed: also the guard against one that bites its tail."""


class Timer:
    """One attempt's time-out, without a task or a handle of its own. Belongs to the task that made it."""

    __slots__ = ("_fired", "_row", "before", "end", "task")

    def __init__(self, row: Row, task: Task[Any], end: float) -> None:
        self.task: Task[Any] | None = task
        self.end = end
        self.before = task.cancelling()
        self._fired = False
        self._row = row
        row.timers.append(self)
        if row.handle is None:
            row.watch_from(end)

    def fire(self) -> None:
        """Its time has come: cancel the attempt."""
        self._fired = True
        if self.task is not None:
            self.task.cancel()

    def stop(self, cancelled: bool) -> bool:
        """The attempt is over. True: it was cancelled, and by nobody but this timer."""
        task, self.task = self.task, None
        if self._fired and task is not None:
            # Taken back even if the attempt swallowed it. Still above `before`: the caller cancelled too, and that goes on.
            return task.uncancel() <= self.before and cancelled
        row = self._row.timers
        if row and row[-1] is self:
            row.pop()
        elif task is not None:
            self._row.sweep()
        return False


class Row:
    """The timers of one length in one event loop, in the order of their ends."""

    __slots__ = ("_over", "handle", "loop", "timers")

    def __init__(self, loop: AbstractEventLoop | None) -> None:
        self.loop = loop
        self.timers: deque[Timer] = deque()
        self.handle: TimerHandle | None = None
        self._over = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Row, (None,)  # in another process there is another loop

    def watch_from(self, end: float) -> None:
        """Look at the head of the row when this moment has come."""
        assert self.loop is not None
        self.handle = self.loop.call_later(max(0.0, end - monotonic()), self._look)

    def sweep(self) -> None:
        """One more is over; take them out when they are many."""
        self._over += 1
        if self._over > SLACK + len(self.timers) // 2:
            alive = [timer for timer in self.timers if timer.task is not None]
            self.timers.clear()
            self.timers.extend(alive)
            self._over = 0

    def _look(self) -> None:
        now, timers = monotonic(), self.timers
        while timers and (timers[0].task is None or timers[0].end <= now):
            timers.popleft().fire()
        self.handle = None
        if timers:
            self.watch_from(timers[0].end)


class Rows:
    """The rows of one function: one for each event loop that is open. Threads may share it, each with its own loop."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, ()

    def of(self, loop: AbstractEventLoop) -> Row:
        """The row of this loop, made when first asked for; those of closed loops are forgotten then."""
        row = self._rows.get(id(loop))
        if row is not None and row.loop is loop:
            return row
        for key, other in list(self._rows.items()):
            if other.loop is None or other.loop.is_closed():
                self._rows.pop(key, None)
        row = self._rows[id(loop)] = Row(loop)
        return row


class LoneTimer:
    """A time-out of its own length, with a handle of its own: what is left until a deadline. Belongs to the task around."""

    __slots__ = ("_fired", "_handle", "_task", "before")

    def __init__(self, seconds: float) -> None:
        task = running_task()
        if task is None:
            raise RuntimeError("an async attempt with a timeout must run in an asyncio task")
        self.before = task.cancelling()
        self._fired = False
        self._task: Task[Any] | None = task
        self._handle: TimerHandle | None = task.get_loop().call_later(max(0.0, seconds), self._fire)

    def _fire(self) -> None:
        self._fired = True
        if self._task is not None:
            self._task.cancel()

    def stop(self, cancelled: bool) -> bool:
        """The attempt is over. True: it was cancelled, and by nobody but this timer."""
        task, self._task = self._task, None
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()  # or the loop would keep it until its time has come
        return self._fired and task is not None and task.uncancel() <= self.before and cancelled


def running_task() -> Task[Any] | None:
    """The asyncio task around. RuntimeError: there is no asyncio event loop, as under trio."""
    try:
        return current_task()
    except RuntimeError:
        raise RuntimeError(
            "retry: async functions are retried on asyncio, and no asyncio event loop is running; trio is not supported"
        ) from None


def cancellations() -> int:
    """How often the task around has been asked to stop; 0 outside of one."""
    try:
        task = current_task()  # called directly: each attempt calls this function twice
    except RuntimeError:
        task = running_task()
    return 0 if task is None else task.cancelling()


def cancelled_inside(error: BaseException, before: int = 0) -> bool:
    """Whether this error was made of a cancellation of the task that reached the code below: by clean-up that failed, say.

    before: how many `cancellations` there were when the attempt began. More of them is not enough: until Python 3.13 a
    TaskGroup whose task has failed leaves one behind. One that is being dealt with further up does not count.
    """
    if cancellations() <= before:
        return False
    context: BaseException | None = error
    for _ in range(DEPTH):
        if context is None:
            return False
        if isinstance(context, CancelledError) and context.__traceback__ is not None:
            return not _is_above(context.__traceback__.tb_frame)
        context = context.__context__
    return False


def _is_above(caught_by: FrameType) -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame is not caught_by:
        frame = frame.f_back
    return frame is not None
