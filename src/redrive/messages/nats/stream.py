"""NatsStream: a stream of NATS JetStream as a source of events, read by a durable consumer."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TYPE_CHECKING

from ...core.lazy import deferred
from ...core.seconds import Seconds, positive
from ...journal.redaction.secrets import keep_address_secret, keep_secret
from ..event import Event
from ..source import Decode, Message
from ..source_options import check_reading
from .address import NatsAddress

if TYPE_CHECKING:
    from . import pull_consumer
else:  # the extra may be missing
    (pull_consumer,) = deferred(__package__, "pull_consumer")

NAME = re.compile(r"[^\s.*>/\\]+")
"""A stream or a consumer."""
WORD = r"(?:[^\s.*>]+|\*)"
SUBJECT = re.compile(rf"{WORD}(?:\.{WORD})*(?:\.>)?|>")
MIN_ACK_WAIT = 0.1


@dataclass(frozen=True, slots=True)
class NatsStream:
    """A stream of NATS JetStream that workers read through a durable pull consumer. Extra: `nats`.

    The stream must exist. The consumer is created if it does not exist. Creating a NatsStream opens
    nothing. Immutable: threads, event loops and forked children may share one.

    Args:
        url: Address, such as `nats://n1:4222,n2:4222`, `tls://ann:password@n1` or `nats://token@n1`.
        stream: Name of the stream.
        consumer: Name of the durable consumer. Workers with the same consumer share the messages.
            Not needed for a stream that is only published to.
        subjects: Subjects that are read, such as `["orders.paid"]`. Default: all of the stream.
        decode: Function from a `Message` to an `Event`. Default: by the headers `type` and `id`,
            else the subject and `Nats-Msg-Id`.
        dead_subject: Subject to which dead letters are also published. Default: `dead.` and the
            name of the stream. None: none.
        batch: Maximum number of messages in one read, up to 1,000.
        ack_wait: Seconds after which messages of a dead worker are delivered again. Used when the
            consumer is created.
        credentials: Path of a credentials file (`.creds`).
        tls: TLS context, for your own certificate authority or a client certificate.

    Raises:
        ValueError: An option is not valid.
    """

    url: str = field(repr=False)
    stream: str
    consumer: str = field(default="", kw_only=True)
    subjects: Sequence[str] = field(default=(), kw_only=True)
    decode: Decode | None = field(default=None, kw_only=True)
    dead_subject: str | None = field(default="", kw_only=True)
    batch: int = field(default=100, kw_only=True)
    ack_wait: Seconds = field(default=30, kw_only=True)
    credentials: str | Path | None = field(default=None, kw_only=True, repr=False)
    tls: ssl.SSLContext | None = field(default=None, kw_only=True, repr=False)
    address: NatsAddress = field(init=False, repr=False, compare=False)

    messaging_system: ClassVar[str] = "nats"
    """Name of the system in traces."""

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise TypeError(f"NatsStream: url must be text, not {type(self.url).__name__}")
        keep_address_secret(self.url)
        try:
            address = NatsAddress.parse(self.url)
        except ValueError as error:
            raise ValueError(f"NatsStream: {error}") from None
        keep_secret(address.password, address.token)
        object.__setattr__(self, "address", address)
        for name in ("stream", "consumer"):
            value = getattr(self, name)
            if name == "consumer" and value == "":
                continue
            if not isinstance(value, str) or not NAME.fullmatch(value) or not value.isprintable():
                raise ValueError(
                    f"NatsStream: {name} must be a name without spaces and without . * > / \\: "
                    f"{value!r}"
                )
        if isinstance(self.subjects, str):
            raise TypeError(f"NatsStream: subjects= must be a list; pass [{self.subjects!r}]")
        object.__setattr__(self, "subjects", tuple(self.subjects))
        for subject in self.subjects:
            _check_subject("subjects=", subject)
        if self.dead_subject == "":
            object.__setattr__(self, "dead_subject", f"dead.{self.stream}")
        if self.dead_subject is not None:
            _check_subject("dead_subject=", self.dead_subject)
            if "*" in self.dead_subject or ">" in self.dead_subject:
                raise ValueError(
                    f"NatsStream: dead_subject= must not contain * or >: {self.dead_subject!r}"
                )
        if positive("ack_wait", self.ack_wait) < MIN_ACK_WAIT:
            raise ValueError(
                f"NatsStream: ack_wait= must be at least {MIN_ACK_WAIT} s: {self.ack_wait!r}"
            )
        check_reading(self, "stream", "dead_subject")

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters."""
        return self.stream

    @property
    def announces(self) -> bool:
        """Whether dead letters are also published to a subject."""
        return self.dead_subject is not None

    def connect(self) -> pull_consumer.PullConsumer:
        """Return a consumer, which connects at its first use.

        Raises:
            ImportError: nats-py is not installed.
            ValueError: The stream has no consumer.
        """
        if not self.consumer:
            raise ValueError(f"NatsStream {self.stream!r}: to read it, pass consumer=")
        return self._open()

    def publisher(self) -> pull_consumer.PullConsumer:
        """Return a publisher, which connects at its first use.

        An event is published to the subject `<stream>.<type>`, or to its type if it begins with the
        name of the stream.

        Raises:
            ImportError: nats-py is not installed.
        """
        return self._open()

    def _open(self) -> pull_consumer.PullConsumer:
        try:
            return pull_consumer.PullConsumer(
                pull_consumer.ConsumerOptions(
                    address=self.address,
                    stream=self.stream,
                    consumer=self.consumer,
                    subjects=self.subjects,
                    dead_subject=self.dead_subject,
                    batch=self.batch,
                    ack_wait=positive("ack_wait", self.ack_wait),
                    credentials=self.credentials,
                    tls=self.tls,
                )
            )
        except ModuleNotFoundError as missing:
            raise ImportError('NatsStream needs nats-py: pip install "redrive[nats]"') from missing

    def to_event(self, message: Message, /) -> Event[Any] | None:
        """Return the event of a message by `decode=`. None: `decode=` is not set."""
        return None if self.decode is None else self.decode(message)


def _check_subject(option: str, subject: object) -> None:
    if not isinstance(subject, str) or not SUBJECT.fullmatch(subject) or not subject.isprintable():
        raise ValueError(
            f"NatsStream: {option} must be a subject, such as orders.paid or orders.>: {subject!r}"
        )
