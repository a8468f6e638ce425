"""Explain: why a partition is not running, when it will run, and what else delays it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, func, or_, select

from ...core.text import pluralise
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import source as source_table
from ...ledger.db.partition_tables import work
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ...ledger.jobs.pauses import read_pauses
from ..key import Partition
from ..model import Explanation, Marker, PartitionRun, PartitionView
from ..retry_schedule import DatasetLimits, Policy
from ..store.queries import find_damage, load_view
from ..store.rows import (
    POLICY,
    SOURCE_COLUMNS,
    PartitionWork,
    SourceRow,
    read_markers,
    read_work,
)
from ..store.sweeps import ACTS, PartitionSweep, load_unfinished
from . import source_health
from .limits import attempt_budget, load_rate_limits
from .sweeps import load_grid

MAX_COUNTED = 100_000
"""A longer queue is not counted to its end."""


def explain_partition(
    session: Session, key: Partition, limits: DatasetLimits | None, /
) -> Explanation:
    """Explain the state of a partition.

    Args:
        limits: Of its dataset. None: unknown.
    """
    connection = session.core
    now = now_on(session)
    view = load_view(connection, key)
    own: PartitionWork | None = None
    damaged: PartitionRun | None = None
    sweep_of: PartitionSweep | None = None
    budget: str | None = None
    position: int | None = None
    queued: int | None = None
    if view is not None:
        own = read_work(connection, [view.id]).get(view.id)
        if view.current_raw_id is not None:
            damaged = find_damage(connection, view.id, view.current_raw_id)
        markers = read_markers(connection, [view.id]).get(view.id, {})
        budget = _budget(view, markers.get("grant"), limits)
    reasons: list[str] = []
    if own is None:
        if view is None or view.terminal is None:
            sweep_of = _find_sweep(session, key)
        if view is None and sweep_of is None and key.logical_date > now.date():
            reasons.append("the day is in the future, so it cannot be extracted yet")
        else:
            reasons.append(_why_not_queued(view, sweep_of, damaged))
    elif own.is_leased:
        lease = f"lease until {_at(own.lease_until)}"
        reasons.append(f"running now: run {own.run_id} on {own.worker}, {lease}")
        if own.lease_until is not None and own.lease_until < now:
            reasons.append(
                "the lease has expired because the worker is offline; "
                "another worker recovers the partition"
            )
    else:
        if own.due_at > now:
            reasons.append(f"scheduled for {_at(own.due_at)}: {own.strategy}")
        reasons += _why_sweep_waits(session, own)
        position, queued = _position(session, own)
    if sweep_of is not None or (own is not None and not own.is_leased):
        reasons += _limits_reached(session, key, limits, now)
    sweep_id = None if sweep_of is None else sweep_of.id
    return Explanation(view, now, tuple(reasons), position, queued, budget, sweep_id, damaged)


def _why_not_queued(
    view: PartitionView | None, sweep_of: PartitionSweep | None, damaged: PartitionRun | None
) -> str:
    if view is not None and view.terminal is not None:
        return f"gave up ({view.terminal}); clear-terminal allows retries"
    if view is not None and view.paused is not None:
        return f"paused ({view.paused})"
    if sweep_of is not None:
        queued = f"{sweep_of.cursor} of {sweep_of.total} partitions are queued"
        return f"not queued yet by sweep {sweep_of.id} ({sweep_of.act}, {sweep_of.state}): {queued}"
    if view is None:
        return "never requested, neither by a schedule nor by a backfill"
    if damaged is not None:
        return "accepted, but its raw data is damaged and no new extraction is requested"
    if view.status != "success":
        return "failed, and no retry is requested"
    if view.last_verdict == "rejected":
        return "accepted; a newer run was rejected, and no other is requested"
    return "accepted, so no extraction is needed"


def _why_sweep_waits(session: Session, own: PartitionWork) -> list[str]:
    if not own.sweep_id:
        return []
    state = session.core.execute(select(sweep.c.state).where(sweep.c.id == own.sweep_id)).scalar()
    return [] if state == "running" else [f"sweep {own.sweep_id} is {state}"]


def _position(session: Session, own: PartitionWork) -> tuple[int, int]:
    """Return the place in the queue of its stream, and the length of that queue."""
    at = work.c
    stream = select(at.partition_id).where(
        at.lease_until.is_(None),
        at.source == own.source,
        at.query_name == own.query_name,
        at.lane == own.lane,
        at.sweep_id == own.sweep_id,
    )
    is_before = or_(
        at.due_at < own.due_at,
        and_(at.due_at == own.due_at, at.partition_id < own.partition_id),
    )
    counts = [
        select(func.count()).select_from(rows.limit(MAX_COUNTED).subquery()).scalar_subquery()
        for rows in (stream.where(is_before), stream)
    ]
    before, queued = session.core.execute(select(*counts)).one()
    return before + 1, queued


def _limits_reached(
    session: Session, key: Partition, limits: DatasetLimits | None, now: datetime
) -> list[str]:
    name = key.source
    dataset = f"{key.source}/{key.query_name}"
    stored = session.core.execute(
        select(*SOURCE_COLUMNS).where(source_table.c.source == name)
    ).first()
    row = None if stored is None else SourceRow._make(stored)
    reasons = []
    if row is not None and source_health.probe_allowance(row, now) is not None:
        until = f"until {_at(row.paused_until)}" if row.paused_until else "until it is unpaused"
        pause = f"by {row.actor} {until}"
        if row.actor == POLICY:
            probe = f"a successful probe (next: {_at(row.paused_until)})"
            pause = f"after an outage, resumes by itself after {probe}"
        reasons.append(f"source {name} is paused {pause}: {row.because}")
    by_hand = read_pauses(session.core, now).get("source", name)
    if by_hand is not None:
        until = "until it is resumed" if by_hand.until is None else f"until {_at(by_hand.until)}"
        paused = "the app" if by_hand.scope == "app" else f"source {name}"
        reasons.append(f"{paused} is paused by {by_hand.actor} {until}: {by_hand.because}")
    if limits is None:
        reasons.append(f"limits of {dataset} not checked, because only the app defines them")
        return reasons
    leased = select(work.c.query_name, func.count())
    leased = leased.where(work.c.source == name, work.c.lease_until.is_not(None))
    active = {row[0]: row[1] for row in session.core.execute(leased.group_by(work.c.query_name))}
    own = active.get(key.query_name, 0)
    total = sum(active.values())
    if own >= limits.concurrency:
        leases = pluralise(limits.concurrency, "lease")
        reasons.append(f"{dataset} has {own} of {leases} in use")
    if limits.source_concurrency is not None and total >= limits.source_concurrency:
        leases = pluralise(limits.source_concurrency, "lease")
        reasons.append(f"source {name} has {total} of {leases} in use")
    if row is not None:
        rates = load_rate_limits(session, {limits.dataset: limits}, {name: row}, now)
        buckets = [(dataset, bucket) for bucket in rates.datasets.values()]
        buckets += [(f"source {name}", bucket) for bucket in rates.sources.values()]
        reasons += [
            f"{limited} is limited to {bucket.rate:g} starts per second; "
            f"the next one in {bucket.seconds_after(0):.1f} s"
            for limited, bucket in buckets
            if not bucket.room
        ]
    return reasons


def _find_sweep(session: Session, key: Partition) -> PartitionSweep | None:
    """Return the unfinished sweep that contains a partition and has not queued it yet."""
    for each in load_unfinished(session.core, ACTS):
        if each.is_range and each.dataset_names[0] == (key.source, key.query_name):
            place = load_grid(session.core, each).place(key)
            if place is not None and place >= each.cursor:
                return each
    return None


def _budget(view: PartitionView, grant: Marker | None, limits: DatasetLimits | None) -> str:
    policy = Policy() if limits is None else limits.policy
    used, limit = attempt_budget(policy, view.attempt_count, grant)
    since = ""
    if grant and (grant.attempts or grant.amount is not None):
        since = f" since the grant by {grant.actor}"
    verdicts = pluralise(view.attempt_count, "verdict")
    runs = pluralise(view.dispatch_count, "run")
    left = f"{max(0, limit - used)} of {pluralise(limit, 'attempt')} left"
    return f"{left}{since}; {verdicts} and {runs} in total"


def _at(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
