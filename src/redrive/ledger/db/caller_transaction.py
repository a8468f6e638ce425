"""A caller's open transaction, in which the ledger's statements run.

The caller's changes and the job commit together, or neither does.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import sqlalchemy

from .address import Address
from .compiled import BatchRunner, Cursor

if TYPE_CHECKING:
    import sqlalchemy.orm

POSTGRES_DRIVERS = frozenset(("psycopg", "psycopg_async", "psycopg2"))
BYTEA_OID = 17
SAME_DATABASE = "; open tx on the ledger's database, or pass the address of tx's database to App"
AUTOCOMMIT = "tx has no open transaction, because it is in autocommit mode; begin one"
SQLITE_DRIVERS = frozenset(("pysqlite", "aiosqlite"))


class DriverConnection(Protocol):
    """A connection of sqlite3, psycopg or psycopg2."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def commit(self) -> None:
        """Commit the transaction."""


Transaction: TypeAlias = (
    "sqlalchemy.Connection | sqlalchemy.orm.Session | sqlalchemy.orm.scoped_session[Any] "
    "| DriverConnection"
)
"""An open transaction of yours, on the ledger's database."""


class SqlAlchemyRunner:
    """Runs the ledger's statements on a connection of SQLAlchemy."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self.connection = connection

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Run a statement once."""
        return self.connection.exec_driver_sql(text, parameters)

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """Run a statement for each set of parameters."""
        return self.connection.exec_driver_sql(text, list(parameters))


class DriverRunner:
    """Runs the ledger's statements on a driver's connection.

    Args:
        connection: The connection.
        plain_rows: Row factory for tuples. The owner of the connection may have set another one.
    """

    def __init__(self, connection: Any, plain_rows: Any) -> None:
        self.connection = connection
        self.plain_rows = plain_rows

    def _cursor(self) -> Any:
        cursor = self.connection.cursor()
        cursor.row_factory = self.plain_rows
        return cursor

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Run a statement once."""
        cursor = self._cursor()
        cursor.execute(text, parameters)
        return cursor  # type: ignore[no-any-return]  # the driver's cursor has no type here

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """Run a statement for each set of parameters."""
        cursor = self._cursor()
        cursor.executemany(text, parameters)
        return cursor  # type: ignore[no-any-return]  # the same


class Psycopg2Runner(DriverRunner):
    """Runs them on a connection of psycopg2, which returns bytea as memoryview and not as bytes."""

    def _cursor(self) -> Any:
        from psycopg2 import BINARY, extensions  # noqa: PLC0415  # the caller's library

        def to_bytes(value: Any, cursor: Any) -> bytes | None:
            return None if value is None else bytes(BINARY(value, cursor))

        cursor = self.connection.cursor(cursor_factory=self.plain_rows)
        bytes_type = extensions.new_type((BYTEA_OID,), "redrive_bytes", to_bytes)
        extensions.register_type(bytes_type, cursor)
        return cursor


def runner_of(tx: Any, address: Address, /) -> BatchRunner:
    """Return a runner for the ledger's statements in this transaction.

    Raises:
        TypeError: `tx` is not a supported connection.
        ValueError: It has no open transaction.
    """
    dialect = address.dialect
    if "sqlalchemy.orm" in sys.modules:  # otherwise `tx` cannot come from it
        if isinstance(tx, sqlalchemy.orm.scoped_session):
            tx = tx()  # such as Flask-SQLAlchemy's `db.session`
        if isinstance(tx, sqlalchemy.orm.Session):
            tx = tx.connection()
    if isinstance(tx, sqlalchemy.Connection):
        drivers = SQLITE_DRIVERS if dialect == "sqlite" else POSTGRES_DRIVERS
        if tx.dialect.name != dialect or tx.dialect.driver not in drivers:
            raise TypeError(
                f"tx is a connection of {tx.dialect.name}+{tx.dialect.driver}; "
                f"the ledger is on {dialect}, by {', '.join(sorted(drivers))}{_hint(address)}"
            )
        if tx.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise ValueError(AUTOCOMMIT)
        if tx.dialect.driver == "psycopg2":
            if not tx.in_transaction():
                tx.begin()  # our statements bypass SQLAlchemy, but its commit must end them
            return _psycopg2_runner(tx.connection.driver_connection)
        return SqlAlchemyRunner(tx)
    if isinstance(tx, sqlite3.Connection):
        if dialect != "sqlite":
            raise TypeError(f"tx is a connection of SQLite; the ledger is on {dialect}")
        if not tx.in_transaction and tx.isolation_level is None:
            raise ValueError("tx has no open transaction; execute BEGIN IMMEDIATE first")
        return DriverRunner(tx, None)
    if dialect == "postgresql" and type(tx).__module__.partition(".")[0] == "psycopg2":
        return _psycopg2_runner(tx)
    if dialect == "postgresql":
        import psycopg  # noqa: PLC0415  # optional
        from psycopg.rows import tuple_row  # noqa: PLC0415

        if isinstance(tx, psycopg.Connection):
            if tx.autocommit and not tx.info.transaction_status:
                raise ValueError("tx has no open transaction; use `with connection.transaction():`")
            return DriverRunner(tx, tuple_row)
    if hasattr(tx, "run_sync"):
        raise TypeError(
            f"tx is an {type(tx).__name__}, and this method is sync; use the async method, such as "
            "`await command.using(tx=session).asubmit(...)`"
        )
    raise TypeError(
        "tx must be an open SQLAlchemy connection or session, or a connection of sqlite3, psycopg "
        f"or psycopg2, not {type(tx).__name__}{_hint(address)}"
    )


def _psycopg2_runner(tx: Any) -> BatchRunner:
    from psycopg2 import extensions  # noqa: PLC0415  # the caller's library

    if not isinstance(tx, extensions.connection):
        raise TypeError(f"tx must be a connection of psycopg2, not its {type(tx).__name__}")
    if tx.autocommit and tx.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE:
        raise ValueError(AUTOCOMMIT)
    return Psycopg2Runner(tx, extensions.cursor)


def check_same_database(run: BatchRunner, address: Address, /) -> None:
    """Reject a transaction on another database, where no worker would find its jobs."""
    if address.dialect == "sqlite":
        databases = run.execute("PRAGMA database_list").fetchall()
        file = next(str(row[2]) for row in databases if row[1] == "main")
        if not file or file != address.target:
            raise ValueError(
                f"tx is on the database {file or 'in memory'!r}, the ledger on {address.shown!r}"
                f"{_hint(address) or SAME_DATABASE}"
            )
    else:
        query = "SELECT to_regclass('redrive_job') IS NOT NULL, current_database()"
        has_ledger, database = run.execute(query).fetchone()
        if not has_ledger:
            raise ValueError(
                f"tx is on the database {database!r}, which has no ledger; "
                f"the ledger is {address.shown!r}{SAME_DATABASE}"
            )


def _hint(address: Address) -> str:
    """Return how to get a transaction on this ledger, if that is special. For messages."""
    if address.sandboxed:
        return "; in a sandbox, bind the session to the engine of the sandbox (`box.engine`)"
    if address.in_memory:
        return "; for a ledger in memory use `with ledger.begin() as tx`"
    return ""
