"""Progress: how far a sweep over partitions is, and when it may end; what a backfill would find."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import func, select

from ...ledger.db.partition_tables import SWEPT, partition, rollup, work
from ...ledger.db.session import Session
from ..model import SHADES, Lane
from .sweeps import Grid, Range

RECENT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep over partitions is. Immutable. total = ok + failed + skipped + active + queued + untouched."""

    sweep_id: int
    act: str
    state: str
    actor: str
    because: str
    datasets: Sequence[tuple[str, str]]
    since: date | None
    until: date | None
    lane: Lane
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
    """Ended otherwise: terminal, withdrawn, or handed on to another sweep or to the policy."""
    skipped: int
    skips: Mapping[str, int]
    active: int
    queued: int
    """Had their turn, and wait: for a slot, or for another attempt."""
    untouched: int
    accepted: int
    rejected: int
    created_at: datetime
    eta: datetime | None
    """When it may be done, at the pace of all that was done so far; none: nobody can say."""

    @property
    def done(self) -> float:
        """From 0 to 1."""
        return 1.0 if not self.total else (self.ok + self.failed + self.skipped) / self.total


@dataclass(frozen=True, slots=True)
class GridPlan:
    """What a backfill of a range would find. Immutable."""

    total: int
    shades: Mapping[str, int]
    """How those stand of which anything is stored."""
    overlaps: Sequence[int]
    """Sweeps under way that have some of the same; it would be refused."""

    @property
    def new(self) -> int:
        """Of how many nothing is stored."""
        return self.total - sum(self.shades.values())


def of(session: Session, one: Range, now: datetime, /) -> Progress:
    """How far it is."""
    mine = select(func.count()).where(work.c.sweep_id == one.id, SWEPT)
    active = session.core.execute(mine.where(work.c.lease_until.is_not(None))).scalar_one()
    ended = one.ok + one.failed + one.skipped
    left = one.total - ended
    eta = None
    if one.state == "running" and left and ended > 0:
        eta = now + (now - one.created_at) * (left / ended)
    return Progress(
        one.id, one.act, one.state, one.actor, one.because, one.of, one.since, one.until, one.in_lane, one.share, one.rate,
        one.canary, one.halt_on, one.reason, one.total, one.ok, one.failed, one.skipped, json.loads(one.skips), active,
        max(0, one.open - active), one.total - one.made - one.skipped, one.accepted, one.rejected, one.created_at, eta,
    )  # fmt: skip


def planned(session: Session, grid: Grid, overlaps: Sequence[int], /) -> GridPlan:
    """What is stored of a range."""
    at = partition.c
    days = (rollup.c.logical_date >= grid.since, rollup.c.logical_date <= grid.until)
    here = (rollup.c.source == grid.source, rollup.c.query_name == grid.query_name)
    stored = session.core.execute(select(func.coalesce(func.sum(rollup.c.n), 0)).where(*here, *days)).scalar_one()
    shades: dict[str, int] = {}
    if stored:
        query = select(at.shade, at.customer_id, func.count()).where(
            at.source == grid.source,
            at.query_name == grid.query_name,
            at.logical_date >= grid.since,
            at.logical_date <= grid.until,
        )
        wanted = set(grid.customers)
        for shade, customer, many in session.core.execute(query.group_by(at.shade, at.customer_id)):
            if customer in wanted:
                shades[SHADES[shade]] = shades.get(SHADES[shade], 0) + many
    return GridPlan(len(grid), shades, tuple(overlaps))
