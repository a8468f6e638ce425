"""Rows: events as they are found again, and forgotten."""

from __future__ import annotations

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


def forget(connection: Connection, before: Any, limit: int, /) -> int:
    """Forget events that were received before then; how many. Their handlers' jobs have what they need, and remember the keys.

    Ids grow with time: looks at the first ones only.
    """
    first = select(event.c.id).order_by(event.c.id).limit(limit)
    return connection.execute(delete(event).where(event.c.id.in_(first.scalar_subquery()), event.c.received_at < before)).rowcount
