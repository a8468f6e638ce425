"""Forgetting: old events go. Their handlers' jobs have what they need, and remember the keys."""

from __future__ import annotations

from datetime import datetime, timedelta

from . import rows
from .inbox import Inbox

STEP = 1000


class Forgetting:
    """Removes events that were received long ago. A chore of the worker; any number of workers may do it at once."""

    name = "forget events"
    every = 3600.0

    def __init__(self, inbox: Inbox, keep: float) -> None:
        """keep: seconds."""
        self._inbox = inbox
        self._keep = timedelta(seconds=keep)

    def do(self, now: datetime, /) -> None:
        """All that are older."""
        ledger = self._inbox.ledger
        while True:
            with ledger.connections.write.use() as session, session.transaction("receive") as connection:
                if rows.forget(connection, now - self._keep, STEP) < STEP:
                    return
