"""Brokers: how to start, fill and read each one with a minimal loop of its client."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks.messages_suite.clock import PAYLOAD, TYPE, Clock, fill
from benchmarks.messages_suite.runner import redis_with_log
from tests.servers.kafka import create_topic, kafka_server
from tests.servers.nats import nats_server

NAME = "bench"
BATCH = 100


class Broker(NamedTuple):
    """A broker. The functions take its address."""

    name: str
    client: str
    """Module of its client. If it is not installed, the broker is not measured."""
    server: Callable[[], AbstractContextManager[str]]
    fill: Callable[[str, int], str]
    """Sends messages to an empty stream, and returns its address for the other functions."""
    loop: Callable[[str, Clock], None]
    """Reads and acknowledges all messages with the client, 100 at a time."""
    source: Callable[[str], Any]
    faststream: Callable[[str], tuple[Any, dict[str, Any]]]
    """Returns a faststream broker and the options of its subscriber."""


def _fill_redis(address: str, messages: int) -> str:
    fill(address, messages)
    return address


def _loop_redis(address: str, clock: Clock) -> None:
    import redis

    with redis.Redis.from_url(address) as client:
        while not clock.over.is_set():
            streams: Any = client.xreadgroup(NAME, "loop", {NAME: ">"}, count=BATCH)
            entries = streams[0][1]
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


def _loop_nats(address: str, clock: Clock) -> None:
    import nats

    async def loop() -> None:
        client = await nats.connect(address)
        subscription = await client.jetstream().pull_subscribe(NAME, durable=NAME, stream=NAME)
        while not clock.over.is_set():
            messages = await subscription.fetch(BATCH)
            for message in messages:
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


def _fill_kafka(address: str, messages: int) -> str:
    from confluent_kafka import Producer

    topic = f"{NAME}-{secrets.token_hex(4)}"
    create_topic(address, topic)
    producer = Producer({"bootstrap.servers": address})
    for number in range(messages):
        producer.produce(topic, PAYLOAD, headers={"type": TYPE})
        if number % 500 == 0:
            producer.flush()
    producer.flush()
    return f"{address}/{topic}"


def _loop_kafka(address: str, clock: Clock) -> None:
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
        if messages:
            consumer.commit(asynchronous=False)
            clock.add(len(messages))
    consumer.close()


def _source_kafka(address: str) -> Any:
    from redrive.messages import KafkaTopic

    servers, _, topic = address.partition("/")
    return KafkaTopic(servers, topic, group=topic, batch=BATCH)


def _faststream_kafka(address: str) -> tuple[Any, dict[str, Any]]:
    faststream: Any = import_module("faststream.confluent")
    servers, _, topic = address.partition("/")
    return faststream.KafkaBroker(servers, logger=None), {
        "topic": topic,
        "group_id": f"faststream-{topic}",
        "auto_offset_reset": "earliest",
    }


BROKERS = {
    "redis": Broker("Redis", "redis", redis_with_log, _fill_redis, _loop_redis, _source_redis, _faststream_redis),
    "nats": Broker("NATS JetStream", "nats", nats_server, _fill_nats, _loop_nats, _source_nats, _faststream_nats),
    "kafka": Broker(
        "Kafka (librdkafka's mock)", "confluent_kafka", kafka_server, _fill_kafka, _loop_kafka, _source_kafka, _faststream_kafka
    ),
}
