"""QueueConsumer: one consumer of a queue. Its connection runs on an event loop in a thread.

The thread sends heartbeats while nothing reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ...core.event_loop_thread import EventLoopThread
from ..source import DeadLetterNotice, Message
from .address import AmqpAddress
from .connection import CONNECT_SECONDS, REPLY_SECONDS, QueueConnection
from .delivery import DeliveryTag, to_message
from .faults import explain, is_undecodable

if TYPE_CHECKING:
    from aiormq.abc import DeliveredMessage

T = TypeVar("T")
CLOSE_SECONDS = 5.0
CAREFUL_PREFETCH = 1


class QueueConsumer:
    """One consumer of a queue. Belongs to one thread."""

    def __init__(
        self,
        address: AmqpAddress,
        queue: str,
        *,
        prefetch: int,
        dead_exchange: str | None,
        delivery_limit: int | None,
    ) -> None:
        """Create a consumer. The options are those of `RabbitQueue`."""
        self._address, self._queue = address, queue
        self._prefetch = prefetch
        self._dead_exchange, self._delivery_limit = dead_exchange, delivery_limit
        self._loop = EventLoopThread(f"redrive-rabbitmq-{queue}")
        self._connection: QueueConnection | None = None
        self._number = 0
        """Number of the connection. Messages of earlier ones cannot be acknowledged."""
        self._first_server = 0
        self._careful_reads = 0
        """Number of messages to reserve one by one, after one that the client could not parse."""

    def read(self, limit: int, wait: float, /) -> Sequence[Message]:
        """Return messages of the queue. Connect, and create the queue, if necessary."""
        if self._connection is not None and self._connection.is_quiet:
            self._disconnect()
        delivered = self._run(lambda connection: self._read(connection, limit, wait), wait)
        number = self._number
        return [to_message(message, number) for message in delivered]

    def ack(self, messages: Sequence[Message], /) -> None:
        """Acknowledge messages that are stored. Those of earlier connections come again."""
        tags = self._tags_of(messages)
        if tags:
            self._run(lambda connection: connection.settle(tags))

    def nack(self, messages: Sequence[Message], delay: float, /) -> None:
        """Return messages to the queue after `delay` seconds. Until then, they stay reserved.

        RabbitMQ cannot delay a message that is returned. A copy in another queue could be, but it
        would have another delivery count and routing key, and another place in the queue.
        """
        tags = self._tags_of(messages)
        if not tags:
            return

        async def requeue(connection: QueueConnection) -> None:
            if delay > 0:
                connection.requeue_after(delay, tags)
            else:
                await connection.settle(tags, requeue=True)

        self._run(requeue)

    def announce(self, notices: Sequence[DeadLetterNotice], /) -> None:
        """Publish dead letters to their exchange, with publisher confirms."""
        exchange = self._dead_exchange
        if exchange is not None:
            self._run(lambda connection: connection.publish(notices, exchange))

    def publish(self, messages: Sequence[Message], /) -> None:
        """Send messages to the queue, with publisher confirms. Create a missing queue."""

        options = (self._dead_exchange, self._delivery_limit)
        self._run(lambda connection: connection.send(messages, *options))

    def close(self) -> None:
        """Close the connection. The server returns the reserved messages to the queue."""
        try:
            self._disconnect()
        finally:
            self._loop.close(cancel_seconds=CLOSE_SECONDS)

    def _tags_of(self, messages: Sequence[Message]) -> list[int]:
        if self._connection is None:
            return []
        deliveries: list[DeliveryTag] = [message.raw for message in messages]
        return [delivery.tag for delivery in deliveries if delivery.connection == self._number]

    def _run(self, act: Callable[[QueueConnection], Awaitable[T]], wait: float = 0.0) -> T:
        """Run something with the connection, which is opened if there is none.

        After an error, the connection is closed, and the next call opens another one.
        """
        seconds = wait + 2 * REPLY_SECONDS + CONNECT_SECONDS * len(self._address.servers)

        async def run() -> T:
            return await act(await self._connect())

        try:
            return self._loop.run(run, timeout=seconds)
        except Exception as error:
            if is_undecodable(error):
                self._careful_reads = self._prefetch
            self._disconnect()
            explained = explain(error, self._queue, self._address)
            if explained is error:
                raise
            raise explained from error

    async def _connect(self) -> QueueConnection:
        if self._connection is None:
            servers = self._address.servers
            first = self._first_server % len(servers)
            self._first_server += 1  # for the next time, usually after an error
            self._connection = await QueueConnection.open(
                self._address, (*servers[first:], *servers[:first]), self._queue
            )
            self._number += 1
        self._connection.check_open()
        return self._connection

    async def _read(
        self, connection: QueueConnection, limit: int, wait: float
    ) -> list[DeliveredMessage]:
        if not connection.is_consuming:
            await connection.create_queue(self._dead_exchange, self._delivery_limit)
            is_careful = self._careful_reads > 0
            await connection.consume(CAREFUL_PREFETCH if is_careful else self._prefetch)
        delivered = await connection.take(limit, wait)
        if delivered and self._careful_reads > 0:
            self._careful_reads -= len(delivered)
            if self._careful_reads <= 0:
                await connection.stop_consuming()  # The next read reserves many again.
        return delivered

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # A connection that is broken cannot be closed properly.
            with suppress(Exception):
                self._loop.run(connection.close, timeout=CLOSE_SECONDS)
