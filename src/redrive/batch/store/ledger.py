"""LedgerItems: counts the rejections of items in the ledger.

Only an item that was rejected at least once has a row. Each operation is one statement for any
number of items, and rows are locked in the order of their ids: two processes that count the same
items cannot deadlock.

The queries of operators over these rows, and the reopening of given-up items, are here too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY

from ...journal.redaction import redact_text
from ...ledger import audit, validation
from ...ledger.db.clock import UtcTimestamp, now_micros
from ...ledger.db.session import Session
from ...ledger.db.tables import item
from ...ledger.timestamps import from_db

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger

MAX_OPEN_FETCHED = 1000
"""Up to this number of open items, they are fetched and compared with the acknowledged ids here.

Above it, the acknowledged ids are sent to the database.
"""


class LedgerItems:
    """The items of one batch in the ledger.

    Its methods block. Threads and forked children may share it.
    """

    def __init__(self, ledger: Callable[[], Ledger], name: str, /) -> None:
        """Create the store of a batch. `ledger` opens the ledger at first use."""
        validation.check_name("the name of the items", name, validation.MAX_KIND_BYTES)
        self.name = name
        self._ledger = ledger

    def increment(self, item_id: str, /) -> int:
        """Add one rejection, atomically.

        Returns:
            The count since the item was last acknowledged or reopened.
        """
        return self.increment_many((item_id,))[item_id]

    def increment_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        """Add one rejection to each item: all of them or none. Returns the new counts."""
        with (
            self._ledger().connections.write.use() as session,
            session.transaction("item.increment"),
        ):
            return self._count(session, statements_of(session).increment, item_ids)

    def spare_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        """Count a rejection in an outage for each item, which is not an attempt.

        Returns the new counts.
        """
        with self._ledger().connections.write.use() as session, session.transaction("item.spare"):
            return self._count(session, statements_of(session).spare, item_ids)

    def _count(self, session: Session, statement: Any, item_ids: Collection[str]) -> dict[str, int]:
        for item_id in item_ids:
            validation.check_name("an item's id", item_id, validation.MAX_KEY_BYTES)
        parameters = statements_of(session).parameters_for_ids(self.name, item_ids)
        return {row[0]: int(row[1]) for row in session.core.execute(statement, parameters)}

    def give_up(self, item_id: str, reason: str, /) -> bool:
        """Give an item up. False if it was given up before, or was acknowledged."""
        return bool(self.give_up_many({item_id: reason}))

    def give_up_many(self, reasons: Mapping[str, str], /) -> set[str]:
        """Give items up, each with its reason. Returns those that were open."""
        redacted = {item_id: redact_text(reason) for item_id, reason in reasons.items()}
        with self._ledger().connections.write.use() as session, session.transaction("item.give_up"):
            statements = statements_of(session)
            parameters = statements.parameters_for_reasons(self.name, redacted)
            return {row[0] for row in session.core.execute(statements.give_up, parameters)}

    def acknowledge_many(self, item_ids: Collection[str], /) -> int:
        """Reset the counts of acknowledged items. Returns how many of them were open."""
        connections = self._ledger().connections
        with connections.read.use() as session:
            parameters = {"of_batch": self.name, "most": MAX_OPEN_FETCHED + 1}
            rows = session.core.execute(statements_of(session).open_items, parameters)
            open_ids = set(rows.scalars())
        if not open_ids:
            return 0
        is_complete = len(open_ids) <= MAX_OPEN_FETCHED
        acknowledged: Collection[str] = open_ids.intersection(item_ids) if is_complete else item_ids
        if not acknowledged:
            return 0
        with connections.write.use() as session, session.transaction("item.acknowledge"):
            statements = statements_of(session)
            parameters = statements.parameters_for_ids(self.name, acknowledged)
            return len(session.core.execute(statements.acknowledge, parameters).all())

    def pending(self, among: Collection[str], /) -> set[str]:
        """Return the items that may still be sent: all that were not given up."""
        if not among:
            return set()
        with self._ledger().connections.read.use() as session:
            statements = statements_of(session)
            parameters = {"of_batch": self.name, **statements.id_parameters(among)}
            return set(among) - set(session.core.execute(statements.given_up, parameters).scalars())

    def acknowledged(self, among: Collection[str], /) -> set[str]:
        """Return the items that were acknowledged after their last rejection."""
        if not among:
            return set()
        with self._ledger().connections.read.use() as session:
            statements = statements_of(session)
            parameters = {"of_batch": self.name, **statements.id_parameters(among)}
            return set(session.core.execute(statements.acknowledged, parameters).scalars())

    def __repr__(self) -> str:
        return f"LedgerItems({self.name!r})"


_IN_BATCH = item.c.batch == bindparam("of_batch")
# An acknowledged item that is rejected again starts anew.
_OPEN_AGAIN = case((item.c.status == "acknowledged", "open"), else_=item.c.status)


class ItemStatements:
    """The statements over items in the dialect of one database.

    Immutable: anything may share it.
    """

    def __init__(self, *, on_sqlite: bool) -> None:
        self._sqlite = on_sqlite
        now: Any = bindparam("now", type_=UtcTimestamp) if on_sqlite else func.now()
        ids, reason_id, reason = _sqlite_inputs() if on_sqlite else _postgres_inputs()
        batch = cast(bindparam("of_batch", type_=Text), Text)
        timestamps = {"created_at": now, "updated_at": now}
        self.increment = self._upsert(
            select(batch, ids, literal(1), now, now).where(true()).order_by(ids),
            ["batch", "item", "attempts", *timestamps],
            {"attempts": item.c.attempts + 1, "status": _OPEN_AGAIN, "updated_at": now},
        ).returning(item.c.item, item.c.attempts - item.c.forgiven)
        self.spare = self._upsert(
            select(batch, ids, literal(1), now, now).where(true()).order_by(ids),
            ["batch", "item", "spared", *timestamps],
            {"spared": item.c.spared + 1, "status": _OPEN_AGAIN, "updated_at": now},
        ).returning(item.c.item, item.c.spared)
        new_reason = self._insert().excluded["reason"]
        self.give_up = self._upsert(
            select(batch, reason_id, literal("giveup"), reason, now, now, now)
            .where(true())
            .order_by(reason_id),
            ["batch", "item", "status", "reason", "given_up_at", *timestamps],
            {"status": "giveup", "reason": new_reason, "given_up_at": now, "updated_at": now},
            where=item.c.status == "open",
        ).returning(item.c.item)
        is_listed = item.c.item.in_(select(ids))
        is_open, is_given_up = item.c.status == "open", item.c.status == "giveup"
        self.open_items = select(item.c.item).where(_IN_BATCH, is_open).limit(bindparam("most"))
        self.given_up = select(item.c.item).where(_IN_BATCH, is_given_up, is_listed)
        is_acknowledged = item.c.status == "acknowledged"
        self.acknowledged = select(item.c.item).where(_IN_BATCH, is_acknowledged, is_listed)
        # Postgres locks the rows in order before it updates them. SQLite has one writer at a time.
        in_order = select(item.c.item).where(_IN_BATCH, is_listed).order_by(item.c.item)
        locked = in_order.with_for_update().cte("locked")
        selected = is_listed if on_sqlite else item.c.item.in_(select(locked.c.item))
        reset = {"forgiven": item.c.attempts, "spared": 0, "updated_at": now}
        self.acknowledge = (
            update(item)
            .where(_IN_BATCH, is_open, selected)
            .values({"status": "acknowledged", **reset})
            .returning(item.c.item)
        )
        reopened = {"status": "open", "given_up_at": None, "reopened": item.c.reopened + 1, **reset}
        self.reopen = (
            update(item)
            .where(_IN_BATCH, is_given_up, selected)
            .values(reopened)
            .returning(item.c.item)
        )

    def _upsert(
        self, rows: Any, columns: list[str], changes: dict[str, Any], *, where: Any = None
    ) -> Any:
        primary_key = [item.c.batch, item.c.item]
        insert = self._insert().from_select(columns, rows)
        return insert.on_conflict_do_update(index_elements=primary_key, set_=changes, where=where)

    def _insert(self) -> Any:
        return sqlite.insert(item) if self._sqlite else postgresql.insert(item)

    def id_parameters(self, ids: Collection[str], /) -> dict[str, Any]:
        """Return the parameter of a statement that reads a list of ids."""
        in_order = sorted(set(ids))
        return {"ids": json.dumps(in_order) if self._sqlite else in_order}

    def parameters_for_ids(self, batch: str, ids: Collection[str], /) -> dict[str, Any]:
        """Return the parameters of a statement that changes a list of ids."""
        return {"of_batch": batch, **self.id_parameters(ids), **self._time()}

    def parameters_for_reasons(self, batch: str, reasons: Mapping[str, str], /) -> dict[str, Any]:
        """Return the parameters of `give_up`: ids, and the reason of each."""
        if self._sqlite:
            pairs: dict[str, Any] = {"pairs": json.dumps(sorted(reasons.items()))}
        else:
            pairs = {"pairs": list(reasons), "reasons": list(reasons.values())}
        return {"of_batch": batch, **pairs, **self._time()}

    def _time(self) -> dict[str, Any]:
        return {"now": from_db(now_micros())} if self._sqlite else {}


def _sqlite_inputs() -> tuple[Any, Any, Any]:
    """Return the columns of the ids, and of the pairs of id and reason, from JSON parameters."""
    listed = func.json_each(bindparam("ids")).table_valued("value").alias("listed")
    paired = func.json_each(bindparam("pairs")).table_valued("value").alias("paired")
    reason_id, reason = (func.json_extract(paired.c.value, f"$[{place}]") for place in (0, 1))
    return listed.c.value, reason_id, reason


def _postgres_inputs() -> tuple[Any, Any, Any]:
    """Return the same columns from array parameters."""
    ids = cast(bindparam("ids"), ARRAY(Text))
    listed: Any = func.unnest(ids).table_valued("value").render_derived(name="listed")
    arrays = (cast(bindparam("pairs"), ARRAY(Text)), cast(bindparam("reasons"), ARRAY(Text)))
    paired: Any = func.unnest(*arrays).table_valued("at", "why").render_derived(name="paired")
    return listed.c.value, paired.c.at, paired.c.why


_ON_SQLITE = ItemStatements(on_sqlite=True)
_ON_POSTGRES = ItemStatements(on_sqlite=False)


def statements_of(session: Session, /) -> ItemStatements:
    """Return the statements in the dialect of a session."""
    return _ON_SQLITE if session.sqlite else _ON_POSTGRES


# --- Queries of operators


class BatchSummary(NamedTuple):
    """The number of items of one batch by status.

    Items that were never rejected are not counted.
    """

    batch: str
    open: int
    acknowledged: int
    giveup: int
    rejections: int
    spared: int
    updated_at: datetime


class GivenUpItem(NamedTuple):
    """An item that was given up."""

    batch: str
    item: str
    attempts: int
    forgiven: int
    spared: int
    reopened: int
    reason: str | None
    given_up_at: datetime


def summarise_batches(connection: Connection, /) -> list[BatchSummary]:
    """Return a summary of every batch, by name."""
    statuses = ("open", "acknowledged", "giveup")
    counts = [func.count().filter(item.c.status == status) for status in statuses]
    sums = (func.sum(item.c.attempts), func.sum(item.c.spared))
    updated_at = func.max(item.c.updated_at, type_=item.c.updated_at.type)
    query = select(item.c.batch, *counts, *sums, updated_at)
    rows = connection.execute(query.group_by(item.c.batch).order_by(item.c.batch))
    return [
        BatchSummary._make((row[0], *(int(count) for count in row[1:6]), row[6])) for row in rows
    ]


def given_up_items(
    connection: Connection,
    /,
    *,
    batch: str | None,
    ids: Sequence[str] = (),
    reason: str | None = None,
    since: datetime | None = None,
    limit: int,
    newest: bool = True,
) -> list[GivenUpItem]:
    """Return items that were given up, the newest or the oldest first.

    `reason` selects items whose reason contains this text, in any case.
    """
    columns = [item.c[name] for name in GivenUpItem._fields]
    given_up_at = item.c.given_up_at
    order: list[Any] = [given_up_at.desc() if newest else given_up_at, item.c.batch, item.c.item]
    query = select(*columns).order_by(*order).limit(limit)
    query = _narrow(query, batch, ids, reason, since)
    return [GivenUpItem._make(row) for row in connection.execute(query)]


def count_given_up(
    connection: Connection,
    /,
    *,
    batch: str | None,
    ids: Sequence[str] = (),
    reason: str | None = None,
    since: datetime | None = None,
) -> int:
    """Return the number of items that `given_up_items` would return without a limit."""
    query = _narrow(select(func.count()).select_from(item), batch, ids, reason, since)
    return int(connection.execute(query).scalar_one())


def _narrow(
    query: Select[Any],
    batch: str | None,
    ids: Sequence[str],
    reason: str | None,
    since: datetime | None,
) -> Select[Any]:
    query = query.where(item.c.status == "giveup")
    if batch is not None:
        query = query.where(item.c.batch == batch)
    if ids:
        query = query.where(item.c.item.in_(ids))
    if reason is not None:
        query = query.where(func.lower(item.c.reason).contains(reason.lower(), autoescape=True))
    if since is not None:
        query = query.where(item.c.given_up_at >= since)
    return query


def item_states(connection: Connection, batch: str, ids: Sequence[str], /) -> dict[str, str]:
    """Return the state of items: `open`, `acknowledged` or `giveup`.

    Items that were never rejected are missing.
    """
    is_selected = (item.c.batch == batch, item.c.item.in_(ids))
    rows = connection.execute(select(item.c.item, item.c.status).where(*is_selected))
    return {row[0]: row[1] for row in rows}


def has_batch(connection: Connection, batch: str, /) -> bool:
    """Return whether any item of a batch was ever rejected."""
    query = select(item.c.item).where(item.c.batch == batch).limit(1)
    return connection.execute(query).first() is not None


def reopen_items(
    session: Session, batch: str, ids: Sequence[str], /, *, actor: str, because: str
) -> list[str]:
    """Allow given-up items to be sent again, with all their attempts.

    One transaction with its entry in the audit log. Returns the items that were given up.
    """
    audit.check_actor(actor, because)
    statements = statements_of(session)
    with session.transaction("item.reopen") as connection:
        parameters = statements.parameters_for_ids(batch, ids)
        reopened = sorted(connection.execute(statements.reopen, parameters).scalars())
        if reopened:
            details = {"batch": batch, "items": reopened}
            audit.write(session, actor=actor, action="batch.reopen", because=because, what=details)
    return reopened
