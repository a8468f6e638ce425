"""Pardon: attempts that outages do not charge. A rejection that turned out to be an outage's stays counted, and a grant makes
up for it. How many attempts of a partition were not charged follows from its runs: they outlive every process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from ..ledger.limits import words
from ..ledger.partition_tables import run
from ..ledger.session import Session
from ..ledger.tables import sweep
from .age import BACKFILL, FRESH, RETRY
from .among import Among
from .pace import after_return
from .policy import Policy
from .rows import POLICY, Changes, Mark, Row, Work

_NAMES = ("partition_id", "attempt_no", "run_id", "state", "ended_at", "note", "sweep_id", "kind", "lane")
_RUNS = Among(run.c.partition_id, lambda these: select(*(run.c[name] for name in _NAMES)).where(these).order_by(run.c.attempt_no))
_STATES = select(sweep.c.id, sweep.c.state).order_by(sweep.c.id).with_for_update()
_SWEEPS = Among(sweep.c.id, _STATES.where)
NOTE = "not charged: "
RETURNED = ("systemic", "rate_limited", "ledger")
"""Causes of a return that do not count as attempts, and whose number is bounded."""
_UNCHARGED = or_(
    and_(run.c.state == "returned", or_(*(run.c.note.like(f"{cause.replace('_', '$_')}%", escape="$") for cause in RETURNED))),
    and_(run.c.state == "rejected", run.c.note.like(f"{NOTE}%")),
)
_COUNTED = select(func.count()).where(_UNCHARGED)


def uncharged(connection: Connection, row: Row, grant: Mark | None, /) -> int:
    """Attempts of a partition that were not charged, since an operator's last grant."""
    is_new_grant = grant is not None and grant.actor != POLICY and grant.attempts >= row.attempt_count
    if row.dispatch_count == row.attempt_count and (grant is None or is_new_grant):
        return 0  # every run has a verdict, and none was given back since the grant
    query = _COUNTED.where(run.c.partition_id == row.id)
    if grant is not None and grant.actor != POLICY:
        query = query.where(run.c.leased_at > grant.at)
    return connection.execute(query).scalar_one()


def hold_sweeps(session: Session, attempts: Collection[tuple[int, int]], /) -> dict[int, str]:
    """Lock the bulk operations that these attempts belong to, and return their states.

    To be called before partitions are locked. A bulk operation whose last partition is queued
    again must not be marked as done at the same time.
    """
    runs = [
        one
        for one in _RUNS.rows(session.core, sorted({id_ for id_, _ in attempts}))
        if (one.partition_id, one.attempt_no) in attempts
    ]
    ids = {one.sweep_id for one in runs if one.sweep_id}
    return {row.id: row.state for row in _SWEEPS.rows(session.core, sorted(ids))}


def pardoned(
    session: Session, changes: Changes, attempts: Mapping[tuple[int, int], str], sweeps: Mapping[int, str],
    waiting: Mapping[int, Work], marked: Mapping[int, Mapping[str, Mark]], policy: Callable[[Row], Policy], seed: float,
    most: int, now: datetime, /,
) -> list[dict[str, Any]]:  # fmt: skip
    """Give these attempts back to their partitions, each once; what to write of their runs. The partitions are locked.

    sweeps: states of the bulk operations, as `hold_sweeps` returns them.
    most: attempts of one partition that are not charged, in all.
    """
    ended = []
    left: dict[int, int] = {}
    for one in _RUNS.rows(session.core, sorted({id_ for id_, _ in attempts})):
        because = attempts.get((one.partition_id, one.attempt_no))
        if because is None or one.state != "rejected" or one.note is not None:
            continue
        row, its = changes.row(one.partition_id), marked.get(one.partition_id, {})
        if left.setdefault(row.id, most - uncharged(session.core, row, its.get("grant"))) <= 0:
            continue
        mark = changes.marked.get((row.id, "grant"), its.get("grant"))
        before = 0 if mark is None else mark.attempts
        if before >= row.attempt_count:
            continue  # somebody has granted new ones since
        left[row.id] -= 1
        limit = policy(row).max_attempts if mark is None or mark.amount is None else mark.amount
        new = Mark(row.id, "grant", "outage", POLICY, because, now, 0, None) if mark is None else mark
        changes.mark(new._replace(attempts=before + 1))
        changes.ranges[one.sweep_id, "pardoned"] += 1
        changes.ranges[one.sweep_id, "pardoned_rejected"] += 1
        ended.append({"run_id": one.run_id, "state": "rejected", "ended_at": one.ended_at, "note": words(NOTE + because)})
        last = one.attempt_no == row.dispatch_count and one.kind != "revalidate" and row.id not in waiting
        first = its["grant"].attempts if "grant" in its else 0
        if last and row.attempt_count - first >= limit:
            place = requeued_in(one.lane, one.sweep_id, sweeps.get(one.sweep_id))
            _again(changes, row, its, policy(row), seed, now, place)
    return ended


def requeued_in(lane: int, sweep_id: int, state: str | None, /) -> tuple[int, int]:
    """Return lane and bulk operation of a partition that is queued again after an outage. Pure.

    An operator's request stays one, so that `max_age` does not end it: in its bulk operation, or,
    if that is done, in the backfill lane. If it was cancelled, or there was none, the policy alone
    decides, as after any rejection.

    Args:
        lane: Lane of the last run.
        sweep_id: Bulk operation of the last run, or 0.
        state: State of that bulk operation. None: there is none.
    """
    if lane == FRESH or (sweep_id and state in (None, "cancelled")):
        return RETRY, 0
    if sweep_id and state == "done":
        return BACKFILL, 0
    return lane, sweep_id


def _again(
    changes: Changes,
    row: Row,
    marked: Mapping[str, Mark],
    policy: Policy,
    seed: float,
    now: datetime,
    place: tuple[int, int],
) -> None:
    """Queue a partition whose last attempt was given back. place: lane and bulk operation."""
    terminal = marked.get("terminal")
    if "paused" in marked or (terminal is not None and terminal.cause != "attempts"):
        return
    if terminal is not None:
        changes.unmark(row.id, "terminal")
    then = after_return(policy, "systemic", None, seed, row.dispatch_count, now)
    kind: Any = "retry" if row.current_run_id is None else "reprocess"
    changes.rows[row.id] = row._replace(updated_at=now).shaded(False)
    lane, sweep_id = place
    changes.ranges[sweep_id, "failed"] -= 1  # it was counted as ended
    changes.new_work[row.id] = Work(
        partition_id=row.id,
        source=row.source,
        query_name=row.query_name,
        lane=lane,
        sweep_id=sweep_id,
        due_at=then.due or now,
        queued_at=now,
        kind=kind,
        raw_run_id=None,
        seed=seed,
        strategy=then.strategy,
        lost=0,
        attempt_no=None,
        run_id=None,
        worker=None,
        lease_until=None,
    )
