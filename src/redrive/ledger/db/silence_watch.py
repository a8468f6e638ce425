"""Watch: cuts connections to Postgres on which a statement was not answered in time.

TCP notices a dead peer, but not one that acknowledges packets and never answers (a stuck proxy, a
suspended server). `statement_timeout` does not help either: the server's error does not arrive.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from _thread import allocate_lock
from math import inf
from time import monotonic

STATEMENT_SECONDS = 30
"""`statement_timeout` of our sessions."""
MARGIN = 5.0
"""Seconds for the response to arrive after the server's timeout."""
PATIENCE = STATEMENT_SECONDS + MARGIN
"""Seconds without a response after which a connection is cut."""
LONG_PATIENCE = 86_400.0
"""The same for maintenance, whose statements may read or rewrite a whole table."""
LOOK = 0.5
"""Seconds between two checks while statements are running."""
MAX_IDLE_CHECKS = 20
"""After this many checks without a statement the thread ends. The next statement starts it
again."""


_WATCHES: weakref.WeakSet[Watch] = weakref.WeakSet()


class Watch:
    """The connections on which a response is due. Threads may share it.

    A connection is known by its line: a duplicate of its descriptor. libpq closes the original
    itself, and its number may then be another socket's. A forked child starts with no lines.

    Args:
        patience: Seconds, for lines that are begun without a value.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._limit = inf
        self._reset()
        _WATCHES.add(self)

    def _reset(self) -> None:
        self._since: dict[int, tuple[float, float]] = {}
        """When the statement of each line was sent, and how long the response may take."""
        self._cut: set[int] = set()
        self._lock = allocate_lock()
        self._opening = threading.local()
        self._running = False

    def open(self, descriptor: int, /) -> int:
        """Return a line for the connection with this descriptor."""
        return os.dup(descriptor)

    def limit(self, seconds: float, /) -> None:
        """Wait at most this long for any response, from now on."""
        self._limit = min(self._limit, seconds)

    def begin(self, line: int, patience: float | None = None, /) -> None:
        """Note that a response is due on this line within `patience` seconds."""
        self._since[line] = (monotonic(), self.patience if patience is None else patience)
        if not self._running:
            self._start()

    def end(self, line: int, /) -> None:
        """Note that no response is due on this line."""
        self._since.pop(line, None)

    def close(self, line: int, /) -> None:
        """Forget the line of a closed connection."""
        with self._lock:
            self._since.pop(line, None)
            self._cut.discard(line)
            os.close(line)

    def begin_opening(self, descriptor: int, /) -> None:
        """Watch a connection that this thread sets up, until `end_opening`."""
        line = self.open(descriptor)
        self._opening.line = line
        self.begin(line)

    def end_opening(self) -> None:
        """Stop watching the connection that was set up."""
        line = self._opening.__dict__.pop("line", None)
        if line is not None:
            self.close(line)

    def cut_silent(self, now: float, /) -> int:
        """Cut overdue lines, and return how many. A waiting thread gets an error at once."""
        cut = 0
        for line, statement in list(self._since.items()):
            since, patience = statement
            if now - since < min(patience, self._limit):
                continue
            with self._lock:
                if self._since.get(line) is statement:
                    del self._since[line]
                    self._cut.add(line)
                    _shut_down(line)
                    cut += 1
        return cut

    def has_cut(self, line: int, /) -> bool:
        """Return whether this line was cut."""
        return line in self._cut

    def _start(self) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._run, name="redrive-watch", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        idle = 0
        while idle < MAX_IDLE_CHECKS:
            pause.wait(LOOK)
            self.cut_silent(monotonic())
            idle = 0 if self._since else idle + 1
        self._running = False
        if self._since:  # a statement began while this thread still seemed to run
            self._start()


def _shut_down(line: int) -> None:
    connection = socket.socket(fileno=line)
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the server closed it meanwhile
    finally:
        connection.detach()


def _after_fork() -> None:
    for each in list(_WATCHES):
        each._reset()  # the parent's thread does not run in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
