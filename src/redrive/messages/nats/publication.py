"""Publication: events and dead letters as messages, and the stream of dead letters. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

from ..decoding import ID, ORIGIN, TYPE
from ..source import DeadLetterNotice, Message
from .delivery import MESSAGE_ID, NANOSECONDS

MAX_DEAD_LETTERS = 100_000
"""Number of dead letters that their stream keeps. The oldest are removed."""
DUPLICATE_SECONDS = 3600
"""Time in which an announcement that is repeated is stored once."""
MAX_ERROR_CHARS = 16_000
OMITTED = "payload_omitted"
EXPECTED_STREAM = "Nats-Expected-Stream"
"""With it, no other stream accepts the message."""
_NOT_IN_SUBJECT = re.compile(r"[\s*>]")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE_BREAKS = str.maketrans("\r\n", "  ")
_ESCAPED = re.compile(r"[\x00-\x1f\x7f%]|\A\s|\s\Z")


class BadHeaderError(ValueError):
    """A header has a name that NATS does not take."""


class Publication(NamedTuple):
    """A message to publish."""

    subject: str
    headers: dict[str, str]
    body: bytes


def to_publication(message: Message, stream: str, /) -> Publication:
    """Return the message that publishes an event.

    Its subject is the name of the stream and the type of the event. A type that begins with the
    name of the stream is the subject. `Nats-Msg-Id` lets the stream drop a repeated message.

    Raises:
        BadHeaderError: The name of a header has characters that NATS does not take.
    """
    type_, id_ = message.headers[TYPE], message.headers[ID]
    words = [_NOT_IN_SUBJECT.sub("_", word) or "_" for word in type_.split(".")]
    if words[0] != stream:
        words.insert(0, stream)
    origin = message.headers.get(ORIGIN)
    # Clients before 2.16 would send such a name as a header of another name and value, and what
    # follows a line break as a header of its own.
    for name in message.headers:
        if name.strip() and not _HEADER_NAME.fullmatch(name.strip()):
            raise BadHeaderError(f"invalid header: {name.strip()!r}")
    headers = {name: value.translate(_LINE_BREAKS) for name, value in message.headers.items()}
    headers |= {
        MESSAGE_ID: f"{origin}:{id_}" if origin else id_,
        EXPECTED_STREAM: stream,
    }
    return Publication(".".join(words), headers, message.body or b"")


def to_announcement(
    notice: DeadLetterNotice, subject: str, consumer: str, max_payload: int, /
) -> Publication:
    """Return the message that announces a dead letter.

    Headers of NATS have one line. Other characters are percent-encoded, as `urllib.parse.unquote`
    decodes them. A payload that does not fit in a message is omitted.
    """
    created = notice.fields.get("created_at", "")
    # With consumer and time: other apps, or another ledger, have dead letters of the same number.
    headers = {MESSAGE_ID: f"dead-{notice.id}-{consumer}-{created}".rstrip("-")}
    for name, value in notice.fields.items():
        headers[name] = _ESCAPED.sub(lambda match: quote(match[0]), value[:MAX_ERROR_CHARS])
    body = notice.payload or b""
    size = sum(len(name.encode()) + len(value.encode()) + 4 for name, value in headers.items())
    if len(body) + size + len("NATS/1.0\r\n\r\n") > max_payload:
        headers[OMITTED] = f"{len(body)} bytes are too large for a message; see the ledger"
        body = b""
    return Publication(subject, headers, body)


def dead_stream_config(subject: str, source_config: dict[str, Any], /) -> dict[str, Any]:
    """Return the configuration of a stream for dead letters, with the safety of their source."""
    return {
        "name": subject.replace(".", "-"),
        "description": "dead letters of Redrive",
        "subjects": [subject],
        "retention": "limits",
        "discard": "old",
        "max_msgs": MAX_DEAD_LETTERS,
        "max_bytes": -1,
        "max_age": 0,
        "max_consumers": -1,
        "storage": source_config.get("storage", "file"),
        "num_replicas": source_config.get("num_replicas", 1),
        "duplicate_window": DUPLICATE_SECONDS * NANOSECONDS,
    }


def is_covered(subject: str, patterns: Iterable[str], /) -> bool:
    """Return whether one of the subjects, which may have wildcards, covers this one."""
    return any(_covers(pattern, subject) for pattern in patterns)


def _covers(pattern: str, subject: str) -> bool:
    """Return whether a subject with wildcards covers another one."""
    expected, words = pattern.split("."), subject.split(".")
    for number, word in enumerate(expected):
        if word == ">":
            return len(words) > number
        if number >= len(words) or word not in ("*", words[number]):
            return False
    return len(expected) == len(words)
