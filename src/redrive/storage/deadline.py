"""Deadlines for clients that have none, and clients that a forked child must not share.

`with deadline(1):` applies to every store. Async calls are cancelled. A blocking call (Azure,
Arrow) runs in a thread, which is abandoned when the time is over.
"""

from __future__ import annotations

import os
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


class ForkSafeLock:
    """A lock that works in a forked child, even if a thread of the parent held it at the fork."""

    def __init__(self) -> None:
        self._locks = {os.getpid(): threading.Lock()}

    def of_this_process(self) -> threading.Lock:
        """Return the lock to acquire: `with lock.of_this_process():`."""
        pid = os.getpid()
        return self._locks.get(pid) or self._locks.setdefault(pid, threading.Lock())


class PerProcess(Generic[T]):
    """A client that is created at the first use, and created again in a forked child.

    The child forgets the client of its parent without closing it. Threads may share one.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._pid_and_value: tuple[int, T] | None = None

    def get(self, create: Callable[[], T], /) -> T:
        """Return the client of this process, which is created if needed.

        `create` is not stored: a bound method would be a reference cycle, and delay the release
        of the connections.
        """
        entry = self._pid_and_value
        if entry is None or entry[0] != os.getpid():
            with self._lock.of_this_process():
                entry = self._pid_and_value
                if entry is None or entry[0] != os.getpid():
                    entry = self._pid_and_value = os.getpid(), create()
        return entry[1]

    def pop(self) -> T | None:
        """Forget the client. Return it if this process created it, so that the caller closes it."""
        with self._lock.of_this_process():
            entry, self._pid_and_value = self._pid_and_value, None
        return entry[1] if entry is not None and entry[0] == os.getpid() else None
