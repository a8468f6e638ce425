"""Wake: how a worker with nothing to do learns that there is something."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Protocol

from ..errors import LedgerUnavailable
from .db.session import Pool, Session
from .db.tables import CHANNEL

LOOK = 0.02
"""Seconds between looks at a SQLite file. The look itself is 4 µs, but to wake up for it costs fifty times that."""
RARELY = 0.05
"""Where nothing has happened for more than half a second."""
LONGER = 1.05
"""Each pause than the one before, on the way there."""
ASK = 15.0
"""Seconds between two looks whether the connection that listens still answers."""


class Wake(Protocol):
    """Belongs to one thread."""

    def wait(self, seconds: float, /) -> bool:
        """Until something was submitted or `seconds` have passed; True for the former."""

    def close(self) -> None:
        """Stop listening."""


class Bell:
    """Rung in this process at each submission. Threads share it; a forked child has one of its own."""

    def __init__(self) -> None:
        self.count = 0
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()

    def ring(self) -> None:
        """Wake everybody who waits."""
        if self._pid != os.getpid():
            self._start()  # a thread of the parent may have held it at that moment, and would never let go here
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, heard: int, seconds: float, /) -> bool:
        """Until it rings again after the `heard` time, or `seconds` have passed; True for the former."""
        if self._pid != os.getpid():
            self._start()
        with self._changed:
            return self._changed.wait_for(lambda: self.count != heard, timeout=seconds)


class Listening:
    """By LISTEN and NOTIFY, on a connection of its own. Belongs to one thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ask(f"LISTEN {CHANNEL}")

    def _ask(self, statement: str) -> None:
        self._session.expect_answer()
        self._session.raw.execute(statement)
        self._session.expect_nothing()
        self._asked = time.monotonic()
        if self._session.is_demoted:  # jobs are submitted to another server now
            raise LedgerUnavailable("the server of this connection is now read-only")

    def wait(self, seconds: float, /) -> bool:
        """Until something was submitted or `seconds` have passed."""
        if time.monotonic() - self._asked > ASK:  # a silent connection would bring no notification, ever
            self._ask("SELECT 1")
        return any(True for _ in self._session.raw.notifies(timeout=seconds, stop_after=1))

    def close(self) -> None:
        """Stop listening."""
        self._session.close()


class Looking:
    """By the number that a SQLite file changes with each commit of anybody else. Belongs to one thread."""

    def __init__(self, own: Pool, bell: Bell) -> None:
        """own: one session, for this alone."""
        self._own = own
        self._bell = bell
        self._rung = bell.count
        self._seen = self._version()
        self._pause = LOOK

    def _version(self) -> tuple[int, Any]:
        """The file's number; another session has numbers of its own."""
        session = self._own.take()
        try:
            return id(session), session.raw.execute("PRAGMA data_version").fetchone()
        finally:
            self._own.give(session)

    def wait(self, seconds: float, /) -> bool:
        """Until something was written or `seconds` have passed."""
        end = time.monotonic() + seconds
        while True:
            version = self._version()
            if version != self._seen:
                self._seen = version
                self._pause = LOOK
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self._bell.wait(self._rung, min(self._pause, left)):
                self._rung = self._bell.count
                self._pause = LOOK
                return True
            self._pause = min(self._pause * LONGER, RARELY)

    def close(self) -> None:
        """Stop looking."""
        self._own.close()


class Told:
    """By the ledger itself, of what is submitted in this process: all there is to one in memory. Belongs to one thread."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._rung = bell.count

    def wait(self, seconds: float, /) -> bool:
        """Until something was submitted or `seconds` have passed."""
        rung = self._bell.wait(self._rung, seconds)
        self._rung = self._bell.count
        return rung

    def close(self) -> None:
        """Stop listening."""
