"""Source: where workers read messages. Implement it for a broker that Redrive does not know.

A worker opens one `Consumer` of each source, reads batches, stores them, and acknowledges what is
stored. `redrive.testing.SourceConformance` tests an implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from .event import NO_HEADERS, Event

MAX_BATCH = 1000


class Message(NamedTuple):
    """A message as a source delivers it.

    By default, its event has the type, the id and the source of the headers `type`, `id` and
    `source`, or of CloudEvents' headers (`ce-type`, `ce_type` and so on). The body is the payload.
    All other headers are headers of the event.

    Attributes:
        id: Id of the message in its source, at most 500 bytes. It is the same when the message is
            delivered again.
        body: The payload. None: the message is lost, for example because it was deleted before it
            was read. It becomes a dead letter.
        headers: Text by name. Bytes that are not UTF-8 are decoded with `surrogateescape`.
        deliveries: How often the message was delivered, this time included. A message that was
            delivered three times and never acknowledged is decoded apart from others, because it
            may crash the worker.
        at: When the message was sent, with a time zone.
        raw: What the client of the broker returned. The consumer may need it to acknowledge.
        key: Messages with the same key are in order, where the broker has such a key.
    """

    id: str
    body: bytes | None
    headers: Mapping[str, str] = NO_HEADERS
    deliveries: int = 1
    at: datetime | None = None
    raw: Any = None
    key: str | None = None


Decode: TypeAlias = Callable[[Message], Event[Any]]


class DeadLetterNotice(NamedTuple):
    """A dead letter as it is announced in the broker. The ledger holds the dead letter itself.

    Attributes:
        id: Number of the dead letter.
        fields: Text by name: `id`, `kind`, `key`, `reason`, `error`, `signature`, `attempts`,
            `source`, `source_id` and `created_at`, where the dead letter has them.
        payload: The payload of the message. None if it was not a message of this source.
    """

    id: int
    fields: Mapping[str, str]
    payload: bytes | None


class Consumer(Protocol):
    """Reads a source. Belongs to one thread.

    A method that fails raises an error of any type. It is logged, and tried again after a growing
    pause. The next call connects again if the connection is broken.
    """

    def read(self, limit: int, wait: float, /) -> Sequence[Message]:
        """Return messages that no other consumer has. They stay reserved until `ack` or `nack`.

        Messages whose consumer has died come again, to any consumer.

        Args:
            limit: Maximum number of messages.
            wait: Seconds to wait for the first message.

        Returns:
            The messages, the oldest first. None: there are none for now.
        """

    def ack(self, messages: Sequence[Message], /) -> None:
        """Acknowledge messages that are stored. They do not come again.

        Args:
            messages: From `read`. They may be older than the connection. If it can no longer
                acknowledge them, they come again, and are known as duplicates.
        """

    def nack(self, messages: Sequence[Message], delay: float, /) -> None:
        """Return messages that are not stored. They come again, to any consumer.

        Args:
            messages: From `read`.
            delay: Seconds until they come again, at the earliest.
        """

    def announce(self, notices: Sequence[DeadLetterNotice], /) -> None:
        """Publish dead letters. Return when the broker has stored them.

        After an error, all of them are announced again.

        Args:
            notices: The dead letters.
        """

    def close(self) -> None:
        """Close the connection. Messages that are reserved come again, to any consumer."""


@runtime_checkable
class Source(Protocol):
    """A source of messages that workers read, such as `RedisStream`.

    It only describes the source: threads, event loops and forked children share it.
    """

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters, at most 200 bytes."""

    @property
    def batch(self) -> int:
        """Maximum number of messages in one read, up to 1,000."""

    @property
    def announces(self) -> bool:
        """Whether dead letters are announced with `Consumer.announce`."""

    def connect(self) -> Consumer:
        """Return a consumer. It may connect at its first read.

        Raises:
            ImportError: The client of the broker is not installed.
        """

    def to_event(self, message: Message, /) -> Event[Any] | None:
        """Return the event of a message.

        Args:
            message: The message, with a body. If it was stored before it was decoded, `raw` is a
                dict of its headers and its body, in bytes.

        Returns:
            The event, or None to decode the message as described at `Message`. The source of the
            event is set to the name of this source. Its own source is kept as a part of its id.

        Raises:
            Exception: The message cannot be decoded. It becomes a dead letter.
        """


def check_sources(sources: Any, /) -> tuple[Source, ...]:
    """Validate the option `sources=` of an app.

    Raises:
        TypeError: It is not a list of sources.
        ValueError: Two sources have one name.
    """
    if isinstance(sources, Source) or not isinstance(sources, Sequence):
        raise TypeError(f"sources= must be a list; pass [{sources!r}]")
    for source in sources:
        if not isinstance(source, Source):
            members = "name, batch, announces, connect and to_event"
            raise TypeError(
                f"a source must be a RedisStream, or an object with {members}: {source!r}"
            )
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"two sources have the same name; rename one: {', '.join(sorted(names))}")
    return tuple(sources)
