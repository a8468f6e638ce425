"""Attributes of sources and destinations in traces."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.messages import KafkaTopic, NatsStream, RabbitQueue, RedisStream
from redrive.messages.tracing import destination_attributes, source_attributes

pytestmark = pytest.mark.req("X-10")


@pytest.mark.parametrize(
    ("source", "server"),
    [
        (RedisStream("redis://ann:hush@r1/0", "orders"), ("r1", 6379)),
        (RedisStream("unix:///run/redis.sock", "orders"), ("/run/redis.sock",)),
        (RedisStream("redis+cluster://ann:hush@n1:7000,n2:7001", "orders"), ()),
        (RedisStream("redis+sentinel://s1:26379/main", "orders"), ()),
        (NatsStream("nats://hush@n1", "orders", consumer="shop"), ("n1", 4222)),
        (NatsStream("nats://hush@n1,n2", "orders", consumer="shop"), ()),
        (KafkaTopic("k1:9092", "orders", group="shop"), ("k1", 9092)),
        (KafkaTopic("k1:9092,k2:9092", "orders", group="shop"), ()),
        (RabbitQueue("amqps://ann:hush@r1/shop", "orders"), ("r1", 5671)),
        (RabbitQueue("amqp://ann:hush@[::1]:5672/", "orders"), ("::1", 5672)),
        (RabbitQueue("amqp://ann:hush@r1,r2/", "orders"), ()),
    ],
)
def test_the_server_is_given_if_there_is_one(source: Any, server: tuple[object, ...]) -> None:
    for attributes in (source_attributes(source), destination_attributes(source, source.name)):
        assert tuple(attributes[name] for name in ("server.address", "server.port") if name in attributes) == server
        assert attributes["messaging.destination.name"] == "orders"
        assert "hush" not in str(attributes)


class Folder:
    """A source of the user."""

    name, batch, announces = "inbox", 100, False

    def connect(self) -> Any: ...

    def to_event(self, message: Any, /) -> None: ...


class NamedFolder(Folder):
    messaging_system, servers = "nfs", "files.example.org"


def test_a_source_of_the_user_has_the_name_of_its_class_unless_it_names_a_system() -> None:
    process = {
        "messaging.destination.name": "inbox",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
    }
    assert source_attributes(Folder()) == {"messaging.system": "folder", **process}
    named = {"messaging.system": "nfs", "server.address": "files.example.org"}
    assert source_attributes(NamedFolder()) == {**named, **process}
