"""Inbox: where events are stored, once each, together with the jobs of their handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..journal.bus import emit
from ..ledger import limits
from ..ledger.arrival import Arriving
from ..ledger.gathering import distinct
from ..ledger.ledger import Ledger
from ..ledger.record import NewJob
from ..ledger.statement import Many
from ..worker.kind import Kind
from .event import Event
from .handlers import Handlers
from .stored import Stored, of_lease, stored


class Inbox:
    """Where events come in. Threads may share one, and so may forked children."""

    def __init__(self, ledger: Callable[[], Ledger], handlers: Handlers, sources: Sequence[str] = ()) -> None:
        self._ledger = ledger
        self.handlers = handlers
        self.sources = tuple(sources)
        """The names of all sources that are read."""

    @property
    def ledger(self) -> Ledger:
        """The app's, opened at first use."""
        return self._ledger()

    def receive(self, event: Event[Any], tx: Any = None, /) -> bool:
        """Store an event and make its handlers' jobs; in the caller's transaction, where one is given. False: it was known."""
        one = stored(event)
        limits.payload("payload", one.payload, self.ledger.max_payload)
        return self.store([self.arriving(one)], tx=tx)[0]

    def arriving(self, one: Stored, /) -> Arriving:
        """As it goes into the ledger, with the jobs of its handlers."""
        return one.arriving(self.handlers.parts(one.type))

    def known_before(self, events: Sequence[Stored], /) -> set[int]:
        """The places of those that an older version stored by their id alone: they are known, under that id.

        An older version kept no origin: two events of one id in one stream were one. Its row has the entry that it came
        from, and mostly the origin as a header.
        """
        ids = {one.event_id for one in events if one.origin is not None}
        if not ids:
            return set()
        from .rows import stored_under  # noqa: PLC0415  # SQLAlchemy

        with self._ledger().reading() as connection:
            found = stored_under(connection, events[0].source, sorted(ids))
        places = set()
        for at, one in enumerate(events):
            entry, origin = found.get(one.event_id, (None, None))
            if one.origin is not None and (origin == one.origin or (entry is not None and entry == one.source_id)):
                places.add(at)
        return places

    def store(self, events: Sequence[Arriving], /, *, unread: Sequence[NewJob] = (), tx: Any = None) -> list[bool]:
        """Store events and make the jobs of their handlers, in one transaction; which of them are new.

        unread: jobs for what could not be read, written with them.
        """
        ledger = self._ledger()
        if tx is not None:
            return self._written(ledger, ledger.joined(tx), events, unread)
        with ledger.connections.write.use() as session, session.transaction("receive"):
            fresh = self._written(ledger, session.raw, events, unread)
        ledger.ring()
        self.told(events, fresh)
        return fresh

    def told(self, events: Sequence[Arriving], fresh: Sequence[bool], /) -> None:
        """These were stored; what nobody handles is said."""
        for one, new in zip(events, fresh, strict=True):
            if new and not one.parts:
                fields = {"operation": one.type, "reason": "no handler for this type of event"}
                emit("unhandled", {**one.opened[0], **fields})

    @property
    def kinds(self) -> list[Kind]:
        """What a worker knows of the handlers. Before a replay the event is recorded again, where it is not there any more."""
        return [replace(one, record=lambda lease, tx: self.record(of_lease(lease), tx)).kind for one in self.handlers]

    def record(self, one: Stored, tx: Any = None, /) -> None:
        """Store an event alone, if it is not there: its handlers' jobs are."""
        ledger = self._ledger()
        many = [self.arriving(one)._replace(parts=())]
        if tx is not None:
            ledger.connections.hot.receive_in(ledger.joined(tx), many)
            return
        with ledger.connections.write.use() as session, session.transaction("receive"):
            ledger.connections.hot.receive_in(session.raw, many)

    def _written(self, ledger: Ledger, run: Many, events: Sequence[Arriving], unread: Sequence[NewJob]) -> list[bool]:
        hot = ledger.connections.hot
        fresh = hot.receive_in(run, events) if events else []
        if unread:
            distinct(unread, lambda new: hot.submit_in(run, new))  # of any size: that may be what is wrong with it
        return fresh
