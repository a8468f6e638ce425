"""Statement: what Core built, compiled once to the text that the driver takes.

The hot path runs this text on the driver's own connection: `Connection.execute` of an expression costs 80 to 110 µs more
each time, which is a third of a whole claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

from sqlalchemy import ARRAY, ColumnElement, Dialect, bindparam, column, func, literal_column
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine


@cache
def _psycopg() -> Dialect:
    # All of Postgres' drivers come with it: not for a ledger on SQLite.
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg  # noqa: PLC0415

    return PGDialect_psycopg()  # type: ignore[no-untyped-call, no-any-return, unused-ignore]


@cache
def _pysqlite() -> Dialect:
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite  # noqa: PLC0415

    return SQLiteDialect_pysqlite()


class Cursor(Protocol):
    """What a driver answers with."""

    @property
    def rowcount(self) -> int:
        """Rows that were changed."""

    def fetchall(self) -> Sequence[Any]:
        """All rows."""

    def fetchone(self) -> Any:
        """One row, or None."""


class Runner(Protocol):
    """What runs a statement's text: a driver's own connection, or a caller's (see caller.py)."""

    def execute(self, text: str, parameters: Any = ..., /) -> Cursor:
        """Once."""


class Many(Runner, Protocol):
    """A runner for SQLite."""

    def executemany(self, text: str, parameters: Any, /) -> Cursor:
        """For each set of parameters."""


class Statement(NamedTuple):
    """Text for a driver, and the names of its parameters: in the order of their places on SQLite, by name on Postgres."""

    text: str
    names: tuple[str, ...]

    def ordered(self, values: Mapping[str, object], /) -> tuple[object, ...]:
        """The parameters by place."""
        return tuple(values[name] for name in self.names)


def postgres(built: ClauseElement, /) -> Statement:
    """For psycopg: parameters by name."""
    compiled = built.compile(dialect=_psycopg())
    return Statement(str(compiled), tuple(sorted(_named(compiled))))


def sqlite(built: ClauseElement, /, *names: str) -> Statement:
    """For sqlite3: parameters by place; where names are given, they are the order that the caller counts on."""
    compiled = built.compile(dialect=_pysqlite())
    _named(compiled)
    order = tuple(getattr(compiled, "positiontup", None) or ())
    if names and names != order:
        raise AssertionError(f"the parameters must be {order}, not {names}: {compiled}")
    return Statement(str(compiled), order)


def _named(compiled: Any) -> Sequence[str]:
    # A value that Core bound by itself would be missing at run time.
    given = {name: value for name, value in compiled.params.items() if value is not None}
    if given:
        raise AssertionError(f"values were bound by Core, write them as literals: {given} in {compiled}")
    return list(compiled.params)


def number(value: int, /) -> ColumnElement[int]:
    """A number in the text itself: under a generic plan `state = $1` cannot use an index over `state = 0`."""
    return literal_column(str(value))


def words(value: str, /) -> ColumnElement[str]:
    """One of our own words in the text itself."""
    return literal_column(f"'{value}'")


def rows(name: str, /, **columns: TypeEngine[Any]) -> TableValuedAlias:
    """Arrays of Postgres as a table, a parameter `<name>_<column>` for each: one statement for a whole batch."""
    arrays = [bindparam(f"{name}_{at}", type_=ARRAY(type_)) for at, type_ in columns.items()]
    return func.unnest(*arrays).table_valued(*(column(at, type_) for at, type_ in columns.items())).render_derived(name=name)
