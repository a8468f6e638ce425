"""Inbox: where events are stored, once each, together with the jobs of their handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..journal.bus import emit
from ..ledger import limits
from ..ledger.crashpoint import crash_point
from ..ledger.gathering import distinct
from ..ledger.ledger import Ledger
from ..ledger.record import Lease, NewJob
from ..ledger.statement import Many
from ..worker.kind import Colour, Kind
from . import rows
from .event import Event
from .handler import Handler
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
        return self.store([stored(event)], tx=tx)[0]

    def store(self, events: Sequence[Stored], /, *, unread: Sequence[NewJob] = (), tx: Any = None) -> list[bool]:
        """Store events and make the jobs of their handlers, in one transaction; which of them are new.

        unread: jobs for what could not be read, written with them.
        """
        ledger = self._ledger()
        jobs = [self._jobs(one, ledger.max_payload) for one in events]
        if tx is not None:
            return self._written(ledger, ledger.joined(tx), events, jobs, unread)
        with ledger.connections.write.use() as session, session.transaction("receive"):
            fresh = self._written(ledger, session.raw, events, jobs, unread)
        for one, made, new in zip(events, jobs, fresh, strict=True):
            if new and not made:
                emit("unhandled", {**one.ids(), "operation": one.type, "reason": "no handler for this type of event"})
        return fresh

    @property
    def kinds(self) -> list[Kind]:
        """What a worker knows of the handlers. Before a replay the event is recorded again, where it is not there any more."""
        return [replace(one.kind, run=self._recorded(one)) for one in self.handlers]

    def _recorded(self, handler: Handler) -> Callable[..., Any]:
        run, colour = handler.kind.run, handler.colour

        def record(lease: Lease, tx: Any = None) -> None:
            if lease.dead_id is not None:
                self.record(of_lease(lease), tx)

        async def later(lease: Lease) -> None:
            if lease.dead_id is not None:
                await asyncio.to_thread(record, lease)
            await run(lease)

        def with_connection(connection: Any, lease: Lease) -> None:
            record(lease, connection)
            run(connection, lease)

        def plain(lease: Lease) -> None:
            record(lease)
            run(lease)

        runs: dict[Colour, Callable[..., Any]] = {"async": later, "transaction": with_connection, "plain": plain}
        return runs[colour]

    def record(self, one: Stored, tx: Any = None, /) -> None:
        """Store an event alone, if it is not there."""
        ledger = self._ledger()
        many = [(one, len(self.handlers.of(one.type)))]
        if tx is not None:
            rows.store(ledger.joined(tx), ledger.connections.on_sqlite, many)
            return
        with ledger.connections.write.use() as session, session.transaction("receive"):
            rows.store(session.raw, ledger.connections.on_sqlite, many)

    def _jobs(self, one: Stored, most: int) -> list[NewJob]:
        handlers = self.handlers.of(one.type)
        return [limits.checked(one.job(each.name, each.settings.max_attempts), most) for each in handlers]

    def _written(
        self, ledger: Ledger, run: Many, events: Sequence[Stored], jobs: Sequence[Sequence[NewJob]], unread: Sequence[NewJob]
    ) -> list[bool]:
        hot, on_sqlite = ledger.connections.hot, ledger.connections.on_sqlite
        many = [(one, len(made)) for one, made in zip(events, jobs, strict=True)]
        fresh = rows.store(run, on_sqlite, many) if events else []
        crash_point("receive.between")
        wanted = [job for made, new in zip(jobs, fresh, strict=True) if new for job in made]
        wanted += unread
        if wanted:
            distinct(wanted, lambda new: hot.submit_in(run, new))
        return fresh
