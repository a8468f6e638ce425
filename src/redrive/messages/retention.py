"""EventRetention: removes old events. The jobs of their handlers have all that they need."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, select

from ..ledger.db.tables import event
from .inbox import Inbox

BATCH_SIZE = 1000


class EventRetention:
    """A worker task that removes old events. Any number of workers may run it at the same time."""

    name = "forget events"
    every = 3600.0

    def __init__(self, inbox: Inbox, keep: float) -> None:
        """Create the task. `keep`: seconds for which events are stored."""
        self._inbox = inbox
        self._keep = timedelta(seconds=keep)

    def do(self, now: datetime, /) -> None:
        """Remove all events that are older than `keep`, in batches."""
        write = self._inbox.ledger.connections.write
        while True:
            with write.use() as session, session.transaction("receive") as connection:
                if _delete_batch(connection, now - self._keep) < BATCH_SIZE:
                    return


def _delete_batch(connection: Connection, before: datetime) -> int:
    """Delete events that were received before a time, and return their number.

    Ids grow with time, so only the first ones are read.
    """
    oldest = select(event.c.id).order_by(event.c.id).limit(BATCH_SIZE)
    is_old = (event.c.id.in_(oldest.scalar_subquery()), event.c.received_at < before)
    return connection.execute(delete(event).where(*is_old)).rowcount
