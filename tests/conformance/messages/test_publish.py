"""Events that are published in the caller's transaction, and sent by workers in order for each key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pytest
import redis
from sqlalchemy import text

from redrive import App, Event
from redrive.ledger import Ledger
from redrive.messages import Message, RedisStream
from redrive.messages.publish import SharedPublisher
from tests.conformance.messages.brokers import Broker

pytestmark = pytest.mark.req("E-7")


def entries(client: redis.Redis, stream: str) -> list[dict[str, str]]:
    found: Any = client.xrange(stream)
    return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]


def work(app: App, until: Callable[[], bool]) -> None:
    with app.worker(threads=4):
        end = time.monotonic() + 15
        while not until():
            assert time.monotonic() < end, app.ledger.counts()
            time.sleep(0.01)


@pytest.fixture
def app(ledger: Ledger, redis_url: str, stream: str) -> App:
    return App(ledger, destinations=[RedisStream(redis_url, stream)])


def test_an_event_is_sent_with_its_id_type_and_headers(app: App, client: redis.Redis, stream: str) -> None:
    at = datetime(2026, 1, 2, tzinfo=timezone.utc)
    event = Event("paid", {"order": 7}, id="p-1", headers={"user_id": "ann"}, at=at)
    assert app.publish(event, to=stream)
    assert not app.publish(event, to=stream), "a duplicate"
    work(app, lambda: len(entries(client, stream)) == 1)
    (sent,) = entries(client, stream)
    assert sent.pop("time") == "2026-01-02T00:00:00+00:00"
    assert sent == {"type": "paid", "id": "p-1", "user_id": "ann", "payload": '{"order":7}'}


def test_events_of_two_sources_with_one_id_are_both_sent(app: App, client: redis.Redis, stream: str) -> None:
    for source in ("app", "crm", "shop"):
        assert app.publish(Event("paid", 1, id="p-1", source=source), to=stream)
    assert not app.publish(Event("paid", 1, id="p-1", source="crm"), to=stream), "a duplicate"
    work(app, lambda: len(entries(client, stream)) == 3)
    assert sorted(entry.get("source", "app") for entry in entries(client, stream)) == ["app", "crm", "shop"]


def test_an_event_exists_when_the_transaction_commits(app: App, client: redis.Redis, stream: str) -> None:
    with app.ledger.begin() as tx:
        app.publish(Event("paid", 1, id="kept"), to=stream, tx=tx)
    with pytest.raises(ZeroDivisionError), app.ledger.begin() as tx:
        app.publish(Event("paid", 2, id="rolled back"), to=stream, tx=tx)
        tx.execute(text("SELECT 1"))
        1 / 0  # noqa: B018
    work(app, lambda: len(entries(client, stream)) == 1)
    assert [entry["id"] for entry in entries(client, stream)] == ["kept"]


def test_events_are_published_from_async_code(app: App, client: redis.Redis, stream: str) -> None:
    assert asyncio.run(app.apublish(Event("paid", 1, id="p-1"), to=stream))
    work(app, lambda: len(entries(client, stream)) == 1)


def test_events_with_one_key_are_sent_in_order_even_if_one_fails(ledger: Ledger) -> None:
    destination = Flaky()
    app = App(ledger, destinations=[destination])
    for number in range(5):
        for key in ("a", "b"):
            app.publish(Event("paid", number, id=f"{key}-{number}"), to="flaky", key=key)
    work(app, lambda: len(destination.sent) == 10)
    by_key = {key: [message.id for message in destination.sent if message.key == key] for key in ("a", "b")}
    assert by_key == {key: [f"{key}-{number}" for number in range(5)] for key in ("a", "b")}
    assert destination.failures == 1


class Flaky:
    """A destination that fails once, for one message."""

    name = "flaky"

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.failures = 0

    def publisher(self) -> Flaky:
        return self

    def publish(self, messages: Sequence[Message], /) -> None:
        if any(message.id == "a-1" for message in messages) and len(messages) == 1 and not self.failures:
            self.failures += 1
            raise ConnectionError("reset by peer")
        if len(messages) > 1:
            raise ConnectionError("the batch is rejected: each is sent alone")
        self.sent += messages

    def close(self) -> None: ...


def test_a_source_of_the_app_is_a_destination(ledger: Ledger, broker: Broker) -> None:
    source = broker.source()
    app = App(ledger, sources=[source])
    seen: list[Any] = []
    app.on("paid")(lambda event: seen.append((event.id, event.payload, dict(event.headers).get("user_id"))))
    app.publish(Event("paid", {"order": 7}, id="p-1", headers={"user_id": "ann"}), to=source.name, key="ann")
    work(app, lambda: seen == [("p-1", {"order": 7}, "ann")])


def test_an_unknown_destination_is_rejected(ledger: Ledger, redis_url: str) -> None:
    app = App(ledger, destinations=[RedisStream(redis_url, "orders")])
    with pytest.raises(ValueError, match=r"destination 'order' is unknown; known: orders; add it with App\(destinations="):
        app.publish(Event("paid", 1, id="1"), to="order")
    with pytest.raises(ValueError, match=r"destination 'orders' is unknown; add it with App\(destinations="):
        App(ledger).publish(Event("paid", 1, id="1"), to="orders")
    with pytest.raises(TypeError, match="publish takes an Event, not dict"):
        app.publish({}, to="orders")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="an event's key must be printable and not empty"):
        app.publish(Event("paid", 1, id="1"), to="orders", key="")
    with pytest.raises(TypeError, match="destinations= must be a list"):
        App(ledger, destinations=RedisStream(redis_url, "orders"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two destinations have the same name; rename one: orders"):
        App(ledger, destinations=[RedisStream(redis_url, "orders")] * 2)


@pytest.mark.parametrize("error", [ConnectionError("refused"), ValueError("too large")])
def test_an_offline_broker_is_not_called_for_each_message_of_a_batch(error: Exception) -> None:
    asked: list[int] = []

    class Away(Flaky):
        def publish(self, messages: Sequence[Message], /) -> None:
            asked.append(len(messages))
            if len(asked) == 1:  # the others come while the first is sent
                others.extend(pool.submit(shared.publish, Message(str(n), b"")) for n in range(5))
                while len(shared._waiting) < 5:
                    time.sleep(0.001)
            raise error

    others: list[Any] = []
    shared = SharedPublisher(Away)
    with ThreadPoolExecutor(5) as pool:
        with pytest.raises(type(error)):
            shared.publish(Message("first", b""))
        errors = [type(each.exception()) for each in others]
    assert sorted(errors, key=str) == sorted([type(error)] * 2 + [ConnectionError] * 3, key=str), "those that were not sent"
    assert asked == [1, 5, 1, 1], "the batch, and two of its messages alone"
