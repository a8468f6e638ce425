"""TopicPublisher: writes published events, or dead letters, to a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.lazy import deferred
from ..source import DeadLetterNotice, Message
from .problems import ClientError, QuietLogger, explain

if TYPE_CHECKING:
    from confluent_kafka import cimpl
else:  # the extra may be missing
    (cimpl,) = deferred("confluent_kafka", "cimpl")

SEND_SECONDS = 10.0
"""Time that the brokers have to store records."""
NewRecord: TypeAlias = tuple[str | None, Mapping[str, str], bytes | None]
"""Key, headers and body of a record to write."""
OMITTED = "payload_omitted"
"""Header of a dead letter whose payload is too large for the topic: its number of bytes."""


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
        self._errors: list[cimpl.KafkaError] = []
        self._reason = ""
        """The last error of a connection."""

    def publish(self, messages: Sequence[Message], /) -> None:
        """Write a record for each message. Return when the brokers have stored all of them."""
        self._write([(message.key, message.headers, message.body) for message in messages])

    def announce(self, notices: Sequence[DeadLetterNotice], /) -> None:
        """Write a record for each dead letter, without a payload that is too large."""
        records = [
            (fields.get("key", str(number)), fields, payload) for number, fields, payload in notices
        ]
        self._write(records, may_omit=True)

    def close(self) -> None:
        """Close the connections. Records that are not sent are dropped."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _write(self, records: Sequence[NewRecord], *, may_omit: bool = False) -> None:
        self._errors, self._reason = [], ""
        try:
            if self._producer is None:
                self._producer = cimpl.Producer(
                    {**self._options, "error_cb": self._on_error, "logger": QuietLogger()}
                )
            for record in records:
                self._produce(record, may_omit=may_omit)
            if self._producer.flush(2 * SEND_SECONDS) == 0 and not self._errors:
                return
        except cimpl.KafkaException as exception:
            self._errors.append(exception.args[0])
        self.close()  # The producer may be unusable after an error, and would send records later.
        if not self._errors:
            raise ConnectionError(
                f"Kafka topic {self._topic!r}: not stored in {2 * SEND_SECONDS:g} s; check the "
                "brokers, and message.timeout.ms in options="
            )
        error = self._errors[0]
        raise explain(
            error,
            servers=self._options["bootstrap.servers"],
            topic=self._topic,
            reason=self._reason if error.code() == ClientError.MSG_TIMED_OUT else "",
        )

    def _produce(self, record: NewRecord, *, may_omit: bool) -> None:
        key, headers, body = record

        def check(error: cimpl.KafkaError | None, _stored: object) -> None:
            if error is None:
                return
            if error.code() == cimpl.KafkaError.MSG_SIZE_TOO_LARGE and may_omit and body:
                omitted = {**headers, OMITTED: str(len(body))}
                self._produce((key, omitted, None), may_omit=False)
            else:
                self._errors.append(error)

        raw_key = None if key is None else key.encode()
        try:
            self._producer.produce(
                self._topic, body, raw_key, headers=list(headers.items()), on_delivery=check
            )
        except cimpl.KafkaException as exception:
            check(exception.args[0], None)

    def _on_error(self, error: cimpl.KafkaError) -> None:
        if error.code() != ClientError.ALL_BROKERS_DOWN:
            self._reason = error.str()
