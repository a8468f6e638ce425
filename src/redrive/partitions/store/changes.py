"""Bulk: many rows in one statement. On Postgres as arrays: a statement for each row costs a plan and an answer for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

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
from sqlalchemy.dialects.postgresql import insert as upserted
from sqlalchemy.types import TypeEngine

from ...ledger.db.compiled import compile_postgres, unnest
from ...ledger.db.session import Session
from ...ledger.db.types import UtcTimestamp
from ...ledger.store.postgres.arrays import int_array, text_array, timestamp_array

Rows = Sequence[Mapping[str, Any]]


def updated(session: Session, table: Table, key: str, columns: tuple[str, ...], given: Rows, /) -> None:
    """Set these columns of the rows that have this key."""
    if not given:
        return
    if not session.sqlite:
        session.run.execute(_update(table, key, columns), _arrays(table, (key, *columns), given))
        return
    changes = [{f"at_{key}": row[key]} | {f"to_{name}": row[name] for name in columns} for row in given]
    session.core.execute(_each(table, key, columns), changes)


def inserted(session: Session, table: Table, columns: tuple[str, ...], given: Rows, /) -> None:
    """New rows."""
    if not given:
        return
    if session.sqlite:
        session.core.execute(insert(table), [{name: row[name] for name in columns} for row in given])
    else:
        session.run.execute(_insert(table, columns), _arrays(table, columns, given))


def added(session: Session, table: Table, columns: tuple[str, ...], count: str, given: Rows, /) -> None:
    """Add to a count, by the other columns; on Postgres. The rows come in one order for everybody."""
    session.run.execute(_add(table, columns, count), _arrays(table, columns, given))


@cache
def _each(table: Table, key: str, columns: tuple[str, ...]) -> Any:
    to: dict[str, Any] = {name: bindparam(f"to_{name}") for name in columns}
    return update(table).where(table.c[key] == bindparam(f"at_{key}")).values(to)


@cache
def _update(table: Table, key: str, columns: tuple[str, ...]) -> str:
    new = unnest("new", **_types(table, (key, *columns)))
    changed = update(table).values({name: new.c[name] for name in columns}).where(table.c[key] == new.c[key])
    return compile_postgres(changed)


@cache
def _insert(table: Table, columns: tuple[str, ...]) -> str:
    new = unnest("new", **_types(table, columns))
    return compile_postgres(insert(table).from_select(list(columns), select(*new.c), include_defaults=False))


@cache
def _add(table: Table, columns: tuple[str, ...], count: str) -> str:
    new = unnest("new", **_types(table, columns))
    made = upserted(table).from_select(list(columns), select(*new.c), include_defaults=False)
    summed = {count: table.c[count] + made.excluded[count]}
    return compile_postgres(made.on_conflict_do_update(index_elements=list(table.primary_key), set_=summed))


def _types(table: Table, columns: tuple[str, ...]) -> dict[str, TypeEngine[Any]]:
    return {name: _type(table.c[name]) for name in columns}


def _type(column: Column[Any]) -> TypeEngine[Any]:
    if isinstance(column.type, UtcTimestamp):
        return DateTime(timezone=True)
    return Text() if isinstance(column.type, Text) else column.type


def _arrays(table: Table, columns: tuple[str, ...], given: Rows) -> dict[str, str]:
    return {f"new_{name}": _array(table.c[name].type, [row[name] for row in given]) for name in columns}


def _array(type_: TypeEngine[Any], values: list[Any]) -> str:
    if isinstance(type_, UtcTimestamp):
        return timestamp_array(values)
    if isinstance(type_, Date):
        return text_array(None if value is None else value.isoformat() for value in values)
    return text_array(values) if isinstance(type_, Text) else int_array(values)


CHUNK = 1000
"""Of a list that is many parameters."""


class Among:
    """A statement, made from the condition that a column is among some. Immutable: threads may share it."""

    def __init__(self, column: Column[Any], made: Callable[[Any], Any], /) -> None:
        named = isinstance(column.type, Text)
        self._array = text_array if named else int_array
        self._listed = made(column.in_(bindparam("these", expanding=True)))
        self._one = made(column == func.any(cast(bindparam("these", type_=Text()), ARRAY(Text() if named else BigInteger()))))

    def rows(self, connection: Connection, these: Collection[Any], /) -> Iterator[Any]:
        """What it finds. these: in the order in which they are locked."""
        for found in self._done(connection, these):
            yield from found

    def run(self, connection: Connection, these: Collection[Any], /) -> None:
        """Have it done to these."""
        for _ in self._done(connection, these):
            pass

    def _done(self, connection: Connection, these: Collection[Any]) -> Iterator[Any]:
        if connection.dialect.name != "sqlite":
            if these:
                yield connection.execute(self._one, {"these": self._array(these)})
            return
        listed = list(these)
        for at in range(0, len(listed), CHUNK):
            yield connection.execute(self._listed, {"these": listed[at : at + CHUNK]})
