"""Inbox: stores each event once, together with the jobs of its handlers.

`EventRetention` deletes old events. The jobs of their handlers have all that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, select

from ..journal.bus import emit
from ..ledger import validation
from ..ledger.aio import AsyncLedger
from ..ledger.db.caller_transaction import run_in_caller
from ..ledger.db.compiled import BatchRunner
from ..ledger.db.tables import event as event_table
from ..ledger.events import IncomingEvent
from ..ledger.jobs.group_commit import submit_deduplicated
from ..ledger.ledger import Ledger
from ..ledger.model import NewJob
from ..worker.job_type import JobType
from .event import Event
from .handlers import Handlers
from .queries import entries_of_events
from .stored_event import StoredEvent


class Inbox:
    """Stores events. Threads and forked children may share it."""

    def __init__(
        self, ledger: Callable[[], Ledger], handlers: Handlers, sources: Sequence[str] = ()
    ) -> None:
        self._ledger = ledger
        self.handlers = handlers
        self.sources = tuple(sources)
        """The names of all sources that are read."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the app, opened at first use."""
        return self._ledger()

    @property
    def job_types(self) -> list[JobType]:
        """The job types of the handlers.

        Before a replay, they restore an event that retention deleted.
        """

        def store_event(lease: Any, tx: Any) -> None:
            self.store_alone(StoredEvent.from_lease(lease), tx)

        return [replace(handler, store_event=store_event).kind for handler in self.handlers]

    def receive(self, event: Event[Any], tx: Any = None, /) -> bool:
        """Store an event and the jobs of its handlers, in the caller's transaction if there is one.

        Returns:
            False if the event is a duplicate.
        """
        stored = StoredEvent.from_event(event)
        validation.check_payload("payload", stored.payload, self.ledger.max_payload)
        return self.store([self.incoming(stored)], tx=tx)[0]

    async def areceive(self, event: Event[Any], ledger: AsyncLedger, tx: Any = None, /) -> bool:
        """Store an event from async code. `tx` is an async transaction.

        Returns:
            False if the event is a duplicate.
        """
        if tx is None:
            return await ledger.run(self.receive, event)
        return await run_in_caller(tx, lambda sync_tx: self.receive(event, sync_tx))

    def incoming(self, stored: StoredEvent, /) -> IncomingEvent:
        """Return the event with the jobs of its handlers, as the ledger takes it."""
        return stored.incoming(self.handlers.attempts_by_handler(stored.type))

    def store(
        self, events: Sequence[IncomingEvent], /, *, unread: Sequence[NewJob] = (), tx: Any = None
    ) -> list[bool]:
        """Store events and the jobs of their handlers in one transaction.

        `unread` are jobs for messages that could not be decoded.

        Returns:
            Which of the events are new.
        """
        ledger = self._ledger()
        if tx is not None:
            return self._write(ledger, ledger.connections.adopt_transaction(tx), events, unread)
        with ledger.connections.write.use() as session, session.transaction("receive"):
            are_new = self._write(ledger, session.raw, events, unread)
        ledger.notify()
        self.report_unhandled(events, are_new)
        return are_new

    def store_alone(self, stored: StoredEvent, tx: Any = None, /) -> None:
        """Store an event without jobs, unless it exists."""
        ledger = self._ledger()
        events = [self.incoming(stored)._replace(jobs=())]
        if tx is not None:
            ledger.connections.store.receive_in(ledger.connections.adopt_transaction(tx), events)
            return
        with ledger.connections.write.use() as session, session.transaction("receive"):
            ledger.connections.store.receive_in(session.raw, events)

    def _write(
        self,
        ledger: Ledger,
        run: BatchRunner,
        events: Sequence[IncomingEvent],
        unread: Sequence[NewJob],
    ) -> list[bool]:
        hot = ledger.connections.store
        are_new = hot.receive_in(run, events) if events else []
        if unread:
            # Without a limit of their size, which may be the reason that they could not be decoded.
            submit_deduplicated(unread, lambda jobs: hot.submit_in(run, jobs))
        return are_new

    def report_unhandled(self, events: Sequence[IncomingEvent], are_new: Sequence[bool], /) -> None:
        """Log stored events without a handler."""
        for event, is_new in zip(events, are_new, strict=True):
            if is_new and not event.jobs:
                fields = {"operation": event.type, "reason": "no handler for this type of event"}
                emit("unhandled", {**event.job_context[0], **fields})

    def places_stored_without_origin(self, events: Sequence[StoredEvent], /) -> set[int]:
        """Return the places of events that an older version stored by their id alone.

        It did not store the origin: two events with one id in one stream were one. Its row has the
        id of the entry, and mostly the origin as a header.
        """
        ids = {event.event_id for event in events if event.origin is not None}
        if not ids:
            return set()
        with self._ledger().reading() as connection:
            entries = entries_of_events(connection, events[0].source, sorted(ids))
        places = set()
        for place, event in enumerate(events):
            if event.origin is None:
                continue
            entry_id, origin = entries.get(event.event_id, (None, None))
            if origin == event.origin or (entry_id is not None and entry_id == event.source_id):
                places.add(place)
        return places


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
    oldest = select(event_table.c.id).order_by(event_table.c.id).limit(BATCH_SIZE)
    is_old = (event_table.c.id.in_(oldest.scalar_subquery()), event_table.c.received_at < before)
    return connection.execute(delete(event_table).where(*is_old)).rowcount
