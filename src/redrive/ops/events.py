"""Events: what was received, who has handled it, and handling it once more."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.key import Key
from ..errors import NotAllowed
from ..journal.redaction import redact
from .dead_letters.queries import readable
from .target.imported import meant
from .target.target import ledger_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..messages.queries import EventRow
    from .target.target import Operated

RECENT = 200
"""Recent events of a type that are searched for jobs of a handler."""


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event, in a list of them."""

    id: str
    source: str
    type: str
    source_id: str | None
    handlers: int
    """How many had it to handle when it came."""
    at: datetime | None
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Handled:
    """What one handler has made of an event."""

    handler: str
    job_id: int
    state: str
    """As people call it."""
    attempts: int
    error: str | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventReport:
    """All that is known of one event, without secrets."""

    event: ReceivedEvent
    payload: Any
    payload_bytes: int
    headers: Mapping[str, str]
    ids: Mapping[str, str]
    handlers: tuple[Handled, ...]
    now: datetime


def listed(ledger: Ledger, /, *, source: str | None, type_: str | None, limit: int) -> list[ReceivedEvent]:
    """The newest first."""
    return [_event(one) for one in _found(ledger, source=source, type_=type_, limit=limit)]


def shown(ledger: Ledger, event_id: str, source: str | None, /) -> EventReport | None:
    """One of them; None: there is none. NotAllowed: several sources have one of this id."""
    one = _one(ledger, event_id, source)
    if one is None:
        return None
    return EventReport(
        event=_event(one), payload=readable(one.payload), payload_bytes=len(one.payload),
        headers=redact(json.loads(one.headers) if one.headers else {}),
        ids=redact(_ids(one)), handlers=tuple(_handled(ledger, one)), now=ledger.now(),
    )  # fmt: skip


def replayed(
    app: Operated, event_id: str, source: str | None, handlers: Collection[str], /, *, actor: str, because: str
) -> dict[str, str]:
    """Replay an event to these handlers, or to all that had it; the outcome by handler. Its dedupe key stays the same.

    Raises:
        ValueError: A name is not a handler of events of this type. Nothing is changed then.
        NotAllowed: There is no such event, or there are several.
    """
    from ..ledger.jobs.dead_letters import rerun_done_jobs  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    ledger = ledger_of(app)
    one = _one(ledger, event_id, source)
    if one is None:
        raise NotAllowed(f"event {event_id!r} not found" + (f" in {source}" if source else ""))
    had = {each.handler: each for each in _handled(ledger, one)}
    for name in handlers:
        if name not in had:
            _check_handler(app, one, name, [*had])
    said: dict[str, str] = {}
    for name in dict.fromkeys(handlers) or had:
        job = had.get(name)
        if job is None:
            said[name] = _begun(ledger, one, name, actor=actor, because=because)
        elif job.state == "done":
            with ledger.connections.write.use() as session:
                acted = rerun_done_jobs(session, [job.job_id], actor=actor, because=because)
            said[name] = f"job {acted.done[job.job_id]}" if acted.done else f"skipped: {acted.skipped[job.job_id]}"
        elif job.state in ("dlq", "blocked"):
            (letter,) = ledger.dead_letters(job_id=job.job_id, limit=1)
            begun = ledger.sweeps.begin("replay", [letter.id], actor=actor, because=because)
            made = ledger.sweeps.step(begun.id).done
            said[name] = f"job {made[letter.id]}" if made else "skipped: already replayed or discarded"
        else:
            said[name] = f"skipped: {job.state}"
    return said


def _check_handler(app: Operated, one: EventRow, name: str, had: list[str]) -> None:
    """Raise ValueError unless events of this type have a handler of this name: in the app, or by the ledger's history."""
    from ..app import App  # noqa: PLC0415  # only here: what it registers is asked for

    ledger = ledger_of(app)
    registered = _registered(app, one.type)
    if name in registered or _has_handled(ledger, one.type, name):
        return
    known = sorted({*had, *registered})
    if isinstance(app, App):
        problem = f"{name!r} is not a handler of events of type {one.type!r}"
        if name in app.commands:
            problem += ", but a command"
        elif name in app.registrations.inbox.handlers:
            types = next(each.types for each in app.registrations.inbox.handlers if each.name == name)
            problem += f", but of {', '.join(map(repr, types))}"
        fix = "register it with @app.on first"
    else:
        problem = f"the ledger knows no handler {name!r} of events of type {one.type!r}"
        fix = "pass --ledger module:app to replay to a handler that is new"
    there = f"handlers: {', '.join(known)}" if known else "no handler of this event is known"
    raise ValueError(f"{problem}{meant(name, known)}; {there}; {fix}. Nothing was changed")


def _registered(app: Operated, type_: str) -> list[str]:
    """Names of the app's handlers of this type of event; of a bare ledger none are known."""
    from ..app import App  # noqa: PLC0415  # the same

    if not isinstance(app, App):
        return []
    app.registrations.load()
    return [name for name, _ in app.registrations.inbox.handlers.attempts_by_handler(type_)]


def _has_handled(ledger: Ledger, type_: str, name: str) -> bool:
    """Whether a handler of this name had one of the recent events of this type."""
    from ..ledger.queries import jobs  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    recent = _found(ledger, type_=type_, limit=RECENT)
    try:
        keys = [(name, str(Key("event", each.source, each.event_id, name))) for each in recent]
    except ValueError:  # a name that no handler can have
        return False
    with ledger.reading() as connection:
        return bool(jobs.by_keys(connection, keys))


def _begun(ledger: Ledger, one: EventRow, handler: str, *, actor: str, because: str) -> str:
    """For a handler that never had it."""
    from ..messages.stored_event import StoredEvent, id_without_origin  # noqa: PLC0415

    headers = json.loads(one.headers) if one.headers else {}
    origin = headers.get("source")
    event_id = id_without_origin(one.event_id, origin)
    origin = None if event_id == one.event_id else origin
    stored = StoredEvent(one.source, event_id, one.type, one.payload, headers, one.at, one.source_id, origin)
    made = ledger.submit(stored.job(handler, None))
    ledger.record(actor=actor, action="event.replay", because=because, what={"jobs": {"new": made.id}, "event": one.event_id})
    return f"job {made.id}"


def _found(ledger: Ledger, **narrowed: Any) -> list[EventRow]:
    from ..messages.queries import find_events  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    with ledger.reading() as connection:
        return find_events(connection, **narrowed)


def _one(ledger: Ledger, event_id: str, source: str | None) -> EventRow | None:
    found = _found(ledger, event_id=event_id, source=source, limit=2)
    if not found:
        from ..messages.queries import find_events_with_origin  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

        with ledger.reading() as connection:
            found = find_events_with_origin(connection, event_id, source=source, limit=2)
        if len(found) > 1:
            ids = ", ".join(sorted(repr(one.event_id) for one in found))
            raise NotAllowed(f"several events match {event_id!r}; pass the whole id ({ids})")
    if len(found) > 1:
        names = ", ".join(sorted(one.source for one in found))
        raise NotAllowed(f"several events have the id {event_id!r}; pass the source ({names})")
    return found[0] if found else None


def _ids(one: EventRow) -> dict[str, str]:
    """Its own, and those that came with it."""
    from ..messages.stored_event import OWN_IDS  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    more: dict[str, str] = json.loads(one.ids) if one.ids else {}
    return {**dict(zip(OWN_IDS, (one.event_id, one.type, one.source), strict=True)), **more}


def _event(one: EventRow) -> ReceivedEvent:
    return ReceivedEvent(one.event_id, one.source, one.type, one.source_id, one.handlers, one.at, one.received_at)


def _handled(ledger: Ledger, one: EventRow) -> list[Handled]:
    from ..ledger.queries import jobs as find  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ..ledger.stats import counters  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    with ledger.reading() as connection:
        keys = []
        for kind in counters.counts(connection):
            try:
                keys.append((kind, str(Key("event", one.source, one.event_id, kind))))
            except ValueError:  # the name of a kind that is no handler's
                continue
        jobs = find.by_keys(connection, keys)
    found = [Handled(job.kind, job.id, job.shown, job.attempts, job.error, job.started_at, job.ended_at) for job in jobs]
    return sorted(found, key=lambda handled: handled.handler)


def event_of(key: str, /) -> tuple[str, str] | None:
    """The source and the id of the event that a handler's job is about; None: the key is no handler's."""
    try:
        found = Key.parse(key)
    except ValueError:
        return None
    return (found.user, found.entity) if found.domain == "event" and found.entity else None
