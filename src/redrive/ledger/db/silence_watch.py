"""Watch: cuts connections to Postgres on which a statement was not answered in time.

TCP notices a peer that is gone, but not one that acknowledges packets and never answers (a stuck proxy, a suspended
server). `statement_timeout` does not help there either: the server's answer does not arrive.
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
"""How long the server works on one statement of ours before it gives up."""
MARGIN = 5.0
"""Seconds that an answer may take on its way, after the server gave up."""
PATIENCE = STATEMENT_SECONDS + MARGIN
"""Seconds without an answer, after which a connection is cut: a server that can be reached has answered by then."""
LONG_PATIENCE = 86_400.0
"""The same for a statement of maintenance, which may read or rewrite a whole table."""
LOOK = 0.5
"""Seconds between two looks, while statements are running."""
IDLE_LOOKS = 20
"""With nothing to watch for so many looks, the thread ends; the next statement starts it again."""


_WATCHES: weakref.WeakSet[Watch] = weakref.WeakSet()


class Watch:
    """Lines (sockets) on which an answer is due. Threads may share it; a forked child starts with none.

    A line is a duplicate of the connection's own descriptor: libpq closes that one by itself, and the number may be
    another socket's a moment later.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        """Seconds, for lines that are begun without any."""
        self._most = inf
        self._start_over()
        _WATCHES.add(self)

    def _start_over(self) -> None:
        self._since: dict[int, tuple[float, float]] = {}
        """By line: when its statement was sent, and the seconds that the answer may take."""
        self._cut: set[int] = set()
        self._lock = allocate_lock()
        self._opening = threading.local()
        self._running = False

    def open(self, descriptor: int, /) -> int:
        """A line to the connection with this descriptor."""
        return os.dup(descriptor)

    def hurry(self, seconds: float, /) -> None:
        """From now on wait no longer than this for any answer; a worker that stops does so."""
        self._most = min(self._most, seconds)

    def begin(self, line: int, patience: float | None = None, /) -> None:
        """An answer is due on this line, within so many seconds from now."""
        self._since[line] = (monotonic(), self.patience if patience is None else patience)
        if not self._running:
            self._start()

    def end(self, line: int, /) -> None:
        """Nothing is due on this line."""
        self._since.pop(line, None)

    def close(self, line: int, /) -> None:
        """The connection is closed."""
        with self._lock:
            self._since.pop(line, None)
            self._cut.discard(line)
            os.close(line)

    def begin_opening(self, descriptor: int, /) -> None:
        """A connection is being set up by this thread, until `end_opening`."""
        line = self.open(descriptor)
        self._opening.line = line
        self.begin(line)

    def end_opening(self) -> None:
        """It is set up, or could not be."""
        line = self._opening.__dict__.pop("line", None)
        if line is not None:
            self.close(line)

    def cut_silent(self, now: float, /) -> int:
        """Cut the lines on which an answer is overdue; how many. Whoever waits there gets an error at once."""
        cut = 0
        for line, statement in list(self._since.items()):
            since, patience = statement
            if now - since < min(patience, self._most):
                continue
            with self._lock:
                if self._since.get(line) is statement:
                    del self._since[line]
                    self._cut.add(line)
                    _shut_down(line)
                    cut += 1
        return cut

    def has_cut(self, line: int, /) -> bool:
        """Whether this line was cut."""
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
        while idle < IDLE_LOOKS:
            pause.wait(LOOK)
            self.cut_silent(monotonic())
            idle = 0 if self._since else idle + 1
        self._running = False
        if self._since:  # one was begun while this thread still seemed to run
            self._start()


def _shut_down(line: int) -> None:
    connection = socket.socket(fileno=line)
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it was closed by the other side meanwhile
    finally:
        connection.detach()


def _after_fork() -> None:
    for watch in list(_WATCHES):
        watch._start_over()  # the parent's thread is not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
