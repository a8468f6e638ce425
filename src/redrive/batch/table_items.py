"""TableItems: columns of a table of the user's own count the rejections of its rows."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, Engine, bindparam, func, or_, select, true, update
from sqlalchemy.orm import InstrumentedAttribute

from ..core.amount import amount
from ..journal.redaction import redacted_text

Of: TypeAlias = "InstrumentedAttribute[Any] | Column[Any]"
CHUNK = 1000
"""Items in one statement. SQLite takes 32,766 parameters, Postgres 65,535."""
STATUSES = (str, bytes)
SHOWN = 20
"""How many unknown states an error names."""


class TableItems:
    """Items that are rows of your own table.

    It needs SQLite 3.35, Postgres, or another database with `UPDATE ... RETURNING`. Items are named
    by the text of their id.

    Threads may share one, as they may share its engine.
    """

    def __init__(
        self, engine: Engine, /, *, id: Of, attempts: Of, status: Of, uncharged: Of | None = None,  # noqa: A002  # as the column is called
        reason: Of | None = None, pending: Any = "pending", giveup: Any = "giveup", done: Any = (),
    ) -> None:  # fmt: skip
        """Map columns of one table, or attributes of a mapped class. Each id has one row.

        Args:
            engine: SQLAlchemy engine of the table's database.
            id: Column with the id of an item.
            attempts: Integer column for rejections that count as attempts.
            status: Column with the state of an item.
            uncharged: Integer column for rejections in outages, which do not count as attempts.
                Without it, every rejection counts as an attempt.
            reason: Text column for the reason of a give-up. Without it, only the log has the
                reason.
            pending: State of rows that may be sent, or a collection of states.
            giveup: State of rows that were given up.
            done: States of all other rows, such as `"uploaded"`. The first call raises
                `ValueError` if a row is in a state that no option names.

        Raises:
            TypeError: The columns are not of one table, or the database has no `UPDATE ...
                RETURNING`.
            ValueError: Two of `pending`, `giveup` and `done` share a state.
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
        self._uncharged = None if uncharged is None else _column("uncharged", uncharged)
        self._reason = None if reason is None else _column("reason", reason)
        self._table = self._id.table
        columns = (self._attempts, self._status, self._uncharged, self._reason)
        if {column.table for column in columns if column is not None} != {self._table}:
            raise TypeError("id=, attempts=, status=, uncharged= and reason= are columns of one table")
        self._open, self._done = _states(pending), _states(done)
        self._given_up = giveup
        if giveup in self._open:
            raise ValueError(f"pending= and giveup= must differ: {giveup!r}")
        if any(state in self._done for state in (*self._open, giveup)):
            raise ValueError(f"done= must differ from pending= and giveup=: {done!r}")
        self._value = _reader(self._id)
        self._is_checked = False
        self._statements()

    def _statements(self) -> None:
        rows, counts = self._table, func.coalesce(self._attempts, 0) + 1
        here = self._id == bindparam("item", type_=self._id.type)
        among = self._id.in_(bindparam("items", expanding=True, type_=self._id.type))
        may_be_sent = self._status.in_(self._open)
        self._one = update(rows).where(here).values({self._attempts: counts}).returning(self._attempts)
        # Locked in the order of their ids: two who count the same items never wait for each other in a circle.
        in_order = select(self._id).where(among).order_by(self._id).with_for_update()
        locked = in_order.cte("locked")
        sqlite = self._engine.dialect.name == "sqlite"
        self._lock = None if sqlite else in_order
        many = among if sqlite else self._id.in_(select(locked.c[self._id.name]))
        self._many = update(rows).where(many).values({self._attempts: counts}).returning(self._id, self._attempts)
        if self._uncharged is not None:
            spared = {self._uncharged: func.coalesce(self._uncharged, 0) + 1}
            self._spare = update(rows).where(many).values(spared).returning(self._id, self._uncharged)
        ended: dict[Any, Any] = {self._status: self._given_up}
        if self._reason is not None:
            ended[self._reason] = bindparam("why", type_=self._reason.type)
        # Where all other states are known, an item that was rejected ends in whatever state its sender left it.
        settled = [self._given_up, *self._done]
        may_end = or_(self._status.not_in(settled), self._status.is_(None)) if self._done else may_be_sent
        self._end_many = update(rows).where(many, may_end).values(ended).returning(self._id)
        self._look = select(self._id).where(among, may_be_sent)
        gone = self._status == self._given_up
        self._gone = select(self._id, self._attempts).where(gone).order_by(self._id).limit(bindparam("most"))
        self._back = update(rows).where(many, gone).values({self._status: self._open[0]}).returning(self._id)

    def check(self) -> None:
        """Check once that the table's states are the ones that were named.

        Raises:
            ValueError: Rows are in states that no option names. The message lists all of them.
        """
        if self._is_checked:
            return
        known = [*self._open, self._given_up, *self._done]
        unknown = or_(self._status.not_in(known), self._status.is_(None))
        with self._engine.connect() as connection:
            if connection.execute(select(true()).select_from(self._table).where(unknown).limit(1)).scalar() is None:
                # An empty table says nothing about its states: look again when it has rows.
                self._is_checked = connection.execute(select(true()).select_from(self._table).limit(1)).scalar() is not None
                return
            states = select(self._status, func.count()).where(unknown).group_by(self._status).order_by(func.count().desc())
            counts = [(row[0], int(row[1])) for row in connection.execute(states.limit(SHOWN + 1))]
        listed = ", ".join(f"{_shown(state)} ({amount(count, 'row')})" for state, count in counts[:SHOWN])
        more = ", ..." if len(counts) > SHOWN else ""
        # No state is suggested for an option: a guess of pending= would send rows that have arrived.
        raise ValueError(
            f"TableItems({self._table.name}): unknown states in {self._status.name}: {listed}{more}; "
            "name each state in pending= (rows to send), done= (rows not to send) or giveup= (given-up rows). "
            f"Currently pending={_listed(self._open)}, done={_listed(self._done) or '()'}, "
            f"giveup={_shown(self._given_up)}. Nothing was sent"
        )

    def increment(self, item_id: str, /) -> int:
        """Add one rejection to a row, atomically.

        Args:
            item_id: Id of the item.

        Returns:
            The new count.

        Raises:
            KeyError: There is no such row.
        """
        with self._engine.begin() as connection:
            count = connection.execute(self._one, {"item": self._value(item_id)}).scalar()
        if count is None:
            raise KeyError(item_id)
        return int(count)

    def increment_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Add one rejection to each row: all of them or none.

        Args:
            item_ids: Ids of the items.

        Returns:
            The new count of each item.

        Raises:
            KeyError: A row does not exist.
        """
        return self._count_many(self._many, item_ids)

    @property
    def counts_uncharged(self) -> bool:
        """True if the table has a column for rejections that do not count as attempts."""
        return self._uncharged is not None

    def spare_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Count a rejection in an outage for each row.

        Args:
            item_ids: Ids of the items.

        Returns:
            The new counts. Empty if the table has no column for them.
        """
        return {} if self._uncharged is None else self._count_many(self._spare, item_ids)

    def _count_many(self, statement: Any, item_ids: Collection[str]) -> dict[str, int]:
        with self._engine.begin() as connection:
            counts = {str(row[0]): int(row[1]) for row in self._each(connection, statement, item_ids)}
            unknown = [item_id for item_id in item_ids if str(self._value(item_id)) not in counts]
            if unknown:
                raise KeyError(", ".join(unknown[:5]))  # and nothing was counted
        return {item_id: counts[str(self._value(item_id))] for item_id in item_ids}

    def give_up(self, item_id: str, reason: str, /) -> bool:
        """Give a row up, if it may still be sent.

        Args:
            item_id: Id of the item.
            reason: Why.

        Returns:
            False if the row was given up before, or is done.
        """
        return bool(self.give_up_many({item_id: reason}))

    def give_up_many(self, reasons: Mapping[str, str], /) -> set[str]:
        """Give many rows up.

        Args:
            reasons: The reason for each item id.

        Returns:
            The rows that could still be sent.
        """
        with self._engine.begin() as connection:
            gone: set[str] = set()
            for why, item_ids in self._by_reason(connection, reasons):
                values = {} if self._reason is None else {"why": why}
                gone.update(str(row[0]) for row in self._each(connection, self._end_many, item_ids, values))
        return {item_id for item_id in reasons if str(self._value(item_id)) in gone}

    def _by_reason(self, connection: Connection, reasons: Mapping[str, str]) -> Iterator[tuple[str, Collection[str]]]:
        """Group items by their reason: one statement for each. Without a column for it, all are one group."""
        if self._reason is None:
            yield "", reasons
            return
        length = getattr(self._reason.type, "length", None)
        groups: dict[str, list[str]] = {}
        for item_id, reason in reasons.items():
            groups.setdefault(redacted_text(reason)[:length], []).append(item_id)
        if self._lock is not None and len(groups) > 1:
            for _ in self._each(connection, self._lock, reasons):
                pass  # all rows in the order of their ids, before the first group is written
        yield from groups.items()

    def pending(self, among: Collection[str], /) -> set[str]:
        """Return the rows that may still be sent.

        Args:
            among: Ids to look up.

        Returns:
            Those of them that are pending.
        """
        self.check()
        with self._engine.connect() as connection:
            left = {str(row[0]) for row in self._each(connection, self._look, among)}
        return {item_id for item_id in among if str(self._value(item_id)) in left}

    def given_up(self, limit: int = 100, /) -> dict[str, int]:
        """Return rows that were given up.

        Args:
            limit: Maximum number of rows.

        Returns:
            The number of rejections of each row.
        """
        with self._engine.connect() as connection:
            return {str(row[0]): int(row[1] or 0) for row in connection.execute(self._gone, {"most": limit})}

    def reasons(self, item_ids: Collection[str], /) -> dict[str, str]:
        """Return why rows were given up.

        Args:
            item_ids: Ids of the items.

        Returns:
            The reason of each row. Empty if the table has no column for it.
        """
        if self._reason is None:
            return {}
        wanted = self._id.in_(bindparam("items", expanding=True, type_=self._id.type))
        with self._engine.connect() as connection:
            found = self._each(connection, select(self._id, self._reason).where(wanted), item_ids)
            return {str(row[0]): str(row[1]) for row in found if row[1]}

    @property
    def name(self) -> str:
        """Name of the table, which names the batch in commands."""
        return str(self._table.name)

    def states(self, item_ids: Collection[str], /) -> dict[str, str]:
        """Return the states of rows.

        Args:
            item_ids: Ids of the items.

        Returns:
            The state of each row as text. Ids without a row are missing.
        """
        wanted = self._id.in_(bindparam("items", expanding=True, type_=self._id.type))
        possible = [item_id for item_id in item_ids if self._is_possible(item_id)]
        with self._engine.connect() as connection:
            rows = self._each(connection, select(self._id, self._status).where(wanted), possible)
            states = {str(row[0]): _shown(row[1]) for row in rows}
        return {item_id: states[key] for item_id in possible if (key := str(self._value(item_id))) in states}

    def _is_possible(self, item_id: str) -> bool:
        try:
            self._value(item_id)
        except KeyError:
            return False
        return True

    def reopen_many(self, item_ids: Collection[str], /) -> set[str]:
        """Let rows that were given up be sent again.

        The counter is not reset. A row that used up its attempts has one more. A row that was
        rejected permanently has the attempts that are left. Use `redrive batch reopen`, which
        records who did it and why.

        Args:
            item_ids: Ids of the items.

        Returns:
            The rows that were reopened.
        """
        with self._engine.begin() as connection:
            back = {str(row[0]) for row in self._each(connection, self._back, item_ids)}
        return {item_id for item_id in item_ids if str(self._value(item_id)) in back}

    def _each(
        self, connection: Connection, statement: Any, ids: Iterable[str], more: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        # Sorted: on SQLite there is one writer at a time, elsewhere the statement itself locks in order.
        values = iter(sorted({self._value(item_id) for item_id in ids}))
        while some := list(islice(values, CHUNK)):
            yield from connection.execute(statement, {"items": some, **(more or {})})

    def __repr__(self) -> str:
        return f"TableItems({self._table.name}.{self._id.name}, {self._attempts.name}, {self._status.name})"


def _column(name: str, given: object) -> Any:
    column = given.property.columns[0] if isinstance(given, InstrumentedAttribute) else given
    if not isinstance(column, Column) or column.table is None:
        raise TypeError(f"{name}= is a column of a table, or an attribute of a mapped class, not {given!r}")
    return column


def _states(given: Any) -> list[Any]:
    several = isinstance(given, Collection) and not isinstance(given, STATUSES)
    return list(given) if several else [given]


def _shown(state: Any) -> str:
    if state is None:
        return "NULL"
    return repr(state.value if isinstance(state, enum.Enum) and isinstance(state, str) else state)


def _listed(states: Iterable[Any]) -> str:
    return " and ".join(map(_shown, states))


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
