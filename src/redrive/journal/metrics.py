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


ATTEMPTS = Metric("redrive_attempts_total", "counter", "Attempts, by how they ended.", ("layer", "operation", "outcome"))
SECONDS = Metric("redrive_attempt_seconds", "histogram", "How long attempts took.", ("layer", "operation"))
GIVEUPS = Metric("redrive_giveups_total", "counter", "What was given up, by why.", ("layer", "operation", "reason"))
ITEMS = Metric("redrive_batch_items_total", "counter", "Items of batches, by what became of them.", ("operation", "outcome"))
EVENTS = Metric("redrive_events_total", "counter", "All else that the journal records, by its kind.", ("event", "operation"))
DROPPED = Metric("redrive_journal_dropped_total", "counter", "Records that were lost, because a sink raised or was too slow.")

HEARD = (ATTEMPTS, SECONDS, GIVEUPS, ITEMS, EVENTS)
"""What records are counted as."""

UP = Metric("redrive_ledger_up", "gauge", "1: the ledger could be read for this answer; 0: it could not.")
JOBS = Metric("redrive_jobs", "gauge", "Jobs in the ledger that have not ended well: waiting, running, dead.", ("kind", "state"))
SUBMITTED = Metric("redrive_jobs_submitted_total", "counter", "Jobs that were ever submitted.", ("kind",))
DONE = Metric("redrive_jobs_done_total", "counter", "Jobs that were ever done.", ("kind",))
DISCARDED = Metric("redrive_jobs_discarded_total", "counter", "Dead jobs discarded, or replaced by a replay.", ("kind",))
LATE = Metric("redrive_jobs_late_total", "counter", "Ends of attempts that came after their lease was lost: refused.", ("kind",))
OLDEST = Metric("redrive_oldest_due_seconds", "gauge", "How long the oldest job that is due has waited.", ("kind",))
PARKED = Metric("redrive_kind_parked", "gauge", "1: this job type is paused after an outage.", ("kind",))
PARTITIONS = Metric("redrive_partitions", "gauge", "Partitions, by how they stand.", ("dataset", "shade"))
WORKERS = Metric("redrive_workers", "gauge", "Workers that have not ended, by whether they were seen lately.", ("state",))

AUDIT = Metric("redrive_audit_entries", "gauge", "Entries of the audit log. It never shrinks unless somebody cuts it.")

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
