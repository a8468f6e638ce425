"""QueueConnection: one connection to RabbitMQ, and the messages that it has reserved.

Belongs to an event loop. Tags of messages are valid in their connection only, so it is never
repaired: after an error, the consumer opens another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from ...core.lazy import deferred
from ..source import DeadLetterNotice, Message
from .address import AmqpAddress
from .delivery import plan_settlement
from .faults import explain_connect

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection
    from aiormq import Channel, exceptions
    from aiormq.abc import DeliveredMessage
    from pamqp import commands
else:  # the extra may be missing
    (exceptions,) = deferred("aiormq", "exceptions")
    (commands,) = deferred("pamqp", "commands")

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 10.0
IDLE_SECONDS = 30.0
"""Time without a read after which unread messages go back to the queue.

The reader pauses while the ledger is away, or the source is paused. Other workers may read them,
and RabbitMQ closes channels that hold a message for 30 minutes.
"""
QUIET_SECONDS = 30.0
"""Time without a delivery after which the consumer connects again.

If a queue is deleted and created again at once, RabbitMQ 3 keeps the consumer and drops its
deliveries without a notice. They stay reserved until the connection is closed.
"""
NO_DELIVERY_LIMIT = -1
"""Since RabbitMQ 4, the default is 20. RabbitMQ 3 has no limit by default, and rejects this."""
PERSISTENT = 2
MAX_ID_CHARS = 60
"""Longest `message_id`, which has at most 255 bytes. The header `id` has the whole id."""
MAX_PAYLOAD_BYTES = 15 * 1024 * 1024
"""Longest payload of an announced dead letter. RabbitMQ 4 takes 16 MiB by default."""
OMITTED = "payload_omitted"
MAX_HEADER_CHARS = 10_000
"""Longest header of an announced dead letter. All headers must fit in one frame of 128 KiB."""


class QueueConnection:
    """A connection that consumes one queue and publishes dead letters."""

    def __init__(self, client: AbstractConnection, channel: Channel, queue: str) -> None:
        self._client, self._channel, self._queue = client, channel, queue
        self._publishing: Channel | None = None
        self._sending: Channel | None = None
        self._consumer: str | None = None
        self._buffer: deque[DeliveredMessage] = deque()
        """Messages that were delivered and not yet read."""
        self._unsettled: dict[int, None] = {}
        """Tags of all messages that were delivered and not settled, in order."""
        self._arrival = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_read = self._last_delivery = 0.0

    @classmethod
    async def open(
        cls, address: AmqpAddress, servers: Sequence[str], queue: str, /
    ) -> QueueConnection:
        """Connect to the first of the servers that replies.

        Raises:
            OSError: None of them does. The message says why the last one does not.
        """
        from aio_pika import connect  # noqa: PLC0415

        failed: OSError | None = None
        for server in servers:
            client: AbstractConnection | None = None
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    client = await connect(address.url(server, f"redrive {queue}"))
                    channel = await _open_channel(client, confirms=False)
            except Exception as error:
                failed = explain_connect(error, address, server)
                failed.__cause__ = error
                if client is not None:
                    with suppress(Exception):
                        await client.close()
            else:
                return cls(client, channel, queue)
        assert failed is not None, "an address has at least one server"
        raise failed

    @property
    def is_consuming(self) -> bool:
        """Whether the server delivers messages.

        Raises:
            LookupError: It did, and has stopped: the queue was deleted, or has no leader.
        """
        if self._consumer is None:
            return False
        if self._consumer not in self._channel.consumers:
            # Not on this channel again: it may remember the queue that was deleted.
            raise LookupError(
                f"queue {self._queue!r} was deleted, or its servers are away; reading continues "
                "with a new connection"
            )
        return True

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is reserved and nothing was delivered for some time."""
        if self._consumer is None or self._unsettled:
            return False
        return monotonic() - self._last_delivery >= QUIET_SECONDS

    async def consume(self, prefetch: int) -> None:
        """Let the server deliver messages, and reserve at most `prefetch` of them."""
        await self._channel.basic_qos(prefetch_count=prefetch, timeout=REPLY_SECONDS)
        consuming = await self._channel.basic_consume(
            self._queue, self._on_delivery, timeout=REPLY_SECONDS
        )
        self._consumer = consuming.consumer_tag
        self._last_read = self._last_delivery = monotonic()
        self._stop_when_idle(self._consumer)

    def _stop_when_idle(self, consumer: str | None) -> None:
        if self._consumer != consumer:
            return
        idle = monotonic() - self._last_read
        if idle >= IDLE_SECONDS:
            self._start(self.stop_consuming())
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(IDLE_SECONDS - idle, self._stop_when_idle, consumer)

    async def stop_consuming(self) -> None:
        """Return messages that were not read. Those that were read stay reserved."""
        if self._consumer is None:
            return
        consumer, self._consumer = self._consumer, None
        if consumer in self._channel.consumers:
            await self._channel.basic_cancel(consumer, timeout=REPLY_SECONDS)
        unread = [delivered.delivery_tag or 0 for delivered in self._buffer]
        self._buffer.clear()
        await self.settle(unread, requeue=True)

    async def _on_delivery(self, delivered: DeliveredMessage) -> None:
        self._last_delivery = monotonic()
        self._buffer.append(delivered)
        self._unsettled[delivered.delivery_tag or 0] = None
        self._arrival.set()

    async def take(self, limit: int, wait: float) -> list[DeliveredMessage]:
        """Return delivered messages. Wait up to `wait` seconds for the first one."""
        self._last_read = monotonic()
        if not self._buffer and wait > 0:
            self._arrival.clear()
            arrival = asyncio.ensure_future(self._arrival.wait())
            closing = self._channel.closing
            await asyncio.wait(
                (arrival, closing), timeout=wait, return_when=asyncio.FIRST_COMPLETED
            )
            arrival.cancel()
        # Messages that are in the buffer of the socket come with the first one.
        count = -1
        while count < len(self._buffer) < limit:
            count = len(self._buffer)
            await asyncio.sleep(0)
        self.check_open()
        return [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]

    def check_open(self) -> None:
        """Raise the error that closed the connection, if it is closed."""
        if not self._channel.is_closed:
            return
        raise self.closed_by or exceptions.ChannelInvalidStateError("closed")

    @property
    def closed_by(self) -> BaseException | None:
        """The error that closed the connection."""
        closing = self._channel.closing
        if not closing.done() or closing.cancelled():
            return None
        return closing.exception()

    async def settle(self, tags: Collection[int], *, requeue: bool = False) -> None:
        """Acknowledge messages, or return them to the queue. Contiguous tags take one frame."""
        own = {tag for tag in tags if tag in self._unsettled}
        if not own:
            return
        up_to, single = plan_settlement(self._unsettled, own)
        for tag in own:
            del self._unsettled[tag]
        frames = [] if up_to is None else [(up_to, True)]
        frames += [(tag, False) for tag in single]
        for place, (tag, multiple) in enumerate(frames, 1):
            is_last = place == len(frames)
            if requeue:
                await self._channel.basic_nack(tag, multiple=multiple, wait=is_last)
            else:
                await self._channel.basic_ack(tag, multiple=multiple, wait=is_last)

    def requeue_after(self, delay: float, tags: Collection[int]) -> None:
        """Return messages to the queue after `delay` seconds. Until then, they stay reserved."""

        async def requeue() -> None:
            await asyncio.sleep(delay)
            await self.settle(tags, requeue=True)

        self._start(requeue())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background. If it fails, the connection is closed, or is soon."""

        async def run() -> None:
            with suppress(Exception):
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def create_queue(self, dead_exchange: str | None, delivery_limit: int | None) -> None:
        """Create the queue as a quorum queue, unless it exists with any options."""
        if await self._exists(commands.Queue.Declare(queue=self._queue, passive=True)):
            return
        if dead_exchange is not None:
            await self.create_dead_exchange(dead_exchange)
        version = str(self._channel.connection.server_properties.get("version", ""))
        await self._channel.queue_declare(
            self._queue,
            durable=True,
            arguments=queue_arguments(dead_exchange, delivery_limit, version),
            timeout=REPLY_SECONDS,
        )

    async def create_dead_exchange(self, name: str) -> None:
        """Create the exchange of dead letters and its queue, unless the exchange exists."""
        if await self._exists(commands.Exchange.Declare(exchange=name, passive=True)):
            return
        channel, seconds = self._channel, REPLY_SECONDS
        await channel.exchange_declare(name, exchange_type="fanout", durable=True, timeout=seconds)
        await channel.queue_declare(
            name, durable=True, arguments={"x-queue-type": "quorum"}, timeout=seconds
        )
        await channel.queue_bind(name, name, timeout=seconds)

    async def _exists(self, declare: Any) -> bool:
        """Return whether a queue or an exchange exists. If not, the server closes the channel."""
        channel = await _open_channel(self._client, confirms=False)
        try:
            await channel.rpc(declare, timeout=REPLY_SECONDS)
        except exceptions.ChannelNotFoundEntity:
            return False
        await channel.close()
        return True

    async def publish(self, notices: Sequence[DeadLetterNotice], exchange: str) -> None:
        """Publish dead letters, and wait until the server has stored them."""
        if self._publishing is None or self._publishing.is_closed:
            await self.create_dead_exchange(exchange)
            self._publishing = await _open_channel(self._client, confirms=True)
        channel = self._publishing
        await asyncio.gather(
            *[
                _publish(
                    channel, _to_announcement(notice), notice.fields.get("kind"), exchange=exchange
                )
                for notice in notices
            ]
        )

    async def send(
        self, messages: Sequence[Message], dead_exchange: str | None, delivery_limit: int | None
    ) -> None:
        """Send messages to the queue, and wait until the server has stored them.

        A missing queue is created. If it is deleted later, the server returns the messages, and the
        next connection creates it again.
        """
        if self._sending is None or self._sending.is_closed:
            await self.create_queue(dead_exchange, delivery_limit)
            self._sending = await _open_channel(self._client, confirms=True)
        channel = self._sending
        await asyncio.gather(
            *[
                _publish(channel, message, message.headers.get("type"), queue=self._queue)
                for message in messages
            ]
        )

    async def close(self) -> None:
        """Close the connection. The server returns the reserved messages to the queue."""
        self._consumer = None
        for task in self._tasks:
            task.cancel()
        await self._client.close()


def queue_arguments(
    dead_exchange: str | None, delivery_limit: int | None, version: str, /
) -> dict[str, Any]:
    """Return the arguments of a new quorum queue. Pure.

    Args:
        dead_exchange: Exchange for messages that exceed the limit. None: there is no limit, because
            the queue would drop them.
        delivery_limit: Maximum number of deliveries. None: no limit.
        version: Version of the server.
    """
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    if dead_exchange is not None:
        arguments |= {
            "x-dead-letter-exchange": dead_exchange,
            # At least once: the queue keeps a message until the other queue has stored it.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
    if dead_exchange is not None and delivery_limit is not None:
        arguments["x-delivery-limit"] = delivery_limit
    elif not version.startswith("3."):
        arguments["x-delivery-limit"] = NO_DELIVERY_LIMIT
    return arguments


async def _open_channel(client: AbstractConnection, *, confirms: bool) -> Channel:
    # The channel of aiormq, below that of aio-pika: it acknowledges many messages in one frame.
    channel = client.channel(publisher_confirms=confirms, on_return_raises=confirms)
    await channel.initialize(timeout=REPLY_SECONDS)
    opened: Any = await channel.get_underlay_channel()
    return cast("Channel", opened)


def _to_announcement(notice: DeadLetterNotice) -> Message:
    """Return the message that announces a dead letter."""
    headers = {name: value[:MAX_HEADER_CHARS] for name, value in notice.fields.items()}
    payload = notice.payload or b""
    if len(payload) > MAX_PAYLOAD_BYTES:
        headers[OMITTED], payload = str(len(payload)), b""
    return Message(f"dead-{notice.id}", payload, headers)


async def _publish(
    channel: Channel, message: Message, type_: str | None, *, exchange: str = "", queue: str = ""
) -> None:
    properties = commands.Basic.Properties(
        headers=dict(message.headers),
        delivery_mode=PERSISTENT,
        message_id=message.id[:MAX_ID_CHARS],
        message_type=type_,
    )
    await channel.basic_publish(
        message.body or b"",
        exchange=exchange,
        routing_key=queue,
        properties=properties,
        mandatory=True,
        timeout=REPLY_SECONDS,
    )
