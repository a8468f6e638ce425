"""Blocks: `for attempt in retry.attempts(): with attempt: ...`, in both colours."""

from __future__ import annotations

import math
import sys
from asyncio import CancelledError
from collections.abc import AsyncIterator, Iterator
from typing import Self

from ..core.context import STAGE, WATCH, Entered, clock_around, scope_around
from ..core.key import Key, KeyLike
from .attempt import Attempt
from .gate import begin, late
from .nesting import GIVEUPS
from .settings import Settings
from .timer import LoneTimer, cancellations, cancelled_inside

ASYNC_CODE = 0x80 | 0x200  # inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Attempts:
    """One call's attempts. `for` in plain code, `async for` in async code; the wrong one raises. For one use, in one place."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Settings) -> None:
        if settings.reject is not None:
            raise TypeError("a block has no result for reject=; call attempt.reject() in it")
        if isinstance(settings.key, str):
            raise TypeError("a block has no parameters for a key template; pass a Key")
        if settings.hedge is not None:
            raise TypeError("a block cannot run twice at once; hedge= is for async functions")
        if settings.spill is not None:
            raise TypeError("a block cannot be enqueued as a job; spill= is for functions")
        self._settings: Settings | None = settings

    def __iter__(self) -> Iterator[Attempt]:
        if sys._getframe(1).f_code.co_flags & ASYNC_CODE:
            raise TypeError("`for attempt in ...` in async code would block the event loop; write `async for`")
        return _plain(Block(self._take()))

    def __aiter__(self) -> AsyncIterator[Attempt]:
        return _AsyncTurns(Block(self._take(), in_task=True))

    def _take(self) -> Settings:
        settings, self._settings = self._settings, None
        if settings is None:
            raise RuntimeError("these attempts were already used; call attempts() again")
        return settings


def _plain(block: Block) -> Iterator[Attempt]:
    while block.goes_on():
        if not block.fault_was_ordered():
            yield block.begin()
        if block.wait > 0:
            try:
                block.clock.sleep(block.wait)
            except BaseException:
                block.forget()
                raise


class _AsyncTurns:
    """No async generator: one that a `return` in the body leaves unfinished costs the event loop a task to close it."""

    __slots__ = ("_block", "_waits")

    def __init__(self, block: Block) -> None:
        self._block = block
        self._waits = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Attempt:
        block = self._block
        while True:
            if self._waits and not block.done:
                try:
                    await block.clock.asleep(block.wait)
                except BaseException:
                    block.forget()
                    raise
            self._waits = True
            if not block.goes_on():
                raise StopAsyncIteration
            if not block.fault_was_ordered():
                return block.begin()


class Block:
    """The state of one loop: which attempt it is at, and what the last one leads to."""

    __slots__ = (
        "_before",
        "_entered",
        "_error",
        "_in_task",
        "_key",
        "_outer",
        "_run",
        "_scope",
        "_seen",
        "_settings",
        "_timer",
        "clock",
        "done",
        "wait",
    )

    def __init__(self, settings: Settings, *, in_task: bool = False) -> None:
        timeout = math.inf if settings.policy.timeout is None else settings.policy.timeout
        self._settings = settings
        self._key: KeyLike | None = (
            settings.key if settings.key is None or isinstance(settings.key, (Key, str)) else settings.key()
        )
        self._in_task = in_task
        self._outer = scope_around()
        self.clock = clock_around()
        self._run = begin(settings, self.clock, timeout, self._key, self._outer)
        self._error: Exception | None = None
        self._scope: Entered | None = None
        self._timer: LoneTimer | None = None
        self._entered = True
        self._seen = self._before = 0
        self.done = False
        self.wait = 0.0

    def goes_on(self) -> bool:
        """Whether there is another attempt; raises the last error where there was to be one, and can be none after all."""
        if not self._entered:
            raise RuntimeError("the attempt was not entered; write `with attempt:` around the body of the loop")
        if self.done:
            return False
        error, self._error = self._error, None
        try:
            if error is not None and not self._run.goes_on(error):
                raise error
        finally:
            del error  # its traceback knows this frame
        return True

    def forget(self) -> None:
        """Nobody comes back after this wait: what was kept for it would be a reference cycle."""
        self._error = None

    def begin(self) -> Attempt:
        """The next attempt, to be entered."""
        self._entered = False
        self.wait = 0.0
        return Attempt((self._end(), self._run.attempt, self._settings, self._key, self._outer), self)

    def fault_was_ordered(self) -> bool:
        """Whether a test ordered this attempt to fail; it has failed then, without its body."""
        stage = STAGE.get() if WATCH else None
        if stage is None or stage.faults is None:
            return False
        self._seen = GIVEUPS.count
        try:
            stage.faults(self._settings, _nothing)()
        except Exception as error:
            if not self._failed(error):
                raise
            return True
        return False

    def enter(self, attempt: Attempt) -> None:
        """The body begins."""
        if self._entered:
            raise RuntimeError("an attempt can be entered only once")
        self._entered = True
        self._seen = GIVEUPS.count
        if self._in_task:
            self._before = cancellations()
            if self._settings.attempt_timeout is not None:
                self._timer = LoneTimer(self._end() - self._run.started)
        self._scope = Entered(attempt._scope)

    def leave(self, error: BaseException | None) -> bool:
        """The body ended; True when its error is dealt with and the loop goes on."""
        timer, self._timer = self._timer, None
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.leave()
        if timer is not None and timer.stop(isinstance(error, CancelledError)):
            overdue = self._settings.overdue(late(self._settings, self._run.attempt, self._end() - self._run.started))
            try:
                if self._failed(overdue):
                    return True
                raise overdue from None
            finally:
                del overdue, error  # their tracebacks know this frame
        if error is None:
            self.done = True
            self._run.succeeded(self._run.started)
            return False
        if not isinstance(error, Exception):
            if self._settings.breaker is not None:
                self._settings.breaker.abandon()
            return False
        if self._in_task and cancelled_inside(error, self._before):
            self.done = True
            self._run.stopped(error, self._run.started)
            return False
        return self._failed(error)

    def _failed(self, error: Exception) -> bool:
        wait = self._run.failed(error, self._seen, self._run.started)
        if wait is None:
            self.done = True
            return False
        self.wait = wait
        self._error = error
        return True

    def _end(self) -> float:
        limit = self._settings.attempt_timeout
        return self._run.end if limit is None else min(self._run.end, self._run.started + limit)


def _nothing() -> None:
    """What is called where a test orders a fault for a block."""
