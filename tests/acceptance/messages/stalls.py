"""Streams of each engine with messages, as the tests and the consumer processes see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

import redis

from redrive.messages import KafkaTopic, NatsStream, RabbitQueue, RedisStream, Source
from tests.servers.kafka import QUICK, unread

GROUP = "shop"


class Stall(Protocol):
    """One stream."""

    engine: str
    address: str
    stream: str

    def send(self, ids: tuple[str, ...], payload: dict[str, Any]) -> None:
        """Add messages of type `paid` with these ids."""

    def pending(self) -> int:
        """Messages that were delivered and not acknowledged."""

    def is_empty(self) -> bool:
        """Whether every message was read and acknowledged."""


class RedisStall:
    """A Redis stream."""

    engine = "redis"

    def __init__(self, address: str, stream: str) -> None:
        self.address, self.stream = address, stream
        self.client = redis.Redis.from_url(address)

    def send(self, ids: tuple[str, ...], payload: dict[str, Any]) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for each in ids:
            pipeline.xadd(self.stream, {"type": "paid", "id": each, "payload": json.dumps({"id": each, **payload})})
        pipeline.execute()

    def pending(self) -> int:
        found: Any = self.client.xpending(self.stream, GROUP)
        return int(found["pending"])

    def is_empty(self) -> bool:
        try:
            groups: Any = self.client.xinfo_groups(self.stream)
        except redis.RedisError:
            return False
        return any(one["name"] == GROUP.encode() and not one["pending"] and not one.get("lag") for one in groups)


class NatsStall:
    """A stream of NATS JetStream."""

    engine = "nats"

    def __init__(self, address: str, stream: str) -> None:
        from tests.servers.nats_admin import NatsAdmin

        self.address, self.stream = address, stream
        self.admin = NatsAdmin(address)

    def send(self, ids: tuple[str, ...], payload: dict[str, Any]) -> None:
        bodies = [json.dumps({"id": each, **payload}).encode() for each in ids]
        headers = [{"type": "paid", "id": each} for each in ids]
        self.admin.send(f"{self.stream}.paid", list(zip(bodies, headers, strict=True)))

    def pending(self) -> int:
        return self.admin.pending(self.stream, GROUP)

    def is_empty(self) -> bool:
        return self.admin.unread(self.stream, GROUP) == 0


class KafkaStall:
    """A topic of Kafka."""

    engine = "kafka"

    def __init__(self, address: str, stream: str) -> None:
        self.address, self.stream = address, stream

    def send(self, ids: tuple[str, ...], payload: dict[str, Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "log_level": 0})
        for each in ids:
            body = json.dumps({"id": each, **payload})
            producer.produce(self.stream, body, key=each, headers={"type": "paid", "id": each})
        assert producer.flush(30) == 0

    def pending(self) -> int:
        return unread(self.address, self.stream, GROUP)

    def is_empty(self) -> bool:
        return self.pending() == 0


class RabbitStall:
    """A queue of RabbitMQ. Its address is JSON, as the fixture `rabbitmq` has it."""

    engine = "rabbitmq"

    def __init__(self, address: str, stream: str) -> None:
        from tests.servers.rabbit_admin import RabbitAdmin

        self.address, self.stream = address, stream
        self.server = json.loads(address)
        self.admin = RabbitAdmin(self.server["url"])

    def send(self, ids: tuple[str, ...], payload: dict[str, Any]) -> None:
        bodies = [json.dumps({"id": each, **payload}).encode() for each in ids]
        properties = [{"message_type": "paid", "message_id": each} for each in ids]
        self.admin.publish(self.stream, *((body, {}, each) for body, each in zip(bodies, properties, strict=True)))

    def pending(self) -> int:
        from tests.servers.rabbitmq import evaluate, pending_of

        return int(evaluate(self.server["name"], self.server["epmd"], pending_of(self.stream)))

    def is_empty(self) -> bool:
        return self.admin.count(self.stream) == 0 and self.pending() == 0


STALLS: dict[str, Callable[[str, str], Stall]] = {
    "redis": RedisStall,
    "nats": NatsStall,
    "kafka": KafkaStall,
    "rabbitmq": RabbitStall,
}


def open_source(engine: str, address: str, stream: str, idle: float) -> Source:
    """The source of a consumer. idle: seconds after which messages of a dead consumer come again."""
    if engine == "nats":
        return NatsStream(address, stream, consumer=GROUP, ack_wait=idle, batch=10)
    if engine == "kafka":
        return KafkaTopic(address, stream, group=GROUP, options=QUICK, batch=10)
    if engine == "rabbitmq":
        return RabbitQueue(json.loads(address)["url"], stream, batch=10)
    return RedisStream(address, stream, group=GROUP, idle=idle, batch=10)
