"""How the items of the ledger's batches stand, and how a given-up one is opened again: by a person, recorded in the audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from ..ledger import audit
from ..ledger.moment import moment
from ..ledger.now import micros_now
from ..ledger.session import Session
from ..ledger.tables import item
from .statements import POSTGRES, SQLITE


class Standing(NamedTuple):
    """How many items of one batch there are, by where they are. Only items that were ever rejected."""

    batch: str
    open: int
    acknowledged: int
    giveup: int
    rejections: int
    spared: int
    updated_at: datetime


class Item(NamedTuple):
    """An item that was given up."""

    batch: str
    item: str
    attempts: int
    forgiven: int
    spared: int
    reopened: int
    reason: str | None
    given_up_at: datetime


def standings(connection: Connection, /) -> list[Standing]:
    """Of every batch, by name."""
    counted = [func.count().filter(item.c.status == status) for status in ("open", "acknowledged", "giveup")]
    sums = (func.sum(item.c.attempts), func.sum(item.c.spared), func.max(item.c.updated_at, type_=item.c.updated_at.type))
    found = connection.execute(select(item.c.batch, *counted, *sums).group_by(item.c.batch).order_by(item.c.batch))
    return [Standing._make((row[0], *(int(each) for each in row[1:6]), row[6])) for row in found]


def given_up(
    connection: Connection, /, *, batch: str | None, ids: Sequence[str] = (), reason: str | None = None,
    since: datetime | None = None, limit: int, newest: bool = True,
) -> list[Item]:  # fmt: skip
    """Items that were given up, the newest first. reason: words that it has in it, whatever their case."""
    columns = [item.c[name] for name in Item._fields]
    order: list[Any] = [item.c.given_up_at.desc() if newest else item.c.given_up_at, item.c.batch, item.c.item]
    query = select(*columns).where(item.c.status == "giveup").order_by(*order).limit(limit)
    if batch is not None:
        query = query.where(item.c.batch == batch)
    if ids:
        query = query.where(item.c.item.in_(ids))
    if reason is not None:
        query = query.where(func.lower(item.c.reason).contains(reason.lower(), autoescape=True))
    if since is not None:
        query = query.where(item.c.given_up_at >= since)
    return [Item._make(row) for row in connection.execute(query)]


def states(connection: Connection, batch: str, ids: Sequence[str], /) -> dict[str, str]:
    """Return the state of items: `open`, `acknowledged` or `giveup`. Items that were never rejected are missing."""
    rows = connection.execute(select(item.c.item, item.c.status).where(item.c.batch == batch, item.c.item.in_(ids)))
    return {row[0]: row[1] for row in rows}


def has_batch(connection: Connection, batch: str, /) -> bool:
    """Return whether any item of a batch was ever rejected."""
    return connection.execute(select(item.c.item).where(item.c.batch == batch).limit(1)).first() is not None


def recent(connection: Connection, since: datetime, /) -> dict[str, int]:
    """How many of each batch were given up since then."""
    fresh = select(item.c.batch, func.count()).where(item.c.status == "giveup", item.c.given_up_at >= since)
    return {row[0]: int(row[1]) for row in connection.execute(fresh.group_by(item.c.batch).order_by(func.count().desc()))}


def reopen(session: Session, batch: str, ids: Sequence[str], /, *, actor: str, because: str) -> list[str]:
    """Let items that were given up be sent again, with a full budget; those that were. One transaction, with its audit."""
    audit.said(actor, because)
    on = SQLITE if session.sqlite else POSTGRES
    given = {"of_batch": batch, **on.ids(ids)} | ({"now": moment(micros_now())} if session.sqlite else {})
    with session.transaction("item.reopen") as connection:
        done = sorted(connection.execute(on.reopen, given).scalars())
        if done:
            what = {"batch": batch, "items": done}
            audit.write(session, actor=actor, action="batch.reopen", because=because, what=what)
    return done
