"""TableItems: counts the rejections of items in columns of a table of the user."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import (
    ARRAY,
    Column,
    Connection,
    Engine,
    any_,
    bindparam,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute

from ...core.text import pluralise
from ...journal.redaction import redact_text

ColumnLike: TypeAlias = "InstrumentedAttribute[Any] | Column[Any]"
MAX_IDS_PER_STATEMENT = 1000
"""SQLite takes 32,766 parameters, Postgres 65,535."""
MAX_NAMED_IDS = 5
"""Number of unknown ids that an error names."""
MAX_LISTED_STATES = 20
"""Number of unknown states that an error names."""


class TableItems:
    """Items that are rows of your own table.

    It needs SQLite 3.35, Postgres, or another database with `UPDATE ... RETURNING`. Items are named
    by the text of their id.

    Threads may share one, as they may share its engine.
    """

    def __init__(
        self,
        engine: Engine,
        /,
        *,
        id: ColumnLike,  # noqa: A002  # as the column is called
        attempts: ColumnLike,
        status: ColumnLike,
        uncharged: ColumnLike | None = None,
        reason: ColumnLike | None = None,
        pending: Any = "pending",
        giveup: Any = "giveup",
        done: Any = (),
    ) -> None:
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
                "TableItems takes an Engine (sqlalchemy.create_engine(...)), not "
                f"{type(engine).__name__}: {engine!r}"
            )
        if not engine.dialect.update_returning:
            raise TypeError(
                "TableItems needs UPDATE ... RETURNING: SQLite 3.35, or Postgres; not this "
                f"{engine.dialect.name}"
            )
        self._engine = engine
        self._id = _column("id", id)
        self._attempts = _column("attempts", attempts)
        self._status = _column("status", status)
        self._uncharged = None if uncharged is None else _column("uncharged", uncharged)
        self._reason = None if reason is None else _column("reason", reason)
        self._table = self._id.table
        columns = (self._attempts, self._status, self._uncharged, self._reason)
        if {column.table for column in columns if column is not None} != {self._table}:
            raise TypeError(
                "id=, attempts=, status=, uncharged= and reason= are columns of one table"
            )
        self._pending_states, self._done_states = _list_of_states(pending), _list_of_states(done)
        self._giveup_state = giveup
        if giveup in self._pending_states:
            raise ValueError(f"pending= and giveup= must differ: {giveup!r}")
        if any(state in self._done_states for state in (*self._pending_states, giveup)):
            raise ValueError(f"done= must differ from pending= and giveup=: {done!r}")
        self._to_column_value = _id_converter(self._id)
        self._is_checked = False
        self._build_statements()

    def _build_statements(self) -> None:
        table = self._table
        dialect = self._engine.dialect.name
        # One array is one parameter: Postgres takes twice as long for a list of a hundred.
        is_listed = (
            self._id == any_(bindparam("items", type_=ARRAY(self._id.type)))
            if dialect == "postgresql"
            else self._id.in_(bindparam("items", expanding=True, type_=self._id.type))
        )
        is_pending = self._status.in_(self._pending_states)
        is_given_up = self._status == self._giveup_state
        # Postgres locks the rows in the order of their ids before it updates them, so that two
        # processes that count the same items cannot deadlock. SQLite has one writer at a time.
        in_order = select(self._id).where(is_listed).order_by(self._id).with_for_update()
        on_sqlite = dialect == "sqlite"
        self._lock_rows = None if on_sqlite else in_order
        locked_ids = select(in_order.cte("locked").c[self._id.name])
        is_selected = is_listed if on_sqlite else self._id.in_(locked_ids)

        counted = {self._attempts: func.coalesce(self._attempts, 0) + 1}
        self._increment_many = (
            update(table).where(is_selected).values(counted).returning(self._id, self._attempts)
        )
        if self._uncharged is not None:
            spared = {self._uncharged: func.coalesce(self._uncharged, 0) + 1}
            self._spare_many = (
                update(table).where(is_selected).values(spared).returning(self._id, self._uncharged)
            )
        given_up: dict[Any, Any] = {self._status: self._giveup_state}
        if self._reason is not None:
            given_up[self._reason] = bindparam("why", type_=self._reason.type)
        # If all final states are known, a rejected item is given up from any other state that its
        # sender left it in.
        final_states = [self._giveup_state, *self._done_states]
        is_not_final = or_(self._status.not_in(final_states), self._status.is_(None))
        may_give_up = is_not_final if self._done_states else is_pending
        self._give_up_many = (
            update(table).where(is_selected, may_give_up).values(given_up).returning(self._id)
        )
        self._select_pending = select(self._id).where(is_listed, is_pending)
        # Without done=, the sender may use any state of its own for accepted rows.
        others = [*self._pending_states, self._giveup_state]
        is_done = self._status.in_(self._done_states)
        is_acknowledged = is_done if self._done_states else self._status.not_in(others)
        self._select_acknowledged = select(self._id).where(is_listed, is_acknowledged)
        self._select_given_up = (
            select(self._id, self._attempts)
            .where(is_given_up)
            .order_by(self._id)
            .limit(bindparam("most"))
        )
        reopened = {self._status: self._pending_states[0]}
        self._reopen_many = (
            update(table).where(is_selected, is_given_up).values(reopened).returning(self._id)
        )
        self._select_reasons = (
            None if self._reason is None else select(self._id, self._reason).where(is_listed)
        )
        self._select_states = select(self._id, self._status).where(is_listed)

    def check(self) -> None:
        """Check once that the table's states are the ones that were named.

        Raises:
            ValueError: Rows are in states that no option names. The message lists all of them.
        """
        if self._is_checked:
            return
        known = [*self._pending_states, self._giveup_state, *self._done_states]
        is_unknown = or_(self._status.not_in(known), self._status.is_(None))
        any_row = select(true()).select_from(self._table).limit(1)
        with self._engine.connect() as connection:
            if connection.execute(any_row.where(is_unknown)).scalar() is None:
                # An empty table shows no states: check again when it has rows.
                self._is_checked = connection.execute(any_row).scalar() is not None
                return
            states = select(self._status, func.count()).where(is_unknown).group_by(self._status)
            by_count = states.order_by(func.count().desc()).limit(MAX_LISTED_STATES + 1)
            counts = [(row[0], int(row[1])) for row in connection.execute(by_count)]
        listed = ", ".join(
            f"{_state_text(state)} ({pluralise(count, 'row')})"
            for state, count in counts[:MAX_LISTED_STATES]
        )
        more = ", ..." if len(counts) > MAX_LISTED_STATES else ""
        # The message suggests no option for a state: a wrong pending= would resend finished rows.
        raise ValueError(
            f"TableItems({self._table.name}): unknown states in {self._status.name}: "
            f"{listed}{more}; "
            "name each state in pending= (rows to send), done= (rows not to send) or giveup= "
            "(given-up rows). "
            f"Currently pending={_state_texts(self._pending_states)}, "
            f"done={_state_texts(self._done_states) or '()'}, "
            f"giveup={_state_text(self._giveup_state)}. Nothing was sent"
        )

    def increment(self, item_id: str, /) -> int:
        """Add one rejection to a row, atomically.

        Args:
            item_id: Id of the item.

        Returns:
            The new count.

        Raises:
            KeyError: The row does not exist.
        """
        return self.increment_many((item_id,))[item_id]

    def increment_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Add one rejection to each row: all of them or none.

        Args:
            item_ids: Ids of the items.

        Returns:
            The new count of each item.

        Raises:
            KeyError: A row does not exist.
        """
        return self._count_many(self._increment_many, item_ids)

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
        return {} if self._uncharged is None else self._count_many(self._spare_many, item_ids)

    def _count_many(self, statement: Any, item_ids: Collection[str]) -> dict[str, int]:
        with self._engine.begin() as connection:
            rows = self._execute_in_chunks(connection, statement, item_ids)
            counts = {str(row[0]): int(row[1]) for row in rows}
            unknown = [item_id for item_id in item_ids if self._row_key(item_id) not in counts]
            if unknown:
                raise KeyError(", ".join(unknown[:MAX_NAMED_IDS]))  # rolls all counts back
        return {item_id: counts[self._row_key(item_id)] for item_id in item_ids}

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
        given_up: set[str] = set()
        with self._engine.begin() as connection:
            for reason, item_ids in self._group_by_reason(connection, reasons):
                values = {} if self._reason is None else {"why": reason}
                rows = self._execute_in_chunks(connection, self._give_up_many, item_ids, values)
                given_up.update(str(row[0]) for row in rows)
        return {item_id for item_id in reasons if self._row_key(item_id) in given_up}

    def _group_by_reason(
        self, connection: Connection, reasons: Mapping[str, str]
    ) -> Iterator[tuple[str, Collection[str]]]:
        """Yield items by reason: one statement each. Without a reason column, all are one group."""
        if self._reason is None:
            yield "", reasons
            return
        max_chars = getattr(self._reason.type, "length", None)
        groups: dict[str, list[str]] = {}
        for item_id, reason in reasons.items():
            groups.setdefault(redact_text(reason)[:max_chars], []).append(item_id)
        if self._lock_rows is not None and len(groups) > 1:
            # Lock all rows in the order of their ids before the first group is written.
            for _ in self._execute_in_chunks(connection, self._lock_rows, reasons):
                pass
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
            rows = self._execute_in_chunks(connection, self._select_pending, among)
            pending = {str(row[0]) for row in rows}
        return {item_id for item_id in among if self._row_key(item_id) in pending}

    def acknowledged(self, among: Collection[str], /) -> set[str]:
        """Return the rows that are done, for example because another sender sent them.

        Args:
            among: Ids to look up.

        Returns:
            Those of them that are in a state of `done=`. Without `done=`, those that are neither
                pending nor given up.
        """
        with self._engine.connect() as connection:
            rows = self._execute_in_chunks(connection, self._select_acknowledged, among)
            acknowledged = {str(row[0]) for row in rows}
        return {item_id for item_id in among if self._row_key(item_id) in acknowledged}

    def given_up(self, limit: int = 100, /) -> dict[str, int]:
        """Return rows that were given up.

        Args:
            limit: Maximum number of rows.

        Returns:
            The number of rejections of each row.
        """
        with self._engine.connect() as connection:
            rows = connection.execute(self._select_given_up, {"most": limit})
            return {str(row[0]): int(row[1] or 0) for row in rows}

    def reasons(self, item_ids: Collection[str], /) -> dict[str, str]:
        """Return why rows were given up.

        Args:
            item_ids: Ids of the items.

        Returns:
            The reason of each row. Empty if the table has no column for it.
        """
        if self._select_reasons is None:
            return {}
        with self._engine.connect() as connection:
            rows = self._execute_in_chunks(connection, self._select_reasons, item_ids)
            return {str(row[0]): str(row[1]) for row in rows if row[1]}

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
        possible = [item_id for item_id in item_ids if self._is_possible(item_id)]
        with self._engine.connect() as connection:
            rows = self._execute_in_chunks(connection, self._select_states, possible)
            states = {str(row[0]): _state_text(row[1]) for row in rows}
        return {
            item_id: states[key]
            for item_id in possible
            if (key := self._row_key(item_id)) in states
        }

    def _is_possible(self, item_id: str) -> bool:
        try:
            self._to_column_value(item_id)
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
            rows = self._execute_in_chunks(connection, self._reopen_many, item_ids)
            reopened = {str(row[0]) for row in rows}
        return {item_id for item_id in item_ids if self._row_key(item_id) in reopened}

    def _row_key(self, item_id: str) -> str:
        """Return the id in the form in which a row's id reads as text."""
        return str(self._to_column_value(item_id))

    def _execute_in_chunks(
        self,
        connection: Connection,
        statement: Any,
        ids: Iterable[str],
        parameters: Mapping[str, Any] | None = None,
    ) -> Iterator[Any]:
        # Sorted, so that the chunks lock their rows in the order of the ids, too.
        values = iter(sorted({self._to_column_value(item_id) for item_id in ids}))
        while chunk := list(islice(values, MAX_IDS_PER_STATEMENT)):
            yield from connection.execute(statement, {"items": chunk, **(parameters or {})})

    def __repr__(self) -> str:
        columns = f"{self._id.name}, {self._attempts.name}, {self._status.name}"
        return f"TableItems({self._table.name}.{columns})"


def _column(option: str, value: object) -> Any:
    column = value.property.columns[0] if isinstance(value, InstrumentedAttribute) else value
    if not isinstance(column, Column) or column.table is None:
        raise TypeError(
            f"{option}= is a column of a table, or an attribute of a mapped class, not {value!r}"
        )
    return column


def _list_of_states(value: Any) -> list[Any]:
    is_collection = isinstance(value, Collection) and not isinstance(value, (str, bytes))
    return list(value) if is_collection else [value]


def _state_text(state: Any) -> str:
    if state is None:
        return "NULL"
    return repr(state.value if isinstance(state, enum.Enum) and isinstance(state, str) else state)


def _state_texts(states: Iterable[Any]) -> str:
    return " and ".join(map(_state_text, states))


def _id_converter(column: Any) -> Any:
    """Return a function from an item's id, which is text, to a value of the id column."""
    try:
        python_type = column.type.python_type
    except NotImplementedError:
        python_type = str
    if python_type not in (int, uuid.UUID):
        return str

    def convert(item_id: str) -> Any:
        try:
            return python_type(item_id)
        except ValueError:
            raise KeyError(item_id) from None  # No row can have this id.

    return convert
