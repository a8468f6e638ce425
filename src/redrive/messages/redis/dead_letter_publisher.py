"""DeadLetterPublisher: writes dead letters to a Redis stream, too. The ledger is authoritative."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select, update

from ...ledger.db.tables import dead
from ...ledger.failpoint import crash_point
from ..inbox import Inbox

if TYPE_CHECKING:
    import redis

BATCH_SIZE = 100
MAX_STREAM_ENTRIES = 100_000
"""Approximate number of entries that the stream keeps."""
FIELDS = (
    "id",
    "kind",
    "key",
    "reason",
    "error",
    "signature",
    "attempts",
    "source",
    "source_id",
    "created_at",
)


class DeadLetterPublisher:
    """A worker task that adds an entry for each new dead letter, at least once.

    Belongs to one thread.
    """

    every = 1.0

    def __init__(self, inbox: Inbox, client: redis.Redis, source: str, stream: str) -> None:
        self.name = f"tell {stream}"
        self._inbox, self._client = inbox, client
        self._source, self._stream = source, stream

    def do(self, now: datetime, /) -> None:
        """Publish the dead letters that were not published before."""
        while self._publish_batch(now) == BATCH_SIZE:
            pass

    def _publish_batch(self, now: datetime) -> int:
        is_own = dead.c.source == self._source
        if self._inbox.sources[:1] == (self._source,):
            # The first source also publishes dead letters that came from no stream.
            has_no_stream = dead.c.source.not_in(self._inbox.sources)
            is_own = or_(is_own, dead.c.source.is_(None), has_no_stream)
        columns = (*(dead.c[name] for name in FIELDS), dead.c.payload)
        query = select(*columns).where(dead.c.told_at.is_(None), is_own)
        with self._inbox.ledger.connections.read.use() as session:
            rows = session.core.execute(query.order_by(dead.c.id).limit(BATCH_SIZE)).all()
        if not rows:
            return 0
        pipeline = self._client.pipeline(transaction=False)
        for row in rows:
            values = {name: getattr(row, name) for name in FIELDS}
            fields: dict[Any, Any] = {
                name: _to_text(value) for name, value in values.items() if value is not None
            }
            if row.source == self._source:
                # Its payload was in Redis before. Payloads of other jobs are not published.
                fields["payload"] = row.payload
            pipeline.xadd(self._stream, fields, maxlen=MAX_STREAM_ENTRIES, approximate=True)
        pipeline.execute()
        crash_point("tell.after")
        published = update(dead).where(dead.c.id.in_([row.id for row in rows]))
        with self._inbox.ledger.connections.write.use() as session:
            session.core.execute(published.values(told_at=now))
        return len(rows)


def _to_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
