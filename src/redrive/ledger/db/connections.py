"""Connections: the pools of a ledger, and the choice between SQLite and Postgres.

SQLite keeps the locks of a file in the memory of its process. A forked child has a copy of that
memory, but not the locks. It would wait forever for a writer of its parent, or read without the
lock that keeps the write-ahead log from being reset. So all connections to SQLite are closed before
a fork. Parent and child open their own at the next use.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ...core.lazy import deferred
from ...errors import LedgerError, LedgerRemoved, LedgerUnavailable
from ..notify import InProcessWake, LocalNotifier, PostgresWake, SqliteWake, Wake
from ..store.protocol import JobStore
from . import schema, secret_names, sqlite
from .address import Address
from .caller_runners import SqlAlchemyRunner
from .caller_transaction import check_same_database, runner_of
from .compiled import BatchRunner
from .pool import Pool
from .session import Session
from .silence_watch import Watch

PATIENCE_SECONDS = 5.0
"""How long to wait for transactions of other threads. Ours take milliseconds, a caller's may
not."""
POLL_SECONDS = 0.0005


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()


def close_before_fork(pool: Pool, /) -> None:
    """Close the connections of this pool whenever the process forks."""
    _POOLS.add(pool)


def before(
    pools: Sequence[Pool],
    /,
    *,
    patience: float = PATIENCE_SECONDS,
    clock: Callable[[], float] = monotonic,
) -> None:
    """Wait until no other thread uses a connection, then close all."""
    for pool in pools:
        pool.pause()
    end = clock() + patience
    while any(pool.is_used_by_others() for pool in pools) and clock() < end:
        sleep(POLL_SECONDS)
    for pool in pools:
        pool.close_idle(max(POLL_SECONDS, end - clock()))


def _before() -> None:
    before(list(_POOLS))


def _after_in_parent() -> None:
    for pool in list(_POOLS):
        pool.resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent)

if TYPE_CHECKING:
    from ..store.postgres import store as postgres_store
    from ..store.sqlite import store as sqlite_store
    from . import postgres
else:  # psycopg is optional, and a program that only reads needs no statements of workers
    (postgres,) = deferred(__package__, "postgres")
    postgres_store, sqlite_store = deferred(
        "redrive.ledger.store", "postgres.store", "sqlite.store"
    )

POSTGRES_POOL_SIZE = 8
OWN_POOL_SIZE = 8
"""Sessions on a SQLite file for work that must not wait for others, such as renewing leases."""


class Connections:
    """The connections of one ledger. Threads may share them. A forked child gets its own.

    Other parts of Redrive with tables in the ledger use them:
    `with ledger.connections.write.use() as session`.
    """

    def __init__(self, address: Address, *, migrate: bool) -> None:
        self._engine: Engine
        self._watch: Watch | None = None
        self._file: tuple[int, int] | None = None
        self._takes_writes = False
        """Whether a session was on a server that takes writes. Then a read-only one is a standby,
        or a primary that was demoted."""
        self._lent: set[int] = set()
        """Ids of the connections that `Ledger.begin` has lent to callers."""
        on_sqlite = address.dialect == "sqlite"
        if on_sqlite:
            # Create the file only while the ledger is opened: later, a missing file was removed.
            self._engine = sqlite.engine(
                address.target,
                create=lambda: migrate and self._file is None,
                synced=not address.sandboxed,
            )
        else:
            if find_spec("psycopg") is None:
                raise LedgerError(
                    'a ledger on Postgres needs psycopg: pip install "redrive[postgres]"'
                )
            self._watch = Watch()
            self._engine = postgres.engine(address.target, pooled=address.pooled, watch=self._watch)
        # SQLite has one writer at a time. Writers queue here, where they wake each other, and not
        # in the file, where they would poll.
        self.write = Pool(
            self.open_session,
            1 if on_sqlite else POSTGRES_POOL_SIZE,
            forks=not address.in_memory,
            check=self._check_file if on_sqlite else None,
        )
        is_file = on_sqlite and not address.in_memory
        self.read = Pool(self.open_session, 2) if is_file else self.write
        # A group-commit leader has its own connection, so its followers can never block it. There
        # is a leader for jobs, and one for steps.
        self.group_commit = self.write if on_sqlite else Pool(self.open_session, 2)
        if not on_sqlite:
            self.write.siblings = (self.group_commit,)
            self.group_commit.siblings = (self.write,)
        self.address = address
        self._own = Pool(self.open_session, OWN_POOL_SIZE) if is_file else None
        if self._own is not None:
            for pool in (self.write, self.read, self._own):
                close_before_fork(pool)
        try:
            with self.write.use() as session:
                if migrate or address.in_memory:
                    schema.migrate(session, shown=address.shown)
                else:
                    schema.check(session.core, address.shown)
                secret_names.learn(session.core)
                if on_sqlite:
                    sqlite.use_write_ahead_log(session)
                    self.address = address._replace(target=sqlite.file_of(session))
                    self._file = sqlite.identity(self.address.target)
        except BaseException:
            self.close()
            raise

    @cached_property
    def store(self) -> JobStore:
        """The statements of workers and submitters."""
        if self.on_sqlite:
            return sqlite_store.SqliteJobStore()
        return postgres_store.PostgresJobStore()

    @property
    def on_sqlite(self) -> bool:
        """Whether the ledger is on SQLite, not on Postgres."""
        return self.address.dialect == "sqlite"

    def _check_file(self) -> None:
        if self._file is None:
            return
        file = self.address.target
        current = sqlite.identity(file)
        if current is None:
            raise LedgerRemoved(sqlite.missing(file))
        if current != self._file:
            raise LedgerRemoved(
                f"{file} was replaced while it was open, so new writes would be lost; "
                "restart this program, which then opens the new file"
            )

    def open_session(self) -> Session:
        """Open a session outside of the pools. The caller closes it."""
        self._check_file()
        try:
            session = Session(self._engine.connect(), self._watch)
            self._takes_writes = self._takes_writes or session.expects_writes
            session.expects_writes = self._takes_writes
            return session
        except LedgerError:
            self._check_file()  # the file may have been removed since the check
            raise
        except DBAPIError as error:
            raise LedgerUnavailable(f"the ledger cannot be opened: {error.orig}") from error
        finally:
            if self._watch is not None:
                self._watch.end_opening()

    @contextmanager
    def own_session(self) -> Iterator[Session]:
        """Open a session that does not wait for the pools. A ledger in memory has no other."""
        if self.address.in_memory:
            with self.write.use() as session:
                yield session
            return
        if self._own is not None:
            with self._own.use() as session:
                yield session
            self._own.drop_idle()
            return
        session = self.open_session()
        try:
            yield session
        finally:
            session.close()

    def require_own_sessions(self, operation: str, /) -> None:
        """Raise LedgerError if a pooler in transaction mode shares sessions with other clients."""
        if self.address.pooled:
            raise LedgerError(
                f"{operation} through a pooler in transaction mode; "
                "pass the address of the server itself"
            )

    @contextmanager
    def lending(self, connection: Any, /) -> Iterator[None]:
        """Accept a connection of the ledger as a caller's transaction for the block."""
        self._lent.add(id(connection))
        try:
            yield
        finally:
            self._lent.discard(id(connection))

    def adopt_transaction(self, tx: Any, /) -> BatchRunner:
        """Return a runner for the ledger's statements in a caller's open transaction.

        Raises:
            TypeError: `tx` is not a supported connection.
            ValueError: It has no open transaction, or is on another database.
        """
        if id(tx) in self._lent:
            return SqlAlchemyRunner(tx)
        run = runner_of(tx, self.address)
        check_same_database(run, self.address)
        return run

    def limit_silence(self, seconds: float, /) -> None:
        """Cut connections that do not answer for this long, from now on. Any thread may call it."""
        if self._watch is not None:
            self._watch.limit(seconds)

    def listen(self, notifier: LocalNotifier, /) -> Wake:
        """Return an object that wakes a worker when jobs are submitted."""
        if self.address.in_memory or self.address.pooled:
            # Through a pooler, LISTEN would be on another client's session: the worker polls.
            return InProcessWake(notifier)
        if self.on_sqlite:
            pool = Pool(self.open_session, 1)
            close_before_fork(pool)
            return SqliteWake(pool, notifier)
        return PostgresWake(self.open_session())

    def close(self) -> None:
        """Close all connections. Connections in use are closed when they are released."""
        self.write.close()
        self.read.close()
        self.group_commit.close()
        if self._own is not None:
            self._own.close()
