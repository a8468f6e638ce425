"""Statements of SQLAlchemy Core, compiled once to the text that the driver takes.

The hot path runs this text on the driver's connection. `Connection.execute` of an expression costs
80 to 110 µs more each time, which is a third of a whole claim. Arrays are passed to Postgres as
literals, because psycopg takes longer to build an array than for the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Protocol

from sqlalchemy import ARRAY, ColumnElement, Dialect, bindparam, column, func, literal_column
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine


@cache
def _psycopg() -> Dialect:
    # It imports all drivers of Postgres, which a ledger on SQLite does not need.
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg  # noqa: PLC0415

    return PGDialect_psycopg()  # type: ignore[no-untyped-call, no-any-return, unused-ignore]


@cache
def _pysqlite() -> Dialect:
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite  # noqa: PLC0415

    return SQLiteDialect_pysqlite()


class Cursor(Protocol):
    """The cursor of a driver."""

    @property
    def rowcount(self) -> int:
        """Number of changed rows."""

    def fetchall(self) -> Sequence[Any]:
        """Return all rows."""

    def fetchone(self) -> Any:
        """Return a row, or None."""


class Runner(Protocol):
    """Runs the text of a statement: a driver's connection, or a caller's transaction."""

    def execute(self, text: str, parameters: Any = ..., /) -> Cursor:
        """Run the statement once."""


class BatchRunner(Runner, Protocol):
    """A runner with `executemany`, for SQLite."""

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """Run the statement for each set of parameters."""


def compile_postgres(expression: ClauseElement, /) -> str:
    """Compile a statement for psycopg, with parameters by name."""
    compiled = expression.compile(dialect=_psycopg())
    _check_parameters(compiled)
    return str(compiled)


def compile_sqlite(expression: ClauseElement, /, *names: str) -> str:
    """Compile a statement for sqlite3, with parameters by position.

    Args:
        expression: The statement.
        names: Order of the parameters that the caller relies on. Checked.
    """
    compiled = expression.compile(dialect=_pysqlite())
    _check_parameters(compiled)
    order = tuple(getattr(compiled, "positiontup", None) or ())
    if names and names != order:
        raise AssertionError(f"the parameters must be {order}, not {names}: {compiled}")
    return str(compiled)


def _check_parameters(compiled: Any) -> None:
    # A value that Core bound by itself would be missing at run time.
    bound = {name: value for name, value in compiled.params.items() if value is not None}
    if bound:
        raise AssertionError(
            f"values were bound by Core, write them as literals: {bound} in {compiled}"
        )


def sql_int(value: int, /) -> ColumnElement[int]:
    """Return a number as SQL text.

    Under a generic plan, `state = $1` cannot use an index over `state = 0`.
    """
    return literal_column(str(value))


def sql_text(value: str, /) -> ColumnElement[str]:
    """Return a constant of Redrive as SQL text. Not for other text: nothing is escaped."""
    return literal_column(f"'{value}'")


def is_one_of(column: ColumnElement[int], ids: Iterable[int], /) -> ColumnElement[bool]:
    """Return whether a column has one of these numbers, which become SQL text.

    Both drivers take longer to bind hundreds of parameters than to parse the numbers.
    """
    return column.in_(bindparam(None, list(ids), expanding=True, literal_execute=True))


def unnest(name: str, /, **columns: TypeEngine[Any]) -> TableValuedAlias:
    """Return arrays of Postgres as a table, with a parameter `<name>_<column>` for each column."""
    arrays = [bindparam(f"{name}_{key}", type_=ARRAY(type_)) for key, type_ in columns.items()]
    values = func.unnest(*arrays)
    return values.table_valued(
        *(column(key, type_) for key, type_ in columns.items())
    ).render_derived(name=name)


def int_array(values: Iterable[int | float | bool | None], /) -> str:
    """Return an array of numbers or booleans."""
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def text_array(values: Iterable[str | None], /) -> str:
    """Return an array of texts."""
    return "{" + ",".join(["NULL" if value is None else _quote(value) for value in values]) + "}"


def bytes_array(values: Iterable[bytes | None], /) -> str:
    """Return an array of bytes."""
    items = ["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]
    return "{" + ",".join(items) + "}"


def timestamp_array(values: Iterable[datetime | None], /) -> str:
    """Return an array of timestamps with a time zone."""
    items = ["NULL" if value is None else f'"{value.isoformat()}"' for value in values]
    return "{" + ",".join(items) + "}"


def _quote(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'
