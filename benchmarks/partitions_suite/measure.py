"""What each act costs beside many partitions."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from benchmarks.interval import Interval
from benchmarks.partitions_suite.fill import CUSTOMERS, SINCE, filled
from redrive.ledger import open_ledger
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.model import PartitionFilter, Verdict
from redrive.partitions.queries import PartitionQueries
from redrive.partitions.retry_schedule import DatasetLimits

T = TypeVar("T")
SAID: Any = {"actor": "bench", "because": "a benchmark"}


@dataclass
class Figures:
    """Milliseconds, or verdicts in a second, by name."""

    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def get(self, name: str) -> Interval | None:
        found = self.samples.get(name)
        return Interval.of(found) if found else None


def _timed(act: Callable[..., T], *given: Any, **named: Any) -> tuple[float, T]:
    """Milliseconds, and what came of it."""
    begin = time.perf_counter()
    found = act(*given, **named)
    return (time.perf_counter() - begin) * 1000, found


def measured(url: str, many: int, rounds: int, batch: int) -> Figures:
    """Everything, on one ledger of so many partitions."""
    figures = Figures()
    with open_ledger(url, migrate=True) as ledger:
        queries = filled(ledger, many)
        terms = [DatasetLimits("crm", f"q{number}", concurrency=10**6) for number in range(queries)]
        control, authority, register = ControlPlane(ledger, terms), VerdictWriter(ledger, terms), PartitionQueries(ledger)
        _verdicts(figures, control, authority, rounds, batch)
        _reads(figures, register, rounds)
        _sweeps(figures, control, register, rounds)
        idle = ControlPlane(ledger, [DatasetLimits("none", "none")])
        idle.claim(100, worker="w")
        for _ in range(10 * rounds):
            figures.add("idle", _timed(idle.claim, 100, worker="w")[0])
            figures.add("idle round", _timed(idle.maintain)[0])
    return figures


def _verdicts(figures: Figures, control: ControlPlane, authority: VerdictWriter, rounds: int, batch: int) -> None:
    control.claim(batch, worker="w")
    for number in range(rounds):
        took, leases = _timed(control.claim, batch, worker="w")
        if not leases:
            return
        figures.add("claim", took)
        said = [
            Verdict(lease.run_id, "accepted" if (number + place) % 4 else "rejected", record_count=5, reason="row_count")
            for place, lease in enumerate(leases)
        ]
        figures.add("verdicts", len(said) / _timed(authority.apply, said)[0] * 1000)


def _reads(figures: Figures, register: PartitionQueries, rounds: int) -> None:
    last = SINCE + timedelta(days=364)
    failed = PartitionFilter(source="crm", query_name="q0", shades=["failed"])
    for _ in range(rounds):
        figures.add("calendar", _timed(register.calendar, SINCE, last, query_name="q0")[0])
        figures.add("counts", _timed(register.counts)[0])
        figures.add("year of one customer", _timed(register.days, "crm", "q0", "c7", SINCE, last)[0])
        figures.add("a page of failures", _timed(register.find, failed, limit=50)[0])
    took, picked = _timed(register.freeze, "reprocess", PartitionFilter(source="crm"))
    figures.add("plan", took)
    figures.add("plan, partitions", picked.count)


def _sweeps(figures: Figures, control: ControlPlane, register: PartitionQueries, rounds: int) -> None:
    for number in range(rounds):
        since = SINCE - timedelta(days=1000 * (number + 1))
        grid = Grid.of("crm", "q0", [f"c{at}" for at in range(CUSTOMERS)], since, since + timedelta(days=999))
        figures.add("plan of a range", _timed(register.plan_grid, grid)[0])
        took, sweep = _timed(control.backfill, grid, **SAID)
        figures.add("begin a backfill", took)
        control.claim(20, worker="w")
        figures.add("cancel", _timed(control.move, sweep.id, "cancel", **SAID)[0])
    control.maintain()
