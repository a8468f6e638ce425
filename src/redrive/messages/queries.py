"""Queries over stored events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from ..ledger.db.tables import event

MAX_EVENTS_READ = 200
"""The newest events that `latest_by_source` reads. Its cost does not grow with the table."""


class EventRow(NamedTuple):
    """A stored event."""

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


class LatestEvent(NamedTuple):
    """The last event of a source."""

    source: str
    at: datetime | None
    """When it happened."""
    received_at: datetime


_EVENTS = select(*(event.c[name] for name in EventRow._fields)).order_by(event.c.id.desc())
_LATEST = (
    select(event.c.source, event.c.at, event.c.received_at)
    .order_by(event.c.id.desc())
    .limit(MAX_EVENTS_READ)
)


def find_events(
    connection: Connection,
    /,
    *,
    event_id: str | None = None,
    source: str | None = None,
    type_: str | None = None,
    limit: int = 100,
) -> list[EventRow]:
    """Return events, the newest first."""
    query = _EVENTS.limit(limit)
    if event_id is not None:
        query = query.where(event.c.event_id == event_id)
    if source is not None:
        query = query.where(event.c.source == source)
    if type_ is not None:
        query = query.where(event.c.type == type_)
    return [EventRow._make(row) for row in connection.execute(query)]


def find_events_with_origin(
    connection: Connection, event_id: str, /, *, source: str | None, limit: int
) -> list[EventRow]:
    """Return events with this id and any origin: they are stored as `id@origin`."""
    query = _EVENTS.limit(limit)
    query = query.where(event.c.event_id.startswith(f"{event_id}@", autoescape=True))
    if source is not None:
        query = query.where(event.c.source == source)
    return [EventRow._make(row) for row in connection.execute(query)]


def entries_of_events(
    connection: Connection, source: str, ids: Sequence[str], /
) -> dict[str, tuple[str | None, str | None]]:
    """Return the entry id and the header `source` of the events that are stored with these ids."""
    columns = (event.c.event_id, event.c.source_id, event.c.headers)
    query = select(*columns).where(event.c.source == source, event.c.event_id.in_(ids))
    return {
        row.event_id: (
            row.source_id,
            json.loads(row.headers).get("source") if row.headers else None,
        )
        for row in connection.execute(query)
    }


def latest_by_source(connection: Connection, /) -> list[LatestEvent]:
    """Return the last event of each source among the newest events, by source."""
    by_source: dict[str, LatestEvent] = {}
    for row in connection.execute(_LATEST).all():
        by_source.setdefault(row.source, LatestEvent._make(row))
    return [by_source[source] for source in sorted(by_source)]
