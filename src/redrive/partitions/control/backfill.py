"""Backfill: a range of partitions is written down as a range. So is fresh work: what a cron brings is a range of its day."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update

from ...errors import NotAllowed
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import dataset, range_
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ..model import LANES
from ..retry_schedule import share as checked
from ..store.rows import hold_sources, upsert
from . import sweeps
from .fair_share import SHARE
from .sweeps import Grid, Range

UNDER_WAY = ("running", "paused", "halted")


@dataclass(frozen=True, slots=True)
class Overlap:
    """A backfill under way that has partitions of another. Immutable."""

    sweep_id: int
    state: str
    partitions: int
    grid: Grid


def begin(
    session: Session, grid: Grid, actor: str, because: str, /, *, share: float = SHARE, canary: int = 0,
    halt_on: float | None = None, rate: float | None = None, again: bool = False, clear_terminal: bool = False,
) -> Range:  # fmt: skip
    """Write a backfill down. NotAllowed: another one under way has some of the same partitions."""
    audit.check_actor(actor, because)
    checked("share", share)
    now = now_on(session)
    hold_sources(session, [grid.source], now)
    sweeps.finish(session, now)  # what has ended, and nobody has said so yet, is in nobody's way
    if met := overlaps(session, grid):
        said = "; ".join(f"sweep {one.sweep_id} ({one.state}) has {one.partitions} of them: {one.grid}" for one in met)
        raise NotAllowed(f"a backfill of the same partitions is running: {said}; cancel it, wait for it, or choose others")
    found = _begun(
        session, "backfill", grid, now, actor, because, lane=LANES.index("backfill"), share=share,
        canary=min(canary, len(grid)), halt_on=halt_on, rate=rate, again=again, clear=clear_terminal,
    )  # fmt: skip
    what = {
        "sweep": found.id, "dataset": f"{grid.source}/{grid.query_name}", "since": str(grid.since), "until": str(grid.until),
        "customers": len(grid.customers), "count": len(grid), "share": share, "canary": canary, "again": again,
    }  # fmt: skip
    audit.write(session, actor=actor, action="partition.backfill", because=because, what=what)
    return found


def overlaps(session: Session, grid: Grid, /) -> list[Overlap]:
    """Backfills under way that have some of the same partitions."""
    query = (
        select(*sweeps.COLUMNS)
        .join(range_, range_.c.sweep_id == sweep.c.id)
        .where(sweep.c.act == "backfill", sweep.c.state.in_(UNDER_WAY))
        .where(range_.c.since <= grid.until, range_.c.until >= grid.since)
    )
    found = []
    for one in map(Range._make, session.core.execute(query)):
        if one.of[0] == (grid.source, grid.query_name):
            other = sweeps.grid_of(session.core, one)
            if many := grid.overlap(other):
                found.append(Overlap(one.id, one.state, many, other))
    return found


def fire(session: Session, of: tuple[str, str], grids: Sequence[Grid], moment: datetime, cron: str, /) -> list[Range] | None:
    """Fresh work of a firing of a dataset's cron, once for its moment. None: somebody was first."""
    now = now_on(session)
    hold_sources(session, [of[0]], now)
    last = fired(session, *of)
    if last is not None and last >= moment:
        return None
    new = upsert(session, dataset).values(source=of[0], query_name=of[1], cron=cron, fired_at=moment)
    changed = {"cron": new.excluded.cron, "fired_at": new.excluded.fired_at}
    session.core.execute(new.on_conflict_do_update(index_elements=list(dataset.primary_key), set_=changed))
    lane = LANES.index("fresh")
    return [_begun(session, "fresh", grid, now, "redrive", f"cron {cron}", lane=lane, share=SHARE) for grid in grids]


def seen(session: Session, source: str, query_name: str, moment: datetime, cron: str, /) -> datetime:
    """The last moment of a dataset's cron; of one that has never fired this one, from now on: it is written down."""
    new = upsert(session, dataset).values(source=source, query_name=query_name, cron=cron, fired_at=moment)
    first = {"cron": new.excluded.cron, "fired_at": new.excluded.fired_at}
    # Its row may be there already for its rate.
    unfired = dataset.c.fired_at.is_(None)
    session.core.execute(new.on_conflict_do_update(index_elements=list(dataset.primary_key), set_=first, where=unfired))
    return fired(session, source, query_name) or moment


def fired(session: Session, source: str, query_name: str, /) -> datetime | None:
    """The last moment of a dataset's cron whose work is written down; None: there was none yet."""
    query = select(dataset.c.fired_at).where(dataset.c.source == source, dataset.c.query_name == query_name)
    return session.core.execute(query).scalar()


def set_share(session: Session, sweep_id: int, share: float, actor: str, because: str, /) -> Range:
    """Give a sweep another part of the slots, from the next claim on."""
    audit.check_actor(actor, because)
    checked("share", share)
    found = sweeps.get(session.core, sweep_id)
    if found is None:
        raise NotAllowed(f"unknown sweep {sweep_id} of partitions")
    if found.state not in UNDER_WAY:
        raise NotAllowed(f"sweep {sweep_id} is {found.state}; only a running backfill has a share")
    session.core.execute(update(range_).where(range_.c.sweep_id == sweep_id).values(share=share))
    what = {"sweep": sweep_id, "from": found.share, "to": share}
    audit.write(session, actor=actor, action="sweep.share", because=because, what=what)
    return found._replace(share=share)


def _begun(session: Session, act: str, grid: Grid, now: datetime, actor: str, because: str, **fields: object) -> Range:
    return sweeps.begun(
        session, act, now, actor=actor, because=because, total=len(grid), datasets=json.dumps([[grid.source, grid.query_name]]),
        since=grid.since, until=grid.until, customers=json.dumps(grid.customers), newest=grid.newest, **fields,
    )  # fmt: skip
