"""Deadlines for clients that have none: their calls end near the deadline around them.

`with deadline(1):` applies to every store. Async calls are cancelled. A blocking call (Azure,
Arrow) runs in a thread, which is abandoned when the time is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

from ..engine.attempt import MIN_TIMEOUT_SECONDS, current

T = TypeVar("T")


class DeadlinePassed(TimeoutError):
    """The deadline around a call passed before the store responded."""

    def __init__(self) -> None:
        super().__init__("the deadline has passed before the store responded")


def time_left() -> float | None:
    """Return the seconds until the deadline around this call, or raise DeadlinePassed."""
    remaining = current().remaining
    if remaining is not None and remaining <= MIN_TIMEOUT_SECONDS:  # The remaining time is never 0.
        raise DeadlinePassed
    return remaining


def call_until_deadline(call: Callable[[], T], /) -> T:
    """Make a blocking call, and raise DeadlinePassed at the deadline around it.

    With a deadline the call runs in a new thread, which is abandoned when the time is over. The
    request may still take effect then, as after any timeout.
    """
    remaining = time_left()
    if remaining is None:
        return call()
    threaded = _ThreadedCall(call)
    run = copy_context().run
    threading.Thread(target=run, args=(threaded.run,), name="redrive-storage", daemon=True).start()
    if not threaded.ended.wait(remaining):
        raise DeadlinePassed
    return threaded.result()


class _ThreadedCall(Generic[T]):
    """A call in a thread, and its result or error."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: T | None = None
        self._error: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # Raised again in the calling thread.
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # The call has ended.
