"""Ranges: sweeps over partitions. A grid (backfills, fresh work) has no rows before its turn; picks are ids that were planned."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, exists, func, insert, or_, select, text, update

from ...core.text import pluralise
from ...ledger import audit
from ...ledger.db.partition_tables import SWEPT, range_, work
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ..key import Day, Partition, named, span
from ..model import LANES, Lane
from ..store.rows import Changes
from .fair_share import SHARE

ACTS = ("backfill", "fresh", "retry", "reprocess", "revalidate")
"""Of sweeps over partitions; others are over dead letters."""
GRIDS = ("backfill", "fresh")
ENOUGH = 20
"""Verdicts before a part of them says anything."""


class Range(NamedTuple):
    """A sweep over partitions, without its customers and picks, which may be many."""

    id: int
    act: str
    state: str
    actor: str
    because: str
    rate: float | None
    canary: int
    passed: bool
    total: int
    made: int
    skipped: int
    next_at: datetime
    created_at: datetime
    reason: str | None
    lane: int
    datasets: str
    since: date | None
    until: date | None
    newest: bool
    cursor: int
    share: float
    halt_on: float | None
    again: bool
    amount: int | None
    clear: bool
    skips: str
    ok: int
    failed: int
    accepted: int
    rejected: int
    pardoned: int
    pardoned_rejected: int
    withdrawn: bool

    @property
    def of(self) -> list[tuple[str, str]]:
        """Its datasets."""
        return [(source, query) for source, query in json.loads(self.datasets)]

    @property
    def in_lane(self) -> Lane:
        """Its lane by name."""
        return LANES[self.lane]

    @property
    def a_grid(self) -> bool:
        """Whether its partitions have no rows before their turn."""
        return self.act in GRIDS

    @property
    def open(self) -> int:
        """How many were made, and have not ended."""
        return self.made - self.ok - self.failed


_SWEEP = frozenset(sweep.c.keys())
COLUMNS = tuple((sweep if name in _SWEEP else range_).c[name] for name in Range._fields)
_ALL = select(*COLUMNS).join(range_, range_.c.sweep_id == sweep.c.id).order_by(sweep.c.id)
# As the indexes say it: of all the sweeps that ever were, few are read. Those that are held are held in one order; SQLite, which
# holds none, would read all of them to save itself the sorting.
RUNNING = _ALL.where(text("redrive_sweep.state = 'running'"), sweep.c.act.in_(ACTS))
_its = select(work.c.partition_id).where(work.c.sweep_id == sweep.c.id, SWEPT)
CANCELLED = _ALL.where(
    text("redrive_sweep.state = 'cancelled'"),
    range_.c.withdrawn.is_(False),
    # What is left of it may be under way to the last one: then there is nothing to do yet.
    or_(exists(_its.where(work.c.lease_until.is_(None))), ~exists(_its)),
)


def running(session: Session, datasets: Iterable[tuple[str, str]], /, *, hold: bool = False) -> list[Range]:
    """Those that are under way and concern any of these datasets; hold: so that nobody pauses or cancels one meanwhile."""
    query = RUNNING.order_by(None) if session.sqlite else RUNNING
    if hold and not session.sqlite:
        query = query.with_for_update(of=sweep)
    wanted = set(datasets)
    found = (Range._make(row) for row in session.core.execute(query))
    return sorted(one for one in found if not wanted.isdisjoint(one.of))


def get(connection: Connection, sweep_id: int, /, *, hold: bool = False) -> Range | None:
    """One of them; None: there is none of that number, or it is over dead letters."""
    query = _ALL.where(sweep.c.id == sweep_id)
    row = connection.execute(query.with_for_update(of=sweep) if hold else query).first()
    return None if row is None else Range._make(row)


def cancelled(connection: Connection, /, *, limit: int = 10) -> list[Range]:
    """Those whose queued work is still to be taken back, or that nothing is left of."""
    return [Range._make(row) for row in connection.execute(CANCELLED.order_by(None).limit(limit))]


def grid_of(connection: Connection, one: Range, /) -> Grid:
    """The partitions of a grid."""
    customers = connection.execute(select(range_.c.customers).where(range_.c.sweep_id == one.id)).scalar_one()
    assert one.since is not None and one.until is not None
    return Grid(*one.of[0], tuple(json.loads(customers)), one.since, one.until, one.newest)


def picks(connection: Connection, sweep_id: int, since: int, many: int, /) -> list[int]:
    """Some of the ids that were planned, from a place on."""
    some = func.substr(range_.c.picks, since * 8 + 1, many * 8)
    stored = connection.execute(select(some).where(range_.c.sweep_id == sweep_id)).scalar_one()
    return unpacked(bytes(stored))


class Allowed(NamedTuple):
    """What a sweep may do now: so many, or nothing yet, or halt because."""

    many: int
    halt: str | None = None
    passed: bool = False


def allowed(one: Range, most: int, now: datetime, /) -> Allowed:
    """How many more of its partitions may have their turn. Pure."""
    verdicts = one.accepted + one.rejected - one.pardoned
    bad = one.rejected - one.pardoned_rejected
    if one.halt_on is not None and verdicts >= ENOUGH and bad > one.halt_on * verdicts:
        bad_ones = "is a rejection" if bad == 1 else "are rejections"
        return Allowed(0, f"{bad} of {pluralise(verdicts, 'verdict')} {bad_ones}; it halts above {one.halt_on:.0%}")
    passed = one.passed
    left = one.total - one.made - one.skipped
    if one.canary and not passed:
        if one.rejected > one.pardoned_rejected or one.failed:
            return Allowed(0, f"of the {one.canary} that went first {pluralise(max(bad, one.failed), 'was', 'were')} rejected")
        if one.ok < min(one.canary, one.total - one.skipped):
            left = min(left, one.canary - one.made)
        else:
            passed = True
    if one.rate is not None:
        most = 0 if one.next_at > now else min(most, max(1, int(one.rate)))
    return Allowed(max(0, min(most, left)), None, passed)


def halt(session: Session, one: Range, because: str, now: datetime, /) -> None:
    """Stop it where it is, until somebody looks."""
    session.core.execute(update(sweep).where(sweep.c.id == one.id).values(state="halted", reason=because, updated_at=now))
    audit.write(session, actor="redrive", action="sweep.halt", because=because, what={"sweep": one.id})


def advance(
    session: Session, changes: Changes, one: Range, now: datetime, /, *, scanned: int, made: int, skips: Mapping[str, int],
    passed: bool,
) -> None:  # fmt: skip
    """How far it has come: of the sweep at once, of its range with the changes, in the one order."""
    summed = Counter(json.loads(one.skips))
    summed.update(skips)
    values: dict[str, Any] = {"made": one.made + made, "skipped": one.skipped + sum(skips.values()), "passed": passed}
    if one.rate is not None and made:
        values["next_at"] = now + timedelta(seconds=made / one.rate)
    session.core.execute(update(sweep).where(sweep.c.id == one.id).values(values | {"updated_at": now}))
    changes.placed[one.id] = {"cursor": one.cursor + scanned, "skips": json.dumps(dict(summed), sort_keys=True)}


def finish(session: Session, now: datetime, /) -> list[int]:
    """Sweeps of which nothing is left to do, and nothing is under way, are done; their numbers."""
    done = []
    for one in [Range._make(row) for row in session.core.execute(RUNNING)]:
        if one.cursor < one.total:
            continue
        held = get(session.core, one.id, hold=not session.sqlite)
        busy = session.core.execute(select(work.c.partition_id).where(work.c.sweep_id == one.id, SWEPT).limit(1)).first()
        if held is not None and held.state == "running" and busy is None:
            values = {"state": "done", "ended_at": now, "updated_at": now}
            session.core.execute(update(sweep).where(sweep.c.id == one.id).values(values))
            done.append(one.id)
    return done


def begun(session: Session, act: str, now: datetime, /, *, actor: str, because: str, total: int, **fields: Any) -> Range:
    """Write a sweep down. fields: of the sweep, and of its range."""
    of_sweep = {name: value for name, value in fields.items() if name in _SWEEP}
    rest = {name: value for name, value in fields.items() if name not in _SWEEP}
    ended = {} if total else {"state": "done", "ended_at": now}
    new = insert(sweep).values(
        act=act, actor=actor, because=because, total=total, next_at=now, created_at=now, updated_at=now, **of_sweep, **ended
    )
    made = session.core.execute(new.returning(sweep.c.id)).scalar_one()
    session.core.execute(insert(range_).values(sweep_id=made, **{"share": SHARE} | rest))
    found = get(session.core, made)
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class Grid:
    """Customers times days of one dataset, in an order. Immutable: anything may share it."""

    source: str
    query_name: str
    customers: tuple[str, ...]
    since: date
    until: date
    newest: bool = True
    """The last day first, all customers of a day after each other."""

    @classmethod
    def of(
        cls, source: str, query_name: str, customers: Iterable[str], since: Day, until: Day | None = None, /, *,
        newest: bool = True,
    ) -> Self:  # fmt: skip
        """A range, both ends in it. ValueError where it is reversed, or has no customer."""
        first, last = span(since, until)
        named("source", source)
        named("query", query_name)
        if isinstance(customers, str):
            raise TypeError(f"customers= is a collection of ids, not one text: [{customers!r}]")
        unique = tuple(dict.fromkeys(named("a customer", one) for one in customers))
        if not unique:
            raise ValueError(f"{source}/{query_name}: no customers to extract")
        return cls(source, query_name, unique, first, last, newest)

    def __len__(self) -> int:
        return len(self.customers) * self.days

    @property
    def days(self) -> int:
        """How many days it has."""
        return (self.until - self.since).days + 1

    def at(self, place: int, /) -> Partition:
        """The partition at a place, from 0."""
        if not 0 <= place < len(self):
            raise IndexError(f"the range has {pluralise(len(self), 'partition')}, and none at {place}")
        later, customer = divmod(place, len(self.customers))
        on = self.until - timedelta(days=later) if self.newest else self.since + timedelta(days=later)
        return Partition(self.source, self.customers[customer], self.query_name, on)

    def place(self, partition: Partition, /) -> int | None:
        """Where a partition stands in it; None: nowhere."""
        if (partition.source, partition.query_name) != (self.source, self.query_name):
            return None
        if not self.since <= partition.logical_date <= self.until or partition.customer_id not in self.customers:
            return None
        later = (self.until - partition.logical_date if self.newest else partition.logical_date - self.since).days
        return later * len(self.customers) + self.customers.index(partition.customer_id)

    def overlap(self, other: Grid, /) -> int:
        """How many partitions both have."""
        if (self.source, self.query_name) != (other.source, other.query_name):
            return 0
        days = (min(self.until, other.until) - max(self.since, other.since)).days + 1
        return max(0, days) * len(set(self.customers) & set(other.customers))

    def __str__(self) -> str:
        whose = pluralise(len(self.customers), "customer")
        return f"{self.source}/{self.query_name}: {whose} × {self.since} to {self.until} = {len(self)}"


def packed(ids: Sequence[int], /) -> bytes:
    """Ids, eight bytes each: a part of them can be read without the rest."""
    return struct.pack(f">{len(ids)}q", *ids)


def unpacked(stored: bytes, /) -> list[int]:
    """Ids, as they were packed."""
    return list(struct.unpack(f">{len(stored) // 8}q", stored))
