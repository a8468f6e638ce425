"""Reading: one round of a consumer: read, store in one transaction, acknowledge at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import monotonic

from ...core.context import clock_around
from ...journal.bus import emit
from ...ledger.crashpoint import crash_point
from ...ledger.record import NewJob
from ..inbox import Inbox
from ..stored import Stored
from .entry import Decode, Entry, Unread, event_in, unread
from .group import Group

BLOCK = 0.5
"""Seconds; how long a read waits for something new: a worker that is told to stop waits no longer than this."""
ENOUGH = 5_000
"""Jobs that wait in the ledger: then no more is read, and the stream keeps it."""
TRIM = 30.0
TIDY = 3600.0
GONE = 86_400.0
"""Seconds; a consumer that was not seen for so long is another process's, which has ended."""
LOOK = 1.0
"""Seconds between two looks at how much waits."""
FULL = 0.05
"""The same, while it is too much."""


class Reading:
    """Reads one stream into the ledger, again and again. A chore of the worker; belongs to one thread."""

    every = 0.0

    def __init__(
        self, inbox: Inbox, group: Group, *, source: str, kind: str, batch: int, idle: float, decode: Decode | None, trim: bool
    ) -> None:
        self.name = f"read {source}"
        self._inbox, self._group = inbox, group
        self._source, self._kind, self._batch, self._idle, self._decode = source, kind, batch, idle, decode
        self._trim = TRIM if trim else None
        self._trimmed = self._looked = self._taken = self._tidied = 0.0
        self._full = False
        self._unseen = 0
        """Read since the last look."""

    def do(self, _now: datetime, /) -> None:
        """One round."""
        now = monotonic()
        entries = self._take_over(now)
        if not entries and not self._waits(now):
            entries = self._group.read(self._batch, BLOCK)
        if entries:
            crash_point("read.after")
            self._store(entries)
            crash_point("ack.before")
            self._group.acknowledge([entry.id for entry in entries])
            crash_point("ack.after")
        if self._trim is not None and now - self._trimmed >= self._trim:
            self._trimmed = now
            self._group.trim()
        if now - self._tidied >= TIDY:
            self._tidied = now
            self._group.forget(GONE)

    def _take_over(self, now: float) -> list[Entry]:
        """What a dead consumer left, also on a quiet stream: until there is nothing more, then again after a while."""
        if now < self._taken:
            return []
        found = self._group.take_over(self._batch, self._idle)
        if found:
            emit("taken_over", {"operation": self.name, "source": self._source, "entries": len(found)})
        else:
            self._taken = now + min(self._idle / 2, 5.0)
        return found

    def _waits(self, now: float) -> bool:
        """Whether so much waits in the ledger that the stream had better keep the rest."""
        if self._unseen >= ENOUGH // 2 or now - self._looked >= LOOK or self._full:
            self._looked, self._unseen = now, 0
            counts = self._inbox.ledger.counts()
            self._full = sum(counts[one.name].ready for one in self._inbox.handlers if one.name in counts) >= ENOUGH
        if self._full:
            clock_around().sleep(FULL)
        return self._full

    def _store(self, entries: Sequence[Entry]) -> None:
        events: list[Stored] = []
        others: list[NewJob] = []
        most = self._inbox.ledger.max_payload
        for entry in entries:
            try:
                one = event_in(entry, self._source, self._decode)
                if len(one.payload) > most:
                    raise Unread(f"its payload has {len(one.payload)} bytes; the ledger takes at most {most}")
                events.append(one)
            except Unread as wrong:
                emit("unread", {"operation": self.name, "source": self._source, "source_id": entry.id, "error": str(wrong)})
                others.append(unread(self._kind, self._source, entry))
        self._unseen += len(entries)
        self._inbox.store(events, unread=others)
