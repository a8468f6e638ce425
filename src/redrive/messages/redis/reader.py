"""StreamReader: reads a Redis stream into the ledger, and acknowledges entries that are stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import NamedTuple

from ...core.context import clock_around
from ...journal.bus import emit
from ...ledger.events import IncomingEvent
from ...ledger.failpoint import crash_point
from ...ledger.model import NewJob
from ...ledger.queries import overview as backlog
from ...worker.arrivals import Arrival, ArrivalQueue
from ...worker.process import is_label_gone
from ..inbox import Inbox
from ..stored_event import StoredEvent
from .consumer_group import ConsumerGroup
from .entry import Decode, StreamEntry, UnreadableEntry, decode_entry, job_for_unread

BLOCK_SECONDS = 0.5
"""Time that a read waits for new entries. A worker that stops waits no longer than this."""
BACKLOG_LIMIT = 5_000
"""Number of due jobs of the handlers above which the reader pauses.

The stream keeps the entries.
"""
BACKLOG_CHECK_SECONDS = 1.0
BACKLOG_PAUSE_SECONDS = 0.05
"""Pause between two checks while there is a backlog."""
TRIM_SECONDS = 30.0
CONSUMER_CHECK_SECONDS = 3600.0
CONSUMER_IDLE_SECONDS = 86_400.0
"""Time after which an idle consumer belongs to a process that has ended."""
MAX_CLAIM_CHECK_SECONDS = 5.0
MAX_BATCHES_AHEAD = 2
"""Number of batches that may be on their way into the ledger while the next one is read."""


class PendingBatch(NamedTuple):
    """Entries on their way into the ledger."""

    entries: Sequence[StreamEntry]
    events: Sequence[IncomingEvent]
    unread: Sequence[NewJob]
    arrival: Arrival


class StreamReader:
    """A worker task that reads one stream into the ledger. Belongs to one thread."""

    every = 0.0

    def __init__(
        self,
        inbox: Inbox,
        group: ConsumerGroup,
        *,
        source: str,
        kind: str,
        batch: int,
        idle: float,
        decode: Decode | None,
        trim: bool,
    ) -> None:
        """Create the task. The options are those of `RedisStream`.

        `kind` is the job type of entries that cannot be decoded.
        """
        self.name = f"read {source}"
        self._inbox, self.group = inbox, group
        self._source, self._kind = source, kind
        self._batch, self._idle, self._decode = batch, idle, decode
        self._trims = trim
        self._trimmed_at = 0.0
        self._consumers_checked_at = 0.0
        self._next_claim_at = 0.0
        self._backlog_checked_at = 0.0
        self._has_backlog = False
        self._read_since_check = 0
        """Number of entries that were read since the last check of the backlog."""
        self._arrivals: ArrivalQueue | None = None
        self._batches: deque[PendingBatch] = deque()
        self._unacknowledged: list[str] = []
        """Entries that are stored and not yet acknowledged."""

    def attach(self, arrivals: ArrivalQueue, /) -> None:
        """Let a worker store the events in its own transactions. Otherwise they are stored here."""
        self._arrivals = arrivals

    def end(self) -> None:
        """Store the events that the worker has not stored, so that they are not read again."""
        self._acknowledge_stored(0)

    def do(self, _now: datetime, /) -> None:
        """Run one round."""
        try:
            self._run_round(monotonic())
        except Exception:
            self.group.disconnect()  # the next round may find another server at the address
            raise

    def _run_round(self, now: float) -> None:
        # Batches that could not be stored before come before new entries.
        self._acknowledge_stored(MAX_BATCHES_AHEAD)
        entries = self._claim_abandoned(now)
        if not entries and not self._pause_for_backlog(now):
            entries = self.group.read(self._batch, 0 if self._batches else BLOCK_SECONDS)
            if not entries and self._arrivals is not None:
                self._arrivals.source_idle()
        if entries:
            crash_point("read.after")
            self._hand_over(entries)
        # After a short read, the stream is empty for now, and the next read may wait.
        is_full_read = len(entries) >= self._batch
        self._acknowledge_stored(MAX_BATCHES_AHEAD - 1 if is_full_read else 0)
        if self._trims and now - self._trimmed_at >= TRIM_SECONDS:
            self._trimmed_at = now
            self.group.trim()
        if now - self._consumers_checked_at >= CONSUMER_CHECK_SECONDS:
            self._consumers_checked_at = now
            self.group.remove_idle_consumers(CONSUMER_IDLE_SECONDS)

    def _claim_abandoned(self, now: float) -> list[StreamEntry]:
        """Claim entries of dead consumers until there are none, and check again after a while.

        Entries of a process that has ended on this machine are claimed at once, others after their
        idle time.
        """
        if now < self._next_claim_at:
            return []
        entries = self.group.claim_from_dead_consumers(self._batch, _is_dead)
        if not entries:
            entries = self.group.claim_idle(self._batch, self._idle)
        # Our own batches can become idle while the ledger is unavailable.
        own = {entry.id for batch in self._batches for entry in batch.entries}
        entries = [entry for entry in entries if entry.id not in own]
        if entries:
            fields = {"source": self._source, "entries": len(entries)}
            emit("taken_over", {"operation": self.name, **fields})
        else:
            self._next_claim_at = now + min(self._idle / 2, MAX_CLAIM_CHECK_SECONDS)
        return entries

    def _pause_for_backlog(self, now: float) -> bool:
        """Return whether there is a backlog in the ledger, after a short pause if there is."""
        is_check_due = now - self._backlog_checked_at >= BACKLOG_CHECK_SECONDS
        if self._has_backlog or is_check_due or self._read_since_check >= BACKLOG_LIMIT // 2:
            self._backlog_checked_at, self._read_since_check = now, 0
            self._has_backlog = self._check_backlog()
        if self._has_backlog:
            clock_around().sleep(BACKLOG_PAUSE_SECONDS)
        return self._has_backlog

    def _check_backlog(self) -> bool:
        """Return whether more jobs of the handlers are due than the limit.

        Jobs that wait for a retry or for the end of an outage do not count. They hold up no other
        handler.
        """
        ledger = self._inbox.ledger
        counts = ledger.counts()
        names = [handler.name for handler in self._inbox.handlers if handler.name in counts]
        if sum(counts[name].ready for name in names) < BACKLOG_LIMIT:
            return False
        with ledger.connections.read.use() as session:
            return backlog.count_due(session, names, BACKLOG_LIMIT) >= BACKLOG_LIMIT

    def _hand_over(self, entries: Sequence[StreamEntry]) -> None:
        """Decode entries and pass them to the worker, or keep them to store them here."""
        stored_events: list[StoredEvent] = []
        events: list[IncomingEvent] = []
        unread: list[NewJob] = []
        max_payload = self._inbox.ledger.max_payload
        attempts_by_handler = self._inbox.handlers.attempts_by_handler
        for entry in entries:
            if entry.is_suspected_poison:
                unread.append(job_for_unread(self._kind, self._source, entry))
                continue
            try:
                stored = decode_entry(entry, self._source, self._decode, max_payload)
                events.append(stored.incoming(attempts_by_handler(stored.type)))
                stored_events.append(stored)
            except (UnreadableEntry, ValueError) as error:
                fields = {"source": self._source, "source_id": entry.id, "error": str(error)}
                emit("unread", {"operation": self.name, **fields})
                unread.append(job_for_unread(self._kind, self._source, entry))
        if any(stored.origin is not None for stored in stored_events):
            known = self._inbox.places_stored_without_origin(stored_events)
            events = [event for place, event in enumerate(events) if place not in known]
        self._read_since_check += len(entries)
        if self._arrivals is None:
            arrival = Arrival(events)
            arrival.decide(None)
        else:
            arrival = self._arrivals.put(events, has_more=len(entries) >= self._batch)
        self._batches.append(PendingBatch(entries, events, unread, arrival))

    def _acknowledge_stored(self, max_ahead: int) -> None:
        """Acknowledge stored batches. Wait until at most `max_ahead` batches are on their way."""
        batches = self._batches
        try:
            while batches and (len(batches) > max_ahead or batches[0].arrival.is_decided):
                batch = batches[0]
                is_stored = batch.arrival.wait()
                if batch.unread or not is_stored:
                    self._inbox.store(() if is_stored else batch.events, unread=batch.unread)
                if is_stored:
                    self._inbox.report_unhandled(batch.events, batch.arrival.new or ())
                self._unacknowledged += [entry.id for entry in batch.entries]
                batches.popleft()
        finally:
            if self._unacknowledged:  # with those of an earlier attempt that failed
                crash_point("ack.before")
                self.group.acknowledge(self._unacknowledged)
                self._unacknowledged = []
                crash_point("ack.after")


def _is_dead(consumer: str) -> bool:
    return is_label_gone(consumer.rpartition("-")[2])
