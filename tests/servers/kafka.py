"""Kafka for tests: `REDRIVE_TEST_KAFKA`, else the mock cluster of librdkafka inside the wheel `confluent-kafka`.

The mock cluster is a real listener: consumers of any process join groups, commit offsets and are rebalanced. It has no
rights, no TLS and no disk.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.servers.process import ServerMissing

VARIABLE = "REDRIVE_TEST_KAFKA"
HOW = f"pip install confluent-kafka (a wheel, which has librdkafka inside), or set {VARIABLE}=host:9092"
QUICK: dict[str, Any] = {} if os.environ.get(VARIABLE) else {"session.timeout.ms": 2000, "heartbeat.interval.ms": 200}
"""Options of consumers: a rebalance of the mock cluster takes a second less than the session's timeout."""
PRODUCER = 0
BROKERS = 3


def library() -> Path | None:
    """The file of librdkafka in the wheel."""
    wheel = importlib.util.find_spec("confluent_kafka")
    if wheel is None or wheel.origin is None:
        return None
    return next(iter(sorted((Path(wheel.origin).parents[1] / "confluent_kafka.libs").glob("librdkafka*"))), None)


class MockCluster:
    """Three brokers in threads of this process. `address` is what clients of all processes connect to."""

    def __init__(self) -> None:
        found = library()
        if found is None:
            raise ServerMissing(HOW)
        import confluent_kafka  # noqa: F401  # loads the library with what it needs

        rd = self._rd = ctypes.CDLL(str(found))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(rd, name).restype = ctypes.c_void_p
        rd.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        error = ctypes.create_string_buffer(512)
        options = ctypes.c_void_p(rd.rd_kafka_conf_new())
        rd.rd_kafka_conf_set(options, b"log_level", b"0", error, 512)
        self._handle = ctypes.c_void_p(rd.rd_kafka_new(PRODUCER, options, error, 512))
        if not self._handle:
            raise RuntimeError(error.value.decode())
        self._cluster = ctypes.c_void_p(rd.rd_kafka_mock_cluster_new(self._handle, BROKERS))
        rd.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.address: str = rd.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rd.rd_kafka_mock_cluster_destroy(self._cluster)
        self._rd.rd_kafka_destroy(self._handle)

    def create(self, topic: str, partitions: int) -> None:
        self._check(self._rd.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, BROKERS))

    def delete(self, topic: str) -> None:
        self._check(self._rd.rd_kafka_mock_topic_delete(self._cluster, topic.encode()))

    def set_error(self, topic: str, code: int) -> None:
        """Let the metadata of a topic have this error. 0: none."""
        self._rd.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def fail(self, api: int, *codes: int) -> None:
        """Reply with these errors to the next requests of an API key."""
        errors = (ctypes.c_int * len(codes))(*codes)
        self._rd.rd_kafka_mock_push_request_errors_array(self._cluster, ctypes.c_int16(api), ctypes.c_size_t(len(codes)), errors)

    def forgive(self, api: int) -> None:
        """Reply to requests of an API key as usual again."""
        self._rd.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(api))

    def record_requests(self) -> None:
        """Record requests from now on."""
        self._rd.rd_kafka_mock_start_request_tracking(self._cluster)

    def recorded_requests(self) -> list[int]:
        """The API keys of the recorded requests."""
        rd, count = self._rd, ctypes.c_size_t()
        rd.rd_kafka_mock_get_requests.restype = ctypes.POINTER(ctypes.c_void_p)
        recorded = rd.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        keys = [rd.rd_kafka_mock_request_api_key(ctypes.c_void_p(recorded[place])) for place in range(count.value)]
        rd.rd_kafka_mock_request_destroy_array(recorded, count)
        return keys

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages below an offset, as retention does."""
        self._check(
            self._rd.rd_kafka_mock_partition_delete_records(self._cluster, topic.encode(), partition, ctypes.c_int64(before))
        )

    def send_header(self, topic: str, name: bytes, body: bytes) -> None:
        """Send a message to partition 0 with a header whose name has any bytes. Clients for Python send only UTF-8."""
        rd, error = self._rd, ctypes.create_string_buffer(512)
        options = ctypes.c_void_p(rd.rd_kafka_conf_new())
        rd.rd_kafka_conf_set(options, b"bootstrap.servers", self.address.encode(), error, 512)
        producer = ctypes.c_void_p(rd.rd_kafka_new(PRODUCER, options, error, 512))
        rd.rd_kafka_headers_new.restype = ctypes.c_void_p
        headers = ctypes.c_void_p(rd.rd_kafka_headers_new(1))
        rd.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"", ctypes.c_ssize_t(0))
        end, to, partition, value, flags, with_headers, copy = 0, 1, 3, 4, 7, 10, 2
        self._check(
            rd.rd_kafka_producev(
                *(producer, to, topic.encode(), partition, 0, value, body, ctypes.c_size_t(len(body))),
                *(flags, copy, with_headers, headers, end),
            )
        )
        self._check(rd.rd_kafka_flush(producer, 15_000))
        rd.rd_kafka_destroy(producer)

    def stop(self, *brokers: int) -> None:
        """Close the connections of brokers, and take no new ones."""
        for broker in brokers or range(1, BROKERS + 1):
            self._check(self._rd.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def start(self, *brokers: int) -> None:
        for broker in brokers or range(1, BROKERS + 1):
            self._check(self._rd.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def slow_down(self, milliseconds: int) -> None:
        for broker in range(1, BROKERS + 1):
            self._check(self._rd.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds))

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"librdkafka's mock cluster replied with error {code}")


@contextmanager
def kafka_server() -> Iterator[str]:
    """The address of a cluster, running until the end of the block."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    with MockCluster() as cluster:
        yield cluster.address


def create_topic(address: str, topic: str) -> None:
    """Create a topic, as the first message to it does. Returns when all brokers know it."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "allow.auto.create.topics": True})
    try:
        while not producer.list_topics(topic, timeout=15).topics[topic].partitions:
            pass
    finally:
        producer.purge()


def unread(address: str, topic: str, group: str) -> int:
    """Number of messages above the committed offsets of a group."""
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        numbers = client.list_topics(topic, timeout=15).topics[topic].partitions
        places = client.committed([TopicPartition(topic, number) for number in numbers], timeout=15)
        ends = [client.get_watermark_offsets(place, timeout=15) for place in places]
        return sum(end - max(place.offset, first) for place, (first, end) in zip(places, ends, strict=True))
    finally:
        client.close()
