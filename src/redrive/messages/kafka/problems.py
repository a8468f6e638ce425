"""Problems: errors of Kafka as one line with the thing, the problem and the fix."""

from __future__ import annotations

import logging
import re
from enum import IntEnum
from typing import TYPE_CHECKING

from ...core.lazy import deferred
from ...journal.redaction.redactor import redact_text

if TYPE_CHECKING:
    from confluent_kafka import cimpl
else:  # the extra may be missing
    (cimpl,) = deferred("confluent_kafka", "cimpl")

MAX_REASON_CHARS = 300


class ClientError(IntEnum):
    """Codes of errors that librdkafka itself has found. Codes of brokers are positive."""

    TRANSPORT = -195
    RESOLVE = -193
    MSG_TIMED_OUT = -192
    UNKNOWN_TOPIC = -188
    ALL_BROKERS_DOWN = -187
    INVALID_ARG = -186
    TIMED_OUT = -185
    SSL = -181
    CONFLICT = -173
    AUTHENTICATION = -169
    MAX_POLL_EXCEEDED = -147
    AUTO_OFFSET_RESET = -140


_NOISE = re.compile(
    r"\s*\(after \d+ms in state [A-Z_]+[^)]*\)|\S+: (?=Connect to |Disconnected|SSL |SASL )"
)


def explain(
    error: cimpl.KafkaError, /, *, servers: str, topic: str, group: str = "", reason: str = ""
) -> Exception:
    """Return the error for users. It has no secrets.

    Args:
        error: The error of the client.
        servers: The address of the cluster.
        topic: The topic that was used.
        group: The group of the consumer. Empty: the topic was written.
        reason: The last error of a connection, which says more than "all brokers are down".
    """
    codes = cimpl.KafkaError
    code, text = error.code(), _one_line(reason or error.str())
    if code in (codes.UNKNOWN_TOPIC_OR_PART, ClientError.UNKNOWN_TOPIC):
        return LookupError(
            f"Kafka topic {topic!r} does not exist on {servers}; create it: kafka-topics.sh "
            f"--bootstrap-server {servers} --create --topic {topic} --partitions 6"
        )
    if code == codes.TOPIC_AUTHORIZATION_FAILED:
        right = "READ" if group else "WRITE"
        return PermissionError(
            f"Kafka topic {topic!r}: the user has no right to use it; grant {right} and DESCRIBE "
            "on the topic"
        )
    if code == codes.GROUP_AUTHORIZATION_FAILED:
        return PermissionError(
            f"Kafka group {group!r}: the user has no right to use it; grant READ on the group"
        )
    if code in (ClientError.AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED):
        return PermissionError(
            f"Kafka {servers}: the login was rejected ({text}); check security.protocol, "
            "sasl.mechanism, sasl.username and sasl.password in options="
        )
    if code == ClientError.SSL:
        return ConnectionError(
            f"Kafka {servers}: TLS failed ({text}); check security.protocol and ssl.ca.location "
            "in options="
        )
    if code in (
        ClientError.ALL_BROKERS_DOWN,
        ClientError.TRANSPORT,
        ClientError.RESOLVE,
        ClientError.TIMED_OUT,
        ClientError.MSG_TIMED_OUT,
    ):
        return ConnectionError(
            f"Kafka {servers}: cannot connect ({text}); check address, brokers and "
            "security.protocol in options="
        )
    if code == codes.MSG_SIZE_TOO_LARGE:
        return ValueError(
            f"Kafka topic {topic!r}: the message is too large; publish a reference to its data, or "
            "raise message.max.bytes in options= and max.message.bytes of the topic"
        )
    if code in (ClientError.INVALID_ARG, ClientError.CONFLICT):
        return ValueError(f"KafkaTopic: options= are not valid: {text}")
    return ConnectionError(f"Kafka topic {topic!r}: {text} ({error.name()})")


class QuietLogger:
    """Takes the log of librdkafka. Errors that matter are raised, so it is for debugging only."""

    def log(self, _level: int, text: str, *values: object) -> None:
        """Log a line."""
        logging.getLogger("redrive.kafka").debug(text, *values)


def _one_line(text: str) -> str:
    line = redact_text(_NOISE.sub("", " ".join(text.split())))
    return line if len(line) <= MAX_REASON_CHARS else f"{line[:MAX_REASON_CHARS]}…"
