"""Log records of extractions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ...core.text import safe_str
from ...journal.bus import emit
from ..control.claim import ExpiredPartition
from ..datasets.definition import Extraction
from ..key import Partition
from ..model import Release, Verdict, VerdictResult
from .attempt import ExtractionResult


def log_verdict(
    result: ExtractionResult, verdict: Verdict, effect: VerdictResult, now: datetime, /
) -> None:
    """Log a verdict that was written. A repeated one is not logged."""
    if effect.outcome == "repeated":
        return
    fields = _fields(result) | {
        "rows": verdict.record_count,
        "validator_version": verdict.version,
        "reason": verdict.reason,
    }
    if verdict.message is not None:
        # An error that was raised is there already. The message would repeat its type.
        fields.setdefault("error", verdict.message.partition("\n")[0])
    if effect.outcome == "accepted":
        emit("success" if result.attempt.lease.attempts == 0 else "recovered", fields)
    elif effect.outcome != "rejected":
        emit("late", fields | {"outcome": effect.outcome})
    elif effect.next_at is not None:
        wait = max(0.0, (effect.next_at - now).total_seconds())
        emit("retry", fields | {"wait": wait, "retry_at": effect.next_at})
    else:
        reason = effect.terminal or verdict.reason
        emit("giveup", fields | {"reason": reason, "rejected": verdict.reason})


def log_release(result: ExtractionResult, release: Release, /) -> None:
    """Log a lease that was released."""
    emit("again", _fields(result) | {"reason": release.cause, "wait": release.after})


def log_late(result: ExtractionResult, /) -> None:
    """Log an attempt that has no effect because another worker has the partition."""
    emit("late", _fields(result) | {"outcome": "lost"})


def log_expired(extraction: Extraction, expired: ExpiredPartition, /) -> None:
    """Log a partition that gave up before an attempt because it is too old."""
    fields = _partition_fields(extraction, expired.partition) | {
        "attempts": expired.attempts,
        "max_attempts": extraction.limits.policy.max_attempts,
        "reason": "age",
        "error": expired.because,
    }
    emit("giveup", fields)


def _partition_fields(extraction: Extraction, key: Partition) -> dict[str, Any]:
    return {
        **extraction.settings.fields,
        "operation": extraction.name,
        "source": key.source,
        "customer_id": key.customer_id,
        "query_name": key.query_name,
        "logical_date": key.logical_date.isoformat(),
    }


def _fields(result: ExtractionResult) -> dict[str, Any]:
    attempt, error = result.attempt, result.error
    fields = _partition_fields(attempt.extraction, attempt.lease.partition) | {
        "run_id": attempt.lease.run_id,
        "lane": attempt.lease.lane,
        "attempt": attempt.attempt,
        "max_attempts": attempt.max_attempts,
        "latency_ms": round(result.seconds * 1000, 3),
    }
    if error is not None:
        fields |= {"error": safe_str(error), "error_class": type(error).__name__}
    return fields
