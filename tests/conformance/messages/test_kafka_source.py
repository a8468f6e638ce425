"""KafkaTopic passes the suite of sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import Consumer, Producer

from redrive.messages import KafkaTopic, Source
from redrive.testing import SourceConformance
from tests.servers.kafka import QUICK, create_topic


@pytest.mark.req("E-5")
class TestKafkaTopic(SourceConformance):
    counts_deliveries = False  # only crashes are counted
    shares_batches = False

    @pytest.fixture
    def source(self, kafka_servers: str, stream: str) -> Source:
        create_topic(kafka_servers, stream)
        return KafkaTopic(kafka_servers, stream, group=f"shop.{stream}", options=QUICK)

    @pytest.fixture
    def send(self, kafka_servers: str, stream: str) -> Callable[[Sequence[tuple[bytes, Mapping[str, str]]]], None]:
        producer = Producer({"bootstrap.servers": kafka_servers, "linger.ms": 0})

        def send(messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> None:
            for body, headers in messages:
                producer.produce(stream, body, partition=0, headers=list(headers.items()))
            assert producer.flush(15) == 0

        return send

    @pytest.fixture
    def announced(self, kafka_servers: str, stream: str) -> Callable[[], Sequence[tuple[Mapping[str, str], bytes | None]]]:
        def read() -> list[tuple[Mapping[str, str], bytes | None]]:
            consumer = Consumer(
                {"bootstrap.servers": kafka_servers, "group.id": f"{stream}.check", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe([f"{stream}.dead"])
            letters: list[tuple[Mapping[str, str], bytes | None]] = []
            while len(letters) < 2:
                record = consumer.poll(15)
                assert record is not None
                assert record.error() is None, record.error()
                headers = dict(record.headers() or ())
                fields = {name: value.decode() for name, value in headers.items() if isinstance(value, bytes)}
                letters.append((fields, record.value()))
            consumer.close()
            return letters

        return read
