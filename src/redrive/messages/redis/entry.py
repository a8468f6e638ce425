"""Entry: one message of a Redis stream, and its conversion to an event. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ...core.codec import raised_by
from ...core.key import Key
from ...ledger.events import SOURCE, SOURCE_ID
from ...ledger.model import NewJob
from ..event import DEFAULT_SOURCE, MAX_ID_BYTES, MAX_NAME_BYTES, Event, check_name
from ..stored_event import StoredEvent

Fields: TypeAlias = Mapping[bytes, bytes]


class EntryFields(dict[bytes, bytes]):
    """The fields of an entry, as `decode=` gets them."""

    entry_id: str
    """The entry's own id in its stream."""

    def __init__(self, fields: Fields, entry_id: str, /) -> None:
        super().__init__(fields)
        self.entry_id = entry_id


Decode: TypeAlias = Callable[[EntryFields], Event[Any]]

# Fields of an entry without `decode=`. All others are headers.
TYPE = b"type"
ID = b"id"
"""Default: the id of the entry."""
ORIGIN = b"source"
PAYLOADS = (b"payload", b"data", b"body")
"""The payload, as JSON or as any bytes: the first of these fields."""
LOST_HEADER = f"{SOURCE}-lost"
"""Marks the job of an entry that was trimmed before it was stored."""


class StreamEntry(NamedTuple):
    """A message of a stream."""

    id: str
    fields: Fields | None
    """None: it was trimmed from the stream while it was pending, and is lost."""
    is_suspected_poison: bool = False
    """Delivered at least twice without being stored: it may crash the worker that decodes it."""


class UnreadableEntry(Exception):
    """An entry that cannot become an event. The message says why."""


def decode_entry(
    entry: StreamEntry, source: str, decode: Decode | None, max_payload: int, /
) -> StoredEvent:
    """Return the event of an entry, by its fields or by the user's function `decode`.

    Raises:
        UnreadableEntry: It cannot become an event.
    """
    if entry.fields is None:
        raise UnreadableEntry("it was trimmed from the stream before a worker stored it")
    if decode is None:
        event = _decode_fields(entry, entry.fields, source)
    else:
        event = _decode_by_user(entry, entry.fields, source, decode)
    if len(event.payload) > max_payload:
        raise UnreadableEntry(
            f"its payload has {len(event.payload)} bytes; the ledger takes at most {max_payload}"
        )
    return event


def _decode_by_user(entry: StreamEntry, fields: Fields, source: str, decode: Decode) -> StoredEvent:
    try:
        event = StoredEvent.from_event(decode(EntryFields(fields, entry.id)))
        origin = None if event.source in (DEFAULT_SOURCE, source) else event.source
        return event._replace(source=source, source_id=entry.id, origin=origin)
    except BaseException as error:  # the user's function may raise anything, even SystemExit
        raise UnreadableEntry(f"decode= raised {raised_by(error)}") from None


def _decode_fields(entry: StreamEntry, fields: Fields, source: str) -> StoredEvent:
    payload_field: bytes | None = PAYLOADS[0]
    if payload_field not in fields:
        payload_field = next((name for name in PAYLOADS if name in fields), None)
    try:
        type_ = _decode_type(fields[TYPE])
        id_, origin = entry.id, None
        if ID in fields:
            id_ = fields[ID].decode()
            check_name("id", id_, MAX_ID_BYTES)
            if ORIGIN in fields:  # an id of a CloudEvent is unique in its source
                origin = fields[ORIGIN].decode() or None
        described_by = 1 + (ID in fields) + (payload_field is not None)
        headers: dict[str, str] = {}
        if len(fields) > described_by:
            not_headers = (TYPE, ID, payload_field)
            headers = {
                name.decode(): value.decode()
                for name, value in fields.items()
                if name not in not_headers
            }
    except KeyError:
        names = sorted(name.decode("utf-8", "replace") for name in fields)
        raise UnreadableEntry(
            f"it has no field 'type', only {', '.join(names) or 'nothing'}"
        ) from None
    except UnicodeDecodeError as error:
        name = _first_invalid_field(fields, payload_field)
        raise UnreadableEntry(f"its field {name} is not valid UTF-8: {error}") from None
    except (ValueError, TypeError) as error:
        raise UnreadableEntry(str(error)) from None
    payload = fields[payload_field] if payload_field else b"null"
    at = _timestamp(entry.id.partition("-")[0])
    origin = None if origin == source else origin
    return StoredEvent(source, id_, type_, payload, headers, at, entry.id, origin)


def _first_invalid_field(fields: Fields, payload_field: bytes | None) -> str:
    """Return the first field that must be text and is not valid UTF-8."""
    for name, value in fields.items():
        for part in (name, value) if name != payload_field else (name,):
            try:
                part.decode()
            except UnicodeDecodeError:
                return repr(name.decode("utf-8", "backslashreplace"))
    return "'type'"


@lru_cache(maxsize=1000)
def _decode_type(value: bytes) -> str:
    """Return an event type, checked. Cached, because there are few types."""
    type_ = value.decode()
    check_name("type", type_, MAX_NAME_BYTES)
    return type_


@lru_cache(maxsize=100)
def _timestamp(milliseconds: str) -> datetime | None:
    """Return the time in an entry id. Cached, because many entries have the same millisecond."""
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def job_for_unread(kind: str, source: str, entry: StreamEntry, /) -> NewJob:
    """Return the job of an entry that was not decoded, with all its bytes.

    An unreadable entry has one attempt and becomes a dead letter. The job of a suspected poison
    message decodes it: crashes of workers are counted as for any job, and other jobs go on.
    """
    headers = {SOURCE: source, SOURCE_ID: entry.id}
    if entry.fields is None:
        headers[LOST_HEADER] = "1"
    return NewJob(
        kind=kind,
        key=str(Key("event", source, entry.id, "read")),
        payload=dump_fields(entry.fields or {}),
        max_attempts=None if entry.is_suspected_poison else 1,
        headers=headers,
        ids={"source": source},
    )


def dump_fields(fields: Fields, /) -> bytes:
    """Return the fields as JSON: text where it is valid UTF-8, else base64."""
    pairs = [[_to_json(name), _to_json(value)] for name, value in fields.items()]
    return json.dumps(pairs, separators=(",", ":")).encode()


def load_fields(payload: bytes, /) -> dict[bytes, bytes]:
    """Return the fields of `dump_fields`. ValueError if an operator edited them to another form."""
    try:
        return {_from_json(name): _from_json(value) for name, value in json.loads(payload)}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        form = '[["type", "..."], ["id", "..."], ["payload", "..."]]'
        raise ValueError(f"its fields must be written as {form} ({type(error).__name__})") from None


def _to_json(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _from_json(value: Any) -> bytes:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()
