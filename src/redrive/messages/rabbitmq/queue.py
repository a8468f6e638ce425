"""RabbitQueue: a queue of RabbitMQ as a source of events."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...core.seconds import whole_number
from ...journal.redaction.secrets import keep_address_secret
from ..event import Event
from ..source import Decode, Message
from ..source_options import check_reading, check_texts
from .address import AmqpAddress
from .consumer import QueueConsumer

MAX_PREFETCH = 65_535
BATCHES_AT_ONCE = 3
"""A reader stores two batches while it reads the next one."""
MAX_AMQP_BYTES = 255


@dataclass(frozen=True, slots=True)
class RabbitQueue:
    """A quorum queue of RabbitMQ that workers read. Extra: `rabbitmq`.

    Creating one opens nothing. Immutable: threads, event loops and forked children may share one.

    Args:
        url: Address, such as `amqp://user:password@localhost/vhost`. `amqps://` is TLS. Servers of
            a cluster are separated by commas: `amqp://r1,r2,r3`.
        queue: Name of the queue. If it does not exist, it is created as a quorum queue.
        decode: Function from a `Message` to an `Event`. Default: the type is the property `type`,
            or the routing key, and the id is the property `message_id`. Headers `type` and `id`,
            and those of CloudEvents, take precedence.
        dead_exchange: Exchange to which dead letters are also published. Default: the name of the
            queue and `.dead`. If it does not exist, it is created with a queue of that name. None:
            none.
        batch: Maximum number of messages in one read, up to 1,000.
        prefetch: Maximum number of messages that a worker reserves at once. Default: three times
            `batch`.
        delivery_limit: Deliveries after which a queue that Redrive creates moves a message to
            `dead_exchange` by itself. None: no limit.

    Raises:
        ValueError: An option is not valid.
    """

    url: str = field(repr=False)
    queue: str
    decode: Decode | None = field(default=None, kw_only=True)
    dead_exchange: str | None = field(default="", kw_only=True)
    batch: int = field(default=100, kw_only=True)
    prefetch: int = field(default=0, kw_only=True)
    delivery_limit: int | None = field(default=20, kw_only=True)

    messaging_system: ClassVar[str] = "rabbitmq"
    """Name of the system in traces."""

    def __post_init__(self) -> None:
        check_texts(self, "url", "queue")
        keep_address_secret(self.url)
        try:
            AmqpAddress.parse(self.url)
        except ValueError as error:
            raise ValueError(f"RabbitQueue: {error}") from None
        if self.dead_exchange == "":
            object.__setattr__(self, "dead_exchange", f"{self.queue}.dead")
        check_reading(self, "queue", "dead_exchange")
        if self.prefetch == 0:
            object.__setattr__(self, "prefetch", BATCHES_AT_ONCE * self.batch)
        if whole_number("prefetch", self.prefetch) > MAX_PREFETCH:
            raise ValueError(
                f"RabbitQueue: prefetch= must be at most {MAX_PREFETCH}: {self.prefetch!r}"
            )
        if self.delivery_limit is not None:
            whole_number("delivery_limit", self.delivery_limit)
        self._check_dead_exchange()

    def _check_dead_exchange(self) -> None:
        name = self.dead_exchange
        if name is None:
            return
        if not isinstance(name, str) or not name.isprintable():
            raise ValueError(f"RabbitQueue: dead_exchange= must be printable text: {name!r}")
        if len(name.encode()) > MAX_AMQP_BYTES:
            raise ValueError(
                f"RabbitQueue: dead_exchange= must not be longer than {MAX_AMQP_BYTES} bytes: "
                f"{name[:60]!r}…"
            )

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters."""
        return self.queue

    @property
    def announces(self) -> bool:
        """Whether dead letters are also published to an exchange."""
        return self.dead_exchange is not None

    def connect(self) -> QueueConsumer:
        """Return a consumer. It connects at its first read.

        Raises:
            ImportError: aio-pika is not installed.
        """
        try:
            import aio_pika  # noqa: F401, PLC0415
        except ImportError as missing:
            raise ImportError(
                'RabbitQueue needs aio-pika: pip install "redrive[rabbitmq]"'
            ) from missing
        # The worker reports errors in one line. Without a handler, Python would print tracebacks
        # of the client beside it.
        for name in ("aio_pika", "aiormq"):
            logging.getLogger(name).addHandler(logging.NullHandler())
        return QueueConsumer(
            AmqpAddress.parse(self.url),
            self.queue,
            prefetch=self.prefetch,
            dead_exchange=self.dead_exchange,
            delivery_limit=self.delivery_limit,
        )

    def publisher(self) -> QueueConsumer:
        """Return a publisher that sends to the queue. It connects at its first message.

        Raises:
            ImportError: aio-pika is not installed.
        """
        return self.connect()

    def to_event(self, message: Message, /) -> Event[Any] | None:
        """Return the event of a message by `decode=`. None: `decode=` is not set."""
        return None if self.decode is None else self.decode(message)
