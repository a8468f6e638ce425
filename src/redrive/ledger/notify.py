"""Wake-ups: how an idle worker learns that jobs were submitted."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Protocol

from ..errors import LedgerUnavailable
from .db.pool import Pool
from .db.session import Session
from .db.tables import CHANNEL

POLL_SECONDS = 0.02
"""Between polls of a SQLite file. A poll takes 4 µs, but waking up for it costs fifty times
that."""
MAX_POLL_SECONDS = 0.05
"""Reached if nothing was written for half a second."""
POLL_GROWTH = 1.05
CHECK_SECONDS = 15.0
"""Between checks that the listening connection still answers."""


class Wake(Protocol):
    """Waits for submissions. Belongs to one thread."""

    def wait(self, seconds: float, /) -> bool:
        """Return True when something was submitted, False after `seconds`."""

    def close(self) -> None:
        """Stop listening."""


class LocalNotifier:
    """Signals submissions inside this process. Threads share it; a forked child gets its own."""

    def __init__(self) -> None:
        self.count = 0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()

    def notify(self) -> None:
        """Wake all waiting threads."""
        if self._pid != os.getpid():
            self._reset()  # a thread of the parent may have held the lock when it forked
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int, seconds: float, /) -> bool:
        """Return True when the count differs from `count`, False after `seconds`."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            return self._changed.wait_for(lambda: self.count != count, timeout=seconds)


class PostgresWake:
    """By LISTEN and NOTIFY, on its own connection. Belongs to one thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._execute(f"LISTEN {CHANNEL}")

    def _execute(self, statement: str) -> None:
        self._session.expect_answer()
        self._session.raw.execute(statement)
        self._session.expect_nothing()
        self._checked_at = time.monotonic()
        if self._session.is_demoted:  # jobs are submitted to another server now
            raise LedgerUnavailable("the server of this connection is now read-only")

    def wait(self, seconds: float, /) -> bool:
        """Return True when something was submitted, False after `seconds`."""
        # A dead connection would never bring a notification.
        if time.monotonic() - self._checked_at > CHECK_SECONDS:
            self._execute("SELECT 1")
        return any(True for _ in self._session.raw.notifies(timeout=seconds, stop_after=1))

    def close(self) -> None:
        """Stop listening."""
        self._session.close()


class SqliteWake:
    """By the data version of a SQLite file, which changes with each commit of another connection.

    Belongs to one thread.

    Args:
        pool: A pool of one session, for this object only.
        notifier: Signals submissions of this process.
    """

    def __init__(self, pool: Pool, notifier: LocalNotifier) -> None:
        self._pool = pool
        self._notifier = notifier
        self._count = notifier.count
        self._version = self._read_version()
        self._pause = POLL_SECONDS

    def _read_version(self) -> tuple[int, Any]:
        """Return the data version, with the session: each session has its own versions."""
        session = self._pool.acquire()
        try:
            return id(session), session.raw.execute("PRAGMA data_version").fetchone()
        finally:
            self._pool.release(session)

    def wait(self, seconds: float, /) -> bool:
        """Return True when something was written, False after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            version = self._read_version()
            if version != self._version:
                self._version = version
                self._pause = POLL_SECONDS
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self._notifier.wait(self._count, min(self._pause, left)):
                self._count = self._notifier.count
                self._pause = POLL_SECONDS
                return True
            self._pause = min(self._pause * POLL_GROWTH, MAX_POLL_SECONDS)

    def close(self) -> None:
        """Stop polling."""
        self._pool.close()


class InProcessWake:
    """By submissions of this process only, for a ledger in memory. Belongs to one thread."""

    def __init__(self, notifier: LocalNotifier) -> None:
        self._notifier = notifier
        self._count = notifier.count

    def wait(self, seconds: float, /) -> bool:
        """Return True when something was submitted, False after `seconds`."""
        is_notified = self._notifier.wait(self._count, seconds)
        self._count = self._notifier.count
        return is_notified

    def close(self) -> None:
        """Do nothing."""
