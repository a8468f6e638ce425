"""Sweeps over partitions: ranges of customers and days, allowances of sweeps, and progress."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, func, select, update

from ...core.text import pluralise
from ...ledger import audit
from ...ledger.db.partition_tables import SWEPT, partition, range_, rollup, work
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ..key import Day, Partition, check_name, parse_range
from ..model import DISPLAY_STATUSES, LaneName, PartitionFilter
from ..store.changes import Changes
from ..store.queries import count_marked, in_range, of_dataset
from ..store.rows import POLICY
from ..store.sweeps import RUNNING, PartitionSweep, load_sweep

MIN_VERDICTS = 20
"""Verdicts before the part of rejections can halt a sweep."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Customers times days of one dataset, in an order. Immutable: threads may share it."""

    source: str
    query_name: str
    customers: tuple[str, ...]
    since: date
    until: date
    newest: bool = True
    """The last day first, with all customers of a day together."""

    @classmethod
    def of(
        cls,
        source: str,
        query_name: str,
        customers: Iterable[str],
        since: Day,
        until: Day | None = None,
        /,
        *,
        newest: bool = True,
    ) -> Self:
        """Return a range, both ends included.

        Raises:
            ValueError: The range is reversed, or has no customer.
        """
        first, last = parse_range(since, until)
        check_name("source", source)
        check_name("query", query_name)
        if isinstance(customers, str):
            raise TypeError(f"customers= is a collection of ids, not one text: [{customers!r}]")
        unique = tuple(dict.fromkeys(check_name("a customer", each) for each in customers))
        if not unique:
            raise ValueError(f"{source}/{query_name}: no customers to extract")
        return cls(source, query_name, unique, first, last, newest)

    def __len__(self) -> int:
        return len(self.customers) * self.days

    @property
    def dataset(self) -> tuple[str, str]:
        """Its source and query."""
        return self.source, self.query_name

    @property
    def days(self) -> int:
        """Number of days."""
        return (self.until - self.since).days + 1

    def at(self, place: int, /) -> Partition:
        """Return the partition at a position, from 0."""
        if not 0 <= place < len(self):
            size = pluralise(len(self), "partition")
            raise IndexError(f"the range has {size}, and none at {place}")
        distance, customer = divmod(place, len(self.customers))
        days = timedelta(days=distance)
        day = self.until - days if self.newest else self.since + days
        return Partition(self.source, self.customers[customer], self.query_name, day)

    def place(self, key: Partition, /) -> int | None:
        """Return the position of a partition. None: the range does not contain it."""
        if (key.source, key.query_name) != self.dataset or key.customer_id not in self.customers:
            return None
        day = key.logical_date
        if not self.since <= day <= self.until:
            return None
        distance = (self.until - day if self.newest else day - self.since).days
        return distance * len(self.customers) + self.customers.index(key.customer_id)

    def overlap(self, other: Grid, /) -> int:
        """Return the number of partitions that both contain."""
        if self.dataset != other.dataset:
            return 0
        days = (min(self.until, other.until) - max(self.since, other.since)).days + 1
        return max(0, days) * len(set(self.customers) & set(other.customers))

    def __str__(self) -> str:
        customers = pluralise(len(self.customers), "customer")
        days = f"{self.since} to {self.until}"
        return f"{self.source}/{self.query_name}: {customers} × {days} = {len(self)}"


def load_grid(connection: Connection, of: PartitionSweep, /) -> Grid:
    """Return the partitions of a range."""
    query = select(range_.c.customers).where(range_.c.sweep_id == of.id)
    customers = json.loads(connection.execute(query).scalar_one())
    assert of.since is not None and of.until is not None
    return Grid(*of.dataset_names[0], tuple(customers), of.since, of.until, of.newest)


# ---- how far a sweep may go ----


class Allowance(NamedTuple):
    """How many partitions of a sweep may be queued now, or why it must halt."""

    room: int
    halt: str | None = None
    passed: bool = False
    """Its canary succeeded."""


def allowance(of: PartitionSweep, limit: int, now: datetime, /) -> Allowance:
    """Return how many more partitions of a sweep may be queued. Pure."""
    verdicts = of.accepted + of.rejected - of.pardoned
    rejected = of.rejected - of.pardoned_rejected
    if of.halt_on is not None and verdicts >= MIN_VERDICTS and rejected > of.halt_on * verdicts:
        verb = "is a rejection" if rejected == 1 else "are rejections"
        part = f"{rejected} of {pluralise(verdicts, 'verdict')} {verb}"
        return Allowance(0, f"{part}; it halts above {of.halt_on:.0%}")
    passed = of.passed
    left = of.total - of.made - of.skipped
    if of.canary and not passed:
        if rejected > 0 or of.failed:
            failed = max(rejected, of.failed)
            return Allowance(0, f"canary failed, {failed} of the first {of.canary}")
        if of.ok < min(of.canary, of.total - of.skipped):
            left = min(left, of.canary - of.made)
        else:
            passed = True
    if of.rate is not None:
        limit = 0 if of.next_at > now else min(limit, max(1, int(of.rate)))
    return Allowance(max(0, min(limit, left)), None, passed)


def halt_sweep(session: Session, of: PartitionSweep, because: str, now: datetime, /) -> None:
    """Stop a sweep until an operator resumes or cancels it."""
    session.core.execute(
        update(sweep)
        .where(sweep.c.id == of.id)
        .values({"state": "halted", "reason": because, "updated_at": now})
    )
    audit.write(session, actor=POLICY, action="sweep.halt", because=because, what={"sweep": of.id})


def advance_sweep(
    session: Session,
    changes: Changes,
    of: PartitionSweep,
    now: datetime,
    /,
    *,
    scanned: int,
    queued: int,
    skips: Mapping[str, int],
    passed: bool,
) -> None:
    """Write how far a sweep has come: the sweep now, its range later with the changes.

    Args:
        changes: The changes of this transaction.
        scanned: Number of positions that had their turn.
        queued: Number of partitions that were queued or leased.
        skips: Number of skipped partitions by reason.
        passed: Its canary succeeded.
    """
    total_skips = Counter(json.loads(of.skips))
    total_skips.update(skips)
    values: dict[str, Any] = {
        "made": of.made + queued,
        "skipped": of.skipped + sum(skips.values()),
        "passed": passed,
        "updated_at": now,
    }
    if of.rate is not None and queued:
        values["next_at"] = now + timedelta(seconds=queued / of.rate)
    session.core.execute(update(sweep).where(sweep.c.id == of.id).values(values))
    skips_text = json.dumps(dict(total_skips), sort_keys=True)
    changes.cursors[of.id] = {"cursor": of.cursor + scanned, "skips": skips_text}


def finish_sweeps(session: Session, now: datetime, /) -> list[int]:
    """Mark running sweeps as done that have nothing queued or running. Return their ids."""
    done = []
    for running in [PartitionSweep._make(row) for row in session.core.execute(RUNNING)]:
        if running.cursor < running.total:
            continue
        stored = load_sweep(session.core, running.id, lock=True)
        left = select(work.c.partition_id).where(work.c.sweep_id == running.id, SWEPT).limit(1)
        has_work = session.core.execute(left).first() is not None
        if stored is not None and stored.state == "running" and not has_work:
            session.core.execute(
                update(sweep)
                .where(sweep.c.id == running.id)
                .values({"state": "done", "ended_at": now, "updated_at": now})
            )
            done.append(running.id)
    return done


# ---- progress ----


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """The progress of a sweep over partitions. Immutable.

    total = ok + failed + skipped + active + queued + untouched
    """

    sweep_id: int
    act: str
    state: str
    actor: str
    because: str
    datasets: Sequence[tuple[str, str]]
    since: date | None
    until: date | None
    lane: LaneName
    share: float
    rate: float | None
    canary: int
    halt_on: float | None
    reason: str | None
    """Why it was halted."""
    total: int
    ok: int
    """Ended accepted."""
    failed: int
    """Ended otherwise: gave up, withdrawn, or taken over by another sweep or the policy."""
    skipped: int
    skips: Mapping[str, int]
    active: int
    queued: int
    """Waiting for capacity or for another attempt."""
    untouched: int
    accepted: int
    rejected: int
    created_at: datetime
    eta: datetime | None
    """Estimated end, at the average pace so far. None: unknown."""

    @property
    def done(self) -> float:
        """Part that has ended, from 0 to 1."""
        return 1.0 if not self.total else (self.ok + self.failed + self.skipped) / self.total


_COPIED = frozenset(PartitionSweep._fields) & {field.name for field in fields(SweepProgress)} - {
    "datasets",
    "lane",
    "skips",
}
"""Fields of a sweep that its progress has too."""


def sweep_progress(session: Session, of: PartitionSweep, now: datetime, /) -> SweepProgress:
    """Return the progress of a sweep."""
    own = select(func.count()).where(work.c.sweep_id == of.id, SWEPT)
    active = session.core.execute(own.where(work.c.lease_until.is_not(None))).scalar_one()
    ended = of.ok + of.failed + of.skipped
    left = of.total - ended
    eta = None
    if of.state == "running" and left and ended > 0:
        eta = now + (now - of.created_at) * (left / ended)
    return SweepProgress(
        sweep_id=of.id,
        datasets=of.dataset_names,
        lane=of.lane_name,
        skips=json.loads(of.skips),
        active=active,
        queued=max(0, of.open_count - active),
        untouched=of.total - of.made - of.skipped,
        eta=eta,
        **{name: getattr(of, name) for name in _COPIED},
    )


@dataclass(frozen=True, slots=True)
class GridPlan:
    """The partitions that a backfill of a range would contain. Immutable."""

    total: int
    shades: Mapping[str, int]
    """Stored partitions by display status."""
    overlaps: Sequence[int]
    """Unfinished backfills with some of the same partitions: it would be refused."""
    marked: Mapping[str, int] = field(default_factory=dict)
    """Partitions that operators marked as given up, by actor and reason."""

    @property
    def new(self) -> int:
        """Number of partitions of which nothing is stored."""
        return self.total - sum(self.shades.values())


def plan_grid(session: Session, grid: Grid, overlaps: Sequence[int], /) -> GridPlan:
    """Return what a backfill of a range would contain."""
    days = (grid.since, grid.until)
    total = of_dataset(select(func.coalesce(func.sum(rollup.c.n), 0)), rollup, *grid.dataset)
    total = in_range(total, rollup.c.logical_date, *days)
    shades: dict[str, int] = {}
    if session.core.execute(total).scalar_one():
        at = partition.c
        customers = set(grid.customers)
        counts = of_dataset(
            select(at.shade, at.customer_id, func.count()), partition, *grid.dataset
        )
        counts = in_range(counts, at.logical_date, *days).group_by(at.shade, at.customer_id)
        for shade, customer, count in session.core.execute(counts):
            if customer in customers:
                status = DISPLAY_STATUSES[shade]
                shades[status] = shades.get(status, 0) + count
    marked: dict[str, int] = {}
    if "terminal" in shades:
        selection = PartitionFilter(
            grid.source, grid.query_name, grid.customers, grid.since, grid.until
        )
        marked = count_marked(session.core, selection)
    return GridPlan(len(grid), shades, tuple(overlaps), marked)
