"""DeadLetterTopic: announces dead letters in a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.lazy import deferred
from ..source import DeadLetterNotice
from .problems import ClientError, QuietLogger, explain

if TYPE_CHECKING:
    from confluent_kafka import cimpl
else:  # the extra may be missing
    (cimpl,) = deferred("confluent_kafka", "cimpl")

SEND_SECONDS = 10.0
"""Time that the brokers have to store dead letters."""
OMITTED = "payload_omitted"
"""Header of a dead letter whose payload is too large for the topic: its number of bytes."""


class DeadLetterTopic:
    """Writes to the topic of dead letters. Belongs to one thread."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        """Create a writer that connects at its first use.

        Args:
            options: Options of librdkafka, complete.
            topic: Name of the topic.
        """
        self._options = options
        self._topic = topic
        self._producer: Any = None
        self._errors: list[cimpl.KafkaError] = []
        self._reason = ""

    def write(self, notices: Sequence[DeadLetterNotice], /) -> None:
        """Write a record for each dead letter. Return when the brokers have stored all of them."""
        self._errors.clear()
        try:
            if self._producer is None:
                self._producer = cimpl.Producer(
                    {**self._options, "error_cb": self._on_error, "logger": QuietLogger()}
                )
            for notice in notices:
                self._produce(notice, notice.payload)
            self._producer.flush(2 * SEND_SECONDS)
        except cimpl.KafkaException as exception:
            self._errors.append(exception.args[0])
        if self._errors:
            error = self._errors[0]
            is_timeout = error.code() == ClientError.MSG_TIMED_OUT
            raise explain(
                error,
                servers=self._options["bootstrap.servers"],
                topic=self._topic,
                reason=self._reason if is_timeout else "",
            )

    def close(self) -> None:
        """Close the connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _produce(self, notice: DeadLetterNotice, payload: bytes | None) -> None:
        headers = list(notice.fields.items())
        if payload is None and notice.payload is not None:
            headers.append((OMITTED, str(len(notice.payload))))

        def check(error: cimpl.KafkaError | None, _record: object) -> None:
            self._check_stored(notice, payload, error)

        key = notice.fields.get("key", str(notice.id))
        try:
            self._producer.produce(
                self._topic, payload, key.encode(), headers=headers, on_delivery=check
            )
        except cimpl.KafkaException as error:
            self._check_stored(notice, payload, error.args[0])

    def _check_stored(
        self, notice: DeadLetterNotice, payload: bytes | None, error: cimpl.KafkaError | None
    ) -> None:
        """Keep an error. A dead letter that is too large is written without its payload."""
        if error is None:
            return
        if error.code() == cimpl.KafkaError.MSG_SIZE_TOO_LARGE and payload is not None:
            self._produce(notice, None)
        else:
            self._errors.append(error)

    def _on_error(self, error: cimpl.KafkaError) -> None:
        if error.code() != ClientError.ALL_BROKERS_DOWN:
            self._reason = error.str()
