"""Statements over many rows at a time.

On Postgres the rows are passed as arrays: a statement for each row would cost a plan and a response
each. SQLite runs in this process, where a statement for each row is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Connection,
    Date,
    DateTime,
    Table,
    Text,
    bindparam,
    cast,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from ...ledger.db.clock import UtcTimestamp
from ...ledger.db.compiled import compile_postgres, int_array, text_array, timestamp_array, unnest
from ...ledger.db.session import Session

CHUNK_SIZE = 1000
"""Values in one statement."""
Rows = Sequence[Mapping[str, Any]]
T = TypeVar("T")


def chunks(values: Iterable[T], /, size: int = CHUNK_SIZE) -> Iterator[list[T]]:
    """Yield some values at a time."""
    left = iter(values)
    while chunk := list(islice(left, size)):
        yield chunk


def upsert(session: Session, table: Table, /) -> Any:
    """Return an insert that can be told what to do if the row exists."""
    return sqlite.insert(table) if session.sqlite else postgresql.insert(table)


def update_rows(
    session: Session, table: Table, key: str, columns: tuple[str, ...], new: Rows, /
) -> None:
    """Set columns of the rows with the keys of the new ones."""
    if not new:
        return
    if not session.sqlite:
        session.run.execute(
            _update_on_postgres(table, key, columns), _arrays(table, (key, *columns), new)
        )
        return
    parameters = [
        {f"at_{key}": row[key]} | {f"to_{name}": row[name] for name in columns} for row in new
    ]
    session.core.execute(_update_on_sqlite(table, key, columns), parameters)


def insert_rows(session: Session, table: Table, columns: tuple[str, ...], new: Rows, /) -> None:
    """Insert rows."""
    if not new:
        return
    if session.sqlite:
        session.core.execute(insert(table), [{name: row[name] for name in columns} for row in new])
    else:
        session.run.execute(_insert_on_postgres(table, columns), _arrays(table, columns, new))


def increment_rows(session: Session, table: Table, columns: tuple[str, ...], new: Rows, /) -> None:
    """Add to the count in the last column, by the other columns, which are the primary key.

    All callers pass the rows in the same order, so that transactions do not deadlock.
    """
    if not new:
        return
    if session.sqlite:
        statement = sqlite.insert(table)
        count = {columns[-1]: table.c[columns[-1]] + statement.excluded[columns[-1]]}
        session.core.execute(
            statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=count),
            list(new),
        )
    else:
        session.run.execute(_increment_on_postgres(table, columns), _arrays(table, columns, new))


@cache
def _update_on_sqlite(table: Table, key: str, columns: tuple[str, ...]) -> Any:
    values: dict[str, Any] = {name: bindparam(f"to_{name}") for name in columns}
    return update(table).where(table.c[key] == bindparam(f"at_{key}")).values(values)


@cache
def _update_on_postgres(table: Table, key: str, columns: tuple[str, ...]) -> str:
    new = unnest("new", **_types(table, (key, *columns)))
    values = {name: new.c[name] for name in columns}
    return compile_postgres(update(table).values(values).where(table.c[key] == new.c[key]))


@cache
def _insert_on_postgres(table: Table, columns: tuple[str, ...]) -> str:
    new = unnest("new", **_types(table, columns))
    statement = insert(table).from_select(list(columns), select(*new.c), include_defaults=False)
    return compile_postgres(statement)


@cache
def _increment_on_postgres(table: Table, columns: tuple[str, ...]) -> str:
    new = unnest("new", **_types(table, columns))
    count = columns[-1]
    statement = postgresql.insert(table).from_select(
        list(columns), select(*new.c), include_defaults=False
    )
    values = {count: table.c[count] + statement.excluded[count]}
    index = list(table.primary_key)
    return compile_postgres(statement.on_conflict_do_update(index_elements=index, set_=values))


def _types(table: Table, columns: tuple[str, ...]) -> dict[str, TypeEngine[Any]]:
    return {name: _type(table.c[name]) for name in columns}


def _type(column: Column[Any]) -> TypeEngine[Any]:
    if isinstance(column.type, UtcTimestamp):
        return DateTime(timezone=True)
    return Text() if isinstance(column.type, Text) else column.type


def _arrays(table: Table, columns: tuple[str, ...], new: Rows) -> dict[str, str]:
    return {
        f"new_{name}": _array(table.c[name].type, [row[name] for row in new]) for name in columns
    }


def _array(type_: TypeEngine[Any], values: list[Any]) -> str:
    if isinstance(type_, UtcTimestamp):
        return timestamp_array(values)
    if isinstance(type_, Date):
        return text_array(None if value is None else value.isoformat() for value in values)
    return text_array(values) if isinstance(type_, Text) else int_array(values)


class InListStatement:
    """A statement with the condition that a column is in a list. Threads may share it."""

    def __init__(self, column: Column[Any], build: Callable[[Any], Any], /) -> None:
        """Build the statement for both databases.

        Args:
            column: The column, of numbers or texts.
            build: Returns the statement for a condition.
        """
        is_text = isinstance(column.type, Text)
        self._to_array = text_array if is_text else int_array
        array = cast(bindparam("values", type_=Text()), ARRAY(Text() if is_text else BigInteger()))
        self._on_sqlite = build(column.in_(bindparam("values", expanding=True)))
        self._on_postgres = build(column == func.any(array))

    def rows(self, connection: Connection, values: Collection[Any], /) -> Iterator[Any]:
        """Yield the rows of all values, which are in the order in which rows are locked."""
        for result in self._execute(connection, values):
            yield from result

    def run(self, connection: Connection, values: Collection[Any], /) -> None:
        """Execute a statement that returns no rows."""
        for _ in self._execute(connection, values):
            pass

    def _execute(self, connection: Connection, values: Collection[Any]) -> Iterator[Any]:
        if connection.dialect.name == "sqlite":
            for chunk in chunks(list(values)):
                yield connection.execute(self._on_sqlite, {"values": chunk})
        elif values:
            yield connection.execute(self._on_postgres, {"values": self._to_array(values)})
