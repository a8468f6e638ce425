"""The ledger's statements on a caller's connection: one class for each driver.

Statements have the parameter style of psycopg, or that of sqlite3. Nothing of another library is
imported before an object of it is passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import util

from ...core.lazy import deferred
from .compiled import BatchRunner, Cursor

if TYPE_CHECKING:
    from psycopg import rows as psycopg_rows
else:  # optional
    (psycopg_rows,) = deferred("psycopg", "rows")

BYTEA_OID = 17
ASYNCPG_TYPES: dict[type, str] = {
    str: "text",
    bytes: "bytea",
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    datetime: "timestamptz",
}
PARAMETER = re.compile(r"%\((\w+)\)s|%%")
RETURNS_ROWS = re.compile(r"\s*(?:SELECT|WITH)\b|.*\bRETURNING\b", re.DOTALL)
CACHED_STATEMENTS = 512

# SQLAlchemy 2.1 has a new name for it, and deprecates the old one.
_await: Any = getattr(util, "await_", None) or util.await_only


class SqlAlchemyRunner:
    """Runs statements on a connection of SQLAlchemy."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self.connection = connection

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Run a statement once."""
        return self.connection.exec_driver_sql(text, parameters)

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """Run a statement for each set of parameters."""
        return self.connection.exec_driver_sql(text, list(parameters))


class SqlAlchemyAsyncpgRunner(SqlAlchemyRunner):
    """Runs statements on a connection of SQLAlchemy that uses asyncpg."""

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Run a statement once."""
        return self.connection.exec_driver_sql(*asyncpg_statement(text, parameters))


class DriverRunner:
    """Runs statements on a connection of sqlite3."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def _cursor(self) -> Any:
        """Return a cursor with tuples as rows. The owner of the connection may have set others."""
        cursor = self.connection.cursor()
        cursor.row_factory = None
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


class PsycopgRunner(DriverRunner):
    """Runs statements on a `psycopg.Connection`."""

    def _cursor(self) -> Any:
        return self.connection.cursor(row_factory=psycopg_rows.tuple_row)


class Psycopg2Runner(DriverRunner):
    """Runs statements on a connection of psycopg2, which returns bytea as memoryview."""

    def _cursor(self) -> Any:
        from psycopg2 import BINARY, extensions  # noqa: PLC0415  # the caller's library

        def to_bytes(value: Any, cursor: Any) -> bytes | None:
            return None if value is None else bytes(BINARY(value, cursor))

        cursor = self.connection.cursor(cursor_factory=extensions.cursor)
        bytes_type = extensions.new_type((BYTEA_OID,), "redrive_bytes", to_bytes)
        extensions.register_type(bytes_type, cursor)
        return cursor


class DjangoRunner:
    """Runs statements on the driver of a Django connection, with Django's classes of errors."""

    def __init__(self, connection: Any, run: BatchRunner) -> None:
        self.connection = connection
        self._run = run

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Run a statement once."""
        with self.connection.wrap_database_errors:
            return self._run.execute(text, parameters)

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """Run a statement for each set of parameters."""
        with self.connection.wrap_database_errors:
            return self._run.executemany(text, parameters)


class FetchedRows:
    """The result of a statement on an async connection, as a cursor."""

    def __init__(self, rows: Iterable[Any], rowcount: int) -> None:
        self._rows: Iterator[Any] = iter(rows)
        self.rowcount = rowcount

    def fetchall(self) -> Sequence[Any]:
        """Return the remaining rows."""
        return list(self._rows)

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        return next(self._rows, None)


class AsyncDriverRunner:
    """Runs statements on an async connection, inside `greenlet_spawn` of SQLAlchemy."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @property
    def in_transaction(self) -> bool:
        """Whether statements of the connection are in a transaction."""
        raise NotImplementedError

    async def fetch(self, text: str, parameters: Any, /) -> FetchedRows:
        """Run a statement, and read its rows."""
        raise NotImplementedError

    def execute(self, text: str, parameters: Any = (), /) -> Cursor:
        """Run a statement once."""
        rows: FetchedRows = _await(self.fetch(text, parameters))
        return rows

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """Not used: only statements of SQLite need it."""
        raise NotImplementedError


class PsycopgAsyncRunner(AsyncDriverRunner):
    """Runs statements on a `psycopg.AsyncConnection`."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or the next statement opens one."""
        return not self.connection.autocommit or bool(self.connection.info.transaction_status)

    async def fetch(self, text: str, parameters: Any, /) -> FetchedRows:
        """Run a statement, and read its rows."""
        async with self.connection.cursor(row_factory=psycopg_rows.tuple_row) as cursor:
            await cursor.execute(text, parameters)
            rows = await cursor.fetchall() if cursor.description else ()
            return FetchedRows(rows, cursor.rowcount)


class AsyncpgRunner(AsyncDriverRunner):
    """Runs statements on a connection of asyncpg, or of its pool."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. Without one, asyncpg commits each statement."""
        return bool(self.connection.is_in_transaction())

    async def fetch(self, text: str, parameters: Any, /) -> FetchedRows:
        """Run a statement, and read its rows."""
        statement, values = asyncpg_statement(text, parameters)
        if RETURNS_ROWS.match(text):
            # By `values`, because the owner of the connection may have set another class of rows.
            fetched = await self.connection.fetch(statement, *values)
            rows = [tuple(row.values()) for row in fetched]
            return FetchedRows(rows, len(rows))
        status: str = await self.connection.execute(statement, *values)  # such as "UPDATE 1"
        return FetchedRows((), int(status.rpartition(" ")[2]))


def asyncpg_statement(text: str, parameters: Any, /) -> tuple[str, tuple[Any, ...]]:
    """Return a statement with numbered parameters (`$1`), and their values."""
    types = tuple((name, type(value)) for name, value in dict(parameters).items())
    statement, names = _number_parameters(text, types)
    return statement, tuple(parameters[name] for name in names)


@lru_cache(maxsize=CACHED_STATEMENTS)
def _number_parameters(
    text: str, types: tuple[tuple[str, type], ...]
) -> tuple[str, tuple[str, ...]]:
    """Return a statement with numbered parameters, and the names of these in order.

    asyncpg takes the type of a parameter from the server, and accepts only Python values of it.
    Arrays are passed as text, so each parameter is cast to the type of its own value first.
    """
    type_of = dict(types)
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "%"
        place = names.setdefault(name, len(names) + 1)
        sql_type = ASYNCPG_TYPES.get(type_of[name])  # None has none: the server knows it
        return f"${place}" if sql_type is None else f"CAST(${place} AS {sql_type})"

    return PARAMETER.sub(number, text), tuple(names)
