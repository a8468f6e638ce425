"""Queries over the ledger's batch items for operators, and the reopening of given-up items."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, select

from ...ledger import audit
from ...ledger.db.session import Session
from ...ledger.db.tables import item
from .ledger import statements_of


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
