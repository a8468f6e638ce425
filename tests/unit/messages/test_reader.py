"""How far the reader of a source reads ahead of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import pytest

from redrive import App, Event
from redrive.ledger.events import IncomingEvent, StoreResult
from redrive.ledger.jobs.pauses import Pauses
from redrive.messages import Message
from redrive.messages.reader import MAX_BATCHES_AHEAD, SourceReader
from redrive.messages.source import DeadLetterNotice
from redrive.worker.arrivals import MAX_BATCH_EVENTS, Arrival, ArrivalQueue

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Consumer:
    """Delivers any number of messages, and acknowledges in the round trip of the next read."""

    def __init__(self) -> None:
        self.delivered = 0
        self.acknowledged: list[str] = []

    def read(self, limit: int, _wait: float, /) -> list[Message]:
        numbers = range(self.delivered, self.delivered + limit)
        self.delivered += limit
        return [Message(f"m-{number}", b"{}", {"type": "paid"}) for number in numbers]

    def ack(self, messages: Sequence[Message], /) -> None:
        self.acknowledged += [message.id for message in messages]

    def nack(self, messages: Sequence[Message], delay: float, /) -> None: ...

    def announce(self, notices: Sequence[DeadLetterNotice], /) -> None: ...

    def close(self) -> None: ...


class PipelinedConsumer(Consumer):
    def ack_and_read(self, messages: Sequence[Message], limit: int, wait: float, /) -> list[Message]:
        self.ack(messages)
        return self.read(limit, wait)


class Endless:
    """A source that always has more messages."""

    name, announces = "shop", False

    def __init__(self, consumer: Consumer, batch: int) -> None:
        self.consumer, self.batch = consumer, batch

    def connect(self) -> Consumer:
        return self.consumer

    def to_event(self, message: Message, /) -> Event[object] | None:
        return None


class MustWaitError(Exception):
    """The reader does not read on before the ledger has stored something."""


def rounds_before_waiting(reader: SourceReader, queue: ArrivalQueue, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many rounds begin before the reader waits for the ledger."""

    def wait(_arrival: Arrival) -> bool:
        raise MustWaitError

    queue.pauses = Pauses()
    reader.attach(queue)
    monkeypatch.setattr(Arrival, "wait", wait)
    for number in range(1, 1000):
        try:
            reader.do(NOW)
        except MustWaitError:
            monkeypatch.undo()
            return number
    raise AssertionError("the reader never waits")


def open_reader(consumer: Consumer, batch: int, *, has_direct: bool = False) -> SourceReader:
    app = App("sqlite://", migrate=True)

    @app.on("paid", name="book")
    def book(_event: Event[object]) -> None: ...

    if has_direct:

        @app.on("paid", name="count", persist="failures")
        def count(_event: Event[object]) -> None: ...

    return SourceReader(app.registrations.inbox, Endless(consumer, batch))


@pytest.mark.parametrize(("batch", "ahead"), [(1, MAX_BATCH_EVENTS), (30, 3), (100, MAX_BATCHES_AHEAD)])
def test_small_batches_are_read_ahead_until_they_fill_a_transaction(
    batch: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, queue = PipelinedConsumer(), ArrivalQueue(lambda: None, list)
    reader = open_reader(consumer, batch)
    assert rounds_before_waiting(reader, queue, monkeypatch) == ahead
    assert (consumer.delivered, consumer.acknowledged) == (ahead * batch, [])


def test_batches_that_were_read_ahead_are_acknowledged_when_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, queue = PipelinedConsumer(), ArrivalQueue(lambda: None, list)
    reader = open_reader(consumer, 1)
    rounds_before_waiting(reader, queue, monkeypatch)
    stored: list[str] = []

    def write(events: Sequence[IncomingEvent]) -> StoreResult:
        stored.extend(event.event_id for event in events)
        return StoreResult([True] * len(events), [])

    queue.store(queue.next_batch(), write)
    reader.do(NOW)
    assert stored == [f"m-{number}" for number in range(MAX_BATCH_EVENTS)], "in one transaction, and in their order"
    assert consumer.acknowledged == stored


def test_sources_that_limit_reserved_messages_are_not_read_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = ArrivalQueue(lambda: None, list)
    assert rounds_before_waiting(open_reader(Consumer(), 1), queue, monkeypatch) == MAX_BATCHES_AHEAD


def test_messages_of_direct_handlers_are_not_read_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = ArrivalQueue(lambda: None, list)
    reader = open_reader(PipelinedConsumer(), 1, has_direct=True)
    assert rounds_before_waiting(reader, queue, monkeypatch) == MAX_BATCHES_AHEAD
