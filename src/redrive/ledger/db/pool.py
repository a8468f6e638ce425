"""Pool: the few sessions that a ledger keeps open."""

from __future__ import annotations

import os
import threading
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...errors import LedgerError, LedgerUnavailable
from .session import Session

_INHERITED: list[object] = []
"""Connections of the parent process. A forked child must neither use nor close them, so it keeps a
reference."""
RESUME_SECONDS = 1.0
NESTED = (
    "this thread is in a transaction of its own on this SQLite ledger (`ledger.begin()`, or a "
    "function with in_transaction=True), and SQLite has one writer: it would wait for itself. "
    "Pass the transaction as tx=, or do this after it"
)


class _Waiter(NamedTuple):
    """A thread that waits for a session."""

    wake: LockType
    handed: list[Session | None]
    """The session, or None: the thread may open one."""
    thread: int


class Pool:
    """A few sessions, opened when needed. Threads may share it. A forked child gets its own.

    A thread that has a session and needs another never waits for itself. If the pool has only one
    session (SQLite has one writer), the thread gets an error. Otherwise it gets an extra session.

    Args:
        open_session: Opens a session.
        size: Maximum number of sessions.
        forks: False if a forked child cannot use the database (in memory).
        check: Raises if written data would be lost, because the file was removed.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        size: int,
        *,
        forks: bool = True,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._open = open_session
        self._check = check
        self._size = size
        self._forks = forks
        self.siblings: tuple[Pool, ...] = ()
        """Other pools on the same server."""
        self._reset()

    def _reset(self) -> None:
        self._lock = allocate_lock()
        self._pid = os.getpid()
        self._idle: list[Session] = []
        self._taken: dict[Session, int] = {}
        """Sessions in use, with the thread."""
        self._count = 0
        """Sessions that are open or being opened."""
        self._waiters: list[_Waiter] = []
        self._paused = False
        self.closed = False

    def acquire(self, *, checked: bool = True) -> Session:
        """Return a session for this thread until `release`.

        Args:
            checked: False to skip the check that the file still exists.

        Raises:
            RuntimeError: This thread has the only session.
        """
        if self._pid != os.getpid():
            self._after_fork()
        if checked and self._check is not None:
            self._check()
        me = get_ident()
        waiter: _Waiter | None = None
        with self._lock:
            if self.closed:
                raise LedgerUnavailable("this ledger is closed")
            if self._idle and not self._paused:
                session = self._idle.pop()
                self._taken[session] = me
                session.expect_answer()
                return session
            if (self._count < self._size and not self._paused) or self._holds_session(me):
                self._count += 1
            else:
                waiter = _Waiter(allocate_lock(), [], me)
                waiter.wake.acquire()
                self._waiters.append(waiter)
        if waiter is not None:
            waiter.wake.acquire()
            handed = waiter.handed[0]
            if handed is not None:
                handed.expect_answer()
                return handed
        try:
            session = self._open()
        except BaseException:
            self._hand_over(None, None)
            raise
        with self._lock:
            self._taken[session] = me
        session.expect_answer()
        return session

    def _holds_session(self, thread: int) -> bool:
        if thread not in self._taken.values():
            return False
        if self._size == 1:
            raise RuntimeError(NESTED)
        return True

    def assert_not_nested(self) -> None:
        """Raise RuntimeError if this thread has the only session: it could never get another."""
        if self._size == 1 and self._taken and self._pid == os.getpid():
            with self._lock:
                self._holds_session(get_ident())

    def release(self, session: Session, /) -> None:
        """Return a session to the pool."""
        if session not in self._taken or self._pid != os.getpid():
            _INHERITED.append(session)  # acquired by the parent, before a fork
            return
        is_reusable = session.is_reusable
        if not is_reusable:
            session.undo()
            # A connection that was cut inside a response may look open. It is not reusable then.
            is_reusable = session.is_reusable
        session.expect_nothing()
        session.was_idle = True
        if self.closed or not is_reusable:
            session.close()
            for pool in (self, *self.siblings):
                pool.drop_idle()
            self._hand_over(None, session)
            return
        self._hand_over(session, session)

    def drop_idle(self) -> None:
        """Close idle sessions. What ended one connection (a server restart) likely ended all."""
        with self._lock:
            idle = self._take_idle()
        for session in idle:
            session.close()

    def _take_idle(self) -> list[Session]:
        idle, self._idle = self._idle, []
        self._count -= len(idle)
        return idle

    def _hand_over(self, session: Session | None, taken: Session | None) -> None:
        """Give a session, or with None the right to open one, to the thread that waits longest."""
        with self._lock:
            if taken is not None:
                del self._taken[taken]
            if self._waiters and not self._paused:
                self._wake_next(session)
                return
            if session is not None and self._count <= self._size:
                self._idle.append(session)
                return
            self._count -= 1
        if session is not None:  # an extra session, see the class
            session.close()

    def _wake_next(self, session: Session | None) -> None:
        waiter = self._waiters.pop(0)
        waiter.handed.append(session)
        if session is not None:
            self._taken[session] = waiter.thread
        waiter.wake.release()

    @contextmanager
    def use(self, *, lent: bool = False) -> Iterator[Session]:
        """Acquire a session for the block.

        Args:
            lent: The block runs statements of the caller.

        Raises:
            LedgerUnavailable: The database is at fault.
        """
        session = self.acquire()
        try:
            yield session
        except Exception as error:
            session.explain(error, lent=lent)
            raise
        finally:
            self.release(session)

    def close(self) -> None:
        """Close idle sessions now, and sessions in use when they are released."""
        if self._pid != os.getpid():  # closing a connection of the parent would end it there
            _INHERITED.append(self._idle)
            self._reset()
        with self._lock:
            self.closed = True
            idle = self._take_idle()
        for session in idle:
            session.close()

    # --- Fork. These methods must not wait for a lock without a limit: another thread may hold it.

    def pause(self) -> None:
        """Hand out no session until `resume`, except to threads that have one already."""
        self._paused = True

    def is_used_by_others(self) -> bool:
        """Return whether another thread has a session, or is opening one."""
        own = sum(thread == get_ident() for thread in list(self._taken.values()))
        return self._lock.locked() or self._count - len(self._idle) > own

    def close_idle(self, seconds: float, /) -> None:
        """Close idle sessions, if the lock is free within this time."""
        if self._lock.acquire(timeout=seconds):
            idle = self._take_idle()
            self._lock.release()
            for session in idle:
                session.close()

    def resume(self) -> None:
        """Hand out sessions again."""
        self._paused = False
        if not self._lock.acquire(timeout=RESUME_SECONDS):
            threading.Thread(target=self.resume, daemon=True).start()
            return
        while self._waiters and (self._idle or self._count < self._size):
            session = self._idle.pop() if self._idle else None
            if session is None:
                self._count += 1
            self._wake_next(session)
        self._lock.release()

    def _after_fork(self) -> None:
        _INHERITED.extend((self._idle, self._taken))
        if not self._forks:
            raise LedgerError(
                "a ledger in memory belongs to the process that opened it; a forked child has none"
            )
        if any(session.sqlite for session in self._taken):
            # SQLite's record of this file's locks is the parent's and stays so, see fork.py.
            raise LedgerError(
                "this process was forked while a transaction was open on its SQLite ledger, and "
                "cannot use it; fork outside of `ledger.begin()` and of functions with "
                "in_transaction=True"
            )
        self._reset()
