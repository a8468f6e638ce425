"""The last events of each source: whether anything comes, and how late."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from ..ledger.tables import event

RECENT = 200
"""Events that are looked at, the newest: what it costs does not grow with how many were received."""


class Latest(NamedTuple):
    """The last event of a source. Immutable."""

    source: str
    at: datetime | None
    """When it happened."""
    received_at: datetime


def latest(connection: Connection, /) -> list[Latest]:
    """Of each source among the newest events, by name."""
    found: dict[str, Latest] = {}
    for row in connection.execute(_NEWEST).all():
        found.setdefault(row.source, Latest._make(row))
    return [found[source] for source in sorted(found)]


_NEWEST = select(event.c.source, event.c.at, event.c.received_at).order_by(event.c.id.desc()).limit(RECENT)
