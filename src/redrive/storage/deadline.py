"""Deadline: calls of clients that know of no deadline end near it all the same.

`with deadline(1):` reaches every store. A client that can be cancelled is; a client whose calls block
(Azure's, Arrow's) runs in a thread that is left behind, and its caller goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

from ..engine.attempt import LEAST, current

T = TypeVar("T")


class DeadlinePassed(TimeoutError):
    """The deadline around a call has passed before the store responded."""

    def __init__(self) -> None:
        super().__init__("the deadline has passed before the store responded")


def time_left() -> float | None:
    """Seconds until the deadline around this call; None: there is none. DeadlinePassed: it has passed."""
    left = current().remaining
    if left is not None and left <= LEAST:  # it is never 0
        raise DeadlinePassed
    return left


def bounded(call: Callable[[], T], /) -> T:
    """Make a blocking call, and raise DeadlinePassed if it does not end before the deadline.

    Without a deadline it is a plain call. With one it has a thread of its own, which is left behind when
    the time is over: whether the request took effect is not known then, as after any timeout.
    """
    left = time_left()
    if left is None:
        return call()
    work = _Work(call)
    threading.Thread(target=copy_context().run, args=(work.run,), name="redrive-storage", daemon=True).start()
    if not work.ended.wait(left):
        raise DeadlinePassed
    return work.result()


class _Work(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: T | None = None
        self._error: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # for the caller, whatever it is
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # the call has ended
