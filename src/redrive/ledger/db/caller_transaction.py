"""The caller's own open transaction, made ready for our statements: effect and job commit together, or neither."""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import sqlalchemy

from .address import Address
from .compiled import Cursor, Many

if TYPE_CHECKING:
    import sqlalchemy.orm

POSTGRES_DRIVERS = frozenset(("psycopg", "psycopg_async", "psycopg2"))
BYTEA = 17
"""The type's number in Postgres."""
SQLITE_DRIVERS = frozenset(("pysqlite", "aiosqlite"))


class DriverConnection(Protocol):
    """A connection of sqlite3, psycopg or psycopg2."""

    def cursor(self) -> Any:
        """A cursor."""

    def commit(self) -> None:
        """End the transaction."""


Transaction: TypeAlias = "sqlalchemy.Connection | sqlalchemy.orm.Session | sqlalchemy.orm.scoped_session[Any] | DriverConnection"
"""An open transaction of yours, on the ledger's database."""


class Driven:
    """A SQLAlchemy connection that runs our text."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self.connection = connection

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Once."""
        return self.connection.exec_driver_sql(text, parameters)

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """For each."""
        return self.connection.exec_driver_sql(text, list(parameters))


class Lent:
    """A driver's connection that runs our text, whatever its owner wants rows to look like."""

    def __init__(self, connection: Any, plain_rows: Any) -> None:
        self.connection = connection
        self.plain_rows = plain_rows

    def _cursor(self) -> Any:
        cursor = self.connection.cursor()
        cursor.row_factory = self.plain_rows
        return cursor

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Once."""
        cursor = self._cursor()
        cursor.execute(text, parameters)
        return cursor  # type: ignore[no-any-return]  # the driver's own, which has no type here

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """For each."""
        cursor = self._cursor()
        cursor.executemany(text, parameters)
        return cursor  # type: ignore[no-any-return]  # likewise


class LentPsycopg2(Lent):
    """A connection of psycopg2. Its cursors give memoryviews for bytea, where psycopg gives bytes."""

    def _cursor(self) -> Any:
        from psycopg2 import BINARY, extensions  # noqa: PLC0415  # the caller's own library

        def to_bytes(value: Any, cursor: Any) -> bytes | None:
            return None if value is None else bytes(BINARY(value, cursor))

        cursor = self.connection.cursor(cursor_factory=self.plain_rows)
        extensions.register_type(extensions.new_type((BYTEA,), "redrive_bytes", to_bytes), cursor)
        return cursor


def runner(tx: Any, dialect: str, /) -> Many:
    """What runs our statements in this transaction; TypeError or ValueError where it cannot be ours."""
    if "sqlalchemy.orm" in sys.modules:  # else tx cannot be of it, and nothing needs to load it
        if isinstance(tx, sqlalchemy.orm.scoped_session):
            tx = tx()  # the session of this thread or request: Flask-SQLAlchemy's `db.session` is one
        if isinstance(tx, sqlalchemy.orm.Session):
            tx = tx.connection()
    if isinstance(tx, sqlalchemy.Connection):
        drivers = SQLITE_DRIVERS if dialect == "sqlite" else POSTGRES_DRIVERS
        if tx.dialect.name != dialect or tx.dialect.driver not in drivers:
            raise TypeError(
                f"tx is a connection of {tx.dialect.name}+{tx.dialect.driver}; "
                f"the ledger is on {dialect}, by {', '.join(sorted(drivers))}"
            )
        if tx.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise ValueError("tx has no open transaction, because it is in autocommit mode; begin one")
        if tx.dialect.driver == "psycopg2":
            if not tx.in_transaction():
                tx.begin()  # our statements pass SQLAlchemy by; its commit has to end them all the same
            return _psycopg2(tx.connection.driver_connection)
        return Driven(tx)
    if isinstance(tx, sqlite3.Connection):
        if dialect != "sqlite":
            raise TypeError(f"tx is a connection of SQLite; the ledger is on {dialect}")
        if not tx.in_transaction and tx.isolation_level is None:
            raise ValueError("tx has no open transaction; execute BEGIN IMMEDIATE first")
        return Lent(tx, None)
    if dialect == "postgresql" and type(tx).__module__.partition(".")[0] == "psycopg2":
        return _psycopg2(tx)
    if dialect == "postgresql":
        import psycopg  # noqa: PLC0415  # an extra of its own
        from psycopg.rows import tuple_row  # noqa: PLC0415

        if isinstance(tx, psycopg.Connection):
            if tx.autocommit and not tx.info.transaction_status:
                raise ValueError("tx has no open transaction; use `with connection.transaction():`")
            return Lent(tx, tuple_row)
    raise TypeError(
        "tx must be an open SQLAlchemy connection or session, or a connection of sqlite3, psycopg or psycopg2, "
        f"not {type(tx).__name__}"
    )


def _psycopg2(tx: Any) -> Many:
    from psycopg2 import extensions  # noqa: PLC0415  # likewise

    if not isinstance(tx, extensions.connection):
        raise TypeError(f"tx must be a connection of psycopg2, not its {type(tx).__name__}")
    if tx.autocommit and tx.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE:
        raise ValueError("tx has no open transaction, because it is in autocommit mode; begin one")
    return LentPsycopg2(tx, extensions.cursor)


def same_database(run: Many, address: Address, /) -> None:
    """Refuse a transaction on another database: its jobs would never be found."""
    if address.dialect == "sqlite":
        here = next(str(row[2]) for row in run.execute("PRAGMA database_list").fetchall() if row[1] == "main")
        if not here or here != address.target:
            raise ValueError(
                f"tx is on the database {here or 'in memory'!r}, the ledger on {address.shown!r}"
                + ("; for a ledger in memory use `with ledger.begin() as tx`" if address.in_memory else "")
            )
    else:
        here = run.execute("SELECT to_regclass('redrive_job') IS NOT NULL, current_database()").fetchone()
        if not here[0]:
            raise ValueError(f"tx is on the database {here[1]!r}, which has no ledger; the ledger is {address.shown!r}")
