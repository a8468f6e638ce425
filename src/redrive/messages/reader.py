"""SourceReader: reads a source into the ledger, and acknowledges messages that are stored.

`unread_type` runs messages that could not be decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from time import monotonic
from typing import NamedTuple, TypeAlias

from ..core.context import clock_around
from ..core.job_reasons import DeadReason
from ..core.policy import RetryPolicy
from ..engine.settings import RetrySettings
from ..journal.bus import emit
from ..ledger.events import SOURCE_ID, IncomingEvent
from ..ledger.failpoint import crash_point
from ..ledger.model import Lease, NewJob
from ..ledger.queries import overview as backlog
from ..worker.arrivals import MAX_BATCH_EVENTS, Arrival, ArrivalQueue
from ..worker.job_type import JobType, Undecodable
from .decoding import (
    LOST_HEADER,
    UnreadableMessage,
    decode_message,
    is_suspected_poison,
    job_for_unread,
    load_message,
)
from .direct import DirectRunner, Renewal, RenewsMessages, TypePlan
from .handlers import attempts_of
from .inbox import Inbox
from .source import Message, Source
from .stored_event import StoredEvent
from .tracing import source_attributes

BLOCK_SECONDS = 0.5
"""Time that a read waits for new messages. A worker that stops waits no longer than this."""
BACKLOG_LIMIT = 5_000
"""Number of due jobs of the handlers above which the reader pauses.

The source keeps the messages.
"""
BACKLOG_CHECK_SECONDS = 1.0
BACKLOG_PAUSE_SECONDS = 0.05
"""Pause between two checks while there is a backlog."""
PAUSED_SECONDS = 0.1
"""Time between two looks at the pause of a source, which are not queries."""
MAX_BATCHES_AHEAD = 2
"""Number of batches that may be on their way into the ledger while the next one is read."""
DIRECT_THREADS = 8
WITHOUT_RETRIES = RetrySettings().using(RetryPolicy.disabled(), {"attempt_timeout": None})


AckAndRead: TypeAlias = Callable[[Sequence[Message], int, float], Sequence[Message]]


class PendingBatch(NamedTuple):
    """Messages on their way into the ledger."""

    messages: Sequence[Message]
    events: Sequence[IncomingEvent]
    unread: Sequence[NewJob]
    arrival: Arrival


class SourceReader:
    """A worker task that reads one source into the ledger. Belongs to one thread."""

    every = 0.0

    def __init__(self, inbox: Inbox, source: Source, threads: int = DIRECT_THREADS) -> None:
        """Create the task. `threads`: direct calls of sync handlers at the same time."""
        self.name = f"read {source.name}"
        self._inbox, self._source = inbox, source
        self.consumer = consumer = source.connect()
        self._ack_and_read: AckAndRead | None = getattr(consumer, "ack_and_read", None)
        """Does both in one round trip. Not all consumers can."""
        self._direct = DirectRunner(threads, source_attributes(source))
        self._renewal = Renewal(consumer) if isinstance(consumer, RenewsMessages) else None
        self._next_backlog_check = 0.0
        self._has_backlog = False
        self._read_since_check = 0
        """Number of messages that were read since the last check of the backlog."""
        self._arrivals: ArrivalQueue | None = None
        self._held: Sequence[Message] = ()
        """Messages that were read and not handed over: their source was just paused by hand, or the
        ledger was away. The next round hands them over."""
        self._batches: deque[PendingBatch] = deque()
        self._unacknowledged: list[Message] = []
        """Messages that are stored and not yet acknowledged."""

    def attach(self, arrivals: ArrivalQueue, /) -> None:
        """Let a worker store the events in its own transactions. Otherwise they are stored here."""
        self._arrivals = arrivals

    def end(self) -> None:
        """Store the events that the worker has not stored, so that they are not read again."""
        try:
            self._acknowledge_stored(0)
            if self._held:
                self.consumer.nack(self._held, 0.0)
        finally:
            self._direct.close()
            if self._renewal is not None:
                self._renewal.close()
            self.consumer.close()

    def do(self, _now: datetime, /) -> None:
        """Run one round."""
        # Batches that could not be stored before come before new messages.
        max_ahead = self._max_batches_ahead()
        self._collect_stored(max_ahead)
        if self._is_paused():
            # The source keeps its messages. Another consumer gets those that are held here if this
            # process dies.
            self._acknowledge_stored(0)
            clock_around().sleep(PAUSED_SECONDS)
            return
        messages = self._held
        if not messages and not self._pause_for_backlog(monotonic()):
            messages = self._acknowledge_and_read(0.0 if self._batches else BLOCK_SECONDS)
            if not messages and self._arrivals is not None:
                self._arrivals.source_idle()
        self._held = messages
        if messages and self._is_paused():
            return
        if messages:
            crash_point("read.after")
            self._hand_over(messages)
            self._held = ()
        # After a short read, the source is empty for now, and the next read may wait.
        is_full_read = len(messages) >= self._source.batch
        self._collect_stored(max_ahead - 1 if is_full_read else 0)
        if not is_full_read or self._ack_and_read is None:
            self._acknowledge()

    def _max_batches_ahead(self) -> int:
        """Return how many batches may be on their way into the ledger.

        Small batches are read ahead while the ledger commits, and share its next transaction (group
        commit). The exceptions are sources that limit reserved messages to a few batches, and
        direct calls: after a crash, those of unacknowledged messages are repeated.
        """
        if self._ack_and_read is None or self._inbox.handlers.has_direct:
            return MAX_BATCHES_AHEAD
        return max(MAX_BATCHES_AHEAD, MAX_BATCH_EVENTS // self._source.batch)

    def _is_paused(self) -> bool:
        """Return whether an operator has paused this source, or the app."""
        return self._arrivals is not None and self._arrivals.is_paused(self._source.name)

    def _pause_for_backlog(self, now: float) -> bool:
        """Return whether there is a backlog in the ledger, after a short pause if there is."""
        is_check_due = now >= self._next_backlog_check
        if self._has_backlog or is_check_due or self._read_since_check >= BACKLOG_LIMIT // 2:
            self._acknowledge()  # the ledger may be away, or there may be a backlog, for long
            self._next_backlog_check = now + BACKLOG_CHECK_SECONDS
            self._read_since_check = 0
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

    def _hand_over(self, messages: Sequence[Message]) -> None:
        """Decode messages and pass them to the worker, or keep them to store them here."""
        stored_events: list[StoredEvent] = []
        events: list[IncomingEvent] = []
        unread: list[NewJob] = []
        source, handlers = self._source, self._inbox.handlers
        max_payload = self._inbox.ledger.max_payload

        def keep_unread(message: Message, error: Exception) -> None:
            fields = {"source": source.name, "source_id": message.id, "error": str(error)}
            emit("unread", {"operation": self.name, **fields})
            unread.append(job_for_unread(unread_name(source), source.name, message))

        decoded: list[tuple[Message, StoredEvent]] = []
        for message in messages:
            if message.deliveries > 1 and is_suspected_poison(message):
                unread.append(job_for_unread(unread_name(source), source.name, message))
                continue
            try:
                decoded.append((message, decode_message(message, source, max_payload)))
            except UnreadableMessage as error:
                keep_unread(message, error)
        jobs: dict[int, Sequence[tuple[str, int]]]
        if handlers.has_direct:
            batch = [stored for _, stored in decoded]
            renewal = self._renewal
            with renewal.during_calls(messages) if renewal is not None else nullcontext():
                to_store = self._direct.handlers_to_store(batch, self._plan)
            jobs = {place: attempts_of(to_store[place]) for place in sorted(to_store)}
        else:
            jobs = {
                place: handlers.attempts_by_handler(stored.type)
                for place, (_, stored) in enumerate(decoded)
            }
        for place, jobs_of_event in jobs.items():
            message, stored = decoded[place]
            try:
                events.append(stored.incoming(jobs_of_event))
                stored_events.append(stored)
            except ValueError as error:
                keep_unread(message, error)
        if any(stored.origin is not None for stored in stored_events):
            known = self._inbox.places_stored_without_origin(stored_events)
            events = [event for place, event in enumerate(events) if place not in known]
        self._read_since_check += len(events)
        if self._arrivals is None or not events:
            arrival = Arrival(events)
            if events:
                arrival.refuse()
            else:
                arrival.mark_stored([])
        else:
            arrival = self._arrivals.put(events, has_more=len(messages) >= source.batch)
        self._batches.append(PendingBatch(messages, events, unread, arrival))

    def _plan(self, type_: str) -> TypePlan:
        """Return which handlers of a type are called directly.

        A handler that is paused or parked gets jobs, which wait in the ledger.
        """
        arrivals, handlers = self._arrivals, self._inbox.handlers.for_type(type_)
        direct = [
            handler
            for handler in handlers
            if handler.persist == "failures"
            and not (arrivals is not None and arrivals.is_paused_or_parked(handler.name))
        ]
        return TypePlan(direct, [handler for handler in handlers if handler not in direct])

    def _acknowledge_stored(self, max_ahead: int) -> None:
        """Acknowledge stored batches. Wait until at most `max_ahead` batches are on their way."""
        try:
            self._collect_stored(max_ahead)
        finally:
            self._acknowledge()

    def _collect_stored(self, max_ahead: int) -> None:
        """Collect the messages of stored batches, which can be acknowledged."""
        batches = self._batches
        while batches and (len(batches) > max_ahead or batches[0].arrival.is_decided):
            batch = batches[0]
            try:
                is_stored = batch.arrival.wait()
                if batch.unread or not is_stored:
                    self._inbox.store(() if is_stored else batch.events, unread=batch.unread)
            except BaseException:
                self._acknowledge()  # those before it
                raise
            if is_stored:
                self._inbox.report_unhandled(batch.events, batch.arrival.new or ())
            self._unacknowledged += batch.messages
            batches.popleft()

    def _acknowledge(self) -> None:
        if self._unacknowledged:  # with those of an earlier attempt that failed
            crash_point("ack.before")
            self.consumer.ack(self._unacknowledged)
            self._unacknowledged = []
            crash_point("ack.after")

    def _acknowledge_and_read(self, wait: float) -> Sequence[Message]:
        """Acknowledge collected messages and read the next ones, in one round trip if possible."""
        if self._ack_and_read is None or not self._unacknowledged:
            self._acknowledge()
            return self.consumer.read(self._source.batch, wait)
        crash_point("ack.before")
        messages = self._ack_and_read(self._unacknowledged, self._source.batch, wait)
        self._unacknowledged = []
        crash_point("ack.after")
        return messages


def unread_name(source: Source, /) -> str:
    """Return the job type of messages that could not be decoded."""
    return f"read:{source.name}"


def unread_type(source: Source, inbox: Inbox, /) -> JobType:
    """Return the job type that decodes messages which could not be decoded before.

    It decodes suspected poison messages, and messages of dead letters that are replayed.
    """

    def run(lease: Lease) -> None:
        message_id = lease.headers[SOURCE_ID]
        is_lost = LOST_HEADER in lease.headers
        try:
            message = Message(message_id, None)
            if not is_lost:
                message = load_message(message_id, lease.payload)
            event = decode_message(message, source, inbox.ledger.max_payload)
            inbox.store([inbox.incoming(event)])
        except (UnreadableMessage, ValueError) as error:
            reason: DeadReason = "payload_lost" if is_lost else "undecodable"
            problem = f"message {message_id} of {source.name}: {error}"
            raise Undecodable(problem, reason=reason) from error

    return JobType(
        name=unread_name(source),
        run=run,
        execution="thread",
        settings=WITHOUT_RETRIES,
        parks_on_outage=False,
    )
