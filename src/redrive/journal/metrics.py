"""Metrics: what is counted and measured, by which names and labels. Prometheus and OpenTelemetry get the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from .record import Record

OTHER = "other"
MOST = 200
"""Values of one label that are told apart; what comes after them is `other`."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: from a call to the next house to a job that takes minutes."""
ENDS = frozenset(("success", "recovered", "retry", "giveup", "blocked", "again"))
"""Kinds of records that are the end of one attempt."""


class Metric(NamedTuple):
    """One name under which something is counted or measured."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


class Measure(NamedTuple):
    """One value of a metric; labels in the metric's order."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


ATTEMPTS = Metric("redrive_attempts_total", "counter", "Attempts by result.", ("layer", "operation", "outcome"))
SECONDS = Metric("redrive_attempt_seconds", "histogram", "Duration of attempts in seconds.", ("layer", "operation"))
GIVEUPS = Metric("redrive_giveups_total", "counter", "Calls that gave up, by reason.", ("layer", "operation", "reason"))
ITEMS = Metric("redrive_batch_items_total", "counter", "Batch items by result.", ("operation", "outcome"))
EVENTS = Metric("redrive_events_total", "counter", "Other journal records by kind.", ("event", "operation"))
DROPPED = Metric("redrive_journal_dropped_total", "counter", "Records lost because a sink raised or was too slow.")

HEARD = (ATTEMPTS, SECONDS, GIVEUPS, ITEMS, EVENTS)
"""What records are counted as."""

UP = Metric("redrive_ledger_up", "gauge", "1 if the ledger could be read for this response, else 0.")
JOBS = Metric("redrive_jobs", "gauge", "Unfinished and dead jobs in the ledger, by state.", ("kind", "state"))
SUBMITTED = Metric("redrive_jobs_submitted_total", "counter", "Total number of submitted jobs.", ("kind",))
DONE = Metric("redrive_jobs_done_total", "counter", "Total number of finished jobs.", ("kind",))
DISCARDED = Metric("redrive_jobs_discarded_total", "counter", "Dead jobs discarded, or replaced by a replay.", ("kind",))
LATE = Metric("redrive_jobs_late_total", "counter", "Results rejected because their lease was lost.", ("kind",))
OLDEST = Metric("redrive_oldest_due_seconds", "gauge", "Age of the oldest due job in seconds.", ("kind",))
PARKED = Metric("redrive_kind_parked", "gauge", "1 if this job type is paused after an outage.", ("kind",))
PARTITIONS = Metric("redrive_partitions", "gauge", "Partitions by status.", ("dataset", "shade"))
WORKERS = Metric("redrive_workers", "gauge", "Workers that have not ended, by liveness.", ("state",))

AUDIT = Metric("redrive_audit_entries", "gauge", "Entries of the audit log. They are not deleted automatically.")

STANDING = (UP, JOBS, SUBMITTED, DONE, DISCARDED, LATE, OLDEST, PARKED, PARTITIONS, WORKERS, AUDIT)
"""What is read from the ledger when somebody asks."""

CATALOGUE = (*HEARD, DROPPED, *STANDING)


class Bounded:
    """Keeps the values of labels few: the first of each label are told apart, the rest is `other`. For one thread at a time."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[str, set[str]] = {}

    def fold(self, label: str, value: object, /) -> str:
        """The value, or `other`."""
        text = str(value) if value not in (None, "") else "none"
        known = self._known.setdefault(label, set())
        if text in known:
            return text
        if len(known) >= self._most:
            return OTHER
        known.add(text)
        return text

    def measure(self, one: Measure, /) -> Measure:
        """With its labels folded."""
        pairs = zip(one.metric.labels, one.labels, strict=True)
        return one._replace(labels=tuple(self.fold(name, value) for name, value in pairs))


def measured(record: Record, /) -> Iterator[Measure]:
    """What a record counts as."""
    kind, fields = record.kind, record.fields
    operation = fields.get("operation") or "none"
    if kind == "giveup" and "item" in fields:
        return  # counted with its batch
    if kind == "batch_ended":
        for outcome in ("acknowledged", "given_up", "pending"):
            if many := fields.get(outcome):
                yield Measure(ITEMS, many, (operation, outcome))
        return
    if kind not in ENDS:
        if kind != "batch_step":
            yield Measure(EVENTS, 1, (kind, operation))
        return
    layer = "job" if "job_id" in fields else "partition" if "logical_date" in fields else "call"
    if fields.get("attempt"):  # else it was never begun: a breaker was open, or its time was over
        yield Measure(ATTEMPTS, 1, (layer, operation, kind))
        if (latency := fields.get("latency_ms")) is not None:
            yield Measure(SECONDS, latency / 1000, (layer, operation))
    if kind in ("giveup", "blocked"):
        yield Measure(GIVEUPS, 1, (layer, operation, fields.get("reason") or "none"))
