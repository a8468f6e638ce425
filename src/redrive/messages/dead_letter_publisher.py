"""DeadLetterPublisher: announces dead letters in the broker that their messages came from.

The ledger is authoritative.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import or_, select, update

from ..ledger.db.tables import dead
from ..ledger.failpoint import crash_point
from .inbox import Inbox
from .source import Consumer, DeadLetterNotice, Source

BATCH_SIZE = 100
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
    """A worker task that announces each new dead letter, at least once.

    Belongs to one thread.
    """

    every = 1.0

    def __init__(self, inbox: Inbox, source: Source) -> None:
        self.name = f"tell {source.name}"
        self._inbox, self._source = inbox, source
        self._consumer: Consumer | None = None

    def end(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()

    def do(self, now: datetime, /) -> None:
        """Announce the dead letters that were not announced before."""
        while self._announce_batch(now) == BATCH_SIZE:
            pass

    def _announce_batch(self, now: datetime) -> int:
        is_own = dead.c.source == self._source.name
        if self._inbox.sources[:1] == (self._source.name,):
            # The first source also announces dead letters that came from no source.
            has_no_source = dead.c.source.not_in(self._inbox.sources)
            is_own = or_(is_own, dead.c.source.is_(None), has_no_source)
        columns = (*(dead.c[name] for name in FIELDS), dead.c.payload)
        query = select(*columns).where(dead.c.told_at.is_(None), is_own)
        with self._inbox.ledger.connections.read.use() as session:
            rows = session.core.execute(query.order_by(dead.c.id).limit(BATCH_SIZE)).all()
        if not rows:
            return 0
        notices = []
        for row in rows:
            values = {name: getattr(row, name) for name in FIELDS}
            fields = {name: _to_text(value) for name, value in values.items() if value is not None}
            # Its payload was in the broker before. Payloads of other jobs are not announced.
            is_of_source = row.source == self._source.name
            notices.append(
                DeadLetterNotice(row.id, fields, bytes(row.payload) if is_of_source else None)
            )
        if self._consumer is None:
            self._consumer = self._source.connect()
        self._consumer.announce(notices)
        crash_point("tell.after")
        published = update(dead).where(dead.c.id.in_([row.id for row in rows]))
        with self._inbox.ledger.connections.write.use() as session:
            session.core.execute(published.values(told_at=now))
        return len(rows)


def _to_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
