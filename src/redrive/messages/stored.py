"""Stored: an event as the ledger has it, its payload as it came; and how it travels to each of its handlers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple, TypeAlias

from ..core.codec import codec, from_bytes, misfit, to_bytes
from ..core.context import ids_around
from ..core.ids import MAX_ID, shortened
from ..core.key import Key
from ..ledger import limits
from ..ledger.arrival import Arriving, Part
from ..ledger.origin import SOURCE, SOURCE_ID
from ..ledger.record import Lease, NewJob
from .event import MAX_ID as MAX_EVENT_ID
from .event import NOTHING, Event, known

PREFIX = "redrive-"
TYPE, ID, AT = f"{PREFIX}event-type", f"{PREFIX}event-id", f"{PREFIX}event-at"
ORIGIN = f"{PREFIX}event-source"
"""Headers of a handler's job, beside those of the message itself."""
IDS = frozenset(
    """request_id trace_id user_id org_id actor_type actor_key run_id module_id mission_id mission_instance_id stage_id
    correlation_id tenant_id session_id""".split()
)
"""Headers of a message that are correlation ids: they reach every handler, every call in it, and every record."""


OWN = ("event_id", "event_type", "source")
"""Ids that each event has: its id, its type, where it came from."""
Texts: TypeAlias = tuple[str | None, str | None, str | None]
"""Ids of an event, those of them that are not its own, and the headers that its jobs carry: JSON."""
OPENS = (b"{", b"[", b'"')
"""What JSON begins with, mostly."""


class Stored(NamedTuple):
    """An event as the ledger has it."""

    source: str
    event_id: str
    type: str
    payload: bytes
    headers: Mapping[str, str]
    at: datetime | None = None
    source_id: str | None = None
    origin: str | None = None
    """Where the event came from by its own account, such as the source of a CloudEvent: ids are unique only there."""

    @property
    def identity(self) -> str:
        """Its dedupe key in its source: the id, together with its origin where it has one."""
        return self.event_id if self.origin is None else identity(self.origin, self.event_id)

    def ids(self) -> dict[str, str]:
        """Correlation ids: those around who received it, those that its headers have, and its own."""
        found = {**ids_around(), "event_id": self.event_id, "event_type": self.type, "source": self.source}
        if not self.headers:
            return found
        for name, value in self.headers.items():
            plain = name.lower().replace("-", "_").removeprefix("x_")
            if plain in IDS:
                found[plain] = shortened(value)
            elif plain == "traceparent" and len(value) <= MAX_ID:
                parts = value.split("-")
                found["traceparent"] = value
                if len(parts) == 4:
                    found.setdefault("trace_id", parts[1])
        return found

    def arriving(self, handlers: Sequence[tuple[str, int | None]], /) -> Arriving:
        """As it goes into the ledger, with a job for each of these handlers (name, attempts); ValueError where it cannot.

        Its payload is not looked at, see `limits.payload`.
        """
        # As Key has it: all parts were looked at when the event was made and the handler was decorated.
        source, event_id, type_, payload, headers, at, source_id, origin = self
        if origin is not None:
            event_id = identity(origin, event_id)
        named = _safe(event_id) if ":" in event_id or "%" in event_id else event_id
        prefix = f"event:{_source(source)}:{named}:"
        parts = tuple([Part(name, f"{prefix}{name}:v1", attempts) for name, attempts in handlers])
        for part in parts:
            if len(part.key) * 4 > limits.MAX_KEY:
                limits.name("key", part.key, limits.MAX_KEY)
        if headers or origin is not None or ids_around():
            limits.beside("headers", headers)
            ids, carried = self.ids(), self.carried()
            own, texts = limits.mapping("headers", headers), self._texts(ids, carried)
        else:
            own = None
            ids, carried, texts = self._bare()
        return Arriving(source, event_id, type_, payload, own, *texts, source_id, at, len(parts), parts, (ids, carried))

    def _texts(self, ids: Mapping[str, str], carried: Mapping[str, str]) -> Texts:
        """Ids, those of them that are not its own, and carried headers as JSON."""
        more = {name: value for name, value in ids.items() if name not in OWN}
        return limits.mapping("ids", ids), limits.mapping("ids", more), limits.mapping("headers", carried)

    def _bare(self) -> tuple[dict[str, str], dict[str, str], Texts]:
        """Ids, carried headers, and both as JSON, where it has no headers and nobody has ids around: a third of what the general
        way takes."""
        source, event_id, type_, _, _, at, source_id, _ = self
        ids = {"event_id": event_id, "event_type": type_, "source": source}
        carried = {SOURCE: source, ID: event_id, TYPE: type_}
        said, id_, of = quoted(source), quoted(event_id), quoted(type_)
        more = ""
        if source_id is not None:
            carried[SOURCE_ID] = source_id
            more = f',"{SOURCE_ID}":{quoted(source_id)}'
        if at is not None:
            carried[AT] = moment = _iso(at)
            more += f',"{AT}":"{moment}"'
        text = f'{{"event_id":{id_},"event_type":{of},"source":{said}}}'
        return ids, carried, (text, None, f'{{"{SOURCE}":{said},"{ID}":{id_},"{TYPE}":{of}{more}}}')

    def carried(self) -> dict[str, str]:
        """The headers of its handlers' jobs: its own, and what it takes to make the event again."""
        found = {**self.headers, SOURCE: self.source, ID: self.event_id, TYPE: self.type}
        if self.source_id is not None:
            found[SOURCE_ID] = self.source_id
        if self.at is not None:
            found[AT] = _iso(self.at)
        if self.origin is not None:
            found[ORIGIN] = self.origin
        return found

    def job(self, handler: str, max_attempts: int | None, /) -> NewJob:
        """What one handler has to do, by itself."""
        return NewJob(
            kind=handler, key=str(Key("event", self.source, self.identity, handler)), payload=self.payload,
            max_attempts=max_attempts, ids=self.ids(), headers=self.carried(),
        )  # fmt: skip


def identity(origin: str, event_id: str, /) -> str:
    """The id of an event that says where it came from. A long origin is hashed: an id has at most 500 bytes."""
    whole = f"{event_id}@{origin}"
    if len(whole.encode()) <= MAX_EVENT_ID:
        return whole
    digest = hashlib.sha256(f"{origin}@{event_id}".encode()).hexdigest()
    return f"{event_id[:60]}@{digest}"


def without_origin(stored_id: str, origin: str | None, /) -> str:
    """The event's own id, from its identity."""
    return stored_id if origin is None else stored_id.removesuffix(f"@{origin}")


_moment = lru_cache(maxsize=100)(datetime.fromisoformat)
"""Many messages come in the same millisecond."""


@lru_cache(maxsize=100)
def _iso(at: datetime) -> str:
    """A moment as it is carried."""
    return (at if at.tzinfo is timezone.utc else at.astimezone(timezone.utc)).isoformat()


def _safe(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


_source = lru_cache(maxsize=100)(_safe)
"""There are few."""


def stored(event: Event[Any], /) -> Stored:
    """An event of the program's own. TypeError where its payload cannot be stored."""
    if not isinstance(event, Event):
        raise TypeError(f"receive takes an Event, not {type(event).__name__}")
    return Stored(event.source, event.id, event.type, payload_of(event.payload), dict(event.headers), event.at)


def payload_of(payload: object, /) -> bytes:
    """The payload in bytes: bytes as they are, anything else as JSON by its type."""
    if isinstance(payload, bytes):
        return payload
    try:
        return to_bytes(codec(Any if payload is None or isinstance(payload, _JSON) else type(payload)).dump(payload))
    except (TypeError, ValueError) as refused:
        raise TypeError(f"an event's payload cannot be stored: {misfit(refused)}") from None


_JSON = (dict, list, str, int, float, bool)


def event_of(lease: Lease, payload: Any, /) -> Event[Any]:
    """The event again, as its handler gets it."""
    found = lease.headers_stored
    headers = found if isinstance(found, dict) else lease.headers
    at = headers.get(AT)
    # Mostly there are none but ours.
    ours = 3 + (at is not None) + (SOURCE_ID in headers) + (ORIGIN in headers)
    own = NOTHING if len(headers) == ours else {name: headers[name] for name in headers if not name.startswith(PREFIX)}
    moment = None if at is None else _moment(at)
    return known(headers[TYPE], payload, headers[ID], headers[SOURCE], own, moment)


def of_lease(lease: Lease, /) -> Stored:
    """The event of a handler's job, as it was stored."""
    headers = lease.headers
    at = headers.get(AT)
    own = {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
    moment = None if at is None else datetime.fromisoformat(at)
    source_id, origin = headers.get(SOURCE_ID), headers.get(ORIGIN)
    return Stored(headers[SOURCE], headers[ID], headers[TYPE], lease.payload, own, moment, source_id, origin)


def loaded(payload: bytes, /) -> Any:
    """A payload as JSON; ValueError where it is none."""
    # To find out how it is encoded takes a while.
    return from_bytes(payload.decode() if payload[:1] in OPENS and payload[1:2] != b"\0" else payload)
