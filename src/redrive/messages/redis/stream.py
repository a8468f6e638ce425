"""RedisStream: a Redis stream as a source of events, read through a consumer group."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from ...core.seconds import Seconds, positive
from ...journal.redaction.secrets import keep_address_secret, redact_address
from ...worker.processes.identity import process_label
from ..event import Event
from ..source import Message
from ..source_options import check_reading, check_texts
from .address import RedisAddress
from .client import open_client
from .consumer_group import ConsumerGroup, StreamPublisher


class EntryFields(dict[bytes, bytes]):
    """The fields of an entry, as `decode=` gets them."""

    entry_id: str
    """The entry's own id in its stream."""


Decode: TypeAlias = Callable[[EntryFields], Event[Any]]


@dataclass(frozen=True, slots=True)
class RedisStream:
    """A Redis stream that workers read through a consumer group. Extra: `redis`.

    Creating one opens nothing. Immutable: threads, event loops and forked children may share one.

    Args:
        url: Address, such as `redis://localhost`. `rediss://`, `unix://`, `valkey://` and
            `valkeys://` work too. A cluster: `redis+cluster://n1:7000,n2:7001`. A master behind
            Sentinels: `redis+sentinel://s1:26379,s2:26379/mymaster`. With TLS: `rediss+cluster://`
            and `rediss+sentinel://`.
        stream: Name of the stream.
        group: Name of the consumer group. Not needed for a stream that is only published to.
        decode: Function from the fields of an entry to an `Event`. Default: the fields `type`, `id`
            and `payload`, and all others as headers.
        dead_stream: Stream to which dead letters are also written. Default: the name of the stream
            and `.dead`. None: none.
        batch: Maximum number of entries in one read, up to 1,000.
        idle: Seconds that an entry may be pending before another consumer takes it over.
        trim: If True, remove entries that every group has acknowledged. Leave it False if others
            read the stream without a group.

    Raises:
        ValueError: An option is not valid.
    """

    url: str = field(repr=False)
    stream: str
    group: str = field(default="", kw_only=True)
    decode: Decode | None = field(default=None, kw_only=True)
    dead_stream: str | None = field(default="", kw_only=True)
    batch: int = field(default=100, kw_only=True)
    idle: Seconds = field(default=60, kw_only=True)
    trim: bool = field(default=False, kw_only=True)

    messaging_system: ClassVar[str] = "redis"
    """Name of the system in traces."""

    def __post_init__(self) -> None:
        check_texts(self, "url", "stream", "group")
        keep_address_secret(self.url)
        try:
            RedisAddress.parse(self.url)
        except ValueError as error:
            raise ValueError(f"RedisStream: {error}: {redact_address(self.url)!r}") from None
        positive("idle", self.idle)
        if self.dead_stream == "":
            object.__setattr__(self, "dead_stream", f"{self.stream}.dead")
        check_reading(self, "stream", "dead_stream", takes="an entry's fields")

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters."""
        return self.stream

    @property
    def announces(self) -> bool:
        """Whether dead letters are also written to a stream."""
        return self.dead_stream is not None

    def connect(self) -> ConsumerGroup:
        """Return a consumer of the group, with a name of its own.

        Raises:
            ImportError: redis-py is not installed.
            ValueError: The stream has no group.
        """
        if not self.group:
            raise ValueError(f"RedisStream {self.stream!r}: to read it, pass group=")
        # The end of the name tells other consumers whether the process is gone.
        consumer = f"{socket.gethostname()}-{secrets.token_hex(3)}-{process_label()}"
        address = RedisAddress.parse(self.url)
        return ConsumerGroup(
            open_client(address),
            self.stream,
            self.group,
            consumer,
            address=address,
            idle=positive("idle", self.idle),
            trims=self.trim,
            dead_stream=self.dead_stream,
        )

    def publisher(self) -> StreamPublisher:
        """Return a publisher that adds entries to the stream.

        Raises:
            ImportError: redis-py is not installed.
        """
        address = RedisAddress.parse(self.url)
        return StreamPublisher(open_client(address), self.stream, address=address)

    def to_event(self, message: Message, /) -> Event[Any] | None:
        """Return the event of an entry by `decode=`. None: `decode=` is not set."""
        if self.decode is None:
            return None
        fields = EntryFields(message.raw)
        fields.entry_id = message.id
        return self.decode(fields)
