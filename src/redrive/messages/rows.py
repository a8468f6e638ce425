"""Rows: events as they are found again, and forgotten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select

from ..ledger.tables import event


class Found(NamedTuple):
    """An event that was received, as an operator looks at it."""

    id: int
    source: str
    event_id: str
    type: str
    payload: bytes
    headers: str | None
    ids: str | None
    source_id: str | None
    handlers: int
    at: Any
    received_at: Any


def find(
    connection: Connection,
    /,
    *,
    event_id: str | None = None,
    source: str | None = None,
    type_: str | None = None,
    limit: int = 100,
) -> list[Found]:
    """Events, the newest first."""
    query = select(*(event.c[name] for name in Found._fields)).order_by(event.c.id.desc()).limit(limit)
    for column, value in ((event.c.event_id, event_id), (event.c.source, source), (event.c.type, type_)):
        if value is not None:
            query = query.where(column == value)
    return [Found._make(row) for row in connection.execute(query)]


def stored_under(connection: Connection, source: str, ids: Sequence[str], /) -> dict[str, tuple[str | None, str | None]]:
    """The events that are stored under these ids: the entry that each came from, and its header `source`."""
    columns = (event.c.event_id, event.c.source_id, event.c.headers)
    query = select(*columns).where(event.c.source == source, event.c.event_id.in_(ids))
    return {
        row.event_id: (row.source_id, json.loads(row.headers).get("source") if row.headers else None)
        for row in connection.execute(query)
    }


def with_origin(connection: Connection, event_id: str, /, *, source: str | None, limit: int) -> list[Found]:
    """Events of this id that say where they came from: they are stored as id@origin."""
    query = select(*(event.c[name] for name in Found._fields)).order_by(event.c.id.desc()).limit(limit)
    query = query.where(event.c.event_id.startswith(f"{event_id}@", autoescape=True))
    return [Found._make(row) for row in connection.execute(query if source is None else query.where(event.c.source == source))]


def forget(connection: Connection, before: Any, limit: int, /) -> int:
    """Forget events that were received before then; how many. Their handlers' jobs have what they need, and remember the keys.

    Ids grow with time: looks at the first ones only.
    """
    first = select(event.c.id).order_by(event.c.id).limit(limit)
    return connection.execute(delete(event).where(event.c.id.in_(first.scalar_subquery()), event.c.received_at < before)).rowcount
