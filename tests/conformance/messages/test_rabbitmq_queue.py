"""RabbitMQ: properties of messages, poison, delivery limits, rights, TLS, and errors in one line."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from redrive.core.clock import SYSTEM
from redrive.ledger import Ledger, open_ledger
from redrive.messages import DeadLetterNotice, RabbitQueue
from redrive.messages.rabbitmq import connection as connections
from tests.conformance.messages.shop import Shop
from tests.conformance.messages.test_rabbitmq_source import queue
from tests.ledgers import sqlite_ledger
from tests.servers.rabbit_admin import RabbitAdmin
from tests.servers.rabbitmq import connections_of, evaluate, pending_of
from tests.servers.relay import Relay

__all__ = ["queue"]
pytestmark = pytest.mark.req("E-4")
NOW = SYSTEM.now()
PATIENCE = 20.0


def wait(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def fail(source: RabbitQueue, *secret: str) -> str:
    """The error of a read, which is one line without secrets."""
    consumer = source.connect()
    with pytest.raises(Exception) as failed:  # noqa: PT011  # the caller reads its text
        consumer.read(10, 0.1)
    consumer.close()
    text = str(failed.value)
    assert "\n" not in text
    assert all(word not in text for word in secret)
    return text


def at(url: str, login: str = "", port: int | None = None, path: str = "/") -> str:
    parts = urlsplit(url)
    login = login or f"{parts.username}:{parts.password}"
    return f"{parts.scheme}://{login}@{parts.hostname}:{port or parts.port}{path}"


@pytest.fixture
def local_ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A SQLite ledger, for tests that do not depend on the database."""
    with open_ledger(sqlite_ledger(tmp_path)) as opened:
        yield opened


@pytest.fixture
def user(rabbitmq: dict[str, Any]) -> Iterator[Callable[..., str]]:
    """A function that adds a user with rights to configure, write and read, and returns the login."""
    if "name" not in rabbitmq:
        pytest.skip("the server was given by its address, and cannot be controlled")
    name, password = f"ann{secrets.token_hex(3)}", f"Word-{secrets.token_hex(6)}"

    def run(call: str) -> None:
        evaluate(rabbitmq["name"], rabbitmq["epmd"], f"rabbit_auth_backend_internal:{call}.")

    def add(*rights: str) -> str:
        run(f'add_user(<<"{name}">>, <<"{password}">>, <<"tests">>)')
        if rights:
            words = ", ".join(f'<<"{right}">>' for right in rights)
            run(f'set_permissions(<<"{name}">>, <<"/">>, {words}, <<"tests">>)')
        return f"{name}:{password}"

    yield add
    run(f'delete_user(<<"{name}">>, <<"tests">>)')


def test_properties_become_the_event(rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str) -> None:
    rabbit_admin.declare(queue)
    headers = {"user": "Ann Ø", "n": 3, "bad": bytearray(b"\xff"), "table": {"a": [1, None, bytearray(b"x")]}}
    rabbit_admin.publish(
        queue,
        (b"1", headers, {"message_id": "m-1", "message_type": "paid", "correlation_id": "c-1", "timestamp": NOW}),
        (b"2", {"cloudEvents:type": "sent", "cloudEvents:id": "e-2"}, {"message_id": "m-2"}),
        (b"3", {"type": "own"}, {"message_id": "m-3", "message_type": "other"}),
        (b"4", {}, {"message_id": "m-4"}),
    )
    consumer = RabbitQueue(rabbitmq["url"], queue).connect()
    wait(lambda: rabbit_admin.count(queue) == 4)
    found = list(consumer.read(10, PATIENCE))
    while len(found) < 4:
        found += consumer.read(10, PATIENCE)
    first, second, third, fourth = found
    expected = {"user": "Ann Ø", "n": "3", "bad": "\udcff", "table": '{"a": [1, null, "x"]}', "type": "paid"}
    assert first.headers == {**expected, "correlation-id": "c-1", "routing-key": queue}
    assert (first.id, first.body, first.deliveries, first.at) == ("m-1", b"1", 1, NOW.replace(microsecond=0))
    assert "type" not in second.headers
    assert (third.headers["type"], fourth.headers["type"]) == ("own", queue)
    consumer.close()


def test_equal_messages_without_an_id_are_all_handled(
    ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    shop = Shop(ledger, RabbitQueue(rabbitmq["url"], queue))
    rabbit_admin.declare(queue)
    rabbit_admin.publish_bare(queue, b"1", "paid")
    rabbit_admin.publish_bare(queue, b"1", "paid")
    shop.work(lambda: len(shop.seen) == 2)
    assert all(event.id.startswith("delivery-") for event in shop.seen)
    assert len({event.id for event in shop.seen}) == 2


def test_contiguous_messages_are_acknowledged_in_one_frame(
    rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rabbit_admin.paid(queue, *(f"p-{n}" for n in range(6)))
    consumer = RabbitQueue(rabbitmq["url"], queue).connect()
    found = list(consumer.read(6, PATIENCE))
    while len(found) < 6:
        found += consumer.read(6, PATIENCE)
    frames: list[tuple[int, bool]] = []
    channel = consumer._connection._channel  # type: ignore[union-attr]
    acknowledge = channel.basic_ack

    async def basic_ack(tag: int, multiple: bool = False, wait: bool = True) -> None:
        frames.append((tag, multiple))
        await acknowledge(tag, multiple, wait)

    monkeypatch.setattr(channel, "basic_ack", basic_ack)
    consumer.ack(found[:3])
    consumer.ack([found[5], found[4]])
    consumer.ack(found)
    consumer.close()
    assert frames == [(3, True), (5, False), (6, False), (4, True)]
    assert rabbit_admin.count(queue) == 0


def test_prefetch_is_the_number_of_reserved_messages(rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str) -> None:
    rabbit_admin.paid(queue, *(f"p-{n}" for n in range(5)))
    consumer = RabbitQueue(rabbitmq["url"], queue, batch=10, prefetch=2).connect()
    found = list(consumer.read(10, PATIENCE))
    while len(found) < 2:
        found += consumer.read(10, PATIENCE)
    assert list(consumer.read(10, 0.2)) == []
    assert rabbit_admin.count(queue) == 3
    consumer.ack(found)
    assert 1 <= len(consumer.read(10, PATIENCE)) <= 2
    consumer.close()


def test_unread_messages_go_back_when_nothing_reads(
    rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.3)
    rabbit_admin.paid(queue, "p-1", "p-2", "p-3")
    consumer = RabbitQueue(rabbitmq["url"], queue).connect()
    (first,) = consumer.read(1, PATIENCE)
    wait(lambda: rabbit_admin.count(queue) == 2)
    consumer.ack([first])
    again = list(consumer.read(10, PATIENCE))
    while len(again) < 2:
        again += consumer.read(10, PATIENCE)
    assert [message.id for message in again] == ["p-2", "p-3"]
    consumer.close()


def test_a_deleted_queue_is_created_again(
    local_ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    shop = Shop(local_ledger, RabbitQueue(rabbitmq["url"], queue))
    rabbit_admin.paid(queue, "p-1")
    deleted: list[str] = []

    def reached() -> bool:
        if len(shop.seen) == 1 and not deleted:
            deleted.append(queue)
            rabbit_admin.delete(queue)
        if deleted and len(deleted) == 1 and rabbit_admin.count(queue) is not None:
            deleted.append("sent")
            rabbit_admin.paid(queue, "p-2")
        return len(shop.seen) == 2

    shop.work(reached)
    assert [event.id for event in shop.seen] == ["p-1", "p-2"]


def test_nothing_is_acknowledged_while_the_ledger_is_offline(
    ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    rabbit_admin.paid(queue, "p-1", "p-2")
    shop = Shop(ledger, RabbitQueue(rabbitmq["url"], queue))
    reading = shop.reading()
    with pytest.MonkeyPatch.context() as patch:

        def full(*_: object, **__: object) -> None:
            raise OSError("the disk is full")

        patch.setattr(type(shop.app.registrations.inbox), "store", full)
        for _ in range(3):
            with pytest.raises(OSError, match="disk is full"):
                reading.do(NOW)
    reading.consumer.close()
    wait(lambda: rabbit_admin.count(queue) == 2)
    assert ledger.counts() == {}


def test_poison_becomes_dead_letters_and_others_go_on(
    ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    rabbit_admin.declare(queue)
    rows: list[tuple[bytes, dict[str, Any], dict[str, Any]]] = [
        (b"\xff\xfe", {}, {"message_id": "bytes", "message_type": "paid"}),
        (b"1" * 10_000_000, {}, {"message_id": "large", "message_type": "paid"}),
        (deep, {}, {"message_id": "deep", "message_type": "paid"}),
        (b"{}", {"name": bytearray(b"\xff")}, {"message_id": "header", "message_type": "paid"}),
        (b"{}", {"name": "a\0b"}, {"message_id": "nul", "message_type": "paid"}),
        (b"\xff", {}, {"message_id": "a\0b", "message_type": "paid"}),
        (b"{}", {}, {"message_id": "good", "message_type": "paid"}),
    ]
    rabbit_admin.publish(queue, *rows)
    shop = Shop(ledger, RabbitQueue(rabbitmq["url"], queue))
    shop.work(lambda: len(ledger.dead_letters()) == 6 and len(shop.seen) == 1 and len(rabbit_admin.peek(f"{queue}.dead")) == 6)
    assert [event.id for event in shop.seen] == ["good"]
    assert rabbit_admin.count(queue) == 0
    letters = rabbit_admin.drain(f"{queue}.dead")
    assert {properties.headers["source"] for properties, _ in letters} == {queue}
    hashed = hashlib.sha256(b"a\0b").hexdigest()
    assert {properties.headers["source_id"] for properties, _ in letters} == {"bytes", "large", "deep", "header", "nul", hashed}


def test_a_message_that_the_client_cannot_parse_is_set_aside_by_the_delivery_limit(
    local_ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    shop = Shop(local_ledger, RabbitQueue(rabbitmq["url"], queue, delivery_limit=2))
    reading = shop.reading()
    reading.do(NOW)  # creates the queue
    reading.end()
    rabbit_admin.paid(queue, "p-1", "p-2")
    rabbit_admin.publish_bare(queue, b"poison", b"\xff\xfe")
    rabbit_admin.paid(queue, "p-3", "p-4")
    shop.work(lambda: len(shop.seen) == 4)
    assert Counter(event.id for event in shop.seen) == Counter(["p-1", "p-2", "p-3", "p-4"])
    wait(lambda: rabbit_admin.count(f"{queue}.dead") == 1)


def test_a_connection_without_a_channel_is_closed(rabbitmq: dict[str, Any], queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(connections, "_open_channel", full)
    consumer = RabbitQueue(rabbitmq["url"], queue).connect()
    with pytest.raises(ConnectionError, match="no reply; check the address"):
        consumer.read(1, 0.1)
    assert int(evaluate(rabbitmq["name"], rabbitmq["epmd"], connections_of(queue))) == 0
    consumer.close()


def test_a_dead_letter_that_is_too_large_is_announced_without_its_payload(
    rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    consumer = RabbitQueue(rabbitmq["url"], queue).connect()
    size = connections.MAX_PAYLOAD_BYTES + 1
    consumer.announce([DeadLetterNotice(1, {"id": "1"}, b"x" * size), DeadLetterNotice(2, {"id": "2"}, b"{}")])
    consumer.close()
    announced = {
        properties.headers["id"]: (properties.headers.get(connections.OMITTED), body)
        for properties, body in rabbit_admin.drain(f"{queue}.dead")
    }
    assert announced == {"1": (str(size), b""), "2": (None, b"{}")}


@pytest.mark.parametrize(
    ("dead_exchange", "delivery_limit", "version", "expected"),
    [
        ("dead", 5, "4.0.1", 5),
        ("dead", None, "4.0.1", -1),
        (None, 5, "4.0.1", -1),
        (None, 5, "3.10.8", None),
        ("dead", None, "3.10.8", None),
    ],
)
def test_a_queue_without_a_dead_exchange_drops_nothing(
    dead_exchange: str | None, delivery_limit: int | None, version: str, expected: int | None
) -> None:
    arguments = connections.queue_arguments(dead_exchange, delivery_limit, version)
    assert arguments.get("x-delivery-limit") == expected


def test_the_least_rights_read_and_announce(
    local_ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str, user: Callable[..., str]
) -> None:
    administrator = RabbitQueue(rabbitmq["url"], queue).connect()
    administrator.read(1, 0.0)  # creates the queue and the exchange
    administrator.close()
    name = queue.replace(".", "[.]")
    url = at(rabbitmq["url"], user("^$", f"^{name}[.]dead$", f"^{name}$"))
    rabbit_admin.publish(queue, (b"no json", {}, {"message_id": "m-1", "message_type": "paid"}))
    rabbit_admin.paid(queue, "p-1")
    shop = Shop(local_ledger, RabbitQueue(url, queue))
    shop.work(lambda: len(shop.seen) == 1 and rabbit_admin.count(f"{queue}.dead") == 1)


def test_errors_of_addresses_and_rights_name_the_fix(
    rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str, user: Callable[..., str]
) -> None:
    url = rabbitmq["url"]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        text = fail(RabbitQueue(at(url, port=port), queue))
        assert f"RabbitMQ at 127.0.0.1:{port}: cannot connect" in text
        assert "start the server, or correct the address" in text
    wrong = fail(RabbitQueue(at(url, login="ann:Sesame-Open"), queue), "Sesame")
    assert "rejected user 'ann' or its password" in wrong
    assert "virtual host 'shop' does not exist" in fail(RabbitQueue(at(url, path="/shop"), queue))
    login = user()
    assert "may not use it" in fail(RabbitQueue(at(url, login), queue), login.partition(":")[2])
    name, _, password = login.partition(":")
    words = f'set_permissions(<<"{name}">>, <<"/">>, <<"^$">>, <<"^$">>, <<"^$">>, <<"tests">>)'
    evaluate(rabbitmq["name"], rabbitmq["epmd"], f"rabbit_auth_backend_internal:{words}.")
    missing = fail(RabbitQueue(at(url, login), queue), password)
    assert "access to" in missing
    assert "refused for user" in missing
    assert "rights" in missing
    rabbit_admin.declare(queue)
    assert f"access to queue '{queue}'" in fail(RabbitQueue(at(url, login), queue), password)


def test_tls_errors_name_the_fix(rabbitmq: dict[str, Any], queue: str) -> None:
    if "secure" not in rabbitmq:
        pytest.skip("the server was given by its address, and cannot be controlled")
    secure, url = rabbitmq["secure"], rabbitmq["url"]
    source = RabbitQueue(f"{secure}?cafile={rabbitmq['certificate']}", queue)
    consumer = source.connect()
    assert list(consumer.read(1, 0.05)) == []
    consumer.close()
    text = fail(RabbitQueue(secure, queue))
    assert "certificate not trusted" in text
    assert "?cafile=PATH" in text
    assert "amqps:// needs the TLS port" in fail(RabbitQueue(url.replace("amqp://", "amqps://"), queue))
    assert "a TLS port needs amqps://" in fail(RabbitQueue(secure.replace("amqps://", "amqp://"), queue))


def test_reading_continues_after_a_stall_that_outlasts_the_heartbeat(
    local_ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    """The server returns the messages of a stalled connection. They are stored once."""
    rabbit_admin.declare(queue)
    with Relay(urlsplit(rabbitmq["url"]).port or 0) as relay:
        shop = Shop(local_ledger, RabbitQueue(f"{at(rabbitmq['url'], port=relay.port)}?heartbeat=1", queue, batch=5))
        state = "flows"

        def ask(expression: str) -> int:
            return int(evaluate(rabbitmq["name"], rabbitmq["epmd"], expression))

        def reached() -> bool:
            nonlocal state
            # Acknowledged too: otherwise the server would return them with the others.
            if state == "flows" and len(shop.seen) >= 3 and ask(pending_of(queue)) == 0:
                relay.hold()
                rabbit_admin.paid(queue, *(f"p-{n}" for n in range(3, 20)))
                state = "stalled"
            # All of them are ready again once the server has given up the connection.
            if state == "stalled" and ask(connections_of(queue)) == 0 and rabbit_admin.count(queue) == 17:
                state = "over"
                relay.go_on()
                relay.drop()
            return len(shop.seen) >= 20

        rabbit_admin.paid(queue, *(f"p-{n}" for n in range(3)))
        shop.work(reached, seconds=40)
    assert Counter(event.id for event in shop.seen) == Counter(f"p-{n}" for n in range(20))


def test_a_redelivery_while_the_first_is_running_is_a_duplicate(
    ledger: Ledger, rabbitmq: dict[str, Any], rabbit_admin: RabbitAdmin, queue: str
) -> None:
    shop = Shop(ledger, RabbitQueue(rabbitmq["url"], queue))
    rabbit_admin.paid(queue, "p-1")
    first, second = shop.reading(), shop.reading()
    inbox, consumer = shop.app.registrations.inbox, first.consumer
    (message,) = consumer.read(10, PATIENCE)
    first._hand_over([message])
    store = type(inbox).store

    def close_after(self: Any, *values: Any, **options: Any) -> Any:
        stored = store(self, *values, **options)
        consumer.close()  # its acknowledgement cannot reach the server
        return stored

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(inbox), "store", close_after)
        first._acknowledge_stored(0)
    wait(lambda: rabbit_admin.count(queue) == 1)
    while rabbit_admin.count(queue):
        second.do(NOW)
    second.end()
    assert ledger.counts()["book"].submitted == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "http://host"}, "the URL must begin with amqp:// or amqps://: 'http://host'"),
        ({"url": "amqp://ann:Sesame@host:99999999"}, "each server must be host or host:port"),
        ({"url": "amqp://"}, "each server must be host or host:port"),
        ({"queue": " "}, "queue must be text, printable and not empty"),
        ({"queue": "q" * 201}, "must not be longer than 200 bytes"),
        ({"batch": 1001}, "batch= must be at most 1000"),
        ({"prefetch": 70_000}, "prefetch= must be at most 65535"),
        ({"dead_exchange": "orders"}, "dead letters in 'orders' would be read as messages"),
        ({"delivery_limit": 0}, "delivery_limit"),
    ],
)
def test_options_are_validated(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")) as failed:
        RabbitQueue(**({"url": "amqp://localhost", "queue": "orders"} | options))
    assert "Sesame" not in str(failed.value)


def test_a_source_shows_no_password() -> None:
    source = RabbitQueue("amqp://ann:Sesame-Open@r1,r2:5673/shop", "orders")
    assert "Sesame" not in repr(source)
    assert (source.prefetch, source.dead_exchange, source.name) == (300, "orders.dead", "orders")
    assert json.loads(json.dumps(source.announces)) is True
