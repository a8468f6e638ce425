"""Operations on received events: find them, show what each handler did, and replay them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.key import Key
from ..core.lazy import deferred
from ..errors import NotAllowed
from ..journal.redaction import redact
from ..ledger.jobs.dead_letters import rerun_done_jobs
from ..ledger.ledger import Ledger
from ..ledger.queries import jobs
from ..ledger.stats import counters
from ..messages.queries import EventRow, find_events, find_events_with_origin
from ..messages.stored_event import OWN_IDS, StoredEvent, id_without_origin
from .context import OperatorContext, check_reason
from .dead_letters.model import readable
from .project.target import Operated, ledger_of
from .project.user_code import suggest

if TYPE_CHECKING:
    from .. import app as apps
else:  # listing events does not need it
    (apps,) = deferred("redrive", "app")

RECENT = 200
"""Recent events of a type that are searched for jobs of a handler."""


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """A received event in a list."""

    id: str
    source: str
    type: str
    source_id: str | None
    handlers: int
    """Number of its handlers when it was received."""
    at: datetime | None
    received_at: datetime


@dataclass(frozen=True, slots=True)
class HandlerJobView:
    """The job of one handler of an event."""

    handler: str
    job_id: int
    state: str
    """State as it is shown."""
    attempts: int
    error: str | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventReport:
    """Everything that is known of an event, without secrets."""

    event: ReceivedEvent
    payload: Any
    payload_bytes: int
    headers: Mapping[str, str]
    ids: Mapping[str, str]
    handlers: tuple[HandlerJobView, ...]
    now: datetime


@dataclass(frozen=True, slots=True)
class EventOperations:
    """Operations on received events, as `Operator.events`. Threads may share one."""

    _context: OperatorContext

    def find(
        self, *, source: str | None = None, of_type: str | None = None, limit: int = 100
    ) -> list[ReceivedEvent]:
        """Return received events, newest first.

        Args:
            source: Source of the events.
            of_type: Type of the events.
            limit: Maximum number.

        Returns:
            The events.
        """
        with self._context.ledger.reading() as connection:
            rows = find_events(connection, source=source, type_=of_type, limit=limit)
        return [_event_line(row) for row in rows]

    def get(self, event_id: str, /, *, source: str | None = None) -> EventReport | None:
        """Return an event and what each handler did with it.

        Args:
            event_id: Id of the event.
            source: Source of the event. Needed if several sources have this id.

        Returns:
            The report, or None.

        Raises:
            NotAllowed: Several sources have this id.
        """
        ledger = self._context.ledger
        row = _find_one(ledger, event_id, source)
        if row is None:
            return None
        handlers = tuple(_handler_jobs(ledger, row))
        self._context.open_payload("event", event_id, *(job.handler for job in handlers))
        own_ids = zip(OWN_IDS, (row.event_id, row.type, row.source), strict=True)
        return EventReport(
            event=_event_line(row),
            payload=readable(row.payload),
            payload_bytes=len(row.payload),
            headers=redact(_mapping(row.headers)),
            ids=redact({**dict(own_ids), **_mapping(row.ids)}),
            handlers=handlers,
            now=ledger.now(),
        )

    def replay(
        self,
        event_id: str,
        /,
        *,
        because: str,
        source: str | None = None,
        handlers: Collection[str] = (),
    ) -> dict[str, str]:
        """Replay an event. Its dedupe key stays the same.

        Args:
            event_id: Id of the event.
            because: Why, for the audit log.
            source: Source of the event.
            handlers: Names of handlers. Default: all that had the event.

        Returns:
            The outcome by handler.

        Raises:
            ValueError: A name is not a handler of this event type. Nothing was changed.
            NotAllowed: There is no such event, or there are several.
        """
        check_reason(because)
        self._context.require("replay")
        ledger = self._context.ledger
        row = _find_one(ledger, event_id, source)
        if row is None:
            raise NotAllowed(f"event {event_id!r} not found" + (f" in {source}" if source else ""))
        jobs = {job.handler: job for job in _handler_jobs(ledger, row)}
        for name in handlers:
            if name not in jobs:
                _check_handler(self._context.app, row, name, [*jobs])
        names = dict.fromkeys(handlers) or jobs
        self._context.require("replay", *names)
        return {name: self._replay_to(name, row, jobs.get(name), because) for name in names}

    def _replay_to(
        self, handler: str, row: EventRow, job: HandlerJobView | None, because: str
    ) -> str:
        """Replay an event to one handler, and return the outcome."""
        ledger, actor = self._context.ledger, self._context.actor
        if job is None:
            submitted = ledger.submit(_stored_event(row).job(handler, None))
            details = {"jobs": {"new": submitted.id}, "event": row.event_id}
            self._context.record("event.replay", because, details)
            return f"job {submitted.id}"
        # A cancelled job may be the replay of a dead letter, which is pending again.
        is_cancelled = job.state == "cancelled"
        letters = ledger.dead_letters(job_id=job.job_id, limit=1) if is_cancelled else []
        if job.state == "done" or (is_cancelled and not letters):
            with ledger.connections.write.use() as session:
                result = rerun_done_jobs(session, [job.job_id], actor=actor, because=because)
            if not result.done:
                return f"skipped: {result.skipped[job.job_id]}"
            return f"job {result.done[job.job_id]}"
        if letters or job.state in ("dlq", "blocked"):
            (letter,) = letters or ledger.dead_letters(job_id=job.job_id, limit=1)
            sweep = ledger.sweeps.begin("replay", [letter.id], actor=actor, because=because)
            replayed = ledger.sweeps.step(sweep.id).done
            if not replayed:
                return "skipped: already replayed or discarded"
            return f"job {replayed[letter.id]}"
        return f"skipped: {job.state}"


def event_of(key: str, /) -> tuple[str, str] | None:
    """Return source and id of the event of a handler's job. None: the key is not a handler's."""
    try:
        parsed = Key.parse(key)
    except ValueError:
        return None
    return (parsed.user, parsed.entity) if parsed.domain == "event" and parsed.entity else None


def _find_one(ledger: Ledger, event_id: str, source: str | None) -> EventRow | None:
    with ledger.reading() as connection:
        rows = find_events(connection, event_id=event_id, source=source, limit=2)
        if len(rows) > 1:
            names = ", ".join(sorted(row.source for row in rows))
            raise NotAllowed(f"several events have the id {event_id!r}; pass the source ({names})")
        if not rows:
            rows = find_events_with_origin(connection, event_id, source=source, limit=2)
    if len(rows) > 1:
        ids = ", ".join(sorted(repr(row.event_id) for row in rows))
        raise NotAllowed(f"several events match {event_id!r}; pass the whole id ({ids})")
    return rows[0] if rows else None


def _handler_jobs(ledger: Ledger, row: EventRow) -> list[HandlerJobView]:
    """Return the jobs of an event, by handler. The name of a handler is the job type."""
    with ledger.reading() as connection:
        keys = [key for kind in counters.counts(connection) if (key := _job_key(row, kind))]
        rows = jobs.by_keys(connection, keys)
    handled = [
        HandlerJobView(
            job.kind, job.id, job.shown, job.attempts, job.error, job.started_at, job.ended_at
        )
        for job in rows
    ]
    return sorted(handled, key=lambda job: job.handler)


def _job_key(row: EventRow, handler: str) -> tuple[str, str] | None:
    """Return job type and key of a handler's job. None: a handler cannot have this name."""
    try:
        return handler, str(Key("event", row.source, row.event_id, handler))
    except ValueError:
        return None


def _check_handler(app: Operated, row: EventRow, name: str, handlers: Sequence[str]) -> None:
    """Raise ValueError unless the app, or the ledger's history, has this handler."""
    registered: list[str] = []
    if isinstance(app, apps.App):
        app.registrations.load()
        registered = [
            handler for handler, _ in app.registrations.inbox.handlers.attempts_by_handler(row.type)
        ]
    if name in registered or _has_handled(ledger_of(app), row.type, name):
        return
    known = sorted({*handlers, *registered})
    if isinstance(app, apps.App):
        problem = f"{name!r} is not a handler of events of type {row.type!r}"
        if name in app.commands:
            problem += ", but a command"
        elif name in app.registrations.inbox.handlers:
            types = next(
                handler.types
                for handler in app.registrations.inbox.handlers
                if handler.name == name
            )
            problem += f", but of {', '.join(map(repr, types))}"
        fix = "register it with @app.on first"
    else:
        problem = f"the ledger knows no handler {name!r} of events of type {row.type!r}"
        fix = "pass --ledger module:app to replay to a handler that is new"
    listed = f"handlers: {', '.join(known)}" if known else "no handler of this event is known"
    raise ValueError(f"{problem}{suggest(name, known)}; {listed}; {fix}. Nothing was changed")


def _has_handled(ledger: Ledger, type_: str, name: str) -> bool:
    """Return whether a handler of this name had one of the recent events of this type."""
    with ledger.reading() as connection:
        recent = find_events(connection, type_=type_, limit=RECENT)
        keys = [key for row in recent if (key := _job_key(row, name))]
        return bool(keys and jobs.by_keys(connection, keys))


def _stored_event(row: EventRow) -> StoredEvent:
    headers = _mapping(row.headers)
    origin = headers.get("source")
    event_id = id_without_origin(row.event_id, origin)
    if event_id == row.event_id:
        origin = None
    return StoredEvent(
        row.source, event_id, row.type, row.payload, headers, row.at, row.source_id, origin
    )


def _event_line(row: EventRow) -> ReceivedEvent:
    return ReceivedEvent(
        row.event_id, row.source, row.type, row.source_id, row.handlers, row.at, row.received_at
    )


def _mapping(stored: str | None) -> dict[str, str]:
    mapping: dict[str, str] = json.loads(stored) if stored else {}
    return mapping
