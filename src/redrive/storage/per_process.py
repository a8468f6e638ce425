"""PerProcess: clients and locks that a forked child must not share with its parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
