"""Record: one thing that happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened. Immutable and already redacted: any thread may have it.

    Kinds of a call, one for each attempt: `retry` (failed, will be tried again), `giveup` (failed, and that was the last),
    `recovered` (succeeded after retries), `success` (at once; only for sinks that ask for every one). Of a breaker:
    `breaker_opened`, `breaker_closed`. Of a batch: `batch_started`, `batch_pass`, `batch_step`, `batch_retry`, `batch_outage`,
    `batch_split`, `batch_ended`, and `giveup` of an `item`.
    """

    kind: str
    at: datetime
    fields: Mapping[str, Any]
    """What is known of: operation, attempt, max_attempts, error, error_class, retryable, http_status, latency_ms, wait, reason,
    retry_at, idempotency_key, dlq_id (of a dead letter), request_id, trace_id, user_id and all other ids given to
    `correlate` or as `fields=`."""


Sink: TypeAlias = Callable[[Record], object]
"""Hears records. Its own exceptions never reach the work."""
