"""Recovery of a stream reader: entries of other consumers, lost acknowledgements, failed rounds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import redis

from redrive import Event
from redrive.errors import LedgerUnavailable
from redrive.ledger import Ledger
from redrive.ledger.jobs import parking
from redrive.ledger.model import NewJob
from redrive.messages.decoding import is_suspected_poison
from redrive.messages.inbox import Inbox
from redrive.messages.redis.consumer_group import ConsumerGroup
from redrive.messages.source import Message
from redrive.ops import DeadLetterFilter, Operator
from tests.conformance.messages.test_drills import record_log
from tests.conformance.messages.test_redis_stream import NOW, Shop, paid, pending, shop

__all__ = ["shop"]


def group(redis_url: str, stream: str, consumer: str) -> ConsumerGroup:
    return ConsumerGroup(redis.Redis.from_url(redis_url), stream, "shop", consumer)


def test_both_protocol_versions_read_the_same_entries(redis_url: str, client: redis.Redis, stream: str) -> None:
    paid(client, stream, "p-1", "p-2")
    second, third = (group(f"{redis_url}?protocol={version}", stream, "ours").read_new(1, 0.01) for version in (2, 3))
    assert [entry.headers["id"] for entry in (*second, *third)] == ["p-1", "p-2"]


@pytest.mark.req("M-1")
def test_a_failed_acknowledgement_is_repeated_in_the_next_round(
    shop: Shop, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = shop.reading()
    paid(client, stream, "p-1")
    with monkeypatch.context() as patch:

        def lost(*_: object) -> None:
            raise redis.ConnectionError("reset by peer")

        patch.setattr(ConsumerGroup, "ack", lost)
        with pytest.raises(redis.ConnectionError):
            reading.do(NOW)
    assert pending(client, stream) == 1
    client.xtrim(stream, maxlen=0, approximate=False)
    paid(client, stream, "p-2")
    reading.do(NOW)
    assert pending(client, stream) == 0
    assert shop.app.ledger.counts().keys() == {"book"}, "it was stored: its payload is not lost"


@pytest.mark.req("M-6")
def test_a_trimmed_entry_stays_pending_until_it_is_stored(redis_url: str, client: redis.Redis, stream: str) -> None:
    paid(client, stream, "p-1", "p-2", "p-3")
    dead, heir = (group(redis_url, stream, name) for name in ("dead", "heir"))
    first, second, third = dead.read_new(100, 0.01)
    client.xdel(stream, first.id, second.id)
    taken = heir.claim_from_dead_consumers(10, lambda name: name == "dead")
    assert taken == [third._replace(deliveries=2), Message(first.id, None), Message(second.id, None)]
    assert pending(client, stream) == 3
    heir.ack(taken)
    assert pending(client, stream) == 0


@pytest.mark.req("M-6")
def test_an_entry_acknowledged_by_another_consumer_is_not_lost(
    redis_url: str, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid(client, stream, "p-1")
    slow, heir = (group(redis_url, stream, name) for name in ("slow", "heir"))
    (entry,) = slow.read_new(100, 0.01)
    listed = heir.client.xpending_range

    def then_acknowledged(*given: Any, **more: Any) -> Any:
        found = listed(*given, **more)
        slow.ack([entry])
        client.xdel(stream, entry.id)
        return found

    monkeypatch.setattr(heir.client, "xpending_range", then_acknowledged)
    assert heir.claim_from_dead_consumers(10, lambda name: name == "slow") == []


@pytest.mark.req("M-6")
def test_a_suspected_poison_message_is_decoded_by_its_own_job(
    ledger: Ledger, redis_url: str, client: redis.Redis, stream: str
) -> None:
    paid(client, stream, "p-1")
    for name, before in (("first", ""), ("second", "first")):
        one = group(redis_url, stream, name)
        found = one.claim_from_dead_consumers(10, before.__eq__) if before else one.read_new(10, 0.01)
        assert [is_suspected_poison(entry) for entry in found] == [False]
    time.sleep(0.02)
    shop = Shop(ledger, redis_url, stream, idle=0.01)
    shop.reading().do(NOW)
    assert ledger.counts()[f"read:{stream}"].ready == 1
    assert "book" not in ledger.counts(), "whoever decodes it may die of it: that has to be counted"
    assert pending(client, stream) == 0
    shop.work(lambda: len(shop.seen) == 1)


def test_decode_may_raise_anything(ledger: Ledger, redis_url: str, client: redis.Redis, stream: str) -> None:
    def decode(fields: Mapping[bytes, bytes]) -> Event[Any]:
        if fields[b"id"] == b"p-2":
            raise SystemExit(1)
        return Event("paid", {}, id=fields[b"id"].decode())

    paid(client, stream, "p-1", "p-2", "p-3")
    shop = Shop(ledger, redis_url, stream, decode=decode)
    shop.work(lambda: len(shop.seen) == 2 and len(ledger.dead_letters()) == 1)
    (letter,) = ledger.dead_letters()
    assert "decode= raised SystemExit" in (letter.error or "")


def test_a_replay_does_not_store_an_entry_that_is_too_large(shop: Shop, client: redis.Redis, stream: str) -> None:
    ledger = shop.app.ledger
    large = b'{"x": "' + b"y" * ledger.max_payload + b'"}'
    client.xadd(stream, {"type": "paid", "id": "large", "payload": large})
    shop.work(lambda: len(ledger.dead_letters()) == 1)
    (letter,) = ledger.dead_letters()
    assert (letter.kind, "the ledger takes at most" in (letter.error or "")) == (f"read:{stream}", True)
    ann = Operator(shop.app, actor="ann")
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(letter.id,))), because="perhaps it has shrunk")
    shop.work(lambda: [one.replay_count for one in ledger.dead_letters(status="pending")] == [1])
    assert shop.seen == []


def test_an_entry_with_too_large_headers_is_a_dead_letter(shop: Shop, client: redis.Redis, stream: str) -> None:
    ledger = shop.app.ledger
    client.xadd(stream, {"type": "paid", "id": "large", "payload": "{}", "x-note": "n" * 70_000})
    client.xadd(stream, {"type": "paid", "id": "p-1", "payload": "{}", "x-note": "n" * 1_000})
    shop.work(lambda: len(ledger.dead_letters()) == 1 and len(shop.seen) == 1)
    (letter,) = ledger.dead_letters()
    assert (letter.kind, "headers have" in (letter.error or "")) == (f"read:{stream}", True)


def test_entries_are_kept_while_the_ledger_is_unavailable(
    shop: Shop, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = shop.reading()
    paid(client, stream, "p-1")
    client.xadd(stream, {"x": "1"})
    with monkeypatch.context() as patch:

        def away(*_: object, **__: object) -> None:
            raise OSError("the database is away")

        patch.setattr(Inbox, "store", away)
        for _ in range(2):
            with pytest.raises(OSError, match="away"):
                reading.do(NOW)
    assert pending(client, stream) == 2
    reading.do(NOW)
    assert pending(client, stream) == 0
    assert {kind: tally.ready for kind, tally in shop.app.ledger.counts().items()} == {"book": 1, f"read:{stream}": 1}


def test_messages_are_handed_over_again_after_a_failed_round(
    shop: Shop, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = shop.reading()
    client.xadd(stream, {"type": "paid", "id": "p-1", "source": "crm", "payload": "{}"})
    with monkeypatch.context() as patch:

        def away(*_: object) -> None:
            raise LedgerUnavailable("the database is away")

        patch.setattr(Inbox, "places_stored_without_origin", away)
        with pytest.raises(LedgerUnavailable):
            reading.do(NOW)
    assert pending(client, stream) == 1
    reading.do(NOW)
    assert pending(client, stream) == 0
    assert shop.app.ledger.counts()["book"].ready == 1


@pytest.mark.parametrize("header", ["source", "note"])
def test_text_that_postgres_cannot_store_is_a_dead_letter(shop: Shop, client: redis.Redis, stream: str, header: str) -> None:
    client.xadd(stream, {"type": "paid", "id": "p-1", "payload": "{}", header: b"a\0b"})
    paid(client, stream, "p-2")
    ledger = shop.app.ledger
    shop.work(lambda: len(ledger.dead_letters()) == 1 and len(shop.seen) == 1)
    assert [event.id for event in shop.seen] == ["p-2"]
    assert [letter.kind for letter in ledger.dead_letters()] == [f"read:{stream}"]
    assert pending(client, stream) == 0


@pytest.mark.req("M-5")
@pytest.mark.parametrize("why", ["retries", "an outage"])
def test_retries_of_one_handler_do_not_stop_reading(
    shop: Shop, client: redis.Redis, stream: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.messages.reader.BACKLOG_LIMIT", 2)
    ledger = shop.app.ledger
    delay = 3600.0 if why == "retries" else 0.0
    ledger.submit_many([NewJob("book", f"event:s:{n}:book:v1", b"{}", delay=delay) for n in range(5)])
    paid(client, stream, "p-1")
    reading = shop.reading()
    if why == "an outage":
        reading.do(NOW)
        assert ledger.counts()["book"].submitted == 5, "so much is due: the stream keeps the rest"
        with ledger.connections.write.use() as session:
            parking.park(session, "book", signature="TimeoutError", reason="the service is away", seconds=3600)
    reading.do(NOW)
    assert ledger.counts()["book"].submitted == 6


def test_the_reader_reconnects_after_a_failed_round(
    redis_url: str, client: redis.Redis, stream: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = shop.reading()
    reading.do(NOW)
    assert isinstance(reading.consumer, ConsumerGroup)
    mine = reading.consumer.client
    before = mine.client_id()
    with monkeypatch.context() as patch:

        def demoted(*_: object) -> None:
            raise redis.exceptions.ReadOnlyError("You can't write against a read only replica.")

        patch.setattr(ConsumerGroup, "read_new", demoted)
        with pytest.raises(redis.exceptions.ReadOnlyError):
            reading.do(NOW)
    assert mine.client_id() != before


def test_a_worker_stops_while_redis_is_unavailable(
    ledger: Ledger, redis_url: str, client: redis.Redis, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(ledger, redis_url, stream, idle=0.05)

    def away(*_: object) -> None:
        raise redis.ConnectionError("refused")

    monkeypatch.setattr(ConsumerGroup, "ack", away)
    paid(client, stream, "p-1")
    with record_log() as records:
        shop.work(lambda: len(shop.seen) == 1)
    assert {record.kind for record in records} >= {"chore_failed"}
    monkeypatch.undo()
    shop.work(lambda: pending(client, stream) == 0)
    assert [event.id for event in shop.seen] == ["p-1"]


def test_a_stream_that_cannot_be_read_is_logged(ledger: Ledger, stream: str) -> None:
    shop = Shop(ledger, "redis://127.0.0.1:1/0", stream, dead_stream=None)
    with shop.app.worker(threads=1) as worker:
        end = time.monotonic() + 30
        while not worker.status.failing and time.monotonic() < end:
            time.sleep(0.01)
        (told,) = worker.status.failing.items()
    assert told[0] == f"read {stream}"
    assert told[1].startswith("ConnectionError: ")
