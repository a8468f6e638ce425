"""KafkaTopic: a Kafka topic as a source of events, read through a consumer group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from ...journal.redaction.secrets import keep_address_secret, keep_options_secret, redact_address
from ..event import MAX_NAME_BYTES, Event
from ..source import Decode, Message
from ..source_options import check_reading, check_texts
from .group_member import GroupMember
from .publisher import SEND_SECONDS, TopicPublisher

SCHEME = "kafka://"
OWN_OPTIONS = {
    "bootstrap.servers": "pass the address as the first argument",
    "metadata.broker.list": "pass the address as the first argument",
    "group.id": "use group=",
    "auto.offset.reset": "use start=",
    "enable.auto.commit": "offsets are committed when messages are stored",
    "enable.auto.offset.store": "offsets are committed when messages are stored",
    "partition.assignment.strategy": "it is cooperative-sticky",
    "enable.partition.eof": "it is of no use here",
    "on_commit": "use log records",
    "error_cb": "use log records",
    "logger": "use log records",
}
"""Options of librdkafka that Redrive sets, and what to do instead."""
CLIENT_OPTIONS: Mapping[str, Any] = {
    "client.id": "redrive",
    # The default is 10 s. The first messages after an outage would come that much later.
    "reconnect.backoff.max.ms": 2000,
}
"""Options that differ from the defaults of librdkafka. `options=` can change them."""
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@,\[\]]+)(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A Kafka topic that workers read through a consumer group. Extra: `kafka`.

    Creating one opens nothing. Immutable: threads, event loops and forked children may share one.

    Args:
        servers: Addresses of some brokers, such as `"host1:9092,host2:9092"`, as in
            `bootstrap.servers`. The others are found through them.
        topic: Name of the topic. It must exist.
        group: Name of the consumer group. Not needed for a topic that is only published to.
        options: Options of librdkafka by name, such as `{"security.protocol": "SASL_SSL"}`.
        decode: Function from a `Message` to an `Event`, for example for Avro. Default: the headers
            `type` and `id`, or those of CloudEvents, and the topic as type if they are missing.
        dead_topic: Topic to which dead letters are also written. Default: the name of the topic
            and `.dead`. None: none.
        start: Where a new group starts: `"earliest"` (the first message) or `"latest"` (messages
            that are sent from now on).
        batch: Maximum number of messages in one read, up to 1,000.

    Raises:
        ValueError: An option is not valid.
    """

    servers: str
    topic: str
    group: str = field(default="", kw_only=True)
    options: Mapping[str, Any] = field(
        default_factory=lambda: MappingProxyType({}), kw_only=True, repr=False
    )
    decode: Decode | None = field(default=None, kw_only=True)
    dead_topic: str | None = field(default="", kw_only=True)
    start: Literal["earliest", "latest"] = field(default="earliest", kw_only=True)
    batch: int = field(default=100, kw_only=True)

    messaging_system: ClassVar[str] = "kafka"
    """Name of the system in traces."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "servers", _check_servers(self.servers))
        check_texts(self, "topic", "group")
        _check_topic(self.topic)
        if self.dead_topic == "":
            object.__setattr__(self, "dead_topic", f"{self.topic}.dead")
        if self.dead_topic is not None:
            _check_topic(self.dead_topic)
        if self.start not in ("earliest", "latest"):
            raise ValueError(f"KafkaTopic: start= must be earliest or latest: {self.start!r}")
        check_reading(self, "topic", "dead_topic")
        object.__setattr__(self, "options", _check_options(self.options))

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters."""
        return self.topic

    @property
    def announces(self) -> bool:
        """Whether dead letters are also written to a topic."""
        return self.dead_topic is not None

    def connect(self) -> GroupMember:
        """Return a consumer of the group. It joins the group at its first read.

        Raises:
            ImportError: confluent-kafka is not installed.
            ValueError: The topic has no group.
        """
        if not self.group:
            raise ValueError(f"KafkaTopic {self.topic!r}: to read it, pass group=")
        shared = self._shared_options()
        reading = {
            **shared,
            "group.id": self.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # An offset that no longer exists is an error, so that lost messages are reported.
            "auto.offset.reset": "error",
        }
        if self.options.get("group.protocol", "classic") == "classic":
            reading["partition.assignment.strategy"] = "cooperative-sticky"
        dead_letters = None
        if self.dead_topic is not None:
            dead_letters = self._publisher_of(self.dead_topic, {})
        return GroupMember(
            reading,
            self.topic,
            starts_at_end=self.start == "latest",
            dead_letters=dead_letters,
        )

    def publisher(self) -> TopicPublisher:
        """Return a publisher that writes to the topic. It connects at its first message.

        Raises:
            ImportError: confluent-kafka is not installed.
        """
        return self._publisher_of(self.topic, {"enable.idempotence": True})

    def _publisher_of(self, topic: str, more: Mapping[str, Any]) -> TopicPublisher:
        writing = {"acks": "all", "message.timeout.ms": int(SEND_SECONDS * 1000), **more}
        return TopicPublisher({**writing, **self._shared_options()}, topic)

    def _shared_options(self) -> dict[str, Any]:
        """Return the options of consumers and producers."""
        if find_spec("confluent_kafka") is None:
            raise ImportError('KafkaTopic needs confluent-kafka: pip install "redrive[kafka]"')
        return {**CLIENT_OPTIONS, **self.options, "bootstrap.servers": self.servers}

    def to_event(self, message: Message, /) -> Event[Any] | None:
        """Return the event of a message by `decode=`. None: `decode=` is not set."""
        return None if self.decode is None else self.decode(message)


def _check_servers(servers: object) -> str:
    """Return the addresses as librdkafka expects them."""
    if not isinstance(servers, str):
        raise TypeError(
            "KafkaTopic: the address must be text, such as 'host1:9092,host2:9092', not "
            f"{type(servers).__name__}"
        )
    keep_address_secret(servers)
    parts = [part.strip() for part in servers.removeprefix(SCHEME).rstrip("/").split(",")]
    if not all(_SERVER.fullmatch(part) for part in parts):
        if "@" in servers:
            raise ValueError(
                "KafkaTopic: the address must have no user and no password; pass "
                'options={"sasl.username": ..., "sasl.password": ...}: '
                f"{redact_address(servers)!r}"
            )
        raise ValueError(
            "KafkaTopic: the address must be host:port, or several with commas, such as "
            f"'host1:9092,host2:9092': {redact_address(servers)!r}"
        )
    return ",".join(parts)


def _check_topic(topic: str) -> None:
    if len(topic) > MAX_NAME_BYTES or not re.fullmatch(r"[A-Za-z0-9._-]+", topic):
        raise ValueError(
            "KafkaTopic: a topic's name must have at most "
            f"{MAX_NAME_BYTES} characters, and only letters, digits, '.', '_' and '-': "
            f"{topic[:60]!r}"
        )


def _check_options(options: object) -> Mapping[str, Any]:
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise TypeError(
            "KafkaTopic: options= must be options of librdkafka by name, such as "
            '{"security.protocol": "SSL"}'
        )
    keep_options_secret(options)
    for name in options:
        if name in OWN_OPTIONS:
            raise ValueError(f"KafkaTopic: options= must not have {name!r}; {OWN_OPTIONS[name]}")
    return MappingProxyType(dict(options))
