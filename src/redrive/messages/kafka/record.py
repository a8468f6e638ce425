"""Record: from a record of Kafka to a `Message`. Pure."""

from __future__ import annotations

import base64
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, NamedTuple

from ..decoding import CLOUD_EVENT_PREFIXES, ID, ORIGIN, TYPE
from ..source import Message

KEY_HEADER = "kafka-key"
BINARY = "base64:"
"""Begin of a header whose value is not UTF-8."""
DESCRIBING = frozenset(
    prefix + name for prefix in ("", *CLOUD_EVENT_PREFIXES) for name in (TYPE, ID, ORIGIN)
)
"""Headers that describe the event. A value that is not UTF-8 makes the message unreadable."""
TYPES = tuple(prefix + TYPE for prefix in ("", *CLOUD_EVENT_PREFIXES))
UNKNOWN_TIME = 0
"""The type of timestamp of a record that has none."""


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
    place = RecordPlace(record.partition(), record.offset())
    time_type, milliseconds = record.timestamp()
    message_id, at = f"{topic}-{place.partition}-{place.offset}", None
    if time_type != UNKNOWN_TIME:
        message_id, at = f"{message_id}-{milliseconds}", _timestamp(milliseconds)
    headers = {name: _to_text(name, value) for name, value in record.headers() or ()}
    key = None
    if record.key() is not None:
        key = _to_text(KEY_HEADER, record.key())
        headers.setdefault(KEY_HEADER, key)
    if not any(name in headers for name in TYPES):
        headers[TYPE] = topic
    return Message(message_id, record.value() or b"", headers, at=at, raw=place, key=key)


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


@lru_cache(maxsize=100)
def _timestamp(milliseconds: int) -> datetime | None:
    """Return the time of a record. Cached, because many records have the same millisecond."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
