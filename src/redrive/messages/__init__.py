"""Messages: events, their sources and their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .event import Event

if TYPE_CHECKING:
    from .kafka.topic import KafkaTopic
    from .nats.stream import NatsStream
    from .publish import Destination, Publisher
    from .rabbitmq.queue import RabbitQueue
    from .redis.stream import RedisStream
    from .source import Consumer, DeadLetterNotice, Message, Source

__all__ = [
    "Consumer",
    "DeadLetterNotice",
    "Destination",
    "Event",
    "KafkaTopic",
    "Message",
    "NatsStream",
    "Publisher",
    "RabbitQueue",
    "RedisStream",
    "Source",
]


if not TYPE_CHECKING:  # a type checker that saw this would accept every misspelt name
    # Loaded at first use: an Event needs no database.
    __getattr__ = lazily(
        __name__,
        {
            "Consumer": "source",
            "DeadLetterNotice": "source",
            "Destination": "publish",
            "KafkaTopic": "kafka.topic",
            "Message": "source",
            "NatsStream": "nats.stream",
            "Publisher": "publish",
            "RabbitQueue": "rabbitmq.queue",
            "RedisStream": "redis.stream",
            "Source": "source",
        },
    )
