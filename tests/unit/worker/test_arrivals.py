"""Events of sources wait for the ledger thread, and each source learns whether they are stored."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from redrive.ledger.events import HandlerJob, IncomingEvent, StoreResult
from redrive.worker.arrivals import MAX_BATCH_EVENTS, MAX_WAIT_SECONDS, NEXT_BATCH_WAIT_SECONDS, ArrivalQueue


def event(name: str, *kinds: str) -> IncomingEvent:
    parts = tuple(HandlerJob(kind, f"event:shop:{name}:{kind}:v1", 5) for kind in kinds)
    return IncomingEvent("shop", name, "paid", b"{}", None, None, None, None, None, None, len(parts), parts, ({}, {}))


def test_a_queue_wakes_its_reader_and_keeps_the_order() -> None:
    wakes: list[str] = []
    queue = ArrivalQueue(lambda: wakes.append("wake"), list)
    assert not queue
    assert queue.store_by == float("inf")
    first = queue.put([event("a", "book", "mail"), event("b", "book")])
    second = queue.put([event("c")])
    assert (bool(queue), len(wakes)) == (True, 2)
    assert (dict(first.jobs_by_type), dict(second.jobs_by_type)) == ({"book": 2, "mail": 1}, {})
    assert queue.store_by == first.since + MAX_WAIT_SECONDS
    assert queue.next_batch() == [first, second]
    found = queue.store([first, second], lambda events: StoreResult([True, False, True], []))
    assert found.are_new == [True, False, True]
    assert (queue.next_batch(), first.wait(), first.new, second.new) == ([], True, [True, False], [True])


def test_events_are_encoded_when_they_are_queued_or_when_batches_are_stored_together() -> None:
    encoded: list[int] = []
    written: list[str] = []

    def encode(events: Sequence[IncomingEvent]) -> str:
        encoded.append(len(events))
        return "+".join(each.event_id for each in events)

    def write(events: str) -> StoreResult:
        written.append(events)
        return StoreResult([True] * (events.count("+") + 1), [])

    queue = ArrivalQueue(lambda: None, encode)
    queue.store([queue.put([event("a"), event("b")])], write)
    assert (encoded, written) == ([2], ["a+b"])
    queue.store([queue.put([event("c")]), queue.put([event("d")])], write)
    assert (encoded, written) == ([2, 1, 2], ["a+b", "c+d"])
    first, second = queue.put([event("e")]), queue.put([event("f")])
    queue.store([first], write)
    queue.store([second], write)
    assert (encoded[3:], written[2:]) == ([1, 1], ["e", "f"])
    queue.put([event("g")] * MAX_BATCH_EVENTS)
    queue.put([event("h")])
    assert encoded[5:] == [MAX_BATCH_EVENTS, 1], "they do not fit into one transaction"


def test_events_that_cannot_be_written_are_rejected() -> None:
    queue = ArrivalQueue(lambda: None, list)
    first = queue.put([event("a")])
    with pytest.raises(OSError, match="full"):
        queue.store([first], full)
    assert (first.wait(), queue.next_batch()) == (False, [])


def full(_events: Sequence[IncomingEvent]) -> StoreResult:
    raise OSError("the disk is full")


def test_a_batch_has_at_most_a_hundred_events() -> None:
    queue = ArrivalQueue(lambda: None, list)
    small = [queue.put([event(f"a{n}")]) for n in range(3)]
    large = queue.put([event(f"b{n}") for n in range(98)])
    assert queue.next_batch() == small
    assert large.is_decided is False


def test_a_closed_queue_rejects_waiting_and_new_events() -> None:
    queue = ArrivalQueue(lambda: None, list)
    early = queue.put([event("a")])
    queue.close()
    late = queue.put([event("b")])
    assert [early.wait(), late.wait()] == [False, False]
    assert queue.next_batch() == []


def test_more_events_are_expected_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("redrive.worker.arrivals.monotonic", lambda: now[0])
    queue = ArrivalQueue(lambda: None, list)
    assert not queue.expects_more
    first = queue.put([event("a", "book")], has_more=True)
    queue.store([first], lambda _events: StoreResult([True], []))
    assert (bool(queue), queue.expects_more, queue.next_look) == (False, True, 100.0 + NEXT_BATCH_WAIT_SECONDS)
    now[0] += NEXT_BATCH_WAIT_SECONDS
    assert (queue.expects_more, queue.next_look) == (False, math.inf)
    queue.put([event("b", "book")], has_more=True)
    queue.close()
    assert not queue.expects_more


def test_an_idle_source_ends_the_wait_for_more() -> None:
    wakes: list[str] = []
    queue = ArrivalQueue(lambda: wakes.append("wake"), list)
    first = queue.put([event("a", "book")], has_more=True)
    queue.store([first], lambda _events: StoreResult([True], []))
    assert queue.expects_more
    queue.source_idle()
    assert (queue.expects_more, queue.next_look, len(wakes)) == (False, math.inf, 2)
    queue.source_idle()
    assert len(wakes) == 2, "there was nothing to tell"
