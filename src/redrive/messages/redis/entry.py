"""Entry: one message of a stream, and what it says. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ...core.codec import raised_by
from ...core.key import Key
from ...ledger.origin import SOURCE, SOURCE_ID
from ...ledger.record import NewJob
from ..event import DEFAULT_SOURCE, MAX_ID, MAX_NAME, Event, named
from ..stored import Stored, stored

Fields: TypeAlias = Mapping[bytes, bytes]


class EntryFields(dict[bytes, bytes]):
    """The fields of an entry, as `decode=` gets them."""

    entry_id: str
    """The entry's own id in its stream."""

    def __init__(self, fields: Fields, entry_id: str, /) -> None:
        super().__init__(fields)
        self.entry_id = entry_id


Decode: TypeAlias = Callable[[EntryFields], Event[Any]]
TYPE, ID, ORIGIN, PAYLOADS = b"type", b"id", b"source", (b"payload", b"data", b"body")
"""Fields of an entry as it comes without `decode=`: its type, its id (the entry's own where there is none), its payload in JSON
or any bytes; all others are headers."""
LOST = f"{SOURCE}-lost"


class Entry(NamedTuple):
    """A message of a stream."""

    id: str
    fields: Fields | None
    """None: it was trimmed from the stream while it was pending; nobody has it any more."""
    feared: bool = False
    """Others have had it before, and none has come as far as storing it: whoever looks into it may die of that."""


class Unread(Exception):
    """An entry that cannot be made an event; says what is wrong with it."""


def event_in(entry: Entry, source: str, decode: Decode | None, most: int, /) -> Stored:
    """The event that an entry is, of at most so many bytes; Unread says why it is none."""
    if entry.fields is None:
        raise Unread("it was trimmed from the stream before a worker stored it")
    found = _plain(entry, entry.fields, source) if decode is None else _decoded(entry, entry.fields, source, decode)
    if len(found.payload) > most:
        raise Unread(f"its payload has {len(found.payload)} bytes; the ledger takes at most {most}")
    return found


def _decoded(entry: Entry, fields: Fields, source: str, decode: Decode) -> Stored:
    try:
        found = stored(decode(EntryFields(fields, entry.id)))
        origin = None if found.source in (DEFAULT_SOURCE, source) else found.source
        return found._replace(source=source, source_id=entry.id, origin=origin)
    except BaseException as wrong:  # the user's function: whatever it raises, SystemExit too, the message is kept
        raise Unread(f"decode= raised {raised_by(wrong)}") from None


def _plain(entry: Entry, fields: Fields, source: str) -> Stored:
    name = next((one for one in PAYLOADS if one in fields), None) if PAYLOADS[0] not in fields else PAYLOADS[0]
    try:
        type_ = _type(fields[TYPE])
        id_, origin = entry.id, None
        if ID in fields:
            id_ = fields[ID].decode()
            named("id", id_, MAX_ID)
            if ORIGIN in fields:  # as CloudEvents have it: an id is unique in its source
                origin = fields[ORIGIN].decode() or None
        more = len(fields) - 1 - (ID in fields) - (name is not None)
        headers = {key.decode(): value.decode() for key, value in fields.items() if key not in (TYPE, ID, name)} if more else {}
    except KeyError:
        had = ", ".join(sorted(name.decode("utf-8", "replace") for name in fields)) or "nothing"
        raise Unread(f"it has no field 'type', only {had}") from None
    except UnicodeDecodeError as wrong:
        raise Unread(f"its field {_not_text(fields, name)} is not valid UTF-8: {wrong}") from None
    except (ValueError, TypeError) as wrong:
        raise Unread(str(wrong)) from None
    payload, at = fields[name] if name else b"null", _moment(entry.id.partition("-")[0])
    return Stored(source, id_, type_, payload, headers, at, entry.id, None if origin == source else origin)


def _not_text(fields: Fields, payload: bytes | None) -> str:
    """The first field that should be text, and is not."""
    for name, value in fields.items():
        for part in (name, value) if name != payload else (name,):
            try:
                part.decode()
            except UnicodeDecodeError:
                return repr(name.decode("utf-8", "backslashreplace"))
    return "'type'"


@lru_cache(maxsize=1000)
def _type(given: bytes) -> str:
    """A type of events; looked at once, since there are few."""
    found = given.decode()
    named("type", found, MAX_NAME)
    return found


@lru_cache(maxsize=100)
def _moment(milliseconds: str) -> datetime | None:
    """When entries were added, as their ids have it; often many in one millisecond."""
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def unread(kind: str, source: str, entry: Entry, /) -> NewJob:
    """The job that an entry becomes which cannot be read: tried once, then a dead letter, with all its bytes.

    One that is feared is read by it: workers that die of it are counted, as of any job, and others go on.
    """
    headers = {SOURCE: source, SOURCE_ID: entry.id} | ({LOST: "1"} if entry.fields is None else {})
    return NewJob(
        kind=kind, key=str(Key("event", source, entry.id, "read")), payload=packed(entry.fields or {}),
        max_attempts=None if entry.feared else 1, headers=headers, ids={"source": source},
    )  # fmt: skip


def packed(fields: Fields, /) -> bytes:
    """The fields in JSON: as text where they are, else in base64."""
    return json.dumps([[_text(name), _text(value)] for name, value in fields.items()], separators=(",", ":")).encode()


def unpacked(payload: bytes, /) -> dict[bytes, bytes]:
    """The fields again; ValueError where somebody has written them otherwise."""
    try:
        return {_bytes(name): _bytes(value) for name, value in json.loads(payload)}
    except (ValueError, TypeError, KeyError, RecursionError) as wrong:
        form = '[["type", "..."], ["id", "..."], ["payload", "..."]]'
        raise ValueError(f"its fields must be written as {form} ({type(wrong).__name__})") from None


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()
