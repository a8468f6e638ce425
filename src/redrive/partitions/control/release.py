"""Returning: leases that end without a verdict. Held longer, given back uncharged, or run out with their worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import bindparam, select, update

from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import work
from ...ledger.db.session import Session
from ...ledger.validation import storable_text
from ..key import Partition
from ..model import Lease, Return
from ..retry_schedule import Next, Policy, Terms, after_loss, after_return
from ..store.rows import POLICY, Changes, Mark, Row, Work, hold_sources, locked, marks, works
from . import source_health
from .max_age import stored_age_limit
from .source_health import hold_sweeps, pardoned

_HOLD = (
    update(work)
    .where(work.c.partition_id == bindparam("at_id"), work.c.attempt_no == bindparam("at_fence"))
    .where(work.c.run_id == bindparam("at_run"), work.c.lease_until.is_not(None))
    .values(lease_until=bindparam("to_until"))
)


def renewed(session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
    """Hold these longer; those that are lost."""
    until = now_on(session) + timedelta(seconds=seconds)
    lost = []
    for lease in sorted(leases, key=lambda one: one.partition_id):
        given = {"at_id": lease.partition_id, "at_fence": lease.attempt_no, "at_run": lease.run_id, "to_until": until}
        if not session.core.execute(_HOLD, given).rowcount:
            lost.append(lease)
    return lost


def given_back(
    session: Session, returns: Sequence[Return], terms: Mapping[tuple[str, str], Terms],
    spare: Mapping[tuple[int, int], str], seed: float, most: int, /,
) -> int:  # fmt: skip
    """Back in the queue, uncharged; how many still were theirs to give. A source that is not well rests. spare: attempts that
    were rejected before anybody knew why, and why."""
    now = now_on(session)
    held = hold_sources(session, {one.lease.partition.source for one in returns}, now)
    sweeps = hold_sweeps(session, spare) if spare else {}
    ids = [*(one.lease.partition_id for one in returns), *(id_ for id_, _ in spare)]
    was = locked(session.core, ids)
    waiting, marked = works(session.core, ids), marks(session.core, ids)
    changes = Changes(was)
    ended = []
    for one in returns:
        mine = waiting.get(one.lease.partition_id)
        if mine is None or not mine.leased or mine.partition_id in changes.work:
            continue
        if (mine.attempt_no, mine.run_id) != (one.lease.attempt_no, one.lease.run_id):
            continue
        policy = _policy(terms, was[mine.partition_id])
        then = after_return(policy, one.cause, one.after, mine.seed, one.lease.attempt_no, now)
        _back(changes, was[mine.partition_id], mine._replace(lost=0), then, marked.get(mine.partition_id, {}), now)
        note = storable_text(f"{one.cause}: {one.error}" if one.error else one.cause)
        ended.append({"run_id": one.lease.run_id, "state": "returned", "ended_at": now, "note": note})
        its = held[one.lease.partition.source]
        if one.cause == "systemic":
            key = str(one.lease.partition)
            source_health.rest(
                session, its, policy, now, partition=key, error=one.error, after=one.after, signature=one.signature
            )
            held |= hold_sources(session, [its.source], now)
        elif one.cause in ("ledger", "stopped"):
            # It says nothing of the source. If this was the probe, the next one goes at once.
            if its.actor == POLICY:
                source_health.lose_probes(session, held, [one.lease.run_id], now)
        elif its.paused_at is not None and its.probes and its.actor == POLICY:
            source_health.opened_again(session, its.source, now)  # it speaks to us again
            held |= hold_sources(session, [its.source], now)
    back = len(ended)
    if spare:
        ended += pardoned(session, changes, spare, sweeps, waiting, marked, partial(_policy, terms), seed, most, now)
    changes.write(session, ended=ended)
    return back


def reaped(session: Session, terms: Mapping[tuple[str, str], Terms], limit: int, /) -> list[Partition]:
    """Take back leases that ran out. They are counted apart, and bounded."""
    now = now_on(session)
    over = select(work.c.partition_id).where(work.c.lease_until.is_not(None), work.c.lease_until < now).limit(limit)
    ids = list(session.core.execute(over).scalars())
    if not ids:
        return []
    paused = source_health.resting(session.core, ids)
    held = hold_sources(session, paused, now) if paused else {}
    was = locked(session.core, ids)
    waiting, marked = works(session.core, ids), marks(session.core, ids)
    changes = Changes(was)
    ended: list[dict[str, Any]] = []
    for id_, mine in sorted(waiting.items()):
        if mine.lease_until is None or mine.lease_until >= now or id_ not in was:
            continue  # renewed, or judged, while we waited for it
        row, lost = was[id_], mine.lost + 1
        policy = _policy(terms, row)
        then = after_loss(policy, lost, mine.seed, now, stored_age_limit(session.core, policy, row, mine, now))
        _back(changes, row, mine._replace(lost=lost), then, marked.get(id_, {}), now)
        note = f"the lease expired; its worker was {mine.worker}"
        ended.append({"run_id": mine.run_id, "state": "lost", "ended_at": now, "note": note})
    if held:
        source_health.lose_probes(session, held, [str(one["run_id"]) for one in ended], now)
    changes.write(session, ended=ended)
    return [was[id_].partition for id_ in sorted({*changes.work, *changes.idle})]


def _back(changes: Changes, row: Row, mine: Work, then: Next, marked: Mapping[str, Mark], now: datetime) -> None:
    """Back in the queue, or out of it where that is over."""
    if then.terminal is not None and row.current_run_id is None and "terminal" not in marked:
        changes.mark(Mark(row.id, "terminal", then.terminal, POLICY, then.strategy, now, row.attempt_count, None))
        changes.rows[row.id] = row._replace(updated_at=now).shaded(True)
    if then.due is None or "paused" in marked or "terminal" in marked:
        changes.idle.add(row.id)
        changes.ranges[mine.sweep_id, "failed"] += 1
        return
    changes.work[row.id] = mine.released(then.due, then.strategy)


def _policy(terms: Mapping[tuple[str, str], Terms], row: Row) -> Policy:
    known = terms.get(row.dataset)
    return Policy() if known is None else known.policy
