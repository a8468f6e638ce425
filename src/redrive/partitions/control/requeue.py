"""Requeue: queues partitions again at an operator's request, with an audit entry.

It is the only way from failed to pending without waiting for the policy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import select, update

from ...errors import Drift, NotAllowed
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import SWEPT, range_, work
from ...ledger.db.session import Session
from ..model import Kind, Lane, LaneName, Marker, status_when_requeued
from ..retry_schedule import DatasetLimits, after_rejection, policy_of
from ..store.changes import Changes
from ..store.frozen_selection import FrozenSelection, find_drift, skip_reason
from ..store.queries import runs_to_revalidate
from ..store.rows import (
    Markers,
    PartitionRow,
    PartitionWork,
    lock_sources,
    lock_with_work,
    new_work,
)
from ..store.sweeps import (
    DEFAULT_SHARE,
    PartitionSweep,
    insert_sweep,
    load_picks,
    load_sweep,
    pack_ids,
)
from . import sweeps
from .limits import attempt_budget, stored_age_limit

MAX_SEARCHED_ENTRIES = 1000
"""Newest entries of the audit log that are searched for a plan that was applied before."""
STEP_SIZE = 1000
"""Partitions in one transaction, so that claims never wait for long."""


@dataclass(frozen=True, slots=True)
class RequeueOptions:
    """How a bulk operation runs. Immutable."""

    rate: float | None = None
    canary: int = 0
    halt_on: float | None = None
    share: float = DEFAULT_SHARE
    lane: LaneName | None = None
    grant: int | None = None
    """New attempts for each. None: none for a retry, as many as the policy has for others."""
    clear_terminal: bool = False
    accept_drift: bool = False
    skip: Mapping[int, str] = field(default_factory=dict)
    """Selected partitions that are skipped, and why: "no raw data"."""


class RequeueStep(NamedTuple):
    """What one step did, and the sweep after it."""

    sweep: PartitionSweep
    made: int
    skipped: Mapping[str, int]
    wait: float
    """Seconds until the next step is useful."""


def begin_requeue(
    session: Session,
    planned: FrozenSelection,
    options: RequeueOptions,
    actor: str,
    because: str,
    /,
) -> PartitionSweep:
    """Store a plan as a sweep, which is carried out from now on.

    Raises:
        Drift: Partitions have changed since the plan.
    """
    audit.check_actor(actor, because)
    now = now_on(session)
    drift = {} if options.accept_drift else find_drift(session.core, planned)
    if drift:
        changed = ", ".join(f"{count} {change}" for change, count in sorted(drift.items()))
        sweep_id = _find_applied(session, planned)
        if sweep_id is not None:
            raise Drift(
                f"the plan was already applied as sweep {sweep_id}, see "
                f"`redrive backfill status {sweep_id}`; partitions since then: {changed}. To "
                "change them again, make a new plan. Nothing was changed"
            )
        raise Drift(
            f"partitions changed since the plan: {changed}. "
            "Make a new plan, or skip these partitions with --accept-drift skip "
            "(in code: accept_drift=True)"
        )
    lane = options.lane or ("backfill" if planned.act == "reprocess" else "retry")
    skip = options.skip
    # Skipped partitions have had their turn: they stand before the cursor.
    pages = ([each for each in page if each not in skip] for page in planned.ids.read_pages())
    sweep = insert_sweep(
        session,
        planned.act,
        now,
        actor=actor,
        because=because,
        total=planned.count,
        rate=options.rate,
        canary=min(options.canary, planned.count - len(skip)),
        lane=int(Lane.of(lane)),
        datasets=json.dumps(planned.datasets),
        picks=b"".join(map(pack_ids, chain([list(skip)], pages))),
        cursor=len(skip),
        skipped=len(skip),
        skips=json.dumps(Counter(skip.values())),
        share=options.share,
        halt_on=options.halt_on,
        amount=options.grant,
        clear=options.clear_terminal,
    )
    details: dict[str, Any] = {
        "count": planned.count,
        "digest": planned.digest,
        "datasets": [list(dataset) for dataset in planned.datasets],
        "lane": lane,
        "grant": options.grant,
        "clear_terminal": options.clear_terminal,
        "rate": options.rate,
        "canary": options.canary,
    }
    if skip:
        details["skipped"] = len(skip)
    details["sweep"] = sweep.id
    action = f"partition.{planned.act}"
    audit.write(session, actor=actor, action=action, because=because, what=details)
    return sweep


def _find_applied(session: Session, planned: FrozenSelection) -> int | None:
    """Return the sweep that this plan became before, by the newest entries of the audit log."""
    newest, _ = audit.head(session.core)
    after, action = max(0, newest - MAX_SEARCHED_ENTRIES), f"partition.{planned.act}"
    found = audit.entries(
        session.core, after=after, action=action, newest=True, limit=MAX_SEARCHED_ENTRIES
    )
    for entry in found:
        if entry.what.get("digest") == planned.digest:
            return int(entry.what["sweep"])
    return None


def requeue_next(session: Session, sweep_id: int, draw: Callable[[], float], /) -> RequeueStep:
    """Queue the next partitions of a sweep. Several processes may do this at the same time."""
    known = load_sweep(session.core, sweep_id)
    if known is None:
        raise NotAllowed(f"unknown sweep {sweep_id} of partitions")
    now = now_on(session)
    lock_sources(session, known.sources, now)
    sweep = load_sweep(session.core, sweep_id, lock=True)
    assert sweep is not None
    if sweep.state != "running" or sweep.is_range or sweep.cursor >= sweep.total:
        return RequeueStep(sweep, 0, {}, 1.0)
    allowed = sweeps.allowance(sweep, STEP_SIZE, now)
    if allowed.halt is not None:
        sweeps.halt_sweep(session, sweep, allowed.halt, now)
        return RequeueStep(load_sweep(session.core, sweep_id) or sweep, 0, {}, 0.0)
    if not allowed.room:
        return RequeueStep(sweep, 0, {}, max(1.0, (sweep.next_at - now).total_seconds()))
    changes, queued, skips = _requeue(session, sweep, allowed.room, draw, now)
    sweeps.advance_sweep(
        session,
        changes,
        sweep,
        now,
        scanned=allowed.room,
        queued=queued,
        skips=skips,
        passed=allowed.passed,
    )
    changes.write(session)
    return RequeueStep(load_sweep(session.core, sweep_id) or sweep, queued, skips, 0.0)


def _requeue(
    session: Session,
    sweep: PartitionSweep,
    count: int,
    draw: Callable[[], float],
    now: datetime,
) -> tuple[Changes, int, Counter[str]]:
    ids = load_picks(session.core, sweep.id, sweep.cursor, count)
    rows, work_by_id, markers = lock_with_work(session.core, ids)
    is_revalidation = sweep.act == "revalidate"
    raw_runs = runs_to_revalidate(session.core, ids) if is_revalidation else {}
    changes = Changes(rows)
    skips: Counter[str] = Counter()
    queued = 0
    for partition_id in ids:
        row = rows.get(partition_id)
        if row is None:
            skips["gone"] += 1
            continue
        own = work_by_id.get(row.id)
        own_markers = markers.get(row.id, {})
        reason = _skip_reason(row, own, own_markers, sweep)
        if reason is None and is_revalidation and row.id not in raw_runs:
            reason = "no raw data"
        if reason is not None:
            skips[reason] += 1
            continue
        queued += 1
        if own is not None and own.sweep_id:
            changes.sweep_counts[own.sweep_id, "failed"] += 1  # it leaves another sweep
        raw_run_id = raw_runs.get(row.id)
        if own is None:
            changes.work_inserted[row.id] = _sweep_work(row, sweep, raw_run_id, draw(), now)
        else:
            changes.work[row.id] = _sweep_work(row, sweep, raw_run_id, own.seed, now)
        _update_partition(changes, row, own_markers, sweep, now)
    return changes, queued, skips


def _skip_reason(
    row: PartitionRow, own: PartitionWork | None, markers: Markers, sweep: PartitionSweep
) -> str | None:
    if own is not None and own.is_leased:
        return "running now"
    if "paused" in markers:
        return "paused"
    return skip_reason(sweep.act, row.display_status, clear_terminal=sweep.clear)


def _sweep_work(
    row: PartitionRow, sweep: PartitionSweep, raw_run_id: str | None, seed: float, now: datetime
) -> PartitionWork:
    kind: Kind = "retry" if row.current_run_id is None else "reprocess"
    own = new_work(
        row,
        kind,
        now,
        f"sweep {sweep.id}: {sweep.actor}",
        seed=seed,
        lane=sweep.lane,
        sweep_id=sweep.id,
    )
    return own if raw_run_id is None else own._replace(kind="revalidate", raw_run_id=raw_run_id)


def _update_partition(
    changes: Changes, row: PartitionRow, markers: Markers, sweep: PartitionSweep, now: datetime
) -> None:
    clears_terminal = "terminal" in markers and sweep.act != "revalidate"
    if clears_terminal:
        changes.delete_marker(row.id, "terminal")
    if sweep.amount is not None or clears_terminal or row.current_run_id is not None:
        request = (sweep.act, sweep.actor, sweep.because)
        changes.set_marker(row.id, Marker("grant", *request, now, row.attempt_count, sweep.amount))
    is_terminal = "terminal" in markers and not clears_terminal
    row = row._replace(status=status_when_requeued(row.status), updated_at=now)
    changes.rows[row.id] = row.with_display_status(is_terminal=is_terminal)


# ---- cancelled sweeps ----


def withdraw_queued(
    session: Session, sweep_id: int, datasets: Mapping[tuple[str, str], DatasetLimits], /
) -> int:
    """Withdraw queued work of a cancelled sweep. Return how many partitions were withdrawn.

    A partition that had failed has failed again. It is retried when its policy would have retried
    it, unless a backfill had queued it.
    """
    now = now_on(session)
    sweep = load_sweep(session.core, sweep_id)
    assert sweep is not None
    lock_sources(session, sweep.sources, now)
    own = select(work.c.partition_id).where(work.c.sweep_id == sweep_id, SWEPT).limit(STEP_SIZE)
    ids = list(session.core.execute(own.where(work.c.lease_until.is_(None))).scalars())
    if not ids:
        if session.core.execute(own.limit(1)).first() is None:
            session.core.execute(
                update(range_).where(range_.c.sweep_id == sweep_id).values(withdrawn=True)
            )
        return 0
    rows, work_by_id, markers = lock_with_work(session.core, ids)
    changes = Changes(rows)
    for partition_id in ids:
        row = rows[partition_id]
        queued = work_by_id[partition_id]
        own_markers = markers.get(partition_id, {})
        due = None
        if not sweep.is_range and not own_markers.keys() & {"terminal", "paused"}:
            due = _due_by_policy(session, row, queued, own_markers, datasets)
        changes.sweep_counts[sweep_id, "failed"] += 1
        if due is None:
            changes.work_deleted.add(partition_id)
        else:
            queued = queued.requeue(due, "backoff, as before")
            changes.work[partition_id] = queued._replace(lane=int(Lane.RETRY), sweep_id=0)
        if row.status == "pending" and row.last_verdict == "rejected":
            row = row._replace(status="failed", updated_at=now)
        changes.rows[partition_id] = row.with_display_status(is_terminal="terminal" in own_markers)
    changes.write(session)
    return len(ids)


def _due_by_policy(
    session: Session,
    row: PartitionRow,
    queued: PartitionWork,
    markers: Markers,
    datasets: Mapping[tuple[str, str], DatasetLimits],
) -> datetime | None:
    """Return when the policy would retry a partition: with its stored seed, the time as before."""
    if row.verdict_at is None or row.last_verdict != "rejected" or row.current_run_id is not None:
        return None
    policy = policy_of(datasets, row.dataset)
    budget = attempt_budget(policy, row.attempt_count, markers.get("grant"))
    budget = budget._replace(used=max(1, budget.used))
    due = after_rejection(policy, budget, queued.seed, row.verdict_at, None).due
    if due is None:
        return None
    # From now on it is not an operator's request.
    by_policy = queued._replace(lane=int(Lane.RETRY), sweep_id=0)
    is_too_old = stored_age_limit(session.core, policy, row, by_policy, due) is not None
    return None if is_too_old else due
