"""Brokers: the operations that tests need of an engine, so that the same test runs on each of them.

To add an engine, write a class like `RedisBroker` and add it to `BROKERS`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from redrive.messages import KafkaTopic, NatsStream, RabbitQueue, RedisStream, Source
from redrive.messages.kafka.offsets import crashes_of
from redrive.messages.rabbitmq import connection
from tests.servers.kafka import QUICK, MockCluster
from tests.servers.nats import own_nats_server
from tests.servers.nats_admin import NatsAdmin
from tests.servers.rabbit_admin import RabbitAdmin
from tests.servers.rabbitmq import close_connections_of, evaluate, pending_of

USER_ID = "ann"


class Login(NamedTuple):
    """A source whose login can be revoked."""

    source: Source
    password: str
    send: Callable[..., None]
    """Sends events of type `paid` with these ids."""
    revoke: Callable[[], object]
    restore: Callable[[], object]


class Broker(Protocol):
    """An engine with one empty stream, topic or queue."""

    def source(self, **options: Any) -> Source:
        """The source of the stream."""

    def send(self, *ids: str) -> None:
        """Send events of type `paid` with these ids."""

    def pending(self) -> int:
        """Number of messages that were delivered and not acknowledged."""

    def delete(self, part: str) -> None:
        """Delete the `consumer` (or group) or the `stream`, as an operator might. The stream is empty and usable then."""

    def login(self) -> AbstractContextManager[Login]:
        """A source with a user and a password of its own."""


class RedisBroker:
    """A stream of the run's Redis."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.url: str = request.getfixturevalue("redis_url")
        self.client: redis.Redis = request.getfixturevalue("client")
        self.stream: str = request.getfixturevalue("stream")

    def source(self, **options: Any) -> RedisStream:
        return RedisStream(self.url, self.stream, group="shop", **options)

    def send(self, *ids: str) -> None:
        for each in ids:
            self.client.xadd(self.stream, {"type": "paid", "id": each, "payload": _payload(each), "user_id": USER_ID})

    def pending(self) -> int:
        found: Any = self.client.xpending(self.stream, "shop")
        return int(found["pending"])

    def delete(self, part: str) -> None:
        self.client.xgroup_destroy(self.stream, "shop") if part == "consumer" else self.client.delete(self.stream)

    @contextmanager
    def login(self) -> Iterator[Login]:
        user, password = f"shop{secrets.token_hex(4)}", f"Word-{secrets.token_hex(8)}"

        def restore() -> None:
            self.client.acl_setuser(user, enabled=True, passwords=[f"+{password}"], categories=["+@all"], keys=["*"])

        restore()
        at = urlsplit(self.url)
        source = RedisStream(f"redis://{user}:{password}@{at.hostname}:{at.port}/0", self.stream, group="shop")
        try:
            yield Login(source, password, self.send, lambda: self.client.acl_deluser(user), restore)
        finally:
            self.client.acl_deluser(user)


class NatsBroker:
    """A stream of the run's NATS server."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.url: str = request.getfixturevalue("nats_url")
        self.admin: NatsAdmin = request.getfixturevalue("nats_admin")
        self.stream = f"orders-{secrets.token_hex(4)}"
        self.admin.create_stream(self.stream)

    def source(self, **options: Any) -> NatsStream:
        return NatsStream(self.url, self.stream, consumer="shop", **options)

    def send(self, *ids: str) -> None:
        _send_to_nats(self.admin, self.stream, *ids)

    def pending(self) -> int:
        return self.admin.pending(self.stream, "shop")

    def delete(self, part: str) -> None:
        if part == "consumer":
            self.admin.run(lambda: self.admin.js.delete_consumer(self.stream, "shop"))
        else:
            self.admin.delete_stream(self.stream)
            self.admin.create_stream(self.stream)

    @contextmanager
    def login(self) -> Iterator[Login]:
        password = f"Word-{secrets.token_hex(8)}"
        admin = {"user": "admin", "password": secrets.token_hex(8)}
        both = {"users": [admin, {"user": "shop", "password": password}]}
        with own_nats_server(authorization=both) as server:
            host = f"127.0.0.1:{server.port}"
            with NatsAdmin(f"nats://admin:{admin['password']}@{host}") as controls:
                controls.create_stream("orders")
                yield Login(
                    NatsStream(f"nats://shop:{password}@{host}", "orders", consumer="shop"),
                    password,
                    lambda *ids: _send_to_nats(controls, "orders", *ids),
                    lambda: server.configure(authorization={"users": [admin]}),
                    lambda: server.configure(authorization=both),
                )


class KafkaBroker:
    """A topic of a mock cluster. It has no users: a user without the right to fetch stands for a revoked login."""

    fetch, no_right = 1, 29

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.cluster = MockCluster()
        request.addfinalizer(self.cluster.__exit__)
        self.cluster.create("orders", 2)

    def source(self, **options: Any) -> KafkaTopic:
        return KafkaTopic(self.cluster.address, "orders", group="shop", **{"options": QUICK, **options})

    def send(self, *ids: str) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.address, "log_level": 0})
        for each in ids:
            headers: dict[str, str | bytes | None] = {"type": "paid", "id": each, "user_id": USER_ID}
            producer.produce("orders", _payload(each), partition=0, headers=headers)
        assert producer.flush(30) == 0

    def pending(self) -> int:
        """Number of partitions whose offset has the note of a delivery. Kafka itself does not know delivered messages."""
        client = Consumer({"bootstrap.servers": self.cluster.address, "group.id": "shop", "log_level": 0})
        places = client.committed([TopicPartition("orders", number) for number in (0, 1)], timeout=30)
        client.close()
        return sum(crashes_of(place.metadata) > 0 for place in places)

    def delete(self, part: str) -> None:
        if part == "consumer":
            pytest.skip("Kafka deletes no group that has members")
        # All records, and not the topic: consumers of a topic that is created again keep their offsets.
        self.cluster.delete_records("orders", 0, 1)

    @contextmanager
    def login(self) -> Iterator[Login]:
        password = f"Word-{secrets.token_hex(8)}"
        source = self.source(options={**QUICK, "sasl.username": "shop", "sasl.password": password})
        yield Login(
            source,
            password,
            self.send,
            lambda: self.cluster.fail(self.fetch, *[self.no_right] * 1000),
            lambda: self.cluster.forgive(self.fetch),
        )


class RabbitBroker:
    """A queue of the run's RabbitMQ."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.server: dict[str, Any] = request.getfixturevalue("rabbitmq")
        self.admin: RabbitAdmin = request.getfixturevalue("rabbit_admin")
        self.queue = f"orders.{secrets.token_hex(4)}"
        # RabbitMQ 3 does not always tell a consumer that its queue was deleted and created again.
        request.getfixturevalue("monkeypatch").setattr(connection, "QUIET_SECONDS", 1.0)
        request.addfinalizer(lambda: self.admin.delete(self.queue, f"{self.queue}.dead"))
        self.admin.declare(self.queue)

    def source(self, **options: Any) -> RabbitQueue:
        return RabbitQueue(self.server["url"], self.queue, **options)

    def send(self, *ids: str) -> None:
        self.admin.paid(self.queue, *ids)

    def pending(self) -> int:
        found = evaluate(self.server["name"], self.server["epmd"], pending_of(self.queue))
        return int(found)

    def delete(self, part: str) -> None:
        if part == "consumer":  # the connections, since a consumer is a part of one
            closed = evaluate(self.server["name"], self.server["epmd"], close_connections_of(self.queue))
            assert closed == "1"
        else:
            self.admin.delete(self.queue)
            self.admin.declare(self.queue)

    @contextmanager
    def login(self) -> Iterator[Login]:
        user, password = f"shop{secrets.token_hex(4)}", f"Word-{secrets.token_hex(8)}"

        def run(call: str) -> None:
            evaluate(self.server["name"], self.server["epmd"], f"rabbit_auth_backend_internal:{call}")

        def restore() -> None:
            run(f'add_user(<<"{user}">>, <<"{password}">>, <<"tests">>)')
            run(f'set_permissions(<<"{user}">>, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"tests">>)')

        def revoke() -> None:
            run(f'delete_user(<<"{user}">>, <<"tests">>)')

        restore()
        at = urlsplit(self.server["url"])
        source = RabbitQueue(f"amqp://{user}:{password}@{at.hostname}:{at.port}", self.queue)
        try:
            yield Login(source, password, self.send, revoke, restore)
        finally:
            revoke()


def _send_to_nats(admin: NatsAdmin, stream: str, *ids: str) -> None:
    headers = [{"type": "paid", "Nats-Msg-Id": each, "user_id": USER_ID} for each in ids]
    admin.send(f"{stream}.paid", [(_payload(each), header) for each, header in zip(ids, headers, strict=True)])


def _payload(event_id: str) -> bytes:
    return json.dumps({"order": event_id}).encode()


BROKERS: dict[str, Callable[[pytest.FixtureRequest], Broker]] = {
    "redis": RedisBroker,
    "nats": NatsBroker,
    "kafka": KafkaBroker,
    "rabbitmq": RabbitBroker,
}
"""Every engine. Each starts its server with the first test that needs it."""
