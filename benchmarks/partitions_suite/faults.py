"""One seeded script of faults, played to three: redrive, "one status column" and "clear and rerun".

Ten days of minutes. Each partition is extracted, later restated (an operator has it reprocessed), its extractions fail now and
then, a validator says some verdicts twice, two validators work at the same time, two control planes tick at the same time, and
some workers fall asleep and wake up after their work was given to another. Nothing here knows how any of the three works but
its own class.
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
"""Minutes after a failure."""
LEASE = 60
"""Minutes until somebody who says nothing is taken for dead."""
DAY = date(2026, 3, 1)


@dataclass
class Tally:
    """What became of it."""

    verdicts: int = 0
    """Distinct runs that a validator gave its word on."""
    counted: int = 0
    unreadable: int = 0
    """Minutes, over all partitions, in which data that had been accepted could not be read."""
    doubled: int = 0
    """Times that a partition was begun while somebody else had it, and was not yet taken for dead."""
    overtaken: int = 0
    """Times that what a late run brought took the place of a newer one's."""

    @property
    def miscounted(self) -> int:
        return abs(self.verdicts - self.counted)


class Subject(Protocol):
    """What the script is played to."""

    def due(self, minute: int) -> list[str]:
        """What a control plane sees to be due."""

    def start(self, key: str, minute: int, seen: bool) -> str | None:
        """Begin a run of it; None: it may not. seen: another plane saw it at the same moment, and begins it too."""

    def read(self, run: str) -> object:
        """A validator looks before it speaks."""

    def say(self, run: str, good: bool, looked: object, minute: int) -> bool:
        """And speaks, a moment later. Whether the run took, or kept, authority."""

    def restate(self, key: str, minute: int) -> None:
        """An operator has it reprocessed."""

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
    """One status column, and a count that is read in one connection and written in another, as the public original does."""

    def __init__(self, keys: list[str]) -> None:
        self.rows = {key: Row() for key in keys}
        self.number = 0

    def due(self, minute: int) -> list[str]:
        return [key for key, row in self.rows.items() if row.status in ("pending", "failed") and row.due <= minute]

    def start(self, key: str, minute: int, seen: bool) -> str | None:
        self.number += 1
        self.rows[key].due = minute + LEASE
        return f"{key}#{self.number}"

    def read(self, run: str) -> object:
        return self.rows[run.split("#", maxsplit=1)[0]].count

    def say(self, run: str, good: bool, looked: object, minute: int) -> bool:
        row = self.rows[run.split("#", maxsplit=1)[0]]
        assert isinstance(looked, int)
        row.count = looked + 1
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
    """A row lock, one run at a time, and a rerun that clears what was there: as Airflow reprocesses a date."""

    def start(self, key: str, minute: int, seen: bool) -> str | None:
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

    def say(self, run: str, good: bool, looked: object, minute: int) -> bool:
        return super().say(run, good, self.read(run), minute)


class Ours:
    """redrive, on SQLite in memory, by the script's own clock."""

    def __init__(self, keys: list[str], clock: FakeClock) -> None:
        self.clock = clock
        self.ledger = open_ledger("sqlite://")
        terms = [
            DatasetLimits(
                "crm", "orders", Policy(max_attempts=10**6, backoff=fixed(RETRY * 60), max_lost=10**4), concurrency=10**6
            )
        ]
        self.planes = [ControlPlane(self.ledger, terms), ControlPlane(self.ledger, terms)]
        self.authority, self.register = VerdictWriter(self.ledger, terms), PartitionQueries(self.ledger)
        self.leases: dict[str, PartitionLease] = {}
        self.waiting: list[PartitionLease] = []
        self.planes[0].backfill(Grid.of("crm", "orders", keys, DAY), actor="bench", because="the script")

    def due(self, minute: int) -> list[str]:
        self.planes[0].maintain()
        self.waiting = self.planes[0].claim(10_000, worker="w", lease=LEASE * 60 - 1)
        return [lease.partition.customer_id for lease in self.waiting]

    def start(self, key: str, minute: int, seen: bool) -> str | None:
        if seen:  # the other plane, at the same moment
            other = self.planes[1].claim(10_000, worker="w2", lease=LEASE * 60 - 1)
            self.waiting += other
        mine = next((lease for lease in self.waiting if lease.partition.customer_id == key), None)
        if mine is None:
            return None
        self.waiting.remove(mine)
        self.leases[mine.run_id] = mine
        return mine.run_id

    def read(self, run: str) -> object:
        return None

    def say(self, run: str, good: bool, looked: object, minute: int) -> bool:
        (told,) = self.authority.apply([Verdict(run, "accepted" if good else "rejected", reason="bad")])
        return told.outcome == "accepted"

    def restate(self, key: str, minute: int) -> None:
        picked = self.register.freeze("reprocess", PartitionFilter(source="crm", customers=[key]))
        self.planes[0].begin_requeue(picked, actor="bench", because="restated")
        self.planes[0].maintain()

    def readable(self, key: str) -> bool:
        found = self.register.get(Partition("crm", key, "orders", DAY))
        return found is not None and found.status == "success"

    def counted(self) -> int:
        return sum(one.attempt_count for one in self.register.find(PartitionFilter(source="crm"), limit=100_000))


@dataclass
class Under:
    """A run under way."""

    key: str
    run: str
    number: int
    begun: int
    ends: int
    good: bool
    twice: bool
    zombie: bool


def played(subject: Subject, keys: list[str], days: int, seed: int, clock: FakeClock | None = None) -> Tally:
    """Play the script. What chance decides depends on the key and the turn alone: the same for all."""
    tally = Tally()
    under: list[Under] = []
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
            _begin(subject, under, turns, tally, minute, seed)
        ended = [one for one in under if one.ends <= minute]
        under = [one for one in under if one.ends > minute]
        # Two validators look at the same moment, and speak one after the other.
        looked = [(one, subject.read(one.run)) for one in ended]
        for one, seen in looked:
            tally.verdicts += 1
            took = subject.say(one.run, one.good, seen, minute)
            if one.twice:
                subject.say(one.run, one.good, subject.read(one.run), minute)
            if took:
                tally.overtaken += accepted.get(one.key, 0) > one.number
                accepted[one.key] = max(one.number, accepted.get(one.key, 0))
        if minute % 5 == 0:
            tally.unreadable += 5 * sum(not subject.readable(key) for key in accepted)
    tally.counted = subject.counted()
    return tally


def _begin(subject: Subject, under: list[Under], turns: dict[str, int], tally: Tally, minute: int, seed: int) -> None:
    for key in subject.due(minute):
        seen = random.Random(f"{seed}:{key}:{turns[key]}:seen").random() < 0.1
        for again in range(2 if seen else 1):
            run = subject.start(key, minute, seen and again == 1)
            if run is None:
                continue
            turns[key] += 1
            dice = random.Random(f"{seed}:{key}:{turns[key]}")
            zombie = dice.random() < 0.05
            tally.doubled += any(one.key == key and minute - one.begun < LEASE for one in under)
            lasts = dice.randrange(5, 15) + (LEASE + 20 if zombie else 0)
            under.append(Under(key, run, turns[key], minute, minute + lasts, dice.random() < 0.7, dice.random() < 0.1, zombie))


@contextmanager
def _clocked() -> Iterator[FakeClock]:
    clock = FakeClock()
    with simulate(Simulation(clock, lambda: 0.0, None, ledger=True)):
        yield clock


def compared(partitions: int, days: int, seed: int) -> dict[str, Tally]:
    """The same script for each."""
    keys = [f"c{number}" for number in range(partitions)]
    found = {
        "one status column": played(Original(keys), keys, days, seed),
        "clear and rerun": played(ClearAndRerun(keys), keys, days, seed),
    }
    with _clocked() as clock:
        ours = Ours(keys, clock)
        try:
            found["redrive"] = played(ours, keys, days, seed, clock)
        finally:
            ours.ledger.close()
    return found
