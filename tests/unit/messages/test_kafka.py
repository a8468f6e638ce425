"""Kafka without a broker: which offset is committed, and the options of a topic."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from redrive.messages import KafkaTopic, Message, Source
from redrive.messages.kafka.offsets import PartitionOffsets, crashes_of
from redrive.messages.kafka.problems import ClientError


@pytest.mark.req("E-5")
@given(st.sets(st.integers(0, 30), min_size=1, max_size=12).map(sorted), st.randoms(use_true_random=False), st.data())
def test_the_position_is_the_oldest_message_that_is_not_acknowledged(
    offsets: list[int], random: Any, data: st.DataObject
) -> None:
    partition = PartitionOffsets()
    partition.begin(offsets[0])
    undelivered, acked = list(offsets), set[int]()
    pending: list[int] = []
    while undelivered or pending:
        if undelivered and (not pending or data.draw(st.booleans())):
            offset = undelivered.pop(0)
            partition.deliver(offset)
            pending.append(offset)
        else:
            offset = pending.pop(random.randrange(len(pending)))
            partition.ack(offset)
            acked.add(offset)
            partition.ack(offset)  # a second call is allowed
        waiting = [each for each in offsets if each not in acked and each not in undelivered]
        if waiting:
            before = [each for each in offsets if each < waiting[0]]
            assert partition.position == (before[-1] + 1 if before else offsets[0])
    assert partition.position == offsets[-1] + 1


def test_an_acknowledgement_of_an_earlier_assignment_counts_when_the_message_comes_again() -> None:
    partition = PartitionOffsets()
    partition.begin(4)
    partition.ack(5)
    partition.ack(3)
    for offset in (4, 5, 6):
        partition.deliver(offset)
    partition.ack(4)
    assert partition.position == 6


@pytest.mark.parametrize(
    ("metadata", "crashes"), [(None, 0), ("", 0), ("redrive deliveries=2\0", 2), ("redrive deliveries=x", 0), ("other", 0)]
)
def test_crashes_are_read_from_the_metadata_of_an_offset(metadata: str | None, crashes: int) -> None:
    assert crashes_of(metadata) == crashes


@pytest.mark.parametrize("address", ["h1:9092,h2:9092", "kafka://h1:9092,h2:9092", " h1:9092 , h2:9092/"])
def test_an_address_is_a_list_of_brokers(address: str) -> None:
    topic = KafkaTopic(address, "orders", group="shop")
    assert topic.servers == "h1:9092,h2:9092"
    assert isinstance(topic, Source)
    assert (topic.name, topic.announces, topic.dead_topic, topic.batch) == ("orders", True, "orders.dead", 100)
    assert topic.to_event(Message("orders-0-1", b"{}")) is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"servers": ""}, r"must be host:port, or several with commas"),
        ({"servers": "http://h1:9092"}, r"must be host:port"),
        ({"servers": "kafka://ann:Word-12345678@h1"}, r"no user and no password; pass options=.*'kafka://ann:\*\*\*@h1'"),
        ({"topic": "a b"}, r"only letters, digits, '.', '_' and '-': 'a b'"),
        ({"topic": "t" * 201}, r"at most 200 characters"),
        ({"group": " "}, r"group must be text, printable and not empty: ' '"),
        ({"dead_topic": "orders"}, r"dead letters in 'orders' would be read as messages; change dead_topic="),
        ({"start": "now"}, r"start= must be earliest or latest: 'now'"),
        ({"batch": 1001}, r"batch= must be at most 1000: 1001"),
        ({"options": {"group.id": "x"}}, r"options= must not have 'group.id'; use group="),
        ({"options": {"enable.auto.commit": True}}, r"offsets are committed when messages are stored"),
    ],
)
def test_invalid_options_are_explained(changes: dict[str, Any], problem: str) -> None:
    options: dict[str, Any] = {"servers": "h1:9092", "topic": "orders", "group": "shop", **changes}
    with pytest.raises(ValueError, match=f"^KafkaTopic: .*{problem}") as caught:
        KafkaTopic(**options)
    assert "Word-12345678" not in str(caught.value)


def test_the_codes_of_errors_are_those_of_the_client() -> None:
    assert {error.name: error.value for error in ClientError} == {
        error.name: getattr(KafkaError, f"_{error.name}") for error in ClientError
    }


def test_secrets_of_the_options_are_not_shown() -> None:
    topic = KafkaTopic("h1", "orders", group="shop", options={"sasl.password": "Word-87654321"})
    assert "Word" not in repr(topic)
