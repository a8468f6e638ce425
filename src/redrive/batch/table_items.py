"""TableItems: three columns of a table of the user's own count the rejections of its rows."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, Engine, bindparam, func, select, update
from sqlalchemy.orm import InstrumentedAttribute

Of: TypeAlias = "InstrumentedAttribute[Any] | Column[Any]"
CHUNK = 1000
"""Items in one statement. SQLite takes 32,766 parameters, Postgres 65,535."""
STATUSES = (str, bytes)


class TableItems:
    """Items that are rows of a table of yours. Needs SQLite 3.35 or Postgres (any database with `UPDATE ... RETURNING`).

    Threads may share one, as they may share its engine. Items are named by the text of their id.
    """

    def __init__(
        self, engine: Engine, /, *, id: Of, attempts: Of, status: Of, pending: Any = "pending",  # noqa: A002  # as the column is called
        giveup: Any = "giveup",
    ) -> None:  # fmt: skip
        """id, attempts, status: columns of one table, or attributes of a mapped class; one row for each id.

        pending: the status of rows that may be sent, or a collection of such. giveup: the status of those that are sent no more.
        """
        if not isinstance(engine, Engine):
            raise TypeError(
                f"TableItems takes an Engine (sqlalchemy.create_engine(...)), not {type(engine).__name__}: {engine!r}"
            )
        if not engine.dialect.update_returning:
            raise TypeError(f"TableItems needs UPDATE ... RETURNING: SQLite 3.35, or Postgres; not this {engine.dialect.name}")
        self._engine = engine
        self._id, self._attempts, self._status = (
            _column(*one) for one in (("id", id), ("attempts", attempts), ("status", status))
        )
        self._table = self._id.table
        if {self._attempts.table, self._status.table} != {self._table}:
            raise TypeError("id=, attempts= and status= are columns of one table")
        several = isinstance(pending, Collection) and not isinstance(pending, STATUSES)
        self._open = list(pending) if several else [pending]
        self._given_up = giveup
        if giveup in self._open:
            raise ValueError(f"pending= and giveup= must differ: {giveup!r}")
        self._value = _reader(self._id)
        self._statements()

    def _statements(self) -> None:
        rows, counts = self._table, func.coalesce(self._attempts, 0) + 1
        here = self._id == bindparam("item", type_=self._id.type)
        among = self._id.in_(bindparam("items", expanding=True, type_=self._id.type))
        may_be_sent = self._status.in_(self._open)
        self._one = update(rows).where(here).values({self._attempts: counts}).returning(self._attempts)
        # Locked in the order of their ids: two who count the same items never wait for each other in a circle.
        locked = select(self._id).where(among).order_by(self._id).with_for_update().cte("locked")
        many = self._id.in_(select(locked.c[self._id.name])) if self._engine.dialect.name != "sqlite" else among
        self._many = update(rows).where(many).values({self._attempts: counts}).returning(self._id, self._attempts)
        self._end = update(rows).where(here, may_be_sent).values({self._status: self._given_up}).returning(self._id)
        self._end_many = update(rows).where(many, may_be_sent).values({self._status: self._given_up}).returning(self._id)
        self._look = select(self._id).where(among, may_be_sent)
        gone = self._status == self._given_up
        self._gone = select(self._id, self._attempts).where(gone).order_by(self._id).limit(bindparam("most"))
        self._back = update(rows).where(many, gone).values({self._status: self._open[0]}).returning(self._id)

    def increment(self, item_id: str, /) -> int:
        """Add one, atomically; the new count. KeyError: there is no such row."""
        with self._engine.begin() as connection:
            count = connection.execute(self._one, {"item": self._value(item_id)}).scalar()
        if count is None:
            raise KeyError(item_id)
        return int(count)

    def increment_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Add one to each, all or none; the new counts. KeyError: not all of them are there."""
        with self._engine.begin() as connection:
            counts = {str(row[0]): int(row[1]) for row in self._each(connection, self._many, item_ids)}
            unknown = [item_id for item_id in item_ids if str(self._value(item_id)) not in counts]
            if unknown:
                raise KeyError(", ".join(unknown[:5]))  # and nothing was counted
        return {item_id: counts[str(self._value(item_id))] for item_id in item_ids}

    def give_up(self, item_id: str, reason: str, /) -> bool:
        """Move a row on, if it may still be sent. False: it was given up before, or has arrived. (The journal has the reason.)"""
        with self._engine.begin() as connection:
            return connection.execute(self._end, {"item": self._value(item_id)}).first() is not None

    def give_up_many(self, reasons: Mapping[str, str], /) -> set[str]:
        """The same for many; those that could still be sent."""
        with self._engine.begin() as connection:
            gone = {str(row[0]) for row in self._each(connection, self._end_many, reasons)}
        return {item_id for item_id in reasons if str(self._value(item_id)) in gone}

    def pending(self, among: Collection[str], /) -> set[str]:
        """Which of these may still be sent."""
        with self._engine.connect() as connection:
            left = {str(row[0]) for row in self._each(connection, self._look, among)}
        return {item_id for item_id in among if str(self._value(item_id)) in left}

    def given_up(self, limit: int = 100, /) -> dict[str, int]:
        """Rows that were given up, and how often each was rejected."""
        with self._engine.connect() as connection:
            return {str(row[0]): int(row[1] or 0) for row in connection.execute(self._gone, {"most": limit})}

    def reopen_many(self, item_ids: Collection[str], /) -> set[str]:
        """Let rows that were given up be sent again; those that were. For a person: `redrive batch reopen` records who and why.

        The counter stays as it is: rejected once more, such a row is given up again at once.
        """
        with self._engine.begin() as connection:
            back = {str(row[0]) for row in self._each(connection, self._back, item_ids)}
        return {item_id for item_id in item_ids if str(self._value(item_id)) in back}

    def _each(self, connection: Connection, statement: Any, ids: Iterable[str]) -> Iterator[Any]:
        # Sorted: on SQLite there is one writer at a time, elsewhere the statement itself locks in order.
        values = iter(sorted({self._value(item_id) for item_id in ids}))
        while some := list(islice(values, CHUNK)):
            yield from connection.execute(statement, {"items": some})

    def __repr__(self) -> str:
        return f"TableItems({self._table.name}.{self._id.name}, {self._attempts.name}, {self._status.name})"


def _column(name: str, given: object) -> Any:
    column = given.property.columns[0] if isinstance(given, InstrumentedAttribute) else given
    if not isinstance(column, Column) or column.table is None:
        raise TypeError(f"{name}= is a column of a table, or an attribute of a mapped class, not {given!r}")
    return column


def _reader(column: Any) -> Any:
    """From an item's id, which is text, to what the column holds."""
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = str
    if kind not in (int, uuid.UUID):
        return str

    def value(item_id: str) -> Any:
        try:
            return kind(item_id)
        except ValueError:
            raise KeyError(item_id) from None  # no row can have it

    return value
