"""Leases that end without a verdict: renewed, released by their worker, or expired with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select, update

from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import work
from ...ledger.db.session import Session
from ...ledger.validation import storable_text
from ..key import Partition
from ..model import PartitionLease, Release
from ..retry_schedule import (
    DatasetLimits,
    NextAttempt,
    Policy,
    after_loss,
    after_release,
    policy_of,
)
from ..store.changes import Changes
from ..store.rows import (
    POLICY,
    Markers,
    PartitionRow,
    PartitionWork,
    SourceRow,
    lock_sources,
    lock_with_work,
)
from . import source_health
from .limits import stored_age_limit
from .source_health import Refunds

_RENEW = (
    update(work)
    .where(
        work.c.partition_id == bindparam("at_id"),
        work.c.attempt_no == bindparam("at_fence"),
        work.c.run_id == bindparam("at_run"),
        work.c.lease_until.is_not(None),
    )
    .values(lease_until=bindparam("to_until"))
)


def renew_leases(
    session: Session, leases: Sequence[PartitionLease], seconds: float, /
) -> list[PartitionLease]:
    """Renew leases. Return those that are lost."""
    until = now_on(session) + timedelta(seconds=seconds)
    lost = []
    for lease in sorted(leases, key=lambda lease: lease.partition_id):
        parameters = {
            "at_id": lease.partition_id,
            "at_fence": lease.attempt_no,
            "at_run": lease.run_id,
            "to_until": until,
        }
        if not session.core.execute(_RENEW, parameters).rowcount:
            lost.append(lease)
    return lost


def release_leases(
    session: Session,
    releases: Sequence[Release],
    datasets: Mapping[tuple[str, str], DatasetLimits],
    refunds: Mapping[tuple[int, int], str],
    /,
    *,
    seed: float,
    max_uncharged: int,
) -> int:
    """Queue partitions again without counting an attempt. A source with an outage is paused.

    Args:
        session: The session, in a transaction.
        datasets: Limits of the datasets.
        refunds: Attempts that were rejected before the outage was known, and the reason.
        seed: For the jitter of refunded partitions.
        max_uncharged: Attempts of one partition that are not charged, in total.

    Returns:
        How many leases were still valid.
    """
    now = now_on(session)
    sources = lock_sources(session, {each.lease.partition.source for each in releases}, now)
    sweep_states = source_health.lock_sweeps_of(session, refunds) if refunds else {}
    ids = [each.lease.partition_id for each in releases]
    ids += [partition_id for partition_id, _ in refunds]
    rows, work_by_id, markers = lock_with_work(session.core, ids)
    changes = Changes(rows)
    ended = []
    for each in releases:
        own = work_by_id.get(each.lease.partition_id)
        if own is None or not own.is_leased or own.partition_id in changes.work:
            continue
        if (own.attempt_no, own.run_id) != (each.lease.attempt_no, each.lease.run_id):
            continue
        row = rows[own.partition_id]
        policy = policy_of(datasets, row.dataset)
        retry = after_release(policy, each.cause, each.after, own.seed, each.lease.attempt_no, now)
        _requeue(changes, row, own._replace(lost=0), retry, markers.get(row.id, {}), now)
        note = storable_text(f"{each.cause}: {each.error}" if each.error else each.cause)
        run_end = {"state": "returned", "ended_at": now, "note": note}
        ended.append({"run_id": each.lease.run_id, **run_end})
        sources |= _update_source(session, sources[row.source], policy, each, now)
    count = len(ended)
    if refunds:
        refund = Refunds(
            reasons=refunds,
            max_uncharged=max_uncharged,
            sweep_states=sweep_states,
            work=work_by_id,
            markers=markers,
            policy_of=lambda row: policy_of(datasets, row.dataset),
            seed=seed,
        )
        ended += refund.apply(session, changes, now)
    changes.write(session, ended=ended)
    return count


def _update_source(
    session: Session, row: SourceRow, policy: Policy, release: Release, now: datetime
) -> dict[str, SourceRow]:
    """Pause or unpause the source of a released lease. Return its row if it may have changed."""
    if release.cause == "systemic":
        source_health.pause_for_outage(
            session,
            row,
            policy,
            now,
            partition=release.lease.partition,
            error=release.error,
            signature=release.signature,
            after=release.after,
        )
    elif release.cause in ("ledger", "stopped"):
        # That says nothing about the source. If it was the probe, the next one starts at once.
        if row.actor == POLICY:
            source_health.lose_probes(session, {row.source: row}, [release.lease.run_id], now)
        return {}
    elif row.is_paused_by_policy and row.probes:
        source_health.unpause_source(session, row.source, now)  # it responds
    else:
        return {}
    return lock_sources(session, [row.source], now)


def recover_expired(
    session: Session, datasets: Mapping[tuple[str, str], DatasetLimits], limit: int, /
) -> list[Partition]:
    """Queue partitions again whose lease has expired. Lost runs are counted, and limited."""
    now = now_on(session)
    is_expired = (work.c.lease_until.is_not(None), work.c.lease_until < now)
    ids = list(
        session.core.execute(select(work.c.partition_id).where(*is_expired).limit(limit)).scalars()
    )
    if not ids:
        return []
    paused = source_health.paused_sources_of(session.core, ids)
    sources = lock_sources(session, paused, now) if paused else {}
    rows, work_by_id, markers = lock_with_work(session.core, ids)
    changes = Changes(rows)
    ended: list[dict[str, Any]] = []
    for partition_id, own in sorted(work_by_id.items()):
        if own.lease_until is None or own.lease_until >= now or partition_id not in rows:
            continue  # renewed or settled while we waited for the lock
        row = rows[partition_id]
        lost = own.lost + 1
        policy = policy_of(datasets, row.dataset)
        max_age_at = stored_age_limit(session.core, policy, row, own, now)
        retry = after_loss(policy, lost, own.seed, now, max_age_at)
        _requeue(changes, row, own._replace(lost=lost), retry, markers.get(row.id, {}), now)
        note = f"the lease expired; its worker was {own.worker}"
        ended.append({"run_id": own.run_id, "state": "lost", "ended_at": now, "note": note})
    if sources:
        source_health.lose_probes(session, sources, [str(each["run_id"]) for each in ended], now)
    changes.write(session, ended=ended)
    return [rows[each].partition for each in sorted({*changes.work, *changes.work_deleted})]


def _requeue(
    changes: Changes,
    row: PartitionRow,
    own: PartitionWork,
    retry: NextAttempt,
    markers: Markers,
    now: datetime,
) -> None:
    """Queue a partition again, or end its work if it gave up or is paused."""
    if retry.terminal is not None and row.current_run_id is None and "terminal" not in markers:
        changes.give_up(row, retry.terminal, POLICY, retry.strategy, now)
    if retry.due is None or "paused" in markers or "terminal" in markers:
        changes.end_work(own)
    else:
        changes.work[row.id] = own.requeue(retry.due, retry.strategy)
