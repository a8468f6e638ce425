"""Measure operations on partitions."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from benchmarks.interval import Interval
from benchmarks.partitions_suite.fill import CUSTOMERS, SINCE, fill
from redrive.ledger import open_ledger
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.model import PartitionFilter, Verdict
from redrive.partitions.queries import PartitionQueries
from redrive.partitions.retry_schedule import DatasetLimits

T = TypeVar("T")
REASON: Any = {"actor": "bench", "because": "a benchmark"}


@dataclass
class Samples:
    """Milliseconds, verdicts per second or megabytes, by name."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def get(self, name: str) -> Interval | None:
        values = self.values.get(name)
        return Interval.of(values) if values else None


def _time(act: Callable[..., T], *arguments: Any, **options: Any) -> tuple[float, T]:
    """Return the milliseconds and the result of a call."""
    begin = time.perf_counter()
    result = act(*arguments, **options)
    return (time.perf_counter() - begin) * 1000, result


def measure_partitions(url: str, count: int, rounds: int, batch: int) -> Samples:
    """Measure all operations on a ledger with `count` partitions."""
    samples = Samples()
    with open_ledger(url, migrate=True) as ledger:
        queries = fill(ledger, count)
        limits = [DatasetLimits("crm", f"q{number}", concurrency=10**6) for number in range(queries)]
        control, authority, register = ControlPlane(ledger, limits), VerdictWriter(ledger, limits), PartitionQueries(ledger)
        _verdicts(samples, control, authority, rounds, batch)
        _reads(samples, register, rounds)
        _sweeps(samples, control, register, rounds)
        idle = ControlPlane(ledger, [DatasetLimits("none", "none")])
        idle.claim(100, worker="w")
        for _ in range(10 * rounds):
            samples.add("idle claim", _time(idle.claim, 100, worker="w")[0])
            samples.add("idle maintenance", _time(idle.maintain)[0])
    return samples


def _verdicts(samples: Samples, control: ControlPlane, authority: VerdictWriter, rounds: int, batch: int) -> None:
    control.claim(batch, worker="w")
    for number in range(rounds):
        duration, leases = _time(control.claim, batch, worker="w")
        if not leases:
            return
        samples.add("claim", duration)
        verdicts = [
            Verdict(lease.run_id, "accepted" if (number + place) % 4 else "rejected", record_count=5, reason="row_count")
            for place, lease in enumerate(leases)
        ]
        samples.add("verdicts", len(verdicts) / _time(authority.apply, verdicts)[0] * 1000)


def _reads(samples: Samples, register: PartitionQueries, rounds: int) -> None:
    last = SINCE + timedelta(days=364)
    failed = PartitionFilter(source="crm", query_name="q0", shades=["failed"])
    for _ in range(rounds):
        samples.add("calendar", _time(register.calendar, SINCE, last, query_name="q0")[0])
        samples.add("counts", _time(register.counts)[0])
        samples.add("year of one customer", _time(register.days, "crm", "q0", "c7", SINCE, last)[0])
        samples.add("page of failures", _time(register.find, failed, limit=50)[0])
    duration, selection = _time(register.freeze, "reprocess", PartitionFilter(source="crm"))
    samples.add("reprocessing plan", duration)
    samples.add("reprocessing plan, partitions", selection.count)


def _sweeps(samples: Samples, control: ControlPlane, register: PartitionQueries, rounds: int) -> None:
    for number in range(rounds):
        since = SINCE - timedelta(days=1000 * (number + 1))
        grid = Grid.of("crm", "q0", [f"c{at}" for at in range(CUSTOMERS)], since, since + timedelta(days=999))
        samples.add("backfill plan", _time(register.plan_grid, grid)[0])
        duration, sweep = _time(control.backfill, grid, **REASON)
        samples.add("start a backfill", duration)
        control.claim(20, worker="w")
        samples.add("cancel", _time(control.move, sweep.id, "cancel", **REASON)[0])
    control.maintain()
