"""Requeue: partitions that somebody has tried again. The only way from failed to pending, with an entry in the audit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select, update

from ...errors import Drift, NotAllowed
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import SWEPT, range_, work
from ...ledger.db.session import Session
from ..model import LANES, Kind, Lane
from ..retry_schedule import Policy, Terms, after_rejection
from ..status import requeued
from ..store.frozen_selection import Picked, drifted, left_alone
from ..store.queries import to_validate
from ..store.rows import Changes, Mark, Row, Work, hold_sources, locked, marks, works
from . import sweeps
from .fair_share import SHARE
from .max_age import stored_age_limit
from .sweeps import Range, packed

STEP = 1000
"""Partitions in one transaction: claims never wait for long."""


@dataclass(frozen=True, slots=True)
class Order:
    """How an act on many is to be carried out. Immutable."""

    rate: float | None = None
    canary: int = 0
    halt_on: float | None = None
    share: float = SHARE
    lane: Lane | None = None
    grant: int | None = None
    """New attempts for each; None: of a retry none, of a reprocessing as many as the policy has."""
    clear_terminal: bool = False
    accept_drift: bool = False
    skip: Mapping[int, str] = field(default_factory=dict)
    """Partitions that were picked and are skipped, and why in a word: "no raw data"."""


class Step(NamedTuple):
    """What one step did, and how the sweep stands after it."""

    sweep: Range
    made: int
    skipped: Mapping[str, int]
    wait: float
    """Seconds until another step makes sense."""


def begin(session: Session, picked: Picked, order: Order, actor: str, because: str, /) -> Range:
    """Write the plan down as a sweep. Drift: it is not as it was planned. From here on it is carried out."""
    audit.check_actor(actor, because)
    now = now_on(session)
    moved = {} if order.accept_drift else drifted(session.core, picked)
    if moved:
        said = ", ".join(f"{many} {what}" for what, many in sorted(moved.items()))
        raise Drift(
            f"the world has moved on since this was planned: {said}. Plan anew, or accept the drift: those are skipped then"
        )
    lane: Lane = order.lane or ("backfill" if picked.act == "reprocess" else "retry")
    what: dict[str, Any] = {
        "count": picked.count, "digest": picked.digest, "datasets": [list(one) for one in picked.datasets], "lane": lane,
        "grant": order.grant, "clear_terminal": order.clear_terminal, "rate": order.rate, "canary": order.canary,
    }  # fmt: skip
    if order.skip:
        what["skipped"] = len(order.skip)
    skips = Counter(order.skip.values())
    # Those that are skipped have had their turn: they stand in front of the cursor.
    picks = [*order.skip, *(id_ for id_ in picked.ids if id_ not in order.skip)] if order.skip else picked.ids
    found = sweeps.begun(
        session, picked.act, now, actor=actor, because=because, total=picked.count, rate=order.rate,
        canary=min(order.canary, picked.count - len(order.skip)), lane=LANES.index(lane), datasets=json.dumps(picked.datasets),
        picks=packed(picks), cursor=len(order.skip), skipped=len(order.skip), skips=json.dumps(skips),
        share=order.share, halt_on=order.halt_on, amount=order.grant, clear=order.clear_terminal,
    )  # fmt: skip
    audit.write(session, actor=actor, action=f"partition.{picked.act}", because=because, what=what | {"sweep": found.id})
    return found


def step(session: Session, sweep_id: int, draw: Callable[[], float], /) -> Step:
    """The next of them. Any number of processes may do this at once: each partition has its turn once."""
    seen = sweeps.get(session.core, sweep_id)
    if seen is None:
        raise NotAllowed(f"unknown sweep {sweep_id} of partitions")
    now = now_on(session)
    hold_sources(session, {source for source, _ in seen.of}, now)
    one = sweeps.get(session.core, sweep_id, hold=not session.sqlite)
    assert one is not None
    if one.state != "running" or one.a_grid or one.cursor >= one.total:
        return Step(one, 0, {}, 1.0)
    may = sweeps.allowed(one, STEP, now)
    if may.halt is not None:
        sweeps.halt(session, one, may.halt, now)
        return Step(sweeps.get(session.core, sweep_id) or one, 0, {}, 0.0)
    if not may.many:
        return Step(one, 0, {}, max(1.0, (one.next_at - now).total_seconds()))
    changes, made, skips = _requeued(session, one, may.many, draw, now)
    sweeps.advance(session, changes, one, now, scanned=may.many, made=made, skips=skips, passed=may.passed)
    changes.write(session)
    return Step(sweeps.get(session.core, sweep_id) or one, made, skips, 0.0)


def _requeued(
    session: Session, one: Range, many: int, draw: Callable[[], float], now: datetime
) -> tuple[Changes, int, Counter[str]]:
    ids = sweeps.picks(session.core, one.id, one.cursor, many)
    was = locked(session.core, ids)
    waiting, marked = works(session.core, ids), marks(session.core, ids)
    raw = to_validate(session.core, ids) if one.act == "revalidate" else {}
    changes, skips, made = Changes(was), Counter[str](), 0
    for id_ in ids:
        row, mine = was.get(id_), waiting.get(id_)
        why = "gone" if row is None else _left_alone(row, mine, marked.get(id_, {}), one)
        if why is None and one.act == "revalidate" and id_ not in raw:
            why = "no raw data"
        if why is not None or row is None:
            skips[why or "gone"] += 1
            continue
        made += 1
        if mine is not None and mine.sweep_id:
            changes.ranges[mine.sweep_id, "failed"] += 1  # another sweep's until now
        _again(changes, row, mine, marked.get(id_, {}), one, raw.get(id_), draw(), now)
    return changes, made, skips


def _left_alone(row: Row, mine: Work | None, marked: Mapping[str, Mark], one: Range) -> str | None:
    if mine is not None and mine.leased:
        return "running now"
    if "paused" in marked:
        return "paused"
    return left_alone(one.act, row.seen, one.clear)


def _again(
    changes: Changes, row: Row, mine: Work | None, marked: Mapping[str, Mark], one: Range, raw: str | None, seed: float,
    now: datetime,
) -> None:  # fmt: skip
    kind: Kind = "revalidate" if raw is not None else "reprocess" if row.current_run_id is not None else "retry"
    new = Work(
        row.id, row.source, row.query_name, one.lane, one.id, now, now, kind, raw, mine.seed if mine else seed,
        f"sweep {one.id}: {one.actor}", 0, None, None, None, None,
    )  # fmt: skip
    (changes.new_work if mine is None else changes.work)[row.id] = new
    cleared = "terminal" in marked and one.act != "revalidate"
    if cleared:
        changes.unmark(row.id, "terminal")
    if one.amount is not None or cleared or row.current_run_id is not None:
        changes.mark(Mark(row.id, "grant", one.act, one.actor, one.because, now, row.attempt_count, one.amount))
    row = row._replace(status=requeued(row.status), updated_at=now)
    changes.rows[row.id] = row.shaded("terminal" in marked and not cleared)


def withdrawn(session: Session, sweep_id: int, terms: Mapping[tuple[str, str], Terms], /) -> int:
    """Take back what a cancelled sweep has queued, and nobody has begun; how many.

    What had failed has failed again, and is tried when its policy would have had it tried, unless a backfill had brought it.
    """
    now = now_on(session)
    seen = sweeps.get(session.core, sweep_id)
    assert seen is not None
    hold_sources(session, {source for source, _ in seen.of}, now)
    mine = select(work.c.partition_id, work.c.lease_until).where(work.c.sweep_id == sweep_id, SWEPT).limit(STEP)
    found = session.core.execute(mine.where(work.c.lease_until.is_(None))).all()
    if not found:
        if session.core.execute(mine.limit(1)).first() is None:
            session.core.execute(update(range_).where(range_.c.sweep_id == sweep_id).values(withdrawn=True))
        return 0
    ids = [row[0] for row in found]
    was = locked(session.core, ids)
    waiting, marked = works(session.core, ids), marks(session.core, ids)
    changes = Changes(was)
    for id_ in ids:
        row, marks_ = was[id_], marked.get(id_, {})
        changes.ranges[sweep_id, "failed"] += 1
        due = (
            None
            if seen.a_grid or marks_.keys() & {"terminal", "paused"}
            else _by_policy(session, row, waiting[id_], marks_, terms)
        )
        if due is None:
            changes.idle.add(id_)
        else:
            changes.work[id_] = waiting[id_].released(due, "backoff, as before")._replace(lane=1, sweep_id=0)
        if row.status == "pending" and row.last_verdict == "rejected":
            row = row._replace(status="failed", updated_at=now)
        changes.rows[id_] = row.shaded("terminal" in marks_)
    changes.write(session)
    return len(ids)


def _by_policy(
    session: Session, row: Row, mine: Work, marked: Mapping[str, Mark], terms: Mapping[tuple[str, str], Terms]
) -> datetime | None:
    """When its policy would have it tried again: by the seed that is stored, the same moment as before."""
    if row.verdict_at is None or row.last_verdict != "rejected" or row.current_run_id is not None:
        return None
    known = terms.get(row.dataset)
    policy = Policy() if known is None else known.policy
    grant = marked.get("grant")
    limit = grant.amount if grant is not None and grant.amount is not None else policy.max_attempts
    attempts = max(1, row.attempt_count - (grant.attempts if grant else 0))
    due = after_rejection(policy, attempts, limit, mine.seed, row.verdict_at, None).due
    its_own = mine._replace(lane=1, sweep_id=0)  # from here on no operator's
    return None if due is None or stored_age_limit(session.core, policy, row, its_own, due) is not None else due
