"""DeliveryTag: from a message that RabbitMQ delivered to a `Message`, and its tag. Pure."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..decoding import CLOUD_EVENT_PREFIXES, TYPE
from ..source import Message

if TYPE_CHECKING:
    from aiormq.abc import DeliveredMessage

DELIVERY_COUNT = "x-delivery-count"
COUNTERS = (DELIVERY_COUNT, "x-acquired-count")
"""Headers that quorum queues add. They change with each delivery, so events do not have them."""
ROUTING_KEY = "routing-key"
PROPERTIES = {
    "app_id": "app-id",
    "content_encoding": "content-encoding",
    "content_type": "content-type",
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
}
"""Properties that become headers of the event, unless it has such headers."""
UNKNOWN_ID_PREFIX = "delivery-"
"""Begin of the ids of messages without the property `message_id`. Each delivery has another id."""


class DeliveryTag(NamedTuple):
    """What acknowledges a message: its tag, which only its connection knows."""

    connection: int
    """Number of the connection in its consumer."""
    tag: int


def to_message(delivered: DeliveredMessage, connection: int, /) -> Message:
    """Return a message of a queue."""
    properties: Any = delivered.header.properties
    table: Mapping[str, Any] = properties.headers or {}
    headers = {name: to_text(table[name]) for name in table if name not in COUNTERS}
    for name, header in PROPERTIES.items():
        value = getattr(properties, name)
        if value:
            headers.setdefault(header, value)
    routing_key: str = delivered.routing_key or ""
    if not any(prefix + TYPE in headers for prefix in ("", *CLOUD_EVENT_PREFIXES)):
        headers[TYPE] = properties.message_type or routing_key
    if routing_key and headers.get(TYPE) != routing_key:
        headers.setdefault(ROUTING_KEY, routing_key)
    # A classic queue does not count. It only says whether this is the first delivery.
    count = table.get(DELIVERY_COUNT, 1 if delivered.redelivered else 0)
    return Message(
        id=_message_id(properties.message_id),
        body=delivered.body,
        headers=headers,
        deliveries=count + 1 if isinstance(count, int) else 1,
        at=properties.timestamp,
        raw=DeliveryTag(connection, delivered.delivery_tag or 0),
    )


def _message_id(given: str | None) -> str:
    """Return the id of a message. An id that the ledger cannot store is replaced by its hash."""
    if not given:
        return f"{UNKNOWN_ID_PREFIX}{uuid.uuid4().hex}"
    return given if given.isprintable() else hashlib.sha256(given.encode()).hexdigest()


def to_text(value: Any, /) -> str:
    """Return the value of a header as text. Values that are not text are written as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "surrogateescape")
    return json.dumps(value, default=_to_json)


def _to_json(value: object) -> str:
    return to_text(value) if isinstance(value, (bytes, bytearray)) else str(value)


class SettlementPlan(NamedTuple):
    """The frames that settle messages."""

    up_to: int | None
    """This tag and all before it, in one frame."""
    single: list[int]
    """One frame for each."""


def plan_settlement(unsettled: Iterable[int], tags: set[int], /) -> SettlementPlan:
    """Return the frames that settle tags, and no others.

    Args:
        unsettled: All tags that are not settled, in order.
        tags: The tags to settle, all of them unsettled.
    """
    up_to, count = None, 0
    for tag in unsettled:
        if tag not in tags:
            break
        up_to, count = tag, count + 1
    if up_to is None:
        return SettlementPlan(None, sorted(tags))
    single = [tag for tag in tags if tag > up_to] if count < len(tags) else []
    return SettlementPlan(up_to, sorted(single))
