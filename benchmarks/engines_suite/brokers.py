"""Brokers: how to start, fill and read each one with a minimal loop of its client."""

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks.messages_suite.clock import PAYLOAD, TYPE, Clock, fill
from benchmarks.messages_suite.runner import redis_with_log
from tests.servers.kafka import QUICK, VARIABLE, MockCluster, create_topic
from tests.servers.nats import nats_server
from tests.servers.rabbitmq import rabbitmq_server

NAME = "bench"
BATCH = 100
PARTITIONS = 8
"""Partitions of a Kafka topic: one for each of 8 processes."""
PREFETCH = 3 * BATCH
"""Messages that RabbitMQ sends ahead, to each client."""
Handle = Callable[[bytes], None]
"""Handles the body of a message."""


class Broker(NamedTuple):
    """A broker. The functions take its address."""

    name: str
    client: str
    """Module of its client. If it is not installed, the broker is not measured."""
    server: Callable[[], AbstractContextManager[str]]
    fill: Callable[[str, int], str]
    """Sends messages to an empty stream, and returns its address for the other functions."""
    loop: Callable[[str, Clock, Handle | None], None]
    """Reads and acknowledges all messages with the client, 100 at a time. Calls the function with each body."""
    source: Callable[[str], Any]
    faststream: Callable[[str], tuple[Any, dict[str, Any]]]
    """Returns a faststream broker and the options of its subscriber."""
    messages: int
    """Messages of a measurement."""
    peer_messages: int
    """The same for faststream."""
    join: Callable[[Any, int], bool] = lambda _consumer, _processes: True
    """Lets a consumer of Redrive join its group. Returns whether it has its share of this number of processes."""


def _fill_redis(address: str, messages: int) -> str:
    fill(address, messages)
    return address


def _loop_redis(address: str, clock: Clock, handle: Handle | None) -> None:
    import redis

    with redis.Redis.from_url(address) as client:
        while not clock.over.is_set():
            streams: Any = client.xreadgroup(NAME, "loop", {NAME: ">"}, count=BATCH)
            entries = streams[0][1] if isinstance(streams, list) else next(iter(streams.values()))[0]
            if handle:
                for _, fields in entries:
                    handle(fields[b"payload"])
            client.xack(NAME, NAME, *[entry_id for entry_id, _ in entries])
            clock.add(len(entries))


def _source_redis(address: str) -> Any:
    from redrive.messages import RedisStream

    return RedisStream(address, NAME, group=NAME, batch=BATCH)


def _faststream_redis(address: str) -> tuple[Any, dict[str, Any]]:
    faststream: Any = import_module("faststream.redis")
    sub = faststream.StreamSub(NAME, group=NAME, consumer="c", max_records=BATCH, polling_interval=10)
    return faststream.RedisBroker(address, logger=None), {"stream": sub}


def _fill_nats(address: str, messages: int) -> str:
    import nats

    async def fill() -> None:
        client = await nats.connect(address)
        stream = client.jetstream()
        try:
            await stream.delete_stream(NAME)
        except nats.js.errors.NotFoundError:
            pass
        await stream.add_stream(name=NAME, subjects=[NAME])
        for at in range(0, messages, 500):
            for _ in range(min(500, messages - at)):
                await client.publish(NAME, PAYLOAD, headers={"type": TYPE})
            await client.flush()
        while (await stream.stream_info(NAME)).state.messages < messages:
            await client.flush()
        await client.close()

    asyncio.run(fill())
    return address


def _loop_nats(address: str, clock: Clock, handle: Handle | None) -> None:
    import nats

    async def loop() -> None:
        client = await nats.connect(address)
        subscription = await client.jetstream().pull_subscribe(NAME, durable=NAME, stream=NAME)
        while not clock.over.is_set():
            messages = await subscription.fetch(BATCH)
            for message in messages:
                if handle:
                    handle(message.data)
                await message.ack()
            clock.add(len(messages))
        await client.close()

    asyncio.run(loop())


def _source_nats(address: str) -> Any:
    from redrive.messages import NatsStream

    return NatsStream(address, NAME, consumer=NAME, batch=BATCH)


def _faststream_nats(address: str) -> tuple[Any, dict[str, Any]]:
    faststream: Any = import_module("faststream.nats")
    stream = faststream.JStream(NAME, declare=False)
    return faststream.NatsBroker(address, logger=None), {
        "subject": NAME,
        "stream": stream,
        "durable": "faststream",
        "pull_sub": faststream.PullSub(batch_size=BATCH),
    }


_clusters: dict[str, MockCluster] = {}
"""Mock clusters of this process by address. Only they can create a topic with a number of partitions."""


@contextmanager
def _kafka_server() -> Iterator[str]:
    if os.environ.get(VARIABLE):
        yield os.environ[VARIABLE]
        return
    with MockCluster() as cluster:
        _clusters[cluster.address] = cluster
        yield cluster.address


def _fill_kafka(address: str, messages: int) -> str:
    from confluent_kafka import Producer

    topic = f"{NAME}-{secrets.token_hex(4)}"
    if address in _clusters:
        _clusters[address].create(topic, PARTITIONS)
    else:
        create_topic(address, topic)
    producer = Producer({"bootstrap.servers": address})
    for number in range(messages):
        producer.produce(topic, PAYLOAD, partition=number % PARTITIONS, headers={"type": TYPE})
        if number % 5000 == 0:
            producer.flush()
    producer.flush()
    return f"{address}/{topic}"


def _loop_kafka(address: str, clock: Clock, handle: Handle | None) -> None:
    from confluent_kafka import Consumer

    servers, _, topic = address.partition("/")
    options = {
        "bootstrap.servers": servers,
        "group.id": f"loop-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(options)
    consumer.subscribe([topic])
    while not clock.over.is_set():
        messages = consumer.consume(BATCH, 1.0)
        if handle:
            for message in messages:
                handle(message.value() or b"")
        if messages:
            consumer.commit(asynchronous=False)
            clock.add(len(messages))
    consumer.close()


def _source_kafka(address: str) -> Any:
    from redrive.messages import KafkaTopic

    servers, _, topic = address.partition("/")
    # A rebalance of the mock takes a second less than the session's timeout, which is 45 s by default.
    return KafkaTopic(servers, topic, group=topic, batch=BATCH, options=QUICK)


def _join_kafka(consumer: Any, processes: int) -> bool:
    """Read a message more than before, and return all of them: a consumer that reads nothing pauses its partitions."""
    consumer.nack(consumer.read(consumer.assignment.held_count + 1, 0.0), 0.0)
    return len(consumer.assignment.partitions) * processes == PARTITIONS


def _faststream_kafka(address: str) -> tuple[Any, dict[str, Any]]:
    faststream: Any = import_module("faststream.confluent")
    servers, _, topic = address.partition("/")
    # The mock does not answer the request to create topics, and faststream waits a minute for it.
    return faststream.KafkaBroker(servers, logger=None, allow_auto_create_topics=False), {
        "topic": topic,
        "group_id": f"faststream-{topic}",
        "auto_offset_reset": "earliest",
        "session_timeout_ms": QUICK.get("session.timeout.ms", 45_000),
        "heartbeat_interval_ms": QUICK.get("heartbeat.interval.ms", 3_000),
    }


@contextmanager
def _rabbitmq_server() -> Iterator[str]:
    with rabbitmq_server() as server:
        yield json.loads(server)["url"]


def _fill_rabbitmq(address: str, messages: int) -> str:
    import aio_pika

    async def fill() -> None:
        async with await aio_pika.connect(address) as connection:
            channel = await connection.channel(publisher_confirms=False)
            await channel.queue_delete(NAME)
            queue = await channel.declare_queue(NAME, durable=True, arguments={"x-queue-type": "quorum"})
            for number in range(messages):
                message = aio_pika.Message(PAYLOAD, type=TYPE, message_id=str(number), delivery_mode=2)
                await channel.default_exchange.publish(message, NAME)
            while ((await queue.declare()).message_count or 0) < messages:  # noqa: ASYNC110  # only the server knows
                await asyncio.sleep(0.05)

    asyncio.run(fill())
    return address


def _loop_rabbitmq(address: str, clock: Clock, handle: Handle | None) -> None:
    import aio_pika

    async def loop() -> None:
        async with await aio_pika.connect(address) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.declare_queue(NAME, passive=True)
            count = 0
            async with queue.iterator() as deliveries:
                async for message in deliveries:
                    count += 1
                    if handle:
                        handle(message.body)
                    if count % BATCH == 0:
                        await message.ack(multiple=True)
                        clock.add(BATCH)
                        if clock.over.is_set():
                            return

    asyncio.run(loop())


def _source_rabbitmq(address: str) -> Any:
    from redrive.messages import RabbitQueue

    return RabbitQueue(address, NAME, batch=BATCH, prefetch=PREFETCH)


def _faststream_rabbitmq(address: str) -> tuple[Any, dict[str, Any]]:
    faststream: Any = import_module("faststream.rabbit")
    queue = faststream.RabbitQueue(NAME, declare=False)
    channel = faststream.Channel(prefetch_count=PREFETCH)
    return faststream.RabbitBroker(address, logger=None, default_channel=channel), {"queue": queue}


BROKERS = {
    "redis": Broker(
        "Redis", "redis", redis_with_log, _fill_redis, _loop_redis, _source_redis, _faststream_redis,
        messages=100_000, peer_messages=10_000,
    ),
    "nats": Broker(
        "NATS JetStream", "nats", nats_server, _fill_nats, _loop_nats, _source_nats, _faststream_nats,
        messages=20_000, peer_messages=5_000,
    ),
    "kafka": Broker(
        "Kafka (librdkafka's mock)", "confluent_kafka", _kafka_server, _fill_kafka, _loop_kafka, _source_kafka, _faststream_kafka,
        messages=200_000, peer_messages=5_000, join=_join_kafka,
    ),
    "rabbitmq": Broker(
        "RabbitMQ", "aio_pika", _rabbitmq_server, _fill_rabbitmq, _loop_rabbitmq, _source_rabbitmq, _faststream_rabbitmq,
        messages=15_000, peer_messages=5_000,
    ),
}  # fmt: skip
