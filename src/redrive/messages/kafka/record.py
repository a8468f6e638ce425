"""Record: from a record of Kafka to a `Message`. Pure."""

from __future__ import annotations

import base64
from operator import methodcaller
from typing import Any, NamedTuple

from ..decoding import CLOUD_EVENT_PREFIXES, ID, ORIGIN, TYPE, timestamp_of
from ..source import Message

KEY_HEADER = "kafka-key"
BINARY = "base64:"
"""Begin of a header whose value is not UTF-8."""
DESCRIBING = frozenset(
    prefix + name for prefix in ("", *CLOUD_EVENT_PREFIXES) for name in (TYPE, ID, ORIGIN)
)
"""Headers that describe the event. A value that is not UTF-8 makes the message unreadable."""
TYPES = tuple(prefix + TYPE for prefix in ("", *CLOUD_EVENT_PREFIXES))
INVALID_NAME = "(name)\udcff"
"""Stands for headers of which one has a name that is not UTF-8. It makes a message unreadable."""
UNKNOWN_TIME = 0
"""The type of timestamp of a record that has none."""

# For a name that is not UTF-8, the client returns a list with a null pointer, and sets an error.
# A plain call does not check this once CPython has specialised it, and the process would crash.
_call_headers = methodcaller("headers")


class RecordPlace(NamedTuple):
    """Where a message is in its topic."""

    partition: int
    offset: int


def to_message(record: Any, topic: str, /) -> Message:
    """Return a record as a message.

    Its type is the topic, unless a header has it. Its id has the timestamp beside partition and
    offset: a topic that is deleted and created again starts with the same offsets. A value of
    None (a tombstone) is an empty body, because None would stand for a lost message.
    """
    partition, offset = place = RecordPlace(record.partition(), record.offset())
    time_type, milliseconds = record.timestamp()
    message_id, at = f"{topic}-{partition}-{offset}", None
    if time_type != UNKNOWN_TIME:
        message_id, at = f"{message_id}-{milliseconds}", timestamp_of(milliseconds)
    headers = _headers_of(record)
    key = record.key()
    if key is not None:
        key = _to_text(KEY_HEADER, key)
        headers.setdefault(KEY_HEADER, key)
    if TYPE not in headers and not any(name in headers for name in TYPES):
        headers[TYPE] = topic
    body = record.value() or b""
    # Half the time of a call of the class, for every message.
    return tuple.__new__(Message, (message_id, body, headers, 1, at, place, key))


def _headers_of(record: Any) -> dict[str, str]:
    try:
        headers = _call_headers(record) or ()
    except (SystemError, UnicodeDecodeError):
        # The client cannot decode a name. It has no other way to the headers, so all are lost.
        return {INVALID_NAME: ""}
    return {name: _to_text(name, value) for name, value in headers}


def lost_messages(topic: str, partition: int, first: int, end: int, /) -> Message:
    """Return the message that stands for messages deleted before they were read."""
    return Message(
        f"{topic}-{partition}-{first}..{end - 1}", None, raw=RecordPlace(partition, end - 1)
    )


def _to_text(name: str, value: bytes | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        if name in DESCRIBING:
            return value.decode("utf-8", "surrogateescape")
        return BINARY + base64.b64encode(value).decode()
