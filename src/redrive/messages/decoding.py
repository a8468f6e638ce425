"""Decoding: from a message to its event. Pure.

A message that cannot be decoded becomes a job with all its bytes, and then a dead letter.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from ..core.codec import raised_by
from ..core.key import Key
from ..ledger.events import SOURCE, SOURCE_ID
from ..ledger.model import NewJob
from .event import DEFAULT_SOURCE, MAX_ID_BYTES, MAX_NAME_BYTES, NO_HEADERS, check_name
from .source import Message, Source
from .stored_event import StoredEvent

Fields: TypeAlias = dict[bytes, bytes]
"""Headers and body of a message by name, as they are stored before the message is decoded."""

TYPE, ID, ORIGIN = "type", "id", "source"
CLOUD_EVENT_PREFIXES = ("ce-", "ce_", "cloudEvents:", "cloudEvents_")
"""Prefixes of the headers of CloudEvents over HTTP and NATS, Kafka, and AMQP."""
BODY_FIELDS = (b"payload", b"data", b"body")
"""The body among the fields, as JSON or as any bytes: the first of these."""
POISON_DELIVERIES = 3
"""Number of deliveries after which a message is suspected to crash the worker that decodes it."""
LOST_HEADER = f"{SOURCE}-lost"
"""Marks the job of a message that was deleted before it was read."""


class UnreadableMessage(Exception):
    """A message that cannot become an event. The message says why."""


def is_suspected_poison(message: Message, /) -> bool:
    """Return whether a message was delivered often without being stored."""
    return message.deliveries >= POISON_DELIVERIES


def complete_headers(
    headers: dict[str, str], /, *, type_: str, id_header: str, type_header: str
) -> dict[str, str]:
    """Add the broker's own values to the headers of a message that does not have them.

    Args:
        headers: The headers. They are changed.
        type_: Type of the message in its broker, such as its subject or topic.
        id_header: Header that holds the broker's own id of a message.
        type_header: Header that gets the type in the broker, if the message has another type.
    """
    prefix = ""
    if TYPE not in headers:
        prefixes = (prefix for prefix in CLOUD_EVENT_PREFIXES if prefix + TYPE in headers)
        prefix = next(prefixes, "")
    if headers.setdefault(prefix + TYPE, type_) != type_:
        headers[type_header] = type_
    if id_header in headers and prefix + ID not in headers:
        headers[prefix + ID] = headers.pop(id_header)
    return headers


def decode_message(message: Message, source: Source, max_payload: int, /) -> StoredEvent:
    """Return the event of a message.

    Raises:
        UnreadableMessage: It cannot become an event.
    """
    if message.body is None:
        raise UnreadableMessage("it was deleted in the source before a worker stored it")
    event = _decode_by_source(message, source) or _decode_headers(message, source.name)
    if len(event.payload) > max_payload:
        raise UnreadableMessage(
            f"its payload has {len(event.payload)} bytes; the ledger takes at most {max_payload}"
        )
    return event


def _decode_by_source(message: Message, source: Source) -> StoredEvent | None:
    try:
        event = source.to_event(message)
        if event is None:
            return None
        stored = StoredEvent.from_event(event)
        origin = None if stored.source in (DEFAULT_SOURCE, source.name) else stored.source
        return stored._replace(source=source.name, source_id=message.id, origin=origin)
    except BaseException as error:  # the user's function may raise anything, even SystemExit
        raise UnreadableMessage(f"decode= raised {raised_by(error)}") from None


def _decode_headers(message: Message, source: str) -> StoredEvent:
    message_id, body, headers, _, at, _, _ = message
    try:
        prefix = "" if TYPE in headers else _cloud_event_prefix(message)
        type_ = headers[prefix + TYPE]
        _check_type(type_)
        event_id, origin = headers.get(prefix + ID), None
        described_by = 1
        if event_id is None:
            event_id = message_id
        else:
            described_by = 2
            check_name("id", event_id, MAX_ID_BYTES)
            # The id of a CloudEvent is unique in its source.
            origin = headers.get(prefix + ORIGIN) or None
            if origin is not None and not origin.isprintable():
                raise ValueError(f"an event's source must be printable: {origin!r:.60}")
        own: Mapping[str, str] = NO_HEADERS
        if len(headers) > described_by:
            not_own = (prefix + TYPE, prefix + ID)
            own = {name: value for name, value in headers.items() if name not in not_own}
            for name, value in own.items():
                if not (value.isascii() and name.isascii()):
                    (name + value).encode()
    except UnicodeError:
        raise UnreadableMessage(_invalid_text(message)) from None
    except (ValueError, TypeError) as error:
        problem = _invalid_text(message) or str(error)
        raise UnreadableMessage(problem) from None
    origin = None if origin == source else origin
    # Half the time of a call of the class, for every message.
    return tuple.__new__(
        StoredEvent, (source, event_id, type_, body or b"null", own, at, message_id, origin)
    )


def _cloud_event_prefix(message: Message) -> str:
    headers = message.headers
    for prefix in CLOUD_EVENT_PREFIXES:
        if prefix + TYPE in headers:
            return prefix
    names = [_readable(name) for name in headers]
    if _is_fields(message.raw):
        names = [name.decode("utf-8", "backslashreplace") for name in message.raw]
    word = _word_for_header(message)
    found = ", ".join(sorted(names)) or "nothing"
    raise UnreadableMessage(f"it has no {word} 'type', only {found}")


def _word_for_header(message: Message) -> Literal["field", "header"]:
    return "field" if _is_fields(message.raw) else "header"


def _invalid_text(message: Message) -> str:
    """Return which header is not valid UTF-8. Empty: none."""
    for name, value in message.headers.items():
        for text in (name, value):
            try:
                text.encode()
            except UnicodeError:
                raw = text.encode("utf-8", "surrogateescape")
                try:
                    raw.decode()
                except UnicodeDecodeError as error:
                    word = _word_for_header(message)
                    return f"its {word} {_readable(name)!r} is not valid UTF-8: {error}"
    return ""


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@lru_cache(maxsize=1000)
def _check_type(type_: str) -> None:
    """Validate an event type. Cached, because there are few types."""
    check_name("type", type_, MAX_NAME_BYTES)


def job_for_unread(kind: str, source: str, message: Message, /) -> NewJob:
    """Return the job of a message that was not decoded, with all its bytes.

    An unreadable message has one attempt and becomes a dead letter. The job of a suspected poison
    message decodes it: crashes of workers are counted as for any job, and other jobs go on.
    """
    headers = {SOURCE: source, SOURCE_ID: message.id}
    if message.body is None:
        headers[LOST_HEADER] = "1"
    return NewJob(
        kind=kind,
        key=str(Key("event", source, message.id, "read")),
        payload=dump_message(message),
        max_attempts=None if is_suspected_poison(message) else 1,
        headers=headers,
        ids={"source": source},
    )


def dump_message(message: Message, /) -> bytes:
    """Return headers and body as JSON: text where it is valid UTF-8, else base64."""
    pairs: Iterable[tuple[bytes, bytes]] = ()
    if _is_fields(message.raw):
        pairs = message.raw.items()
    elif message.body is not None:
        headers = [(_to_bytes(name), _to_bytes(value)) for name, value in message.headers.items()]
        pairs = [*headers, (BODY_FIELDS[0], message.body)]
    return json.dumps(
        [[_to_json(name), _to_json(value)] for name, value in pairs], separators=(",", ":")
    ).encode()


def load_message(message_id: str, payload: bytes, /) -> Message:
    """Return the message of `dump_message`. ValueError if an operator edited it to another form."""
    try:
        pairs = json.loads(payload)
        return message_of_fields(
            message_id, {_from_json(name): _from_json(value) for name, value in pairs}
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        form = '[["type", "..."], ["id", "..."], ["payload", "..."]]'
        raise ValueError(f"its fields must be written as {form} ({type(error).__name__})") from None


def message_of_fields(
    message_id: str, fields: Fields, /, at: datetime | None = None, deliveries: int = 1
) -> Message:
    """Return a message whose headers and body are fields of one mapping, as in Redis."""
    body_field = BODY_FIELDS[0]
    if body_field not in fields:
        body_field = next((name for name in BODY_FIELDS if name in fields), b"")
    try:
        headers = {
            name.decode(): value.decode() for name, value in fields.items() if name != body_field
        }
    except UnicodeDecodeError:
        headers = {
            name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
            for name, value in fields.items()
            if name != body_field
        }
    body = fields.get(body_field, b"")
    return tuple.__new__(Message, (message_id, body, headers, deliveries, at, fields, None))


@lru_cache(maxsize=100)
def timestamp_of(milliseconds: int | str, /) -> datetime | None:
    """Return the time of a message. Cached, because many messages have the same millisecond."""
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def _is_fields(raw: Any) -> bool:
    return isinstance(raw, dict) and all(isinstance(name, bytes) for name in raw)


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _to_json(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _from_json(value: Any) -> bytes:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()
