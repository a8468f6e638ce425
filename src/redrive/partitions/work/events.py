"""What became of an attempt, told to the journal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ...core.text import safe_str
from ...journal.bus import emit
from ..control.claim import Expired
from ..datasets.definition import Extraction
from ..model import Judged, Return, Verdict
from .attempt import Done


def tell_judged(done: Done, verdict: Verdict, judged: Judged, now: datetime, /) -> None:
    """A verdict is in the ledger. A repetition of one is no news."""
    if judged.outcome == "repeated":
        return
    fields = _fields(done) | {"rows": verdict.record_count, "validator_version": verdict.version, "reason": verdict.reason}
    if verdict.message is not None:
        fields["error"] = verdict.message.partition("\n")[0]
    if judged.outcome == "accepted":
        emit("success" if done.held.lease.attempts == 0 else "recovered", fields)
    elif judged.outcome != "rejected":
        emit("late", fields | {"outcome": judged.outcome})
    elif judged.next_at is not None:
        emit("retry", fields | {"wait": max(0.0, (judged.next_at - now).total_seconds()), "retry_at": judged.next_at})
    else:
        emit("giveup", fields | {"reason": judged.terminal or verdict.reason, "rejected": verdict.reason})


def tell_returned(done: Done, given: Return, /) -> None:
    """A lease was given back, uncharged."""
    emit("again", _fields(done) | {"reason": given.cause, "wait": given.after})


def tell_late(done: Done, /) -> None:
    """Somebody else has the partition now: nothing of this attempt counts."""
    emit("late", _fields(done) | {"outcome": "lost"})


def tell_expired(extraction: Extraction, expired: Expired, /) -> None:
    """A partition gave up before an attempt, because it is too old."""
    key = expired.partition
    emit("giveup", {
        **extraction.settings.fields, "operation": extraction.name, "source": key.source, "customer_id": key.customer_id,
        "query_name": key.query_name, "logical_date": key.logical_date.isoformat(), "attempts": expired.attempts,
        "max_attempts": extraction.terms.policy.max_attempts, "reason": "age", "error": expired.because,
    })  # fmt: skip


def _fields(done: Done) -> dict[str, Any]:
    held, error = done.held, done.error
    lease = held.lease
    fields: dict[str, Any] = {
        **held.extraction.settings.fields,
        "operation": held.operation,
        "source": lease.partition.source,
        "customer_id": lease.partition.customer_id,
        "query_name": lease.partition.query_name,
        "logical_date": lease.partition.logical_date.isoformat(),
        "run_id": lease.run_id,
        "lane": lease.lane,
        "attempt": held.attempt,
        "max_attempts": held.max_attempts,
        "latency_ms": round(done.seconds * 1000, 3),
    }
    if error is not None:
        fields |= {"error": safe_str(error), "error_class": type(error).__name__}
    return fields
