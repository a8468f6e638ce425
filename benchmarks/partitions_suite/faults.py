"""One seeded fault scenario for three algorithms: redrive, "one status column" and "clear and rerun".

The scenario simulates ten days in steps of a minute. Each partition is extracted, and later an operator has it reprocessed.
Some extractions fail, and some verdicts are duplicates. Two validators and two control planes run concurrently. Some workers
pause, and continue after their lease has expired. The scenario uses only the methods of `Subject`.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from redrive.backoff import fixed
from redrive.core.context import Simulation, simulate
from redrive.ledger import open_ledger
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.key import Partition
from redrive.partitions.model import PartitionFilter, PartitionLease, Verdict
from redrive.partitions.queries import PartitionQueries
from redrive.partitions.retry_schedule import DatasetLimits, Policy
from redrive.testing import FakeClock

RETRY = 30
"""Minutes from a failure to the retry."""
LEASE = 60
"""Minutes until a silent worker counts as lost."""
DAY = date(2026, 3, 1)


@dataclass
class Tally:
    """Result of the scenario."""

    verdicts: int = 0
    """Number of runs with a verdict."""
    counted: int = 0
    unreadable: int = 0
    """Minutes, summed over the partitions, in which accepted data was not readable."""
    doubled: int = 0
    """Number of runs that started during the lease of another run."""
    overtaken: int = 0
    """Number of times that a late run replaced the data of a newer run."""

    @property
    def miscounted(self) -> int:
        return abs(self.verdicts - self.counted)


class Subject(Protocol):
    """An algorithm for the scenario."""

    def due(self, minute: int) -> list[str]:
        """Return the due partitions, as one control plane sees them."""

    def start(self, key: str, minute: int, concurrent: bool) -> str | None:
        """Start a run, or return None if it is not allowed.

        Args:
            concurrent: The other control plane has started the same partition at the same time.
        """

    def read(self, run: str) -> object:
        """Read the state before a verdict."""

    def submit_verdict(self, run: str, good: bool, state: object, minute: int) -> bool:
        """Submit a verdict, based on the state that was read. Return whether the data of the run is current."""

    def restate(self, key: str, minute: int) -> None:
        """Reprocess the partition."""

    def readable(self, key: str) -> bool: ...

    def counted(self) -> int: ...


@dataclass
class Row:
    status: str = "pending"
    count: int = 0
    due: int = 0
    run: str | None = None
    begun: int = -1


class Original:
    """One status column. The attempt count is read in one transaction and written in another."""

    def __init__(self, keys: list[str]) -> None:
        self.rows = {key: Row() for key in keys}
        self.number = 0

    def due(self, minute: int) -> list[str]:
        return [key for key, row in self.rows.items() if row.status in ("pending", "failed") and row.due <= minute]

    def start(self, key: str, minute: int, concurrent: bool) -> str | None:
        self.number += 1
        self.rows[key].due = minute + LEASE
        return f"{key}#{self.number}"

    def read(self, run: str) -> object:
        return self.rows[run.split("#", maxsplit=1)[0]].count

    def submit_verdict(self, run: str, good: bool, state: object, minute: int) -> bool:
        row = self.rows[run.split("#", maxsplit=1)[0]]
        assert isinstance(state, int)
        row.count = state + 1
        row.status, row.due = ("success", 10**9) if good else ("failed", minute + RETRY)
        if good:
            row.run = run
        return good

    def restate(self, key: str, minute: int) -> None:
        self.rows[key].status, self.rows[key].due = "pending", minute

    def readable(self, key: str) -> bool:
        return self.rows[key].status == "success"

    def counted(self) -> int:
        return sum(row.count for row in self.rows.values())


class ClearAndRerun(Original):
    """A row lock and one run at a time. A rerun clears the old data, as a cleared date in Airflow does."""

    def start(self, key: str, minute: int, concurrent: bool) -> str | None:
        row = self.rows[key]
        if row.status == "running" and minute - row.begun < LEASE:
            return None
        row.status, row.begun = "running", minute
        self.number += 1
        return f"{key}#{self.number}"

    def due(self, minute: int) -> list[str]:
        return [
            key
            for key, row in self.rows.items()
            if (row.status in ("pending", "failed") and row.due <= minute)
            or (row.status == "running" and minute - row.begun >= LEASE)
        ]

    def submit_verdict(self, run: str, good: bool, state: object, minute: int) -> bool:
        return super().submit_verdict(run, good, self.read(run), minute)


class Ours:
    """redrive on SQLite in memory, with the clock of the scenario."""

    def __init__(self, keys: list[str], clock: FakeClock) -> None:
        self.clock = clock
        self.ledger = open_ledger("sqlite://")
        limits = [
            DatasetLimits(
                "crm", "orders", Policy(max_attempts=10**6, backoff=fixed(RETRY * 60), max_lost=10**4), concurrency=10**6
            )
        ]
        self.planes = [ControlPlane(self.ledger, limits), ControlPlane(self.ledger, limits)]
        self.authority, self.register = VerdictWriter(self.ledger, limits), PartitionQueries(self.ledger)
        self.leases: dict[str, PartitionLease] = {}
        self.waiting: list[PartitionLease] = []
        self.planes[0].backfill(Grid.of("crm", "orders", keys, DAY), actor="bench", because="the scenario")

    def due(self, minute: int) -> list[str]:
        self.planes[0].maintain()
        self.waiting = self.planes[0].claim(10_000, worker="w", lease=LEASE * 60 - 1)
        return [lease.partition.customer_id for lease in self.waiting]

    def start(self, key: str, minute: int, concurrent: bool) -> str | None:
        if concurrent:  # the other control plane claims at the same time
            other = self.planes[1].claim(10_000, worker="w2", lease=LEASE * 60 - 1)
            self.waiting += other
        lease = next((each for each in self.waiting if each.partition.customer_id == key), None)
        if lease is None:
            return None
        self.waiting.remove(lease)
        self.leases[lease.run_id] = lease
        return lease.run_id

    def read(self, run: str) -> object:
        return None

    def submit_verdict(self, run: str, good: bool, state: object, minute: int) -> bool:
        (result,) = self.authority.apply([Verdict(run, "accepted" if good else "rejected", reason="bad")])
        return result.outcome == "accepted"

    def restate(self, key: str, minute: int) -> None:
        selection = self.register.freeze("reprocess", PartitionFilter(source="crm", customers=[key]))
        self.planes[0].begin_requeue(selection, actor="bench", because="restated")
        self.planes[0].maintain()

    def readable(self, key: str) -> bool:
        partition = self.register.get(Partition("crm", key, "orders", DAY))
        return partition is not None and partition.status == "success"

    def counted(self) -> int:
        return sum(partition.attempt_count for partition in self.register.find(PartitionFilter(source="crm"), limit=100_000))


@dataclass
class Run:
    """A run in progress."""

    key: str
    run: str
    number: int
    started: int
    ends: int
    good: bool
    duplicate: bool
    zombie: bool


def simulate_faults(subject: Subject, keys: list[str], days: int, seed: int, clock: FakeClock | None = None) -> Tally:
    """Run the scenario. Random events depend only on the seed, the key and the number of its run."""
    tally = Tally()
    running: list[Run] = []
    turns = dict.fromkeys(keys, 0)
    accepted: dict[str, int] = {}
    restated = {key: random.Random(f"{seed}:{key}").randrange(600, days * 1440 - 600) for key in keys}
    for minute in range(days * 1440):
        if clock is not None and minute:
            clock.advance(60)
        for key in keys:
            if restated[key] == minute and key in accepted:
                subject.restate(key, minute)
        if minute % 5 == 0:
            _start_due(subject, running, turns, tally, minute, seed)
        ended = [run for run in running if run.ends <= minute]
        running = [run for run in running if run.ends > minute]
        # All validators read the state before the first verdict.
        states = [(run, subject.read(run.run)) for run in ended]
        for run, state in states:
            tally.verdicts += 1
            current = subject.submit_verdict(run.run, run.good, state, minute)
            if run.duplicate:
                subject.submit_verdict(run.run, run.good, subject.read(run.run), minute)
            if current:
                tally.overtaken += accepted.get(run.key, 0) > run.number
                accepted[run.key] = max(run.number, accepted.get(run.key, 0))
        if minute % 5 == 0:
            tally.unreadable += 5 * sum(not subject.readable(key) for key in accepted)
    tally.counted = subject.counted()
    return tally


def _start_due(subject: Subject, running: list[Run], turns: dict[str, int], tally: Tally, minute: int, seed: int) -> None:
    for key in subject.due(minute):
        both = random.Random(f"{seed}:{key}:{turns[key]}:seen").random() < 0.1
        for number in range(2 if both else 1):
            run = subject.start(key, minute, both and number == 1)
            if run is None:
                continue
            turns[key] += 1
            dice = random.Random(f"{seed}:{key}:{turns[key]}")
            zombie = dice.random() < 0.05
            tally.doubled += any(other.key == key and minute - other.started < LEASE for other in running)
            duration = dice.randrange(5, 15) + (LEASE + 20 if zombie else 0)
            running.append(Run(key, run, turns[key], minute, minute + duration, dice.random() < 0.7, dice.random() < 0.1, zombie))


@contextmanager
def _simulated_clock() -> Iterator[FakeClock]:
    clock = FakeClock()
    with simulate(Simulation(clock, lambda: 0.0, None, ledger=True)):
        yield clock


def compare(partitions: int, days: int, seed: int) -> dict[str, Tally]:
    """Run the same scenario for all algorithms."""
    keys = [f"c{number}" for number in range(partitions)]
    tallies = {
        "one status column": simulate_faults(Original(keys), keys, days, seed),
        "clear and rerun": simulate_faults(ClearAndRerun(keys), keys, days, seed),
    }
    with _simulated_clock() as clock:
        ours = Ours(keys, clock)
        try:
            tallies["redrive"] = simulate_faults(ours, keys, days, seed, clock)
        finally:
            ours.ledger.close()
    return tallies
