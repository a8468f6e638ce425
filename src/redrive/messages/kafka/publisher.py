"""TopicPublisher: sends published events to a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.lazy import deferred
from ..source import Message
from .dead_letters import SEND_SECONDS
from .problems import QuietLogger, explain

if TYPE_CHECKING:
    from confluent_kafka import cimpl
else:  # the extra may be missing
    (cimpl,) = deferred("confluent_kafka", "cimpl")


class TopicPublisher:
    """Writes records to a topic. One thread at a time uses it."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        """Create a publisher that connects at its first use.

        Args:
            options: Options of librdkafka, complete.
            topic: Name of the topic.
        """
        self._options = options
        self._topic = topic
        self._producer: Any = None

    def publish(self, messages: Sequence[Message], /) -> None:
        """Write a record for each message. Return when the brokers have stored all of them."""
        errors: list[cimpl.KafkaError] = []

        def check(error: cimpl.KafkaError | None, _record: object) -> None:
            if error is not None:
                errors.append(error)

        try:
            if self._producer is None:
                self._producer = cimpl.Producer({**self._options, "logger": QuietLogger()})
            for message in messages:
                self._producer.produce(
                    self._topic,
                    message.body,
                    None if message.key is None else message.key.encode(),
                    headers=list(message.headers.items()),
                    on_delivery=check,
                )
            self._producer.flush(2 * SEND_SECONDS)
        except cimpl.KafkaException as exception:
            errors.append(exception.args[0])
        if errors:
            raise explain(
                errors[0], servers=self._options["bootstrap.servers"], topic=self._topic, reason=""
            )

    def close(self) -> None:
        """Close the connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
