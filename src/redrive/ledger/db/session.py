"""Session: one connection to the database, with its transactions and error handling.

And SQL that differs between SQLite and Postgres, for queries outside of the hot path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Table, func, select, text
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ...core.classification.classify import classify
from ...errors import LedgerUnavailable
from ..failpoint import crash_point
from .silence_watch import LONG_PATIENCE, MARGIN, Watch

IDLE_SECONDS = 10
"""A transaction of ours takes milliseconds. A process that was suspended inside one must not keep
its locks."""
NO_STATEMENT_TIMEOUT = "SET LOCAL statement_timeout TO DEFAULT"
"""For statements of the caller: the timeout of the server, the role or the address applies."""
NO_LIMIT = 0
"""`bound` of a transaction for maintenance, whose statements may read or rewrite a whole table."""
LONG_PAUSE_SECONDS = 600
"""Idle time inside a maintenance transaction, which may process many rows between statements."""

READ_ONLY = "25006"
"""SQLSTATE of Postgres: the server was demoted, or rejects writes."""
REPORTED_SETTINGS = (b"default_transaction_read_only", b"in_hot_standby")
"""Settings that Postgres 14 and later report when they change."""
SQLITE_UNAVAILABLE = frozenset((5, 6, 7, 8, 10, 13, 14, 15))
"""Error codes about the file, not the statement: busy, locked, no memory, read-only, I/O error,
full, cannot open, locking protocol."""
DRIVERS = ("psycopg", "sqlite3")
BUSY = 5
"""Error code of SQLite: another connection has written and did not commit in time."""
BUSY_HINT = "; if your own transaction on this file is open, pass it as tx=, or commit it first"


class Session:
    """One connection, in autocommit. One thread at a time, never a forked child.

    `raw` is the driver's connection and `core` is SQLAlchemy's around it. The hot path uses `run`.

    Args:
        core: The connection.
        watch: Cuts the connection if a statement is not answered in time (Postgres).
    """

    def __init__(self, core: Connection, watch: Watch | None = None) -> None:
        self.core = core
        self.was_idle = False
        """Whether it was in the pool before. The server may have closed it long ago."""
        self.rejects_writes = False
        """Whether it answered that it takes no writes. A new connection may reach the primary."""
        raw: Any = core.connection.driver_connection
        self.raw = raw
        self.sqlite = core.dialect.name == "sqlite"
        self.expects_writes = not self.is_read_only
        """Whether the server takes writes, or should: the ledger was opened at one that does."""
        # Reuse one cursor: creating it costs about 20 % of a statement in psycopg.
        self.run = raw if self.sqlite else raw.cursor()
        # IMMEDIATE: a transaction that begins by reading fails at its first write if another
        # connection wrote in between, and no timeout helps.
        idle_timeout = f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
        self._begin = "BEGIN IMMEDIATE" if self.sqlite else f"BEGIN; {idle_timeout}"
        self._begin_lent = "BEGIN IMMEDIATE" if self.sqlite else f"BEGIN; {NO_STATEMENT_TIMEOUT}"
        self._begin_snapshot = (
            "BEGIN"
            if self.sqlite
            else f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {NO_STATEMENT_TIMEOUT}"
        )
        self._watch = watch
        self._line = -1 if watch is None else watch.open(raw.fileno())
        if watch is not None:
            raw.watch, raw.line = watch, self._line

    # --- Transactions

    @contextmanager
    def transaction(
        self, verb: str, /, *, bound: int | None = None, lock_seconds: float | None = None
    ) -> Iterator[Connection]:
        """Commit everything inside together, or nothing.

        Args:
            verb: Names the crash points before and after the commit. "caller": the transaction is
                the caller's, so statements may take any time.
            bound: Seconds that one statement may take on Postgres, or NO_LIMIT. None: the default.
            lock_seconds: How long a statement waits for a lock on Postgres. None: as long as it may
                take. SQLite has one lock for all writers, and heartbeats wait for it too, so a
                shorter wait would not help there.
        """
        is_lent = verb == "caller"
        begin = self._begin_lent if is_lent else self._begin
        if lock_seconds is not None and not self.sqlite:
            begin = f"{begin}; SET LOCAL lock_timeout = '{max(1, round(lock_seconds * 1000))}ms'"
        self.raw.execute(begin)
        if is_lent:
            self.expect_nothing()
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
    def single_statement(self, verb: str, /) -> Iterator[Connection]:
        """Run one statement: in a transaction on SQLite, in autocommit on Postgres.

        Autocommit is one round trip, and a transaction is four.
        """
        if self.sqlite:
            with self.transaction(verb) as connection:
                yield connection
            return
        crash_point(f"{verb}.before_commit")
        yield self.core
        crash_point(f"{verb}.after_commit")

    @contextmanager
    def snapshot(self, *, bound: int | None = None) -> Iterator[Connection]:
        """Read a consistent snapshot for as long as needed. Writers are not blocked.

        Args:
            bound: NO_LIMIT if a `statement_timeout` of the server, the role or the address must not
                apply either.
        """
        self.raw.execute(self._begin_snapshot)
        self.expect_nothing()  # it may read every row
        if bound is not None:
            self.allow(bound)
        try:
            yield self.core
        finally:
            self.expect_answer()
            self.undo()

    @contextmanager
    def serialized_snapshot(self, verb: str, lock: int, /) -> Iterator[Connection]:
        """Read a snapshot and write in one transaction, under a lock taken before the snapshot.

        Args:
            verb: Names the crash points.
            lock: Advisory lock of Postgres. SQLite has one writer at a time.
        """
        if self.sqlite:
            with self.transaction(verb) as connection:
                yield connection
            return
        try:
            self.raw.execute("BEGIN")
            self.allow(NO_LIMIT)
            # A lock of the session stays after this transaction.
            self.raw.execute("SELECT pg_advisory_lock(%s)", (lock,))
            self.raw.execute("COMMIT")
            with self.transaction(verb, bound=NO_LIMIT) as connection:
                self.raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                yield connection
        finally:
            self.expect_answer()
            if not self.raw.closed:
                self.undo()
                self.raw.execute("SELECT pg_advisory_unlock(%s)", (lock,))

    def lock(self, number: int, /) -> None:
        """Take an advisory lock until the transaction ends. SQLite has one writer at a time."""
        if not self.sqlite:
            self.core.execute(select(func.pg_advisory_xact_lock(number)))

    def notify(self, channel: str, /) -> None:
        """Notify listening workers at the commit (Postgres). SQLite workers poll the file."""
        if not self.sqlite:
            self.core.exec_driver_sql(f"NOTIFY {channel}")

    # --- Timeouts

    def expect_answer(self) -> None:
        """Cut the connection if a statement from now on is not answered in time."""
        if self._watch is not None:
            self.raw.patience = self.raw.usual

    def expect_nothing(self) -> None:
        """Let statements take any time from now on."""
        if self._watch is not None:
            self.raw.patience = None

    def allow(self, bound: int, /) -> None:
        """Set the seconds for each statement of the open transaction on Postgres, or NO_LIMIT."""
        if self.sqlite:
            return
        self.raw.execute(
            f"SET LOCAL statement_timeout = '{bound}s'; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{LONG_PAUSE_SECONDS}s'"
        )
        if self._watch is not None:
            self.raw.patience = bound + MARGIN if bound else LONG_PATIENCE

    @contextmanager
    def busy_timeout(self, milliseconds: int, /) -> Iterator[None]:
        """Wait at most this long for another writer of a SQLite file. Postgres is not affected."""
        if not self.sqlite:
            yield
            return
        usual = self.raw.execute("PRAGMA busy_timeout").fetchone()[0]
        self.raw.execute(f"PRAGMA busy_timeout = {min(usual, milliseconds)}")
        try:
            yield
        finally:
            self.raw.execute(f"PRAGMA busy_timeout = {usual}")

    # --- Errors

    def explain(self, error: Exception, /, *, lent: bool = False) -> None:
        """Raise LedgerUnavailable from this error if the database is at fault, not the statement.

        Args:
            error: The error.
            lent: The statement may be the caller's. Then a conflict is the caller's, too.
        """
        driver_error = getattr(error, "orig", None) or error
        if type(driver_error).__module__.partition(".")[0] not in DRIVERS:
            return
        if self.sqlite:
            code = getattr(driver_error, "sqlite_errorcode", 0) & 0xFF
            if code in SQLITE_UNAVAILABLE:
                hint = BUSY_HINT if code == BUSY else ""
                raise LedgerUnavailable(
                    f"the ledger is unavailable: {driver_error}{hint}"
                ) from error
            return
        state = getattr(driver_error, "sqlstate", None)
        is_broken = bool(self.raw.closed)
        self.rejects_writes = self.rejects_writes or state == READ_ONLY
        if is_broken or state == READ_ONLY or (not lent and classify(driver_error).retryable):
            unknown = "; whether the last statement was executed is unknown" if is_broken else ""
            message = str(driver_error).strip().partition("\n")[0]
            raise LedgerUnavailable(
                f"the ledger is unavailable: {message}{unknown}",
                sent=is_broken,
                stale=self.was_idle
                and (is_broken or state == READ_ONLY)
                and not self._was_cut_by_watch(),
            ) from error

    def _was_cut_by_watch(self) -> bool:
        """Return whether the server was silent for too long. A new connection would be, too."""
        return self._watch is not None and self._watch.has_cut(self._line)

    def undo(self) -> None:
        """Roll back an open transaction, if the connection still works."""
        try:
            if self.in_transaction:
                self.raw.execute("ROLLBACK")
        except Exception:
            pass

    # --- State

    @property
    def has_round_trips(self) -> bool:
        """Whether a query before a transaction pays: on Postgres one round trip instead of four."""
        return not self.sqlite

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        if self.sqlite:
            return bool(self.raw.in_transaction)
        return bool(self.raw.info.transaction_status)

    @property
    def is_demoted(self) -> bool:
        """Whether the server should take writes, and reports that it does not.

        A session that only reads never gets the error and would read old data. A ledger whose
        server is read-only from the start (the address of a standby) is intended.
        """
        return self.expects_writes and self.is_read_only

    @property
    def is_read_only(self) -> bool:
        """Whether the server reports that it takes no writes (Postgres 14 and later)."""
        if self.sqlite or self.raw.closed:
            return False
        pgconn = self.raw.pgconn
        return any(pgconn.parameter_status(name) == b"on" for name in REPORTED_SETTINGS)

    @property
    def is_reusable(self) -> bool:
        """Whether the connection is intact and has no open transaction."""
        if self.sqlite:
            return not self.raw.in_transaction
        if self.raw.closed or self.rejects_writes or self.raw.info.transaction_status:
            return False
        return not self.is_demoted

    def close(self) -> None:
        """Close the connection."""
        try:
            self.core.close()
        except Exception:
            pass
        self.raw.close()
        if self._watch is not None and self._line >= 0:
            self._watch.close(self._line)
            self._watch = None


def on_sqlite(connection: Connection, /) -> bool:
    """Return whether the connection is to SQLite, not to Postgres."""
    return connection.dialect.name == "sqlite"


def upsert(session: Session, table: Table, /) -> Any:
    """Return an INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (sqlite_insert if session.sqlite else postgres_insert)(table)


def from_json(cell: Any, /) -> Any:
    """Return the value of a JSON column, which SQLite returns as text."""
    return json.loads(cell) if isinstance(cell, str) else cell


class PerKind:
    """A query that runs a subquery for each of many job types, in one statement.

    The statement is text, because building and naming an expression takes longer than the query.

    Args:
        build: Returns the SELECT list of a statement, in which `look.kind` is the job type. Gets
            whether it is for SQLite.
    """

    def __init__(self, build: Callable[[bool], str]) -> None:
        values = "(SELECT value AS kind FROM json_each(:kinds)) AS look"
        self._sqlite = text(f"SELECT {build(True)} FROM {values}")  # noqa: S608
        self._postgres = text(
            f"SELECT {build(False)} FROM unnest(CAST(:kinds AS text[])) AS look(kind)"  # noqa: S608
        )

    def execute(
        self, connection: Connection, kinds: Sequence[str], /, **parameters: Any
    ) -> Sequence[Any]:
        """Run the statement. The rows are in no particular order."""
        names = list(kinds)
        if on_sqlite(connection):
            rows = connection.execute(self._sqlite, {"kinds": json.dumps(names), **parameters})
        else:
            rows = connection.execute(self._postgres, {"kinds": names, **parameters})
        return rows.all()
