"""Delivery: from a message that JetStream delivered to a `Message`. Pure."""

from __future__ import annotations

from datetime import datetime, timezone

from ..decoding import complete_headers
from ..source import Message

ACK_PREFIX = b"$JS.ACK."
"""Begin of the reply subject of each message of a stream. Other replies are states of a request."""
MESSAGE_ID = "Nats-Msg-Id"
SUBJECT = "Nats-Subject"
SHORT_TOKENS = 9
"""Tokens of a reply subject without domain and account. Servers can be set to add them."""
NANOSECONDS = 1_000_000_000


def to_message(subject: bytes, reply: bytes, headers: bytes | None, body: bytes, /) -> Message:
    """Return a message of a stream.

    Its type is the subject, and its id is `Nats-Msg-Id`, unless it has headers for them. The
    id in the source is the sequence number with the timestamp: a stream that is deleted and
    created again starts with the same numbers.
    """
    tokens = reply.decode("utf-8", "surrogateescape").split(".")
    first = 4 if len(tokens) == SHORT_TOKENS else 6
    deliveries, sequence, timestamp = tokens[first], tokens[first + 1], int(tokens[first + 3])
    own = parse_headers(headers) if headers else {}
    topic = subject.decode("utf-8", "surrogateescape")
    return Message(
        id=f"{sequence}-{timestamp}",
        body=body,
        headers=complete_headers(own, type_=topic, id_header=MESSAGE_ID, type_header=SUBJECT),
        deliveries=int(deliveries),
        at=datetime.fromtimestamp(timestamp / NANOSECONDS, timezone.utc),
        raw=reply.decode("utf-8", "surrogateescape"),
    )


def parse_headers(block: bytes, /) -> dict[str, str]:
    """Return the headers of a block. Its first line is the version of the protocol.

    The parser of nats-py replaces bytes that are not UTF-8, and stops reading the connection after
    some malformed blocks.
    """
    headers: dict[str, str] = {}
    for line in block.split(b"\r\n")[1:]:
        name, mark, value = line.partition(b":")
        if mark:
            headers[_to_text(name)] = _to_text(value)
    return headers


def parse_state(block: bytes | None, /) -> tuple[int, str]:
    """Return code and text of the state of a request, such as 404 and `No Messages`."""
    line = (block or b"").split(b"\r\n")[0].decode("utf-8", "replace")
    _, _, state = line.partition(" ")
    code, _, text = state.partition(" ")
    return (int(code) if code.isdigit() else 0), text.strip()


def _to_text(value: bytes) -> str:
    return value.strip().decode("utf-8", "surrogateescape")
