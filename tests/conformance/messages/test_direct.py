"""Handlers with `persist="failures"`: called straight off the stream, and only failures are stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redrive import App, Event, RetryPolicy, Stop, current
from redrive.core.context import IDS
from redrive.ledger import Ledger
from redrive.ledger.model import Lease
from redrive.messages import RedisStream
from redrive.messages.queries import find_events
from redrive.messages.reader import SourceReader
from redrive.ops import Operator
from tests.conformance.messages.test_redis_stream import NOW, paid, pending

pytestmark = pytest.mark.req("E-6")
SOON = RetryPolicy(3, 0.01, 0.01, 0)


class Shop:
    """An app that reads one stream, and records the calls of its handler."""

    def __init__(self, ledger: Ledger, redis_url: str, stream: str) -> None:
        self.source = RedisStream(redis_url, stream, group="shop")
        self.app = App(ledger, sources=[self.source])
        self.seen: list[tuple[str, int]] = []

    def work(self, until: Callable[[], bool]) -> None:
        with self.app.worker(threads=2):
            wait_until(until)


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def shop(ledger: Ledger, redis_url: str, stream: str) -> Shop:
    return Shop(ledger, redis_url, stream)


@pytest.mark.parametrize("is_async", [False, True])
def test_successes_are_acknowledged_and_leave_nothing_in_the_ledger(
    shop: Shop, client: redis.Redis, stream: str, is_async: bool
) -> None:
    keys = []

    def book(event: Event[dict[str, str]]) -> None:
        keys.append(current().key)
        shop.seen.append((event.payload["order"], current().number))

    async def abook(event: Event[dict[str, str]]) -> None:
        book(event)

    shop.app.on("paid", name="book", persist="failures")(abook if is_async else book)
    paid(client, stream, *(f"p-{n}" for n in range(250)))
    shop.work(lambda: len(shop.seen) == 250 and pending(client, stream) == 0)
    assert sorted(shop.seen) == sorted((f"p-{n}", 1) for n in range(250))
    assert f"event:{stream}:p-7:book:v1" in map(str, keys)
    assert shop.app.ledger.counts() == {}
    with shop.app.ledger.reading() as connection:
        assert find_events(connection) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failed_call_is_the_first_attempt_of_its_job(shop: Shop, client: redis.Redis, stream: str, is_async: bool) -> None:
    def book(event: Event[Any]) -> None:
        shop.seen.append((event.id, current().number))
        if event.id == "p-2" and current().number < 3:
            raise ConnectionError("reset by peer")

    async def abook(event: Event[Any]) -> None:
        book(event)

    shop.app.on("paid", name="book", persist="failures", retry=SOON)(abook if is_async else book)
    paid(client, stream, "p-1", "p-2", "p-3")
    shop.work(lambda: ("p-2", 3) in shop.seen and pending(client, stream) == 0)
    assert sorted(shop.seen) == [("p-1", 1), ("p-2", 1), ("p-2", 2), ("p-2", 3), ("p-3", 1)]
    counts = shop.app.ledger.counts()["book"]
    assert (counts.submitted, counts.done) == (1, 1)


def test_a_call_that_must_not_be_repeated_is_a_dead_letter_and_was_called_once(
    shop: Shop, client: redis.Redis, stream: str
) -> None:
    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        shop.seen.append((event.id, current().number))
        raise Stop("a bug upstream")

    paid(client, stream, "p-1")
    ledger = shop.app.ledger
    shop.work(lambda: len(ledger.dead_letters()) == 1 and pending(client, stream) == 0)
    assert shop.seen == [("p-1", 1)]
    (letter,) = ledger.dead_letters()
    assert letter.reason == "stopped"
    assert "a bug upstream" in (letter.error or "")


def test_a_payload_that_does_not_fit_is_a_dead_letter(shop: Shop, client: redis.Redis, stream: str) -> None:
    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[dict[str, int]]) -> None:
        shop.seen.append((event.id, 1))

    paid(client, stream, "p-1")
    shop.work(lambda: len(shop.app.ledger.dead_letters()) == 1)
    assert shop.seen == []
    assert "doesn't fit book" in (shop.app.ledger.dead_letters()[0].error or "")


def test_each_handler_of_an_event_has_its_own_outcome(shop: Shop, client: redis.Redis, stream: str) -> None:
    @shop.app.on("paid", name="index", persist="failures")
    def index(event: Event[Any]) -> None:
        shop.seen.append((event.id, 0))

    @shop.app.on("paid", name="book")
    def book(event: Event[Any]) -> None:
        shop.seen.append((event.id, 1))

    paid(client, stream, "p-1")
    shop.work(lambda: len(shop.seen) == 2 and shop.app.ledger.counts()["book"].done == 1)
    assert sorted(shop.seen) == [("p-1", 0), ("p-1", 1)]
    assert shop.app.ledger.counts().keys() == {"book"}


def test_events_of_a_paused_handler_stay_in_the_ledger(shop: Shop, client: redis.Redis, stream: str) -> None:
    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        shop.seen.append((event.id, 1))

    ann = Operator(shop.app, actor="ann")
    ann.pauses.pause("job type", "book", because="INC-42")
    paid(client, stream, "p-1")
    shop.work(lambda: "book" in shop.app.ledger.counts() and shop.app.ledger.counts()["book"].ready == 1)
    assert shop.seen == []
    ann.pauses.resume("job type", "book", because="done")
    shop.work(lambda: shop.seen == [("p-1", 1)])


def test_nothing_is_acknowledged_while_the_ledger_is_offline(shop: Shop, client: redis.Redis, stream: str) -> None:
    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        raise ConnectionError("reset by peer")

    reader = SourceReader(shop.app.registrations.inbox, shop.source)
    paid(client, stream, "p-1")
    with pytest.MonkeyPatch.context() as patch:

        def away(*_: object, **__: object) -> None:
            raise OSError("the disk is full")

        patch.setattr(type(shop.app.registrations.inbox), "store", away)
        with pytest.raises(OSError, match="disk is full"):
            reader.do(NOW)
        assert pending(client, stream) == 1
    reader.do(NOW)
    reader.end()
    assert pending(client, stream) == 0
    assert shop.app.ledger.counts()["book"].ready == 1


def test_calls_that_do_not_start_in_time_become_jobs(
    shop: Shop, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        shop.seen.append((event.id, 1))

    monkeypatch.setattr("redrive.messages.direct.START_SECONDS", -1.0)
    paid(client, stream, "p-1", "p-2")
    shop.work(lambda: len(shop.seen) == 2)
    assert shop.app.ledger.counts()["book"].submitted == 2


def test_received_events_are_stored(shop: Shop) -> None:
    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        shop.seen.append((event.id, 1))

    assert shop.app.receive(Event("paid", {}, id="e-1"))
    assert shop.app.ledger.counts()["book"].ready == 1


def test_options_that_need_a_job_for_each_event_are_rejected() -> None:
    app = App("sqlite://")

    def book(event: Event[Any]) -> None: ...

    def booked(tx: Any, event: Event[Any]) -> None: ...

    with pytest.raises(ValueError, match='persist= must be "all" or "failures", not \'some\''):
        app.on("paid", persist="some")(book)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="concurrency= needs a job for each event; remove it, or persist="):
        app.on("paid", persist="failures", concurrency=2)(book)
    with pytest.raises(TypeError, match="in_transaction=True needs a job for each event"):
        app.on("paid", persist="failures", in_transaction=True)(booked)  # type: ignore[call-overload]


def test_a_worker_that_stops_lets_direct_calls_end(shop: Shop, client: redis.Redis, stream: str) -> None:
    started = threading.Event()

    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        started.set()
        time.sleep(1.5)
        shop.seen.append((event.id, 1))

    paid(client, stream, "p-1")
    with shop.app.worker(threads=2, drain=10):
        assert started.wait(10)
    assert shop.seen == [("p-1", 1)]
    assert pending(client, stream) == 0


def test_a_call_has_the_correlation_ids_of_its_own_event(shop: Shop, client: redis.Redis, stream: str) -> None:
    ids: dict[str, Any] = {}

    @shop.app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        ids[event.id] = dict(IDS.get())
        current().step("once", len, "abc")

    client.xadd(stream, {"type": "paid", "id": "p-1", "payload": "{}", "user_id": "ann"})
    client.xadd(stream, {"type": "paid", "id": "p-2", "payload": "{}"})
    reader = SourceReader(shop.app.registrations.inbox, shop.source)
    reader.do(NOW)
    reader.end()
    own = {"event_type": "paid", "source": stream}
    assert ids == {"p-1": {"event_id": "p-1", "user_id": "ann", **own}, "p-2": {"event_id": "p-2", **own}}
    error = shop.app.registrations.inbox.handlers.for_type("paid")[0].first_failures
    with pytest.raises(RuntimeError, match="step 'once': no job is running here"):
        error.raise_for(Lease(1, 1, "book", f"event:{stream}:p-1:book:v1", 1, 0, 5, 1, None, 0, None, None, None, b""))


def test_messages_of_a_long_call_stay_reserved(ledger: Ledger, redis_url: str, client: redis.Redis, stream: str) -> None:
    source = RedisStream(redis_url, stream, group="shop", idle=1)
    app = App(ledger, sources=[source])
    idle_times: list[int] = []

    @app.on("paid", name="book", persist="failures")
    def book(event: Event[Any]) -> None:
        end = time.monotonic() + 15
        while sorted(idle_times) == idle_times:  # until it is less than before
            assert time.monotonic() < end
            rows: Any = client.xpending_range(stream, "shop", "-", "+", 10)
            idle_times.append(rows[0]["time_since_delivered"])
            time.sleep(0.01)

    paid(client, stream, "p-1")
    with app.worker(threads=2):
        wait_until(lambda: bool(idle_times) and pending(client, stream) == 0)
    assert ledger.counts() == {}
