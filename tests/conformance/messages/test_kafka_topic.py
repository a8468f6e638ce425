"""Kafka topics: committed offsets, crashes, deleted messages, rebalances, a busy reader, and errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from redrive import App, Event, RetryPolicy
from redrive.core.clock import SYSTEM
from redrive.ledger import Ledger
from redrive.messages import DeadLetterNotice, KafkaTopic, Message
from redrive.messages.kafka import group_member
from redrive.messages.kafka.group_member import GroupMember
from redrive.messages.kafka.offsets import NOTE
from redrive.messages.kafka.record import RecordPlace
from redrive.messages.reader import SourceReader
from tests.conformance.messages.shop import Shop
from tests.servers.kafka import QUICK, MockCluster

TOPIC, GROUP = "orders", "shop"
LIST_OFFSETS, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT = 2, 8, 11, 12
PATIENCE = 20.0


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as started:
        started.create(TOPIC, 2)
        yield started


@pytest.fixture
def topic(cluster: MockCluster) -> KafkaTopic:
    return KafkaTopic(cluster.address, TOPIC, group=GROUP, options=QUICK)


@pytest.fixture
def connect(topic: KafkaTopic) -> Iterator[Callable[[], GroupMember]]:
    opened: list[GroupMember] = []

    def open_consumer() -> GroupMember:
        opened.append(topic.connect())
        return opened[-1]

    yield open_consumer
    for consumer in opened:
        consumer.close()


def send(cluster: MockCluster, *bodies: bytes | None, partition: int = 0, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.address, "linger.ms": 0, "log_level": 0})
    for body in bodies:
        producer.produce(TOPIC, body, partition=partition, **{"headers": {"type": "paid"}, **options})
    assert producer.flush(PATIENCE) == 0


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def read(consumer: GroupMember, count: int) -> list[Message]:
    messages: list[Message] = []
    end = time.monotonic() + PATIENCE
    while len(messages) < count:
        messages += consumer.read(100, 0.2)
        assert time.monotonic() < end, f"{len(messages)} of {count} messages came"
    return messages


def committed_offset(cluster: MockCluster, partition: int = 0) -> tuple[int, str]:
    client = Consumer({"bootstrap.servers": cluster.address, "group.id": GROUP, "log_level": 0})
    (place,) = client.committed([TopicPartition(TOPIC, partition)], timeout=PATIENCE)
    client.close()
    return place.offset, (place.metadata or "").rstrip("\0")


def until(is_met: Callable[[], bool], consumer: GroupMember | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not is_met():
        assert time.monotonic() < end
        if consumer is not None:
            assert list(consumer.read(100, 0.05)) == []
        time.sleep(0.01)


def poll(consumer: GroupMember) -> None:
    """Poll as the thread of a consumer does while nothing reads."""
    consumer._last_poll = -math.inf
    consumer.poll_if_idle()


def crash(consumer: GroupMember) -> None:
    """End a consumer as SIGKILL does: it commits nothing. It leaves the group, to save the time of its session."""
    consumer.assignment.partitions.clear()
    consumer.close()


@pytest.mark.req("E-5")
def test_offsets_are_committed_up_to_the_oldest_message_that_is_not_stored(
    cluster: MockCluster, connect: Callable[[], GroupMember]
) -> None:
    send(cluster, *numbers(6))
    consumer = connect()
    messages = read(consumer, 6)
    consumer.ack(messages[3:])
    consumer.ack(messages[:2])
    until(lambda: committed_offset(cluster) == (2, ""), consumer)
    consumer.ack([messages[2]])
    until(lambda: committed_offset(cluster) == (6, ""), consumer)


@pytest.mark.req("E-5")
def test_a_returned_message_is_not_committed_and_comes_first_after_a_restart(
    cluster: MockCluster, connect: Callable[[], GroupMember]
) -> None:
    send(cluster, *numbers(3))
    first = connect()
    messages = read(first, 3)
    first.nack(messages[1:2], 3600.0)
    first.ack([messages[0], messages[2]])
    first.close()
    assert committed_offset(cluster) == (1, "")
    again = read(connect(), 2)
    assert [message.id for message in again] == [message.id for message in messages[1:]]


@pytest.mark.req("E-5")
def test_crashes_are_counted_and_forgotten_with_the_first_progress(
    cluster: MockCluster, connect: Callable[[], GroupMember]
) -> None:
    send(cluster, *numbers(2))
    for deliveries in (1, 2):
        crashing = connect()
        assert [message.deliveries for message in read(crashing, 2)] == [deliveries] * 2
        assert committed_offset(cluster) == (0, f"{NOTE}{deliveries}")
        crash(crashing)
    consumer = connect()
    messages = read(consumer, 2)
    assert [message.deliveries for message in messages] == [3, 3]
    assert committed_offset(cluster) == (0, f"{NOTE}3")
    consumer.ack(messages[:1])
    assert committed_offset(cluster) == (1, ""), "before the next message is delivered"
    send(cluster, b"2")
    assert [message.deliveries for message in read(consumer, 1)] == [1]
    consumer.close()
    assert [message.deliveries for message in read(connect(), 2)] == [1, 1]


@pytest.mark.req("E-5", "M-6")
def test_a_message_that_crashed_three_workers_is_decoded_by_its_own_job(
    ledger: Ledger, cluster: MockCluster, connect: Callable[[], GroupMember], topic: KafkaTopic
) -> None:
    send(cluster, b"1")
    for _ in range(2):
        consumer = connect()
        read(consumer, 1)
        crash(consumer)
    app = App(ledger, sources=[topic])
    app.on("paid", name="book")(lambda event: None)
    reader = SourceReader(app.registrations.inbox, topic)

    def is_set_apart() -> bool:
        reader.do(SYSTEM.now())
        return f"read:{TOPIC}" in ledger.counts()

    until(is_set_apart)
    assert "book" not in ledger.counts()
    reader.end()
    assert committed_offset(cluster) == (1, "")


@pytest.mark.req("E-5")
def test_messages_deleted_before_they_were_read_become_a_dead_letter(
    cluster: MockCluster, connect: Callable[[], GroupMember]
) -> None:
    send(cluster, *numbers(2))
    first = connect()
    first.ack(read(first, 2))
    first.close()
    for number in numbers(8, 2):
        send(cluster, number)  # records are deleted by batches
    cluster.delete_records(TOPIC, 0, 7)
    lost, *others = read(connect(), 4)
    assert (lost.id, lost.body, lost.raw) == ("orders-0-2..6", None, RecordPlace(0, 6))
    assert [message.body for message in others] == numbers(3, 7)


@pytest.mark.req("E-5")
def test_records_keep_key_time_and_bytes(cluster: MockCluster, connect: Callable[[], GroupMember]) -> None:
    headers = [("trace", b"\xff\x00"), ("empty", None), ("note", "Ø".encode())]
    send(cluster, b"{}", None, key=b"customer-7", headers=headers, timestamp=1_700_000_000_123)
    first, tombstone = read(connect(), 2)
    assert first.id == "orders-0-0-1700000000123"
    assert first.at is not None
    assert first.at.timestamp() == 1_700_000_000.123
    assert first.headers == {"type": "orders", "trace": "base64:/wA=", "empty": "", "note": "Ø", "kafka-key": "customer-7"}
    assert tombstone.body == b"", "it is not lost"


@pytest.mark.req("E-5")
def test_a_new_group_can_start_with_new_messages(cluster: MockCluster) -> None:
    send(cluster, *numbers(3))
    consumer = KafkaTopic(cluster.address, TOPIC, group=GROUP, options=QUICK, start="latest").connect()
    until(lambda: bool(consumer.assignment.partitions), consumer)
    time.sleep(0.3)  # the client asks for the end of the partition
    send(cluster, b"new")
    assert [message.body for message in read(consumer, 1)] == [b"new"]
    consumer.close()


@pytest.mark.req("E-5")
def test_a_new_group_that_starts_at_the_end_reads_what_is_sent_while_it_restarts(cluster: MockCluster) -> None:
    topic = KafkaTopic(cluster.address, TOPIC, group=GROUP, options=QUICK, start="latest")
    send(cluster, *numbers(3))
    first = topic.connect()
    until(lambda: bool(first.assignment.partitions), first)
    first.close()
    send(cluster, b"sent meanwhile")
    second = topic.connect()
    assert [message.body for message in read(second, 1)] == [b"sent meanwhile"]
    second.close()


@pytest.mark.req("E-5")
def test_a_header_name_that_is_not_utf8_is_a_dead_letter_and_others_go_on(
    ledger: Ledger, cluster: MockCluster, topic: KafkaTopic
) -> None:
    send(cluster, b"1", headers={"type": "paid", "id": "before"})
    cluster.send_header(TOPIC, b"na\xffme", b"poison")
    send(cluster, b"2", headers={"type": "paid", "id": "behind"})
    shop = Shop(ledger, topic)
    shop.work(lambda: len(shop.seen) == 2 and len(ledger.dead_letters()) == 1)
    assert {event.id for event in shop.seen} == {"before", "behind"}
    (letter,) = ledger.dead_letters()
    assert "is not valid UTF-8" in (letter.error or "")
    assert "poison" in letter.payload.decode()


@pytest.mark.req("E-7")
def test_records_that_the_brokers_have_not_stored_are_not_published(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.messages.kafka.publisher.SEND_SECONDS", 0.1)
    publisher = KafkaTopic(cluster.address, TOPIC, options={"message.timeout.ms": 60_000}).publisher()
    cluster.stop()
    with pytest.raises(ConnectionError, match=r"not stored in 0\.2 s; check the brokers, and message\.timeout\.ms"):
        publisher.publish([Message("1", b"1")])
    publisher.close()


@pytest.mark.req("E-7")
def test_a_message_that_is_too_large_raises_a_value_error(cluster: MockCluster) -> None:
    publisher = KafkaTopic(cluster.address, TOPIC, options={"message.max.bytes": 1000}).publisher()
    with pytest.raises(ValueError, match="the message is too large; publish a reference"):
        publisher.publish([Message("1", b"x" * 2000)])
    publisher.publish([Message("2", b"2")])
    publisher.close()


@pytest.mark.req("E-5")
def test_a_rebalance_moves_partitions_with_their_offsets(cluster: MockCluster, connect: Callable[[], GroupMember]) -> None:
    send(cluster, *numbers(4))
    send(cluster, *numbers(4), partition=1)
    first = connect()
    messages = read(first, 8)
    by_partition = {number: [each for each in messages if each.raw.partition == number] for number in (0, 1)}
    first.ack([*by_partition[0][:1], *by_partition[1][:1]])
    second = connect()
    moved: list[Message] = []
    end = time.monotonic() + PATIENCE
    while not moved and time.monotonic() < end:
        assert list(first.read(100, 0.05)) == [], "it keeps the messages that it has"
        moved += second.read(100, 0.05)
    (number,) = {message.raw.partition for message in moved}
    assert [message.id for message in moved] == [message.id for message in by_partition[number][1:]]
    assert {message.deliveries for message in moved} == {1}
    first.ack(messages)  # those of the other consumer, too
    second.ack(moved)
    while committed_offset(cluster, 0)[0] < 4 or committed_offset(cluster, 1)[0] < 4:
        # The group may still be rebalancing. Then a read repeats the commit.
        assert [*first.read(100, 0.05), *second.read(100, 0.05)] == []
        assert time.monotonic() < end
    first.close()
    second.close()
    assert (committed_offset(cluster, 0)[0], committed_offset(cluster, 1)[0]) == (4, 4)


@pytest.mark.req("E-5")
def test_a_reader_whose_first_delivery_meets_a_rebalance_takes_part_in_it(
    cluster: MockCluster, connect: Callable[[], GroupMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_member, "POLL_SECONDS", 3600.0)  # only reads poll
    send(cluster, b"0")
    send(cluster, b"1", partition=1)
    cluster.fail(OFFSET_COMMIT, *[KafkaError.REBALANCE_IN_PROGRESS] * 10_000)
    first = connect()
    until(lambda: bool(first.assignment.fetched), first)
    second = connect()
    until(lambda: list(second.read(100, 0.0)) == [] and len(second.assignment.partitions) == 1, first)
    cluster.forgive(OFFSET_COMMIT)
    assert {read(first, 1)[0].body, read(second, 1)[0].body} == {b"0", b"1"}


@pytest.mark.req("E-5")
def test_a_busy_reader_stays_in_its_group(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "POLL_SECONDS", 0.1)
    options = {**QUICK, "max.poll.interval.ms": 2000}
    consumer = KafkaTopic(cluster.address, TOPIC, group=GROUP, options=options).connect()
    send(cluster, *numbers(2))
    messages = read(consumer, 2)
    send(cluster, *numbers(2, 2))
    time.sleep(2.5)  # the ledger does not respond
    assert consumer.assignment.partitions.keys() == {0, 1}
    consumer.ack(messages)
    assert [message.body for message in read(consumer, 2)] == numbers(2, 2)
    consumer.close()
    assert committed_offset(cluster) == (2, "")


@pytest.mark.req("E-5")
def test_a_reader_that_was_busy_asks_the_leaders_which_makes_the_client_fetch_at_once(
    cluster: MockCluster, connect: Callable[[], GroupMember]
) -> None:
    consumer = connect()
    until(lambda: len(consumer.assignment.partitions) == 2, consumer)
    poll(consumer)
    cluster.record_requests()
    consumer.read(100, 0.0)
    assert LIST_OFFSETS in cluster.recorded_requests()
    send(cluster, b"0")
    assert [message.body for message in read(consumer, 1)] == [b"0"]


@pytest.mark.req("E-5")
def test_a_rebalance_makes_the_client_fetch_at_once_from_the_partitions_that_stay(
    connect: Callable[[], GroupMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[object] = []
    monkeypatch.setattr(group_member, "_wake", woken.append)
    first = connect()
    until(lambda: len(first.assignment.partitions) == 2, first)
    before = woken.count(first._client)
    second = connect()
    until(lambda: list(second.read(100, 0.0)) == [] and woken.count(first._client) > before, first)
    assert len(first.assignment.partitions) == 1


@pytest.mark.req("E-5")
def test_a_reader_that_was_busy_reads_on_when_the_leaders_do_not_say_their_offsets(
    cluster: MockCluster, connect: Callable[[], GroupMember]
) -> None:
    consumer = connect()
    until(lambda: len(consumer.assignment.partitions) == 2, consumer)
    poll(consumer)
    send(cluster, b"0")
    cluster.fail(LIST_OFFSETS, *[KafkaError.UNKNOWN] * 3)
    assert [message.body for message in read(consumer, 1)] == [b"0"]


@pytest.mark.req("E-5")
@pytest.mark.parametrize("cause", ["revoked", "lost"])
def test_a_partition_that_moved_away_from_a_busy_reader_is_read_after_it_came_back(
    cluster: MockCluster, connect: Callable[[], GroupMember], monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    monkeypatch.setattr(group_member, "POLL_SECONDS", 3600.0)  # only this test polls for a busy reader
    busy = connect()
    until(lambda: len(busy.assignment.partitions) == 2, busy)
    others = [connect()] if cause == "revoked" else []
    if not others:
        cluster.fail(HEARTBEAT, KafkaError.UNKNOWN_MEMBER_ID)

    def has_moved() -> bool:
        poll(busy)
        assert [message for other in others for message in other.read(100, 0.05)] == []
        return all(len(each.assignment.partitions) == len(others) for each in (busy, *others))

    until(has_moved)
    for other in others:
        other.close()
    send(cluster, b"0")
    send(cluster, b"1", partition=1)
    assert {message.body for message in read(busy, 2)} == {b"0", b"1"}


@pytest.mark.req("E-5")
def test_reading_continues_after_all_brokers_were_offline(cluster: MockCluster, connect: Callable[[], GroupMember]) -> None:
    send(cluster, *numbers(2))
    consumer = connect()
    messages = read(consumer, 2)
    cluster.stop()
    with pytest.raises(ConnectionError, match=r"cannot connect \(.*refused.*\); check address") as caught:
        while True:
            consumer.read(100, 0.1)
    assert "\n" not in str(caught.value)
    consumer.ack(messages)
    cluster.start()
    send(cluster, b"2")

    def is_read() -> bool:
        try:
            consumer.ack(consumer.read(100, 0.1))  # if its session has ended, the first ones come again
        except ConnectionError:
            return False
        return committed_offset(cluster)[0] == 3

    until(is_read)


@pytest.mark.req("E-5")
def test_a_dead_letter_that_is_too_large_is_announced_without_its_payload(cluster: MockCluster) -> None:
    options = {**QUICK, "message.max.bytes": 1000}
    consumer = KafkaTopic(cluster.address, TOPIC, group=GROUP, options=options).connect()
    consumer.announce([DeadLetterNotice(1, {"id": "1", "key": "event:k"}, b"x" * 2000)])
    consumer.close()
    client = Consumer({"bootstrap.servers": cluster.address, "group.id": "check", "auto.offset.reset": "earliest"})
    client.subscribe([f"{TOPIC}.dead"])
    record = client.poll(PATIENCE)
    client.close()
    assert record is not None
    assert (record.key(), record.value()) == (b"event:k", None)
    assert dict(record.headers() or ()) == {"id": b"1", "key": b"event:k", "payload_omitted": b"2000"}


def _problem(topic: KafkaTopic) -> str:
    consumer = topic.connect()
    try:
        with pytest.raises((OSError, LookupError, ValueError)) as caught:
            while True:
                consumer.read(10, 0.1)
    finally:
        consumer.close()
    assert "\n" not in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.req("E-5")
def test_problems_of_topics_groups_and_options_are_one_line(cluster: MockCluster, topic: KafkaTopic) -> None:
    missing = _problem(KafkaTopic(cluster.address, "missing", group=GROUP))
    assert missing.startswith("LookupError: Kafka topic 'missing' does not exist on 127.0.0.1:")
    assert "kafka-topics.sh" in missing
    unknown = _problem(KafkaTopic(cluster.address, TOPIC, group=GROUP, options={"no.such": "1"}))
    assert unknown == 'ValueError: KafkaTopic: options= are not valid: No such configuration property: "no.such"'
    refused = "PermissionError: Kafka topic 'orders': the user has no right to use it; grant READ and DESCRIBE on the topic"
    cluster.set_error(TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert _problem(topic) == refused
    cluster.set_error(TOPIC, 0)
    cluster.fail(JOIN_GROUP, KafkaError.GROUP_AUTHORIZATION_FAILED)
    refused = "PermissionError: Kafka group 'shop': the user has no right to use it; grant READ on the group"
    assert _problem(topic) == refused


@pytest.mark.req("E-5")
@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_problems_of_tls_and_login_are_one_line_without_the_password(cluster: MockCluster, protocol: str) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "Secret-Word-1"}
    topic = KafkaTopic(cluster.address, TOPIC, group=GROUP, options={"security.protocol": protocol, **login})
    problem = _problem(topic)
    assert "security.protocol" in problem
    assert "Secret-Word-1" not in problem + repr(topic)


@pytest.mark.req("E-5")
def test_a_failed_message_does_not_hold_back_its_partition(ledger: Ledger, cluster: MockCluster, topic: KafkaTopic) -> None:
    send(cluster, *numbers(5))
    send(cluster, b"\xff")
    app, booked = App(ledger, sources=[topic]), list[int]()

    @app.on("paid", name="book", retry=RetryPolicy(backoff_base=3600, backoff_max=3600, jitter=0))
    def book(event: Event[int]) -> None:
        if event.payload == 1:
            raise ValueError("not this one")
        booked.append(event.payload)

    with app.worker(threads=2):
        until(lambda: sorted(booked) == [0, 2, 3, 4] and len(ledger.dead_letters()) == 1)
        until(lambda: committed_offset(cluster)[0] == 6)
        assert len(ledger.dead_letters()) == 1, "the failed one waits for its next attempt"
    assert ledger.imbalance() == []
