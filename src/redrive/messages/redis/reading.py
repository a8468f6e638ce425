"""Reading: one round of a consumer: read, have it stored in the worker's next turn, acknowledge at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import NamedTuple

from ...core.context import clock_around
from ...journal.bus import emit
from ...ledger import backlog
from ...ledger.arrival import Arriving
from ...ledger.crashpoint import crash_point
from ...ledger.record import NewJob
from ...worker.intake import Arrival, Intake
from ...worker.process import left
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
AHEAD = 2
"""So many reads may be on their way into the ledger: the next is read while the one before is written."""
FULL = 0.05
"""The same, while it is too much."""


class Brought(NamedTuple):
    """Entries on their way into the ledger."""

    entries: Sequence[Entry]
    events: Sequence[Arriving]
    unread: Sequence[NewJob]
    arrival: Arrival


class Reading:
    """Reads one stream into the ledger, again and again. A chore of the worker; belongs to one thread."""

    every = 0.0

    def __init__(
        self, inbox: Inbox, group: Group, *, source: str, kind: str, batch: int, idle: float, decode: Decode | None, trim: bool
    ) -> None:
        self.name = f"read {source}"
        self._inbox, self.group = inbox, group
        self._source, self._kind, self._batch, self._idle, self._decode = source, kind, batch, idle, decode
        self._trim = TRIM if trim else None
        self._trimmed = self._looked = self._taken = self._tidied = 0.0
        self._full = False
        self._unseen = 0
        """Read since the last look."""
        self._intake: Intake | None = None
        self._brought: deque[Brought] = deque()
        self._owed: list[str] = []
        """Stored, and not yet acknowledged."""

    def brings_to(self, intake: Intake, /) -> None:
        """A worker stores what is read, in its own turn; without one it is stored here."""
        self._intake = intake

    def end(self) -> None:
        """The worker ends: what it has not stored is stored here, so that it need not be read again."""
        self._acknowledge(0)

    def do(self, _now: datetime, /) -> None:
        """One round."""
        try:
            self._round(monotonic())
        except Exception:
            self.group.hang_up()  # the next round finds whoever has the address then
            raise

    def _round(self, now: float) -> None:
        self._acknowledge(AHEAD)  # what could not be stored before comes before anything new
        entries = self._take_over(now)
        if not entries and not self._waits(now):
            entries = self.group.read(self._batch, 0 if self._brought else BLOCK)
            if not entries and self._intake is not None:
                self._intake.dry()
        if entries:
            crash_point("read.after")
            self._bring(entries)
        # Less than was asked for: then there is nothing more for now, and the next read may take its time.
        self._acknowledge(AHEAD - 1 if len(entries) >= self._batch else 0)
        if self._trim is not None and now - self._trimmed >= self._trim:
            self._trimmed = now
            self.group.trim()
        if now - self._tidied >= TIDY:
            self._tidied = now
            self.group.forget(GONE)

    def _take_over(self, now: float) -> list[Entry]:
        """What a dead consumer left, also on a quiet stream: until there is nothing more, then again after a while.

        At once where its process was on this machine and is gone; else when it has been idle for long enough.
        """
        if now < self._taken:
            return []
        found = self.group.inherit(self._batch, _gone) or self.group.take_over(self._batch, self._idle)
        held = {entry.id for brought in self._brought for entry in brought.entries}
        found = [entry for entry in found if entry.id not in held]  # our own, while the ledger is away
        if found:
            emit("taken_over", {"operation": self.name, "source": self._source, "entries": len(found)})
        else:
            self._taken = now + min(self._idle / 2, 5.0)
        return found

    def _waits(self, now: float) -> bool:
        """Whether so much waits in the ledger that the stream had better keep the rest."""
        if self._unseen >= ENOUGH // 2 or now - self._looked >= LOOK or self._full:
            self._looked, self._unseen = now, 0
            self._full = self._much()
        if self._full:
            clock_around().sleep(FULL)
        return self._full

    def _much(self) -> bool:
        """Whether more waits for a worker than it does in a while. What waits for its next attempt, or for the end of an outage,
        holds up no other handler."""
        ledger = self._inbox.ledger
        counts = ledger.counts()
        names = [one.name for one in self._inbox.handlers if one.name in counts]
        if sum(counts[name].ready for name in names) < ENOUGH:
            return False
        with ledger.connections.read.use() as session:
            return backlog.due(session, names, ENOUGH) >= ENOUGH

    def _bring(self, entries: Sequence[Entry]) -> None:
        read: list[Stored] = []
        events: list[Arriving] = []
        others: list[NewJob] = []
        most, parts = self._inbox.ledger.max_payload, self._inbox.handlers.parts
        for entry in entries:
            if entry.feared:
                others.append(unread(self._kind, self._source, entry))
                continue
            try:
                one = event_in(entry, self._source, self._decode, most)
                events.append(one.arriving(parts(one.type)))
                read.append(one)
            except (Unread, ValueError) as wrong:
                emit("unread", {"operation": self.name, "source": self._source, "source_id": entry.id, "error": str(wrong)})
                others.append(unread(self._kind, self._source, entry))
        if any(one.origin is not None for one in read):
            known = self._inbox.known_before(read)
            events = [one for at, one in enumerate(events) if at not in known]
        self._unseen += len(entries)
        if self._intake is None:
            arrival = Arrival(events)
            arrival.end(None)
        else:
            arrival = self._intake.put(events, more=len(entries) >= self._batch)
        self._brought.append(Brought(entries, events, others, arrival))

    def _acknowledge(self, ahead: int) -> None:
        """What is stored; wait for the others, until so many are on their way."""
        try:
            while self._brought and (len(self._brought) > ahead or self._brought[0].arrival.over):
                first = self._brought[0]
                stored = first.arrival.wait()
                if first.unread or not stored:
                    self._inbox.store(() if stored else first.events, unread=first.unread)
                if stored:
                    self._inbox.told(first.events, first.arrival.fresh or ())
                self._owed += [entry.id for entry in first.entries]
                self._brought.popleft()
        finally:
            if self._owed:  # also what could not be acknowledged the last time
                crash_point("ack.before")
                self.group.acknowledge(self._owed)
                self._owed = []
                crash_point("ack.after")


def _gone(consumer: str) -> bool:
    return left(consumer.rpartition("-")[2])
