"""StoredEvent: an event as the ledger stores it, and its conversion to jobs and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from typing import Any, NamedTuple, TypeAlias

from ..core.codec import codec, from_bytes, misfit, to_bytes
from ..core.context import MAX_ID_CHARS, ids_around, shorten_id
from ..core.key import Key
from ..ledger import validation
from ..ledger.events import SOURCE, SOURCE_ID, HandlerJob, IncomingEvent
from ..ledger.model import Lease, NewJob
from .event import MAX_ID_BYTES, NO_HEADERS, Event, trusted_event

# Headers of a job that describe its event, beside the headers of the event itself.
PREFIX = "redrive-"
TYPE = f"{PREFIX}event-type"
ID = f"{PREFIX}event-id"
AT = f"{PREFIX}event-at"
ORIGIN = f"{PREFIX}event-source"

CORRELATION_IDS = frozenset(
    """request_id trace_id user_id org_id actor_type actor_key run_id module_id mission_id
    mission_instance_id stage_id correlation_id tenant_id session_id""".split()
)
"""Headers of an event that become correlation ids of its handlers and their log records."""
OWN_IDS = ("event_id", "event_type", "source")
"""Correlation ids that every event has."""
JsonTexts: TypeAlias = tuple[str | None, str | None, str | None]
"""JSON of the ids, of the ids that are not `OWN_IDS`, and of the headers of the jobs."""
_JSON_TYPES = (dict, list, str, int, float, bool)
_JSON_STARTS = (b"{", b"[", b'"')


class StoredEvent(NamedTuple):
    """An event as the ledger stores it, with its payload in bytes."""

    source: str
    event_id: str
    type: str
    payload: bytes
    headers: Mapping[str, str]
    at: datetime | None = None
    source_id: str | None = None
    """The id of the entry in the source."""
    origin: str | None = None
    """The source that the event itself names, as a CloudEvent does. Its id is unique only there."""

    @classmethod
    def from_event(cls, event: Event[Any], /) -> StoredEvent:
        """Return an event of the program as it is stored.

        Raises:
            TypeError: The payload cannot be stored.
        """
        if not isinstance(event, Event):
            raise TypeError(f"receive takes an Event, not {type(event).__name__}")
        payload = dump_payload(event.payload)
        return cls(event.source, event.id, event.type, payload, dict(event.headers), event.at)

    @classmethod
    def from_lease(cls, lease: Lease, /) -> StoredEvent:
        """Return the event of a handler's job."""
        headers = lease.headers
        at = headers.get(AT)
        own = {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
        return cls(
            source=headers[SOURCE],
            event_id=headers[ID],
            type=headers[TYPE],
            payload=lease.payload,
            headers=own,
            at=None if at is None else datetime.fromisoformat(at),
            source_id=headers.get(SOURCE_ID),
            origin=headers.get(ORIGIN),
        )

    @property
    def dedupe_id(self) -> str:
        """The id that is unique in the source: with the origin, if there is one."""
        return self.event_id if self.origin is None else id_with_origin(self.event_id, self.origin)

    def job_key(self, handler: str, /) -> str:
        """Return the key of a handler's job: the text of a `Key`, whose parts are valid."""
        event_id = self.event_id if self.origin is None else self.dedupe_id
        key_part = _escape(event_id) if ":" in event_id or "%" in event_id else event_id
        return f"event:{_escape_source(self.source)}:{key_part}:{handler}:v1"

    def ids(self) -> dict[str, str]:
        """Return the correlation ids: those of the receiver, of the headers, and of the event."""
        return {**ids_around(), **self.own_ids()}

    def own_ids(self) -> dict[str, str]:
        """Return the correlation ids of the headers and of the event."""
        ids = {"event_id": self.event_id, "event_type": self.type, "source": self.source}
        if not self.headers:
            return ids
        for header, value in self.headers.items():
            name = header.lower().replace("-", "_").removeprefix("x_")
            if name in CORRELATION_IDS:
                ids[name] = shorten_id(value)
            elif name == "traceparent" and len(value) <= MAX_ID_CHARS:
                parts = value.split("-")
                ids["traceparent"] = value
                if len(parts) == 4:
                    ids.setdefault("trace_id", parts[1])
        return ids

    def job_headers(self) -> dict[str, str]:
        """Return the headers of the jobs: those of the event, and what describes the event."""
        headers = {**self.headers, SOURCE: self.source, ID: self.event_id, TYPE: self.type}
        if self.source_id is not None:
            headers[SOURCE_ID] = self.source_id
        if self.at is not None:
            headers[AT] = _iso(self.at)
        if self.origin is not None:
            headers[ORIGIN] = self.origin
        return headers

    def job(self, handler: str, max_attempts: int | None, /) -> NewJob:
        """Return the job of one handler."""
        return NewJob(
            kind=handler,
            key=str(Key("event", self.source, self.dedupe_id, handler)),
            payload=self.payload,
            max_attempts=max_attempts,
            ids=self.ids(),
            headers=self.job_headers(),
        )

    def incoming(self, handlers: Sequence[tuple[str, int | None]], /) -> IncomingEvent:
        """Return the event with a job for each handler, as the ledger takes it.

        The size of the payload is not checked here (`limits.payload`).

        Raises:
            ValueError: The headers or a key are too long.
        """
        source, event_id, type_, payload, headers, at, source_id, origin = self
        if origin is not None:
            event_id = id_with_origin(event_id, origin)
        # The text of a `Key`. Its parts were validated with the event and the handler.
        key_part = _escape(event_id) if ":" in event_id or "%" in event_id else event_id
        prefix = f"event:{_escape_source(source)}:{key_part}:"
        parts = tuple(
            [HandlerJob(name, f"{prefix}{name}:v1", attempts) for name, attempts in handlers]
        )
        for part in parts:
            if len(part.key) * 4 > validation.MAX_KEY_BYTES:
                validation.check_name("key", part.key, validation.MAX_KEY_BYTES)
        if headers or origin is not None or ids_around():
            validation.check_headers(headers)
            ids, job_headers = self.ids(), self.job_headers()
            texts = self._json_texts(ids, job_headers)
            event_headers = validation.to_json("headers", headers)
        else:
            event_headers = None
            ids, job_headers, texts = self._without_headers()
        return IncomingEvent(
            source,
            event_id,
            type_,
            payload,
            event_headers,
            *texts,
            source_id,
            at,
            len(parts),
            parts,
            (ids, job_headers),
        )

    def _json_texts(self, ids: Mapping[str, str], job_headers: Mapping[str, str]) -> JsonTexts:
        other_ids = {name: value for name, value in ids.items() if name not in OWN_IDS}
        return (
            validation.to_json("ids", ids),
            validation.to_json("ids", other_ids),
            validation.to_json("headers", job_headers),
        )

    def _without_headers(self) -> tuple[dict[str, str], dict[str, str], JsonTexts]:
        """Return ids, job headers and their JSON for an event without headers.

        It takes a third of the time of `_json_texts`.
        """
        source, event_id, type_, _, _, at, source_id, _ = self
        ids = {"event_id": event_id, "event_type": type_, "source": source}
        job_headers = {SOURCE: source, ID: event_id, TYPE: type_}
        source_json, id_json, type_json = quote(source), quote(event_id), quote(type_)
        optional = ""
        if source_id is not None:
            job_headers[SOURCE_ID] = source_id
            optional = f',"{SOURCE_ID}":{quote(source_id)}'
        if at is not None:
            job_headers[AT] = timestamp = _iso(at)
            optional += f',"{AT}":"{timestamp}"'
        ids_json = f'{{"event_id":{id_json},"event_type":{type_json},"source":{source_json}}}'
        own_json = f'"{SOURCE}":{source_json},"{ID}":{id_json},"{TYPE}":{type_json}'
        return ids, job_headers, (ids_json, None, f"{{{own_json}{optional}}}")


def id_with_origin(event_id: str, origin: str, /) -> str:
    """Return the stored id of an event that names its origin. A long origin is hashed."""
    text = f"{event_id}@{origin}"
    if len(text.encode()) <= MAX_ID_BYTES:
        return text
    digest = hashlib.sha256(f"{origin}@{event_id}".encode()).hexdigest()
    return f"{event_id[:60]}@{digest}"


def id_without_origin(stored_id: str, origin: str | None, /) -> str:
    """Return the event's own id from its stored id."""
    return stored_id if origin is None else stored_id.removesuffix(f"@{origin}")


# Many events have the same millisecond, and there are few sources: both are cached.
_parse_timestamp = lru_cache(maxsize=100)(datetime.fromisoformat)


@lru_cache(maxsize=100)
def _iso(at: datetime) -> str:
    return (at if at.tzinfo is timezone.utc else at.astimezone(timezone.utc)).isoformat()


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


_escape_source = lru_cache(maxsize=100)(_escape)


def dump_payload(payload: object, /) -> bytes:
    """Return a payload in bytes: bytes unchanged, other values as JSON by their type."""
    if isinstance(payload, bytes):
        return payload
    is_json = payload is None or isinstance(payload, _JSON_TYPES)
    try:
        return to_bytes(codec(Any if is_json else type(payload)).dump(payload))
    except (TypeError, ValueError) as error:
        raise TypeError(f"an event's payload cannot be stored: {misfit(error)}") from None


def load_payload(payload: bytes, /) -> Any:
    """Return the JSON value of a payload. ValueError if it is not JSON."""
    # To decode here is faster than to let the JSON parser detect the encoding.
    is_utf8 = payload[:1] in _JSON_STARTS and payload[1:2] != b"\0"
    return from_bytes(payload.decode() if is_utf8 else payload)


def event_from_lease(lease: Lease, payload: Any, /) -> Event[Any]:
    """Return the event of a handler's job, with its decoded payload."""
    stored = lease.headers_stored
    headers = stored if isinstance(stored, dict) else lease.headers
    at = headers.get(AT)
    # Most events have no headers of their own.
    described_by = 3 + (at is not None) + (SOURCE_ID in headers) + (ORIGIN in headers)
    own = NO_HEADERS
    if len(headers) != described_by:
        own = {name: headers[name] for name in headers if not name.startswith(PREFIX)}
    timestamp = None if at is None else _parse_timestamp(at)
    return trusted_event(headers[TYPE], payload, headers[ID], headers[SOURCE], own, timestamp)
