"""SourceConformance: the test suite of message sources. Run it on your own source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic

import pytest

from ..messages.source import MAX_BATCH, Consumer, DeadLetterNotice, Message, Source

LARGE_BYTES = 500_000
DELAY_SECONDS = 1.5
HEADERS = {"type": "paid", "id": "p-1", "user": "Ann Ø"}


class SourceConformance:
    """Test suite for your own source: `class TestMySource(SourceConformance)`.

    Define the fixtures `source` (an empty source that only this test uses) and `send`, a function
    that sends bodies and headers to it: `send([(b"{}", {"type": "paid"})])`. Optional: `announced`,
    a function that returns the fields and payloads of the announced dead letters.
    """

    counts_deliveries = True
    """Whether the broker counts deliveries. If False, `Message.deliveries` is always 1."""
    shares_batches = True
    """Whether two consumers can share the messages of this source. In Kafka, the messages of one
    partition go to one consumer."""
    patience = 15.0
    """Seconds to wait for messages that must come."""

    @pytest.fixture
    def announced(self) -> Callable[[], Sequence[tuple[Mapping[str, str], bytes | None]]] | None:
        """None: the announced dead letters cannot be read here."""
        return None

    @pytest.fixture
    def connect(self, source: Source) -> Iterator[Callable[[], Consumer]]:
        """Yield a function that opens a consumer. All are closed at the end."""
        opened: list[Consumer] = []

        def open_consumer() -> Consumer:
            opened.append(source.connect())
            return opened[-1]

        yield open_consumer
        for consumer in opened:
            consumer.close()

    def read(self, consumer: Consumer, count: int, limit: int = 100) -> list[Message]:
        """Read until there are `count` messages, for at most `patience` seconds."""
        found: list[Message] = []
        end = monotonic() + self.patience
        while len(found) < count and monotonic() < end:
            found += consumer.read(limit, 0.5)
        assert len(found) == count, f"{len(found)} of {count} messages came"
        return found

    def test_it_is_a_source_with_a_name_and_a_batch(self, source: Source) -> None:
        """The source is a `redrive.messages.Source`."""
        assert isinstance(source, Source)
        assert 0 < len(source.name.encode()) <= 200
        assert 1 <= source.batch <= MAX_BATCH

    def test_an_empty_source_returns_nothing(self, connect: Callable[[], Consumer]) -> None:
        """A read waits for a message, and returns without one."""
        assert list(connect().read(10, 0.2)) == []

    def test_messages_have_their_body_headers_and_order(
        self, connect: Callable[[], Consumer], send: Callable[..., None]
    ) -> None:
        """All bytes of a body and all text of a header come as they were sent."""
        bodies = [b'{"n": 1}', b"\xff\xfe\x00 not UTF-8", b"x" * LARGE_BYTES]
        send([(body, HEADERS) for body in bodies])
        messages = self.read(connect(), 3)
        assert [message.body for message in messages] == bodies
        assert all(HEADERS.items() <= message.headers.items() for message in messages)
        assert len({message.id for message in messages}) == 3
        assert [message.deliveries for message in messages] == [1, 1, 1]
        assert all(message.at is None or message.at.tzinfo for message in messages)

    def test_a_read_returns_at_most_the_limit(
        self, connect: Callable[[], Consumer], send: Callable[..., None]
    ) -> None:
        """The others come with the next read."""
        send([(b"%d" % n, HEADERS) for n in range(5)])
        consumer = connect()
        first = consumer.read(2, self.patience)
        assert 1 <= len(first) <= 2
        others = self.read(consumer, 5 - len(first))
        assert [message.body for message in (*first, *others)] == [b"%d" % n for n in range(5)]

    def test_acknowledged_messages_do_not_come_again(
        self, connect: Callable[[], Consumer], send: Callable[..., None]
    ) -> None:
        """Messages that another consumer did not acknowledge come again, with the same ids."""
        send([(b"%d" % n, HEADERS) for n in range(4)])
        first = connect()
        messages = self.read(first, 4)
        first.ack(messages[:2])
        first.ack(messages[:1])  # twice is no error
        first.nack(messages[2:], 0.0)
        first.close()
        again = self.read(connect(), 2)
        assert sorted(message.id for message in again) == sorted(
            message.id for message in messages[2:]
        )

    def test_messages_of_a_consumer_that_is_closed_come_again(
        self, connect: Callable[[], Consumer], send: Callable[..., None]
    ) -> None:
        """They are counted, if the broker counts them."""
        send([(b"1", HEADERS)])
        first = connect()
        (message,) = self.read(first, 1)
        first.close()
        (again,) = self.read(connect(), 1)
        assert (again.id, again.body) == (message.id, b"1")
        assert again.deliveries == (2 if self.counts_deliveries else 1)

    def test_a_returned_message_comes_again_after_the_delay(
        self, connect: Callable[[], Consumer], send: Callable[..., None]
    ) -> None:
        """Until then, others come."""
        send([(b"later", HEADERS)])
        consumer = connect()
        returned = self.read(consumer, 1)
        start = monotonic()
        consumer.nack(returned, DELAY_SECONDS)
        send([(b"now", HEADERS)])
        bodies = [message.body for message in self.read(consumer, 2)]
        assert bodies == [b"now", b"later"]
        assert monotonic() - start >= DELAY_SECONDS - 0.1

    def test_two_consumers_share_the_messages(
        self, connect: Callable[[], Consumer], send: Callable[..., None]
    ) -> None:
        """No message comes to both."""
        if not self.shares_batches:
            pytest.skip("its messages go to one consumer")
        send([(b"%d" % n, HEADERS) for n in range(6)])
        one, other = connect(), connect()
        mine = self.read(one, 3, limit=3)
        theirs = self.read(other, 3, limit=3)
        assert len({message.id for message in (*mine, *theirs)}) == 6
        one.ack(mine)
        other.ack(theirs)

    def test_dead_letters_are_announced(
        self,
        source: Source,
        connect: Callable[[], Consumer],
        announced: Callable[[], Sequence[tuple[Mapping[str, str], bytes | None]]] | None,
    ) -> None:
        """With their fields and, for messages of this source, with their payload."""
        if not source.announces or announced is None:
            pytest.skip("it announces no dead letters")
        fields = {"id": "7", "kind": "book", "reason": "exhausted", "error": "Ø\nno answer"}
        notices = [
            DeadLetterNotice(7, fields, b"\xff payload"),
            DeadLetterNotice(8, {"id": "8", "kind": "other"}, None),
        ]
        connect().announce(notices)
        found = sorted(announced(), key=lambda pair: pair[0]["id"])
        assert [pair[0]["id"] for pair in found] == ["7", "8"]
        assert fields.items() <= found[0][0].items()
        assert found[0][1] == b"\xff payload"
        assert not found[1][1]

    def test_closing_twice_is_no_error(self, connect: Callable[[], Consumer]) -> None:
        """A consumer that never read can be closed, too."""
        consumer = connect()
        consumer.close()
        consumer.close()
