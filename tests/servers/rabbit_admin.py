"""RabbitAdmin: operations of tests on RabbitMQ beside the source, in sync code."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiormq
from aiormq import spec
from aiormq.abc import ChannelFrame
from pamqp import frame

from redrive.core.event_loop_thread import EventLoopThread

SECONDS = 30.0
PERSISTENT = 2


class RabbitAdmin:
    """A connection of the tests. Close it, or use it as a context manager."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = EventLoopThread("tests-rabbitmq")
        self._connection: aiormq.abc.AbstractConnection | None = None
        self._channel: aiormq.abc.AbstractChannel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _open(self) -> aiormq.abc.AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            self._connection = await aiormq.connect(self.url)
            self._channel = await self._connection.channel(on_return_raises=True)
        return self._channel

    def declare(self, queue: str, **arguments: Any) -> None:
        """Create a quorum queue, unless it exists."""
        kinds = {"x-queue-type": "quorum"} | {name.replace("_", "-"): value for name, value in arguments.items()}

        async def declare() -> None:
            await (await self._open()).queue_declare(queue, durable=True, arguments=kinds)

        self._loop.run(declare, SECONDS)

    def delete(self, *queues: str) -> None:
        async def delete() -> None:
            for queue in queues:
                await (await self._open()).queue_delete(queue)
                await (await self._open()).exchange_delete(queue)

        self._loop.run(delete, SECONDS)

        self.reset()  # a channel remembers a deleted queue, and would reject messages to a new one

    def reset(self) -> None:
        """Close the connection. The next call opens another one."""

        async def close() -> None:
            if self._connection is not None:
                await self._connection.close()

        self._loop.run(close, SECONDS)
        self._connection = self._channel = None

    def publish(self, queue: str, *messages: tuple[bytes, Mapping[str, Any], Mapping[str, Any]], exchange: str = "") -> None:
        """Send bodies with headers and properties, and wait for the confirms."""

        async def publish() -> None:
            channel = await self._open()
            for body, headers, properties in messages:
                made = spec.Basic.Properties(headers=dict(headers), delivery_mode=PERSISTENT, **properties)
                await channel.basic_publish(body, exchange=exchange, routing_key=queue, properties=made, mandatory=True)

        self._loop.run(publish, SECONDS)

    def publish_bare(self, queue: str, body: bytes, type_: str | bytes) -> None:
        """Send a message without `message_id`, which the client would add, and with a type of any bytes."""
        word = type_ if isinstance(type_, bytes) else type_.encode()
        flags, no_type = 1 << 5, spec.Basic.frame_id
        header = struct.pack(">HHQH", no_type, 0, len(body), flags) + bytes([len(word)]) + word

        async def publish() -> None:
            channel = await self._open()
            number = channel.number
            frames = [frame.marshal(spec.Basic.Publish(routing_key=queue), number)]
            frames += [struct.pack(">BHI", kind, number, len(data)) + data + b"\xce" for kind, data in ((2, header), (3, body))]
            await channel.write_queue.put(ChannelFrame(payload=b"".join(frames), should_close=False))  # type: ignore[attr-defined]
            channel.delivery_tag += 1  # type: ignore[attr-defined]
            await channel.queue_declare(queue, passive=True)

        self._loop.run(publish, SECONDS)

    def peek(self, queue: str) -> range:
        """As many items as messages are ready."""
        return range(self.count(queue) or 0)

    def paid(self, queue: str, *ids: str) -> None:
        """Send an event of type `paid` for each id."""
        self.declare_missing(queue)
        rows = [
            (f'{{"order": "{each}"}}'.encode(), {"user_id": "ann"}, {"message_id": each, "message_type": "paid"}) for each in ids
        ]
        self.publish(queue, *rows)

    def declare_missing(self, queue: str) -> None:
        if self.count(queue) is None:
            self.declare(queue)

    def count(self, queue: str) -> int | None:
        """Return the number of ready messages. None: the queue does not exist."""

        async def count() -> int | None:
            channel = await self._open()
            assert self._connection is not None
            try:
                return (await channel.queue_declare(queue, passive=True)).message_count
            except aiormq.exceptions.ChannelNotFoundEntity:
                await self._connection.close()
                return None

        return self._loop.run(count, SECONDS)

    def drain(self, queue: str) -> Sequence[tuple[Any, bytes]]:
        """Take all messages: their properties and bodies."""

        async def drain() -> list[tuple[Any, bytes]]:
            channel = await self._open()
            found = []
            while isinstance((got := await channel.basic_get(queue, no_ack=True)).delivery, spec.Basic.GetOk):
                found.append((got.header.properties, got.body))
            return found

        return self._loop.run(drain, SECONDS)

    def abandon(self) -> None:
        """Abandon a broken connection."""
        self._loop.close(cancel_seconds=1)

    def close(self) -> None:
        self.reset()
        self._loop.close()
