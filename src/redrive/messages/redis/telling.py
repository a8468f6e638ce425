"""Telling: dead letters as entries of a stream, for those who watch streams. The table is the truth; this follows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select, update

from ...ledger.crashpoint import crash_point
from ...ledger.tables import dead
from ..inbox import Inbox

if TYPE_CHECKING:
    import redis

STEP = 100
MOST = 100_000
"""Entries that the stream keeps, about."""
FIELDS = ("id", "kind", "key", "reason", "error", "signature", "attempts", "source", "source_id", "created_at")


class Telling:
    """Adds an entry for each dead letter that nobody was told of. At least once: its id says which it is. Of one thread."""

    every = 1.0

    def __init__(self, inbox: Inbox, client: redis.Redis, source: str, stream: str) -> None:
        self.name = f"tell {stream}"
        self._inbox, self._client, self._source, self._stream = inbox, client, source, stream

    def do(self, now: datetime, /) -> None:
        """Tell of those that are new."""
        while self._some(now) == STEP:
            pass

    def _some(self, now: datetime) -> int:
        mine = dead.c.source == self._source
        if self._inbox.sources[:1] == (self._source,):  # the first one tells of all that came from no stream
            mine = or_(mine, dead.c.source.is_(None), dead.c.source.not_in(self._inbox.sources))
        query = select(*(dead.c[name] for name in FIELDS), dead.c.payload).where(dead.c.told_at.is_(None), mine)
        with self._inbox.ledger.connections.read.use() as session:
            found = session.core.execute(query.order_by(dead.c.id).limit(STEP)).all()
        if not found:
            return 0
        pipeline = self._client.pipeline(transaction=False)
        for row in found:
            fields: dict[Any, Any] = {name: _said(getattr(row, name)) for name in FIELDS if getattr(row, name) is not None}
            if row.source == self._source:  # it was in Redis already; what other work was given is not for a stream to tell
                fields["payload"] = row.payload
            pipeline.xadd(self._stream, fields, maxlen=MOST, approximate=True)
        pipeline.execute()
        crash_point("tell.after")
        with self._inbox.ledger.connections.write.use() as session:
            session.core.execute(update(dead).where(dead.c.id.in_([row.id for row in found])).values(told_at=now))
        return len(found)


def _said(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
