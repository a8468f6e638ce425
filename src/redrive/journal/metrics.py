"""The metrics, and the measurements of a record, for Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from .record import Record

OTHER = "other"
MAX_LABEL_VALUES = 200
"""Distinct values of one label. Further values are reported as `other`."""
BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bounds of the duration histogram: from a local call to a job of several minutes."""
ATTEMPT_END_KINDS = frozenset(
    ("success", "recovered", "retry", "giveup", "blocked", "again", "cancelled")
)
"""Kinds of records that end one attempt."""


class Metric(NamedTuple):
    """Name, type and labels of a metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


class Measurement(NamedTuple):
    """One value of a metric, with label values in the metric's order."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


ATTEMPTS = Metric(
    "redrive_attempts_total", "counter", "Attempts by result.", ("layer", "operation", "outcome")
)
SECONDS = Metric(
    "redrive_attempt_seconds",
    "histogram",
    "Duration of attempts in seconds.",
    ("layer", "operation"),
)
GIVEUPS = Metric(
    "redrive_giveups_total",
    "counter",
    "Calls that gave up, by reason.",
    ("layer", "operation", "reason"),
)
ITEMS = Metric(
    "redrive_batch_items_total", "counter", "Batch items by result.", ("operation", "outcome")
)
EVENTS = Metric(
    "redrive_events_total", "counter", "Other journal records by kind.", ("event", "operation")
)
DROPPED = Metric(
    "redrive_journal_dropped_total",
    "counter",
    "Records lost because a sink raised or was too slow.",
)

RECORD_METRICS = (ATTEMPTS, SECONDS, GIVEUPS, ITEMS, EVENTS)
"""Metrics that are computed from records."""

UP = Metric(
    "redrive_ledger_up", "gauge", "1 if the ledger could be read for this response, else 0."
)
JOBS = Metric(
    "redrive_jobs", "gauge", "Unfinished and dead jobs in the ledger, by state.", ("kind", "state")
)
SUBMITTED = Metric(
    "redrive_jobs_submitted_total", "counter", "Total number of submitted jobs.", ("kind",)
)
DONE = Metric("redrive_jobs_done_total", "counter", "Total number of finished jobs.", ("kind",))
DISCARDED = Metric(
    "redrive_jobs_discarded_total",
    "counter",
    "Dead jobs discarded, or replaced by a replay.",
    ("kind",),
)
CANCELLED = Metric(
    "redrive_jobs_cancelled_total", "counter", "Total number of cancelled jobs.", ("kind",)
)
LATE = Metric(
    "redrive_jobs_late_total",
    "counter",
    "Results rejected because their lease was lost.",
    ("kind",),
)
OLDEST = Metric(
    "redrive_oldest_due_seconds", "gauge", "Age of the oldest due job in seconds.", ("kind",)
)
PARKED = Metric(
    "redrive_kind_parked", "gauge", "1 if this job type is paused after an outage.", ("kind",)
)
PAUSED = Metric(
    "redrive_kind_paused",
    "gauge",
    "1 if this job type, or the whole app, is paused by hand.",
    ("kind",),
)
PARTITIONS = Metric("redrive_partitions", "gauge", "Partitions by status.", ("dataset", "shade"))
WORKERS = Metric(
    "redrive_workers", "gauge", "Workers that have not ended, by liveness.", ("state",)
)

AUDIT = Metric(
    "redrive_audit_entries",
    "gauge",
    "Entries of the audit log. They are not deleted automatically.",
)

LEDGER_METRICS = (
    UP,
    JOBS,
    SUBMITTED,
    DONE,
    DISCARDED,
    CANCELLED,
    LATE,
    OLDEST,
    PARKED,
    PAUSED,
    PARTITIONS,
    WORKERS,
    AUDIT,
)
"""Metrics that are read from the ledger at each scrape."""

CATALOGUE = (*RECORD_METRICS, DROPPED, *LEDGER_METRICS)


class LabelLimiter:
    """Limits the distinct values of each label. Use it from one thread at a time."""

    def __init__(self, max_values: int = MAX_LABEL_VALUES) -> None:
        self._max_values = max_values
        self._values: dict[str, set[str]] = {}

    def limit_value(self, label: str, value: object, /) -> str:
        """Return the value as text, or `other` if the label has too many values."""
        text = str(value) if value not in (None, "") else "none"
        known = self._values.setdefault(label, set())
        if text in known:
            return text
        if len(known) >= self._max_values:
            return OTHER
        known.add(text)
        return text

    def limit(self, measurement: Measurement, /) -> Measurement:
        """Return the measurement with limited label values."""
        pairs = zip(measurement.metric.labels, measurement.labels, strict=True)
        labels = tuple(self.limit_value(name, value) for name, value in pairs)
        return measurement._replace(labels=labels)


def measure(record: Record, /) -> Iterator[Measurement]:
    """Yield the measurements of a record."""
    kind, fields = record.kind, record.fields
    operation = fields.get("operation") or "none"
    if kind == "giveup" and "item" in fields:
        return  # Counted with its batch.
    if kind == "batch_ended":
        for outcome in ("acknowledged", "given_up", "pending"):
            if items := fields.get(outcome):
                yield Measurement(ITEMS, items, (operation, outcome))
        return
    if kind not in ATTEMPT_END_KINDS:
        if kind != "batch_step":
            yield Measurement(EVENTS, 1, (kind, operation))
        return
    layer = "job" if "job_id" in fields else "partition" if "logical_date" in fields else "call"
    if fields.get("attempt"):  # Otherwise no attempt began: a breaker was open, or time was up.
        yield Measurement(ATTEMPTS, 1, (layer, operation, kind))
        if (latency := fields.get("latency_ms")) is not None:
            yield Measurement(SECONDS, latency / 1000, (layer, operation))
    if kind in ("giveup", "blocked"):
        yield Measurement(GIVEUPS, 1, (layer, operation, fields.get("reason") or "none"))
