"""Redis streams: read, store, acknowledge, claim from dead consumers, and unreadable entries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import redis

from redrive import App, Event
from redrive.core.clock import SYSTEM
from redrive.errors import NotAllowed
from redrive.ledger import Ledger
from redrive.messages import RedisStream
from redrive.messages.dead_letter_publisher import DeadLetterPublisher
from redrive.messages.redis.consumer_group import ConsumerGroup
from redrive.messages.redis.stream import EntryFields
from redrive.ops import DeadLetterFilter, Operator
from tests.conformance.messages.shop import Shop as SourceShop

NOW = SYSTEM.now()


class Shop(SourceShop):
    """An app that reads one Redis stream."""

    def __init__(self, ledger: Ledger, redis_url: str, stream: str, **options: Any) -> None:
        super().__init__(ledger, RedisStream(redis_url, stream, group="shop", **options))


@pytest.fixture
def shop(ledger: Ledger, redis_url: str, stream: str) -> Shop:
    return Shop(ledger, redis_url, stream)


def pending(client: redis.Redis, stream: str) -> int:
    found: Any = client.xpending(stream, "shop")
    return int(found["pending"])


def paid(client: redis.Redis, stream: str, *ids: str) -> None:
    for each in ids:
        client.xadd(stream, {"type": "paid", "id": each, "payload": f'{{"order": "{each}"}}', "user_id": "ann"})


@pytest.mark.req("M-1", "M-8")
def test_entries_are_handled_and_acknowledged(shop: Shop, client: redis.Redis, stream: str) -> None:
    paid(client, stream, "p-1", "p-2", "p-1")
    shop.work(lambda: len(shop.seen) == 2)
    assert [event.id for event in sorted(shop.seen, key=lambda event: event.id)] == ["p-1", "p-2"]
    first = shop.seen[0]
    assert (first.payload["order"], first.source, first.headers) == (first.id, stream, {"user_id": "ann"})
    assert first.at is not None
    assert pending(client, stream) == 0
    assert shop.app.ledger.imbalance() == []


@pytest.mark.req("M-1")
def test_a_worker_busy_with_streams_runs_submitted_jobs(
    ledger: Ledger, url: str, redis_url: str, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.worker.turn.POLL_SECONDS", 1e6)  # only signals wake the worker
    shop, numbers, mailed, submitted = Shop(ledger, redis_url, stream, batch=10), count(), threading.Event(), threading.Event()

    def mail(to: str) -> None:
        assert to == "ann"
        mailed.set()

    shop.app.command("mail")(mail)

    def until() -> bool:
        paid(client, stream, *(f"p-{next(numbers)}" for _ in range(50)))  # always more than it reads at once
        if len(shop.seen) > 100 and not submitted.is_set():
            submitted.set()
            with App(url) as elsewhere:
                elsewhere.command("mail")(mail).submit("ann")
        return mailed.is_set()

    shop.work(until)
    assert shop.app.ledger.imbalance() == []


@pytest.mark.req("M-1")
def test_only_stored_entries_are_acknowledged(shop: Shop, client: redis.Redis, stream: str) -> None:
    reading = shop.reading()
    paid(client, stream, "p-1")
    with pytest.MonkeyPatch.context() as patch:

        def full(*_: object, **__: object) -> None:
            raise OSError("the disk is full")

        patch.setattr(type(shop.app.registrations.inbox), "store", full)
        with pytest.raises(OSError, match="disk is full"):
            reading.do(NOW)
    assert pending(client, stream) == 1
    assert shop.app.ledger.counts() == {}


@pytest.mark.req("M-6")
def test_entries_of_a_dead_consumer_are_claimed_on_a_quiet_stream(
    ledger: Ledger, redis_url: str, client: redis.Redis, stream: str
) -> None:
    paid(client, stream, *(f"p-{n}" for n in range(25)))
    dead = ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", "dead")
    assert len(dead.read_new(100, 0.01)) == 25
    time.sleep(0.02)
    shop = Shop(ledger, redis_url, stream, batch=10, idle=0.01)
    reading = shop.reading()
    for _ in range(4):
        reading.do(NOW)
    assert pending(client, stream) == 0
    assert ledger.counts()["book"].ready == 25


@pytest.mark.req("M-6")
def test_claim_idle_continues_at_its_cursor(redis_url: str, client: redis.Redis, stream: str) -> None:
    paid(client, stream, *(f"p-{n}" for n in range(30)))
    ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", "dead").read_new(100, 0.01)
    time.sleep(0.02)
    heir = ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", "heir")
    seen: list[str] = []
    for _ in range(3):
        seen += [entry.id for entry in heir.claim_idle(10, 0.01)]
    assert len(seen) == len(set(seen)) == 30


@pytest.mark.req("M-6")
def test_an_entry_that_was_trimmed_while_pending_is_a_dead_letter(
    ledger: Ledger, redis_url: str, client: redis.Redis, stream: str
) -> None:
    paid(client, stream, "p-1", "p-2")
    ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", "dead").read_new(100, 0.01)
    client.xtrim(stream, maxlen=0, approximate=False)
    time.sleep(0.02)
    shop = Shop(ledger, redis_url, stream, idle=0.01)
    shop.work(lambda: len(ledger.dead_letters()) == 2)
    letters = ledger.dead_letters()
    assert {letter.reason for letter in letters} == {"payload_lost"}
    assert {letter.kind for letter in letters} == {f"read:{stream}"}
    assert pending(client, stream) == 0


def test_only_own_entries_are_renewed(redis_url: str, client: redis.Redis, stream: str) -> None:
    paid(client, stream, "p-1", "p-2")
    ours = ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", "ours")
    messages = ours.read_new(10, 0.01)
    lost, kept = (message.id for message in messages)
    client.xclaim(stream, "shop", "heir", 0, [lost], idle=50_000)
    client.xclaim(stream, "shop", "ours", 0, [kept], idle=50_000)
    ours.renew(messages)
    rows: Any = client.xpending_range(stream, "shop", "-", "+", 10)
    assert [row["consumer"] for row in rows] == [b"heir", b"ours"]
    assert rows[0]["time_since_delivered"] >= 50_000 > rows[1]["time_since_delivered"]
    ours.close()


def decode(fields: Mapping[bytes, bytes]) -> Event[Any]:
    return Event("paid", fields[b"what"], id=fields[b"no"].decode())


@pytest.mark.req("M-6")
def test_an_unreadable_entry_does_not_affect_others(shop: Shop, client: redis.Redis, stream: str) -> None:
    paid(client, stream, "p-1")
    client.xadd(stream, {b"\xff": b"\xfe\x00", "x": "1"})
    client.xadd(stream, {"type": "paid", "id": "huge", "payload": b"x" * (10 * 1024 * 1024)})
    client.xadd(stream, {"type": "paid", "id": "i" * 600, "payload": "{}"})
    paid(client, stream, "p-2")
    ledger = shop.app.ledger
    shop.work(lambda: len(shop.seen) == 2 and len(ledger.dead_letters()) == 3)
    reasons = {letter.reason: letter for letter in ledger.dead_letters()}
    assert reasons.keys() == {"undecodable"}
    assert pending(client, stream) == 0


def test_an_unreadable_entry_becomes_an_event_when_replayed_after_a_fix(
    ledger: Ledger, redis_url: str, client: redis.Redis, stream: str
) -> None:
    client.xadd(stream, {"what": b"\x00\xff", "no": "n-1"})
    before = Shop(ledger, redis_url, stream)
    before.work(lambda: len(ledger.dead_letters()) == 1)
    (letter,) = ledger.dead_letters()
    assert "it has no field 'type', only no, what" in (letter.error or "")
    assert (letter.source, letter.source_id is not None) == (stream, True)
    after = Shop(ledger, redis_url, stream, decode=decode)
    seen: list[bytes] = []

    @after.app.on("paid", name="raw")
    def raw(event: Event[bytes]) -> None:
        seen.append(event.payload)

    ann = Operator(after.app, actor="ann")
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(letter.id,))), because="decode knows them now")
    after.work(lambda: bool(seen))
    assert seen == [b"\x00\xff"]
    assert ledger.dead_letters(ids=[letter.id])[0].status == "replayed"


@pytest.mark.req("M-7")
def test_a_missing_group_or_stream_is_created(shop: Shop, client: redis.Redis, stream: str) -> None:
    reading = shop.reading()
    paid(client, stream, "p-1")
    reading.do(NOW)
    client.xgroup_destroy(stream, "shop")
    paid(client, stream, "p-2")
    reading.do(NOW)
    client.delete(stream)
    paid(client, stream, "p-3")
    reading.do(NOW)
    reading.do(NOW)
    assert shop.app.ledger.counts()["book"].submitted == 3


@pytest.mark.req("M-3")
def test_stored_dead_letters_are_published_to_a_stream(shop: Shop, ledger: Ledger, client: redis.Redis, stream: str) -> None:
    client.xadd(stream, {"x": "1"})
    shop.work(lambda: len(ledger.dead_letters()) == 1)
    tell = DeadLetterPublisher(shop.app.registrations.inbox, shop.source)
    tell.do(NOW)
    tell.do(NOW)
    told: Any = client.xrange(f"{stream}.dead")
    assert len(told) == 1
    fields = told[0][1]
    assert (fields[b"id"], fields[b"reason"], fields[b"source"]) == (b"1", b"undecodable", stream.encode())
    assert fields[b"payload"] == b'[["x","1"]]'


def test_trim_keeps_entries_that_another_group_needs(redis_url: str, client: redis.Redis, stream: str) -> None:
    paid(client, stream, *(f"p-{n}" for n in range(300)))
    ours = ConsumerGroup(redis.Redis.from_url(redis_url), stream, "ours", "c")
    theirs = ConsumerGroup(redis.Redis.from_url(redis_url), stream, "theirs", "c")
    ours.ack(ours.read_new(300, 0.01))
    theirs.create()
    assert ours.trim() == 0, "the other group has read nothing yet"
    read = theirs.read(300, 0.01)
    theirs.ack(read[:250])
    ours.trim()
    left: Any = client.xrange(stream)
    assert 50 <= len(left) < 300
    assert read[250].id in {entry_id.decode() for entry_id, _ in left}
    server: Any = client.info("server")
    since = tuple(map(int, server["redis_version"].split(".")))
    assert ours.may_support_trim_acked == (since >= (8, 2) and server.get("server_name") != "valkey"), (
        "what a server cannot do it is asked for once"
    )


def test_idle_consumers_without_pending_entries_are_removed(redis_url: str, client: redis.Redis, stream: str) -> None:
    paid(client, stream, "p-1", "p-2")
    gone, holds = (ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", name) for name in ("gone", "holds"))
    gone.ack(gone.read_new(1, 0.01))
    holds.read_new(1, 0.01)
    time.sleep(0.05)
    ours = ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", "ours")
    ours.read(1, 0.001)
    assert ours.remove_idle_consumers(0.03) == ["gone"]
    assert pending(client, stream) == 1


def test_reading_pauses_during_a_backlog(shop: Shop, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.messages.reader.BACKLOG_LIMIT", 2)
    reading = shop.reading()
    paid(client, stream, "p-1", "p-2")
    reading.do(NOW)
    paid(client, stream, "p-3")
    reading.do(NOW)
    assert shop.app.ledger.counts()["book"].ready == 2
    shop.work(lambda: len(shop.seen) == 3)


@contextmanager
def rejects(says: str) -> Iterator[None]:
    with pytest.raises((TypeError, ValueError), match=says):
        yield


def test_invalid_sources_are_rejected() -> None:
    url = "redis://:hunter2@localhost"
    with rejects("the URL must begin with redis://"):
        RedisStream("localhost:6379", "s", group="g")
    with rejects("stream must be text"):
        RedisStream(url, "", group="g")
    with rejects("batch= must be at most 1000"):
        RedisStream(url, "s", group="g", batch=5000)
    with rejects("idle"):
        RedisStream(url, "s", group="g", idle=0)
    with rejects("would be read as messages"):
        RedisStream(url, "s", group="g", dead_stream="s")
    with rejects("two sources have the same name"):
        App("sqlite://", sources=[RedisStream(url, "s", group="a"), RedisStream(url, "s", group="b")])
    with rejects(r"sources= must be a list"):
        App("sqlite://", sources=RedisStream(url, "s", group="g"))  # type: ignore[arg-type]
    with rejects("a source must be a RedisStream"):
        App("sqlite://", sources=["redis://localhost"])  # type: ignore[list-item]
    assert "hunter2" not in repr(RedisStream(url, "s", group="g"))


def cloud(client: redis.Redis, stream: str, source: str, event_id: str) -> None:
    fields: dict[Any, Any] = {"specversion": "1.0", "type": "paid", "id": event_id, "source": source, "data": f'"{source}"'}
    client.xadd(stream, fields)


@pytest.mark.req("M-2")
def test_events_with_one_id_and_two_origins_are_distinct(shop: Shop, client: redis.Redis, stream: str) -> None:
    long = "/" + "x" * 600
    for origin in ("/eu", "/us", long, "/eu", long):
        cloud(client, stream, origin, "p-1")
    shop.work(lambda: len(shop.seen) >= 3 and pending(client, stream) == 0)
    assert sorted(event.payload for event in shop.seen) == sorted(["/eu", "/us", long])
    assert {(event.id, event.source) for event in shop.seen} == {("p-1", stream)}
    ann = Operator(shop.app, actor="ann")
    with pytest.raises(NotAllowed, match="several events match 'p-1'; pass the whole id"):
        ann.events.get("p-1")
    late: list[Event[Any]] = []
    shop.app.on("paid", name="stats")(late.append)
    assert ann.events.replay("p-1@/eu", handlers=["stats", "book"], because="a new handler").keys() == {"stats", "book"}
    shop.work(lambda: len(late) == 1 and len(shop.seen) == 4)
    assert [(event.id, event.payload) for event in late] == [("p-1", "/eu")]


@pytest.mark.req("M-2")
def test_an_event_stored_without_origin_is_a_duplicate(shop: Shop, client: redis.Redis, stream: str) -> None:
    shop.app.receive(Event("paid", "/eu", id="p-1", source=stream, headers={"source": "/eu"}))
    for origin in ("/eu", "/us"):
        cloud(client, stream, origin, "p-1")
    shop.work(lambda: len(shop.seen) >= 2 and pending(client, stream) == 0)
    assert sorted(event.payload for event in shop.seen) == ["/eu", "/us"]


@pytest.mark.req("M-2")
def test_decode_sees_the_entry_id_and_sets_the_origin(ledger: Ledger, redis_url: str, client: redis.Redis, stream: str) -> None:
    seen: list[str] = []

    def decode(fields: EntryFields) -> Event[Any]:
        seen.append(fields.entry_id)
        return Event("paid", fields[b"shop"].decode(), id=fields[b"n"].decode(), source=fields[b"shop"].decode())

    shop = Shop(ledger, redis_url, stream, decode=decode)
    entries = [client.xadd(stream, {"n": "1", "shop": name}) for name in ("eu", "us", "eu")]
    shop.work(lambda: len(shop.seen) >= 2 and pending(client, stream) == 0)
    assert sorted(event.payload for event in shop.seen) == ["eu", "us"]
    assert set(seen) == {entry.decode() for entry in entries if isinstance(entry, bytes)}


def test_entries_are_acknowledged_with_the_next_read(redis_url: str, client: redis.Redis, stream: str) -> None:
    group = ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", "reader")
    paid(client, stream, "p-1", "p-2")
    first = group.read(1, 0.0)
    second = group.ack_and_read(first, 1, 0.0)
    assert [message.headers["id"] for message in [*first, *second]] == ["p-1", "p-2"]
    assert pending(client, stream) == 1
    client.delete(stream)  # with its group, which the next read creates again
    paid(client, stream, "p-3")
    third = group.ack_and_read(second, 1, 0.0)
    assert [message.headers["id"] for message in third] == ["p-3"]
    group.close()
