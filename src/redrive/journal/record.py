"""`Record`: one entry of the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Record:
    """A log record. Immutable. Secrets are already removed, so any thread may have it.

    - A call: `retry` (failed and will be retried), `giveup` (failed for the last time), `recovered`
      (succeeded after retries), `success` (only for sinks with `every=True`).
    - A breaker: `breaker_opened`, `breaker_closed`.
    - A batch: `batch_started`, `batch_pass`, `batch_step`, `batch_retry`, `batch_outage`,
      `batch_split`, `batch_ended`, and `giveup` for an item.

    Attributes:
        kind: What happened.
        at: When, in UTC.
        fields: The known ones of `operation`, `attempt`, `max_attempts`, `error`, `error_class`,
            `retryable`, `http_status`, `latency_ms`, `wait`, `reason`, `retry_at`,
            `idempotency_key`, `dlq_id` (of a dead letter), the ids of `correlate`, and those passed
            as `fields=`.
    """

    kind: str
    at: datetime
    fields: Mapping[str, Any]


Sink: TypeAlias = Callable[[Record], object]
"""A function of one record. Its exceptions never reach your code."""
