"""Backfills, and the fresh work of schedules: both are stored as ranges of partitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from ...errors import NotAllowed
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import dataset, range_
from ...ledger.db.session import Session
from ..model import Lane
from ..retry_schedule import check_share
from ..store.rows import POLICY, lock_sources
from ..store.statements import upsert
from ..store.sweeps import (
    DEFAULT_SHARE,
    UNFINISHED,
    PartitionSweep,
    insert_sweep,
    load_sweep,
    load_unfinished,
)
from .sweeps import Grid, finish_sweeps, load_grid


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """How a backfill runs. Immutable."""

    share: float = DEFAULT_SHARE
    """Part of the capacity."""
    canary: int = 0
    """Partitions that go first. The rest follows if all succeed."""
    halt_on: float | None = None
    """Part of rejections above which it halts."""
    rate: float | None = None
    """Maximum partitions that start in a second."""
    again: bool = False
    """Also extract accepted partitions."""
    clear_terminal: bool = False
    """Also extract partitions that gave up."""


def begin_backfill(
    session: Session, grid: Grid, options: BackfillOptions, actor: str, because: str, /
) -> PartitionSweep:
    """Store a backfill.

    Raises:
        NotAllowed: An unfinished backfill has some of the same partitions.
    """
    audit.check_actor(actor, because)
    check_share("share", options.share)
    now = now_on(session)
    lock_sources(session, [grid.source], now)
    finish_sweeps(session, now)  # so that an ended sweep does not count as an overlap
    if overlaps := find_overlaps(session, grid):
        overlapping = "; ".join(
            f"sweep {sweep.id} ({sweep.state}) has {grid.overlap(other)} of them: {other}"
            for sweep, other in overlaps
        )
        raise NotAllowed(
            f"a backfill of the same partitions is running: {overlapping}; "
            "cancel it, wait for it, or choose others"
        )
    sweep = _insert_range(
        session,
        "backfill",
        grid,
        now,
        actor=actor,
        because=because,
        lane=int(Lane.BACKFILL),
        share=options.share,
        canary=min(options.canary, len(grid)),
        halt_on=options.halt_on,
        rate=options.rate,
        again=options.again,
        clear=options.clear_terminal,
    )
    audit.write(
        session,
        actor=actor,
        action="partition.backfill",
        because=because,
        what={
            "sweep": sweep.id,
            "dataset": f"{grid.source}/{grid.query_name}",
            "since": str(grid.since),
            "until": str(grid.until),
            "customers": len(grid.customers),
            "count": len(grid),
            "share": options.share,
            "canary": options.canary,
            "again": options.again,
        },
    )
    return sweep


def find_overlaps(session: Session, grid: Grid, /) -> list[tuple[PartitionSweep, Grid]]:
    """Return the unfinished backfills that have some of the same partitions, and their ranges."""
    backfills = [
        (sweep, load_grid(session.core, sweep))
        for sweep in load_unfinished(session.core, ("backfill",))
        if sweep.dataset_names[0] == grid.dataset
    ]
    return [(sweep, other) for sweep, other in backfills if grid.overlap(other)]


def set_share(
    session: Session, sweep_id: int, share: float, actor: str, because: str, /
) -> PartitionSweep:
    """Change the share of a sweep, from the next claim on."""
    audit.check_actor(actor, because)
    check_share("share", share)
    sweep = load_sweep(session.core, sweep_id)
    if sweep is None:
        raise NotAllowed(f"unknown sweep {sweep_id} of partitions")
    if sweep.state not in UNFINISHED:
        raise NotAllowed(f"sweep {sweep_id} is {sweep.state}; only a running backfill has a share")
    session.core.execute(update(range_).where(range_.c.sweep_id == sweep_id).values(share=share))
    audit.write(
        session,
        actor=actor,
        action="sweep.share",
        because=because,
        what={"sweep": sweep_id, "from": sweep.share, "to": share},
    )
    return sweep._replace(share=share)


# ---- schedules ----


def enqueue_scheduled(
    session: Session,
    of: tuple[str, str],
    grids: Sequence[Grid],
    run_at: datetime,
    cron: str,
    /,
) -> list[PartitionSweep] | None:
    """Store the fresh work of a dataset's schedule, once for each time.

    Args:
        session: The session, in a transaction.
        of: Source and query.
        grids: The partitions. None for a dataset without customers.
        run_at: The time of the schedule.

    Returns:
        The sweeps. None: another worker was first.
    """
    now = now_on(session)
    lock_sources(session, [of[0]], now)
    last = last_fired_at(session, *of)
    if last is not None and last >= run_at:
        return None
    _store_schedule(session, of, run_at, cron)
    request = {"actor": POLICY, "because": f"cron {cron}", "share": DEFAULT_SHARE}
    lane = int(Lane.FRESH)
    return [_insert_range(session, "fresh", grid, now, **request, lane=lane) for grid in grids]


def fire_now(session: Session, grid: Grid, actor: str, because: str, /) -> PartitionSweep:
    """Store the work of a dataset's schedule that an operator fires by hand.

    The times of the schedule stay as they are.
    """
    audit.check_actor(actor, because)
    now = now_on(session)
    lock_sources(session, [grid.dataset[0]], now)
    request = {"actor": actor, "because": because, "share": DEFAULT_SHARE, "lane": int(Lane.FRESH)}
    sweep = _insert_range(session, "fresh", grid, now, **request)
    what = {"schedule": "/".join(grid.dataset), "sweep": sweep.id, "day": grid.since.isoformat()}
    audit.write(session, actor=actor, action="schedule.fire", because=because, what=what)
    return sweep


def start_schedule_at(
    session: Session, source: str, query_name: str, run_at: datetime, cron: str, /
) -> datetime:
    """Return the last handled time of a schedule. A new schedule starts at `run_at`."""
    # The row may exist for its rate.
    only_new = {"where": dataset.c.fired_at.is_(None)}
    _store_schedule(session, (source, query_name), run_at, cron, **only_new)
    return last_fired_at(session, source, query_name) or run_at


def _store_schedule(
    session: Session, of: tuple[str, str], run_at: datetime, cron: str, **condition: Any
) -> None:
    new = upsert(session, dataset).values(
        source=of[0], query_name=of[1], cron=cron, fired_at=run_at
    )
    session.core.execute(
        new.on_conflict_do_update(
            index_elements=list(dataset.primary_key),
            set_={"cron": new.excluded.cron, "fired_at": new.excluded.fired_at},
            **condition,
        )
    )


def last_fired_at(session: Session, source: str, query_name: str, /) -> datetime | None:
    """Return the last time of a schedule whose work is stored."""
    query = select(dataset.c.fired_at).where(
        dataset.c.source == source, dataset.c.query_name == query_name
    )
    return session.core.execute(query).scalar()


def _insert_range(
    session: Session, act: str, grid: Grid, now: datetime, **fields: Any
) -> PartitionSweep:
    return insert_sweep(
        session,
        act,
        now,
        total=len(grid),
        datasets=json.dumps([list(grid.dataset)]),
        since=grid.since,
        until=grid.until,
        customers=json.dumps(grid.customers),
        newest=grid.newest,
        **fields,
    )
