"""Pardon: attempts that outages do not charge. A rejection that turned out to be an outage's stays counted, and a grant makes
up for it. How many attempts of a partition were not charged follows from its runs: they outlive every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from ..ledger.limits import words
from ..ledger.partition_tables import run
from ..ledger.session import Session
from .among import Among
from .pace import after_return
from .policy import Policy
from .rows import POLICY, Changes, Mark, Row, Work

_NAMES = ("partition_id", "attempt_no", "run_id", "state", "ended_at", "note", "sweep_id", "kind")
_RUNS = Among(run.c.partition_id, lambda these: select(*(run.c[name] for name in _NAMES)).where(these).order_by(run.c.attempt_no))
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
    if row.dispatch_count == row.attempt_count and (grant is None or grant.actor != POLICY):
        return 0  # every run has a verdict, and none was pardoned
    query = _COUNTED.where(run.c.partition_id == row.id)
    if grant is not None and grant.actor != POLICY:
        query = query.where(run.c.leased_at > grant.at)
    return connection.execute(query).scalar_one()


def pardoned(
    session: Session, changes: Changes, attempts: Mapping[tuple[int, int], str], waiting: Mapping[int, Work],
    marked: Mapping[int, Mapping[str, Mark]], policy: Callable[[Row], Policy], seed: float, most: int, now: datetime, /,
) -> list[dict[str, Any]]:  # fmt: skip
    """Give these attempts back to their partitions, each once; what to write of their runs. The partitions are locked.

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
            _again(changes, row, its, policy(row), seed, now)
    return ended


def _again(changes: Changes, row: Row, marked: Mapping[str, Mark], policy: Policy, seed: float, now: datetime) -> None:
    """It was its last attempt, and is no more."""
    terminal = marked.get("terminal")
    if "paused" in marked or (terminal is not None and terminal.cause != "attempts"):
        return
    if terminal is not None:
        changes.unmark(row.id, "terminal")
    then = after_return(policy, "systemic", None, seed, row.dispatch_count, now)
    kind: Any = "retry" if row.current_run_id is None else "reprocess"
    changes.rows[row.id] = row._replace(updated_at=now).shaded(False)
    changes.new_work[row.id] = Work(
        row.id, row.source, row.query_name, 1, 0, then.due or now, now, kind, None, seed, then.strategy, 0, None, None, None, None
    )
