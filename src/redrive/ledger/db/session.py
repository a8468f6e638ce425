"""Session: one connection to the database; Pool: the few of them that a ledger keeps."""

from __future__ import annotations

import os
import threading
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ...core.classify import classify
from ...errors import LedgerError, LedgerUnavailable
from ..failpoint import crash_point
from .silence_watch import LONG_PATIENCE, MARGIN, Watch

_INHERITED: list[object] = []
"""Connections that a forked child must neither use nor close: they are its parent's. Kept, so that nothing closes them."""

STOPPED = 10
"""Seconds. Ours are over in milliseconds: a process that was stopped within one would keep its locks until it goes on."""
UNBOUNDED = "SET LOCAL statement_timeout TO DEFAULT"
"""For statements that are not ours: as the server, the role or the address has it."""
NO_LIMIT = 0
"""As a bound for `transaction`: statements of maintenance, which may read or rewrite a whole table."""
LONG_PAUSE = 600
"""Seconds between two statements of maintenance: it may go through many rows meanwhile."""
WAITS_FOR_ITSELF = (
    "this thread is in a transaction of its own on this SQLite ledger (`ledger.begin()`, or a function with "
    "in_transaction=True), and SQLite has one writer: it would wait for itself. Pass the transaction as tx=, or do this after it"
)


READ_ONLY = "25006"
"""Of Postgres: the server was demoted, or is set to refuse writes."""
REPORTED = (b"default_transaction_read_only", b"in_hot_standby")
"""Settings that Postgres 14 and later report with each response, once they have changed."""
SQLITE_TROUBLE = frozenset((5, 6, 7, 8, 10, 13, 14, 15))
"""Busy, locked, no memory, read-only, I/O error, full, cannot open, locking protocol: of the file, not of the statement."""
DRIVERS = ("psycopg", "sqlite3")
BUSY = 5
"""Of SQLite: another connection has written, and has not committed in time."""
LOCKED = "; if your own transaction on this file is open, pass it as tx=, or commit it first"


class Session:
    """One connection, in autocommit. One thread at a time; never a forked child.

    `raw` is the driver's own connection, `core` is SQLAlchemy's around the same one. The hot path runs on `run`.
    """

    def __init__(self, core: Connection, watch: Watch | None = None) -> None:
        """watch: cuts the connection where a statement is not answered in time; on Postgres."""
        self.core = core
        self.idled = False
        """It was in the pool before: whatever ended it may have done so long ago."""
        self.refuses = False
        """It answered that it takes no writes: another connection may reach the primary."""
        raw: Any = core.connection.driver_connection
        self.raw = raw
        self.sqlite = core.dialect.name == "sqlite"
        self._opened_read_only = self._is_read_only()
        # A cursor that is kept: psycopg takes a fifth of a whole statement to make one.
        self.run = raw if self.sqlite else raw.cursor()
        self._begin = "BEGIN IMMEDIATE" if self.sqlite else "BEGIN"
        self._own = self._begin if self.sqlite else f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = '{STOPPED}s'"
        self._lent = self._begin if self.sqlite else f"BEGIN; {UNBOUNDED}"
        self._watch = watch
        self._line = -1 if watch is None else watch.open(raw.fileno())
        if watch is not None:
            raw.watch, raw.line = watch, self._line

    @contextmanager
    def transaction(self, verb: str, /, *, bound: int | None = None) -> Iterator[Connection]:
        """Everything inside becomes durable together, or nothing does.

        bound: seconds that one statement may take on Postgres, or NO_LIMIT; None: as for all of ours.
        """
        # IMMEDIATE: a transaction that begins by reading fails at its first write if anybody wrote in between, and no
        # time-out helps.
        lent = verb == "caller"
        self.raw.execute(self._lent if lent else self._own)
        if lent:
            self.expect_nothing()  # a statement of the caller's may take as long as it takes
        elif bound is not None:
            self.allow(bound)
        try:
            yield self.core
            crash_point(f"{verb}.before_commit")
            self.expect_answer()
            self.raw.execute("COMMIT")
        except BaseException:
            self.expect_answer()
            self.undo()
            raise
        crash_point(f"{verb}.after_commit")

    @contextmanager
    def snapshot(self, *, bound: int | None = None) -> Iterator[Connection]:
        """One moment of the ledger to read, however long it takes; nobody who writes is held up.

        bound: NO_LIMIT, where a `statement_timeout` of the server, the role or the address must not apply either.
        """
        # Otherwise each statement sees a moment of its own, and what moved in between is counted twice, or not at all.
        self.raw.execute("BEGIN" if self.sqlite else f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {UNBOUNDED}")
        self.expect_nothing()  # it may read every row
        if bound is not None:
            self.allow(bound)
        try:
            yield self.core
        finally:
            self.expect_answer()
            self.undo()

    def expect_answer(self) -> None:
        """Statements from now on must be answered in time."""
        if self._watch is not None:
            self.raw.patience = self.raw.usual

    def expect_nothing(self) -> None:
        """No statement is running, or one that may take as long as it takes."""
        if self._watch is not None:
            self.raw.patience = None

    def allow(self, bound: int, /) -> None:
        """Let each statement of the open transaction take so many seconds, or with NO_LIMIT any time, on Postgres."""
        if self.sqlite:
            return
        self.raw.execute(
            f"SET LOCAL statement_timeout = '{bound}s'; SET LOCAL idle_in_transaction_session_timeout = '{LONG_PAUSE}s'"
        )
        if self._watch is not None:
            self.raw.patience = bound + MARGIN if bound else LONG_PATIENCE

    def explain(self, error: Exception, /, *, lent: bool = False) -> None:
        """Raise LedgerUnavailable from this error, where the database is at fault and not the statement.

        lent: the statement may be the caller's own: a conflict with another one is then the caller's, too.
        """
        said = getattr(error, "orig", None) or error  # SQLAlchemy's error is around the driver's
        if type(said).__module__.partition(".")[0] not in DRIVERS:
            return
        if self.sqlite:
            code = getattr(said, "sqlite_errorcode", 0) & 0xFF
            if code in SQLITE_TROUBLE:
                hint = LOCKED if code == BUSY else ""
                raise LedgerUnavailable(f"the ledger is unavailable: {said}{hint}") from error
            return
        state = getattr(said, "sqlstate", None)
        broken = bool(self.raw.closed)
        self.refuses = self.refuses or state == READ_ONLY
        if broken or state == READ_ONLY or (not lent and classify(said).retryable):
            unknown = "; whether the last statement was executed is unknown" if broken else ""
            words = str(said).strip().partition("\n")[0]
            raise LedgerUnavailable(
                f"the ledger is unavailable: {words}{unknown}",
                sent=broken,
                stale=self.idled and (broken or state == READ_ONLY) and not self._was_cut(),
            ) from error

    def _was_cut(self) -> bool:
        """Whether it was silent for so long that the watch cut it: another one would be silent, too."""
        return self._watch is not None and self._watch.has_cut(self._line)

    def undo(self) -> None:
        """Roll back, if there is anything to roll back on."""
        try:
            if self.in_transaction:
                self.raw.execute("ROLLBACK")
        except Exception:
            pass

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        if self.sqlite:
            return bool(self.raw.in_transaction)
        return bool(self.raw.info.transaction_status)

    @property
    def is_demoted(self) -> bool:
        """Whether its server took writes when the session was opened, and has said since that it does not.

        A session that only reads never gets the error, and would read old data without end. A server that is read-only
        from the start (the address of a standby) is what the user asked for.
        """
        return self._is_read_only() and not self._opened_read_only

    def _is_read_only(self) -> bool:
        if self.sqlite or self.raw.closed:
            return False
        pgconn = self.raw.pgconn
        return any(pgconn.parameter_status(name) == b"on" for name in REPORTED)

    @property
    def free(self) -> bool:
        """Whether the next one can have it: it is whole, and nothing is open on it."""
        if self.sqlite:
            return not self.raw.in_transaction
        if self.raw.closed or self.refuses or self.raw.info.transaction_status:
            return False
        return not self.is_demoted

    def close(self) -> None:
        """Give the connection up."""
        try:
            self.core.close()
        except Exception:
            pass
        self.raw.close()
        if self._watch is not None and self._line >= 0:
            self._watch.close(self._line)
            self._watch = None


Place: TypeAlias = tuple[LockType, list[Session | None], int]
"""Of a thread in line: what wakes it, what it is handed, who it is."""


class Pool:
    """A few sessions, opened when needed. Threads may share it; a forked child gets connections of its own.

    A thread that has one and needs another never waits for itself: it is told, where there is one only, as SQLite has one
    writer; else it gets one more than the pool has.
    """

    def __init__(
        self, opened: Callable[[], Session], size: int, *, forks: bool = True, check: Callable[[], None] | None = None
    ) -> None:
        """check: raises where nothing that is written now would be found again."""
        self._open = opened
        self._check = check
        self._size = size
        self._forks = forks
        self.beside: tuple[Pool, ...] = ()
        """Others on the same server."""
        self._start()

    def _start(self) -> None:
        self._lock = allocate_lock()
        self._pid = os.getpid()
        self._free: list[Session] = []
        self._taken: dict[Session, int] = {}
        self._count = 0
        self._waiting: list[Place] = []
        self._paused = False
        self.closed = False

    def take(self, *, checked: bool = True) -> Session:
        """A session for this thread alone, until it is given back. RuntimeError where the thread itself has the only one.

        checked: False where nothing new is written, and so nothing could be lost.
        """
        if self._pid != os.getpid():
            self._after_fork()
        if checked and self._check is not None:
            self._check()
        me = get_ident()
        place: Place | None = None
        with self._lock:
            if self.closed:
                raise LedgerUnavailable("this ledger is closed")
            if self._free and not self._paused:
                session = self._free.pop()
                self._taken[session] = me
                session.expect_answer()
                return session
            if (self._count < self._size and not self._paused) or self._has_one(me):
                self._count += 1
            else:
                place = (allocate_lock(), [], me)
                place[0].acquire()
                self._waiting.append(place)
        if place is not None:
            place[0].acquire()
            handed = place[1][0]
            if handed is not None:
                handed.expect_answer()
                return handed
        try:
            session = self._open()
        except BaseException:
            self._leave(None, None)
            raise
        with self._lock:
            self._taken[session] = me
        session.expect_answer()
        return session

    def _has_one(self, thread: int) -> bool:
        if thread not in self._taken.values():
            return False
        if self._size == 1:
            raise RuntimeError(WAITS_FOR_ITSELF)
        return True

    def outside(self) -> None:
        """RuntimeError where this thread has the only session: whatever asks for another would never get it."""
        if self._size == 1 and self._taken and self._pid == os.getpid():
            with self._lock:
                self._has_one(get_ident())

    def give(self, session: Session, /) -> None:
        """Back to the others."""
        if session not in self._taken or self._pid != os.getpid():
            _INHERITED.append(session)  # taken before a fork, by the parent
            return
        free = session.free
        if not free:
            session.undo()
            free = session.free  # cut in the middle of an answer, it may look open, and is at that answer for ever
        session.expect_nothing()
        session.idled = True
        if self.closed or not free:
            session.close()
            for pool in (self, *self.beside):
                pool.forget()
            self._leave(None, session)
            return
        self._leave(session, session)

    def forget(self) -> None:
        """One connection is gone: whatever ended it (a restart of the server) has ended the idle ones too, most likely."""
        with self._lock:
            free, self._free = self._free, []
            self._count -= len(free)
        for idle in free:
            idle.close()

    # Whoever forks calls these. It must not wait for a lock without a limit: a thread may hold it for as long as it likes.

    def pause(self) -> None:
        """Hand out nothing until `resume`, except to threads that have a session already; who asks waits."""
        self._paused = True

    def is_used_by_others(self) -> bool:
        """Whether another thread than this one has a session, or is opening one."""
        mine = sum(thread == get_ident() for thread in list(self._taken.values()))
        return self._lock.locked() or self._count - len(self._free) > mine

    def close_idle(self, seconds: float, /) -> None:
        """Close the idle sessions, if the lock is to be had within this time."""
        if self._lock.acquire(timeout=seconds):
            free, self._free = self._free, []
            self._count -= len(free)
            self._lock.release()
            for idle in free:
                idle.close()

    def resume(self) -> None:
        """Hand out again."""
        self._paused = False
        if not self._lock.acquire(timeout=1):
            threading.Thread(target=self.resume, daemon=True).start()
            return
        while self._waiting and (self._free or self._count < self._size):
            lock, handed, thread = self._waiting.pop(0)
            session = self._free.pop() if self._free else None
            handed.append(session)
            if session is None:
                self._count += 1
            else:
                self._taken[session] = thread
            lock.release()
        self._lock.release()

    def _leave(self, session: Session | None, taken: Session | None) -> None:
        """Hand the session (or, with None, the right to open one) to who waits longest."""
        with self._lock:
            if taken is not None:
                del self._taken[taken]
            if self._waiting and not self._paused:
                lock, handed, thread = self._waiting.pop(0)
                handed.append(session)
                if session is not None:
                    self._taken[session] = thread
                lock.release()
                return
            if session is not None and self._count <= self._size:
                self._free.append(session)
                return
            self._count -= 1
        if session is not None:  # one more than the pool has
            session.close()

    @contextmanager
    def use(self, *, lent: bool = False) -> Iterator[Session]:
        """A session for the block. LedgerUnavailable where the database is at fault. lent: the block is the caller's own."""
        session = self.take()
        try:
            yield session
        except Exception as error:
            session.explain(error, lent=lent)
            raise
        finally:
            self.give(session)

    def close(self) -> None:
        """Close what is free now; what is in use is closed when it comes back."""
        if self._pid != os.getpid():  # they are the parent's: to close one here would end it there
            _INHERITED.append(self._free)
            self._start()
        with self._lock:
            self.closed = True
            free, self._free = self._free, []
            self._count -= len(free)
        for session in free:
            session.close()

    def _after_fork(self) -> None:
        _INHERITED.extend((self._free, self._taken))
        if not self._forks:
            raise LedgerError("a ledger in memory belongs to the process that opened it; a forked child has none")
        if any(session.sqlite for session in self._taken):
            # SQLite's memory of the locks of this file is the parent's, and stays so: see sqlite/fork.py.
            raise LedgerError(
                "this process was forked while a transaction was open on its SQLite ledger, and cannot use it; "
                "fork outside of `ledger.begin()` and of functions with in_transaction=True"
            )
        self._start()
