"""Retried blocks of code: `for attempt in retry.attempts(): with attempt: ...`, sync and async."""

from __future__ import annotations

import math
import sys
from asyncio import CancelledError
from collections.abc import AsyncIterator, Iterator
from typing import Self

from ..core.context import (
    SIMULATION,
    SLOW_PATH_USERS,
    ActiveScope,
    clock_around,
    scope_around,
)
from ..core.key import Key, KeyLike
from .attempt import Attempt
from .nesting import GIVE_UPS
from .run import start_run, timeout_message
from .settings import RetrySettings
from .timer import AttemptTimer, cancelled_inside, pending_cancellations

ASYNC_CODE = 0x80 | 0x200  # inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Attempts:
    """The attempts of one block: `for` in sync code, `async for` in async code.

    The wrong one raises TypeError. Create a new one for each use.
    """

    __slots__ = ("_settings",)

    def __init__(self, settings: RetrySettings) -> None:
        if settings.reject is not None:
            raise TypeError("a block has no result for reject=; call attempt.reject() in it")
        if isinstance(settings.key, str):
            raise TypeError("a block has no parameters for a key template; pass a Key")
        if settings.hedge is not None:
            raise TypeError("a block cannot run twice at once; hedge= is for async functions")
        if settings.spill is not None:
            raise TypeError("a block cannot be enqueued as a job; spill= is for functions")
        self._settings: RetrySettings | None = settings

    def __iter__(self) -> Iterator[Attempt]:
        if sys._getframe(1).f_code.co_flags & ASYNC_CODE:
            raise TypeError(
                "`for attempt in ...` in async code would block the event loop; write `async for`"
            )
        return _sync_attempts(Block(self._take_settings()))

    def __aiter__(self) -> AsyncIterator[Attempt]:
        return _AsyncAttempts(Block(self._take_settings(), in_task=True))

    def _take_settings(self) -> RetrySettings:
        settings, self._settings = self._settings, None
        if settings is None:
            raise RuntimeError("these attempts were already used; call attempts() again")
        return settings


def _sync_attempts(block: Block) -> Iterator[Attempt]:
    while block.may_continue():
        if not block.inject_fault():
            yield block.next_attempt()
        if block.wait > 0:
            try:
                block.clock.sleep(block.wait)
            except BaseException:
                block.forget_error()
                raise


class _AsyncAttempts:
    """The attempts in async code.

    Not an async generator: if a `return` in the body leaves it unfinished, the event loop needs a
    task to close it.
    """

    __slots__ = ("_block", "_has_begun")

    def __init__(self, block: Block) -> None:
        self._block = block
        self._has_begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Attempt:
        block = self._block
        while True:
            if self._has_begun and not block.is_done:
                try:
                    await block.clock.asleep(block.wait)
                except BaseException:
                    block.forget_error()
                    raise
            self._has_begun = True
            if not block.may_continue():
                raise StopAsyncIteration
            if not block.inject_fault():
                return block.next_attempt()


class Block:
    """The state of one retried block: its run, and the result of its last attempt."""

    __slots__ = (
        "_cancellations_before",
        "_error",
        "_giveups_before",
        "_in_task",
        "_is_entered",
        "_key",
        "_outer",
        "_run",
        "_scope",
        "_settings",
        "_timer",
        "clock",
        "is_done",
        "wait",
    )

    def __init__(self, settings: RetrySettings, *, in_task: bool = False) -> None:
        timeout = math.inf if settings.policy.timeout is None else settings.policy.timeout
        self._settings = settings
        self._key = _block_key(settings)
        self._in_task = in_task
        self._outer = scope_around()
        self.clock = clock_around()
        self._run = start_run(settings, self.clock, timeout, self._key, self._outer)
        self._error: Exception | None = None
        self._scope: ActiveScope | None = None
        self._timer: AttemptTimer | None = None
        self._is_entered = True
        self._giveups_before = self._cancellations_before = 0
        self.is_done = False
        self.wait = 0.0

    def may_continue(self) -> bool:
        """Return whether there is another attempt.

        Raises the last error if a retry was planned, but may no longer start.
        """
        if not self._is_entered:
            raise RuntimeError(
                "the attempt was not entered; write `with attempt:` around the body of the loop"
            )
        if self.is_done:
            return False
        error, self._error = self._error, None
        try:
            if error is not None and not self._run.may_continue(error):
                raise error
        finally:
            del error  # its traceback refers to this frame
        return True

    def forget_error(self) -> None:
        """Drop the last error. The wait was interrupted, and keeping it would be a cycle."""
        self._error = None

    def next_attempt(self) -> Attempt:
        """Return the next attempt, to be entered."""
        self._is_entered = False
        self.wait = 0.0
        scope = (self._end(), self._run.attempt, self._settings, self._key, self._outer)
        return Attempt(scope, self)

    def inject_fault(self) -> bool:
        """Let the attempt fail without its body if a test injects a fault. True: it did."""
        simulation = SIMULATION.get() if SLOW_PATH_USERS else None
        if simulation is None or simulation.faults is None:
            return False
        self._giveups_before = GIVE_UPS.count
        try:
            simulation.faults(self._settings, _do_nothing)()
        except Exception as error:
            if not self._record_failure(error):
                raise
            return True
        return False

    def enter(self, attempt: Attempt) -> None:
        """Start the attempt."""
        if self._is_entered:
            raise RuntimeError("an attempt can be entered only once")
        self._is_entered = True
        self._giveups_before = GIVE_UPS.count
        if self._in_task:
            self._cancellations_before = pending_cancellations()
            if self._settings.attempt_timeout is not None:
                self._timer = AttemptTimer(self._end() - self._run.started)
        self._scope = ActiveScope(attempt._scope)

    def leave(self, error: BaseException | None) -> bool:
        """End the attempt. Return True to suppress its error and continue the loop."""
        timer, self._timer = self._timer, None
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.leave()
        settings, run = self._settings, self._run
        if timer is not None and timer.stop(isinstance(error, CancelledError)):
            message = timeout_message(settings, run.attempt, self._end() - run.started)
            timeout = settings.timeout_error(message)
            try:
                if self._record_failure(timeout):
                    return True
                raise timeout from None
            finally:
                del timeout, error  # their tracebacks refer to this frame
        if error is None:
            self.is_done = True
            run.record_success()
            return False
        if not isinstance(error, Exception):
            if settings.breaker is not None:
                settings.breaker.abandon()
            return False
        if self._in_task and cancelled_inside(error, self._cancellations_before):
            self.is_done = True
            run.record_cancellation(error)
            return False
        return self._record_failure(error)

    def _record_failure(self, error: Exception) -> bool:
        """Return whether another attempt follows."""
        wait = self._run.record_failure(error, self._giveups_before)
        if wait is None:
            self.is_done = True
            return False
        self.wait = wait
        self._error = error
        return True

    def _end(self) -> float:
        limit = self._settings.attempt_timeout
        return self._run.end if limit is None else min(self._run.end, self._run.started + limit)


def _block_key(settings: RetrySettings) -> KeyLike | None:
    key = settings.key
    return key if key is None or isinstance(key, (Key, str)) else key()


def _do_nothing() -> None:
    """Stand in for the body of a block when a test injects a fault."""
