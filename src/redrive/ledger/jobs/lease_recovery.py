"""Reap: leases that ran out. A crash is an outcome: it is recorded first, and may be the last one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, insert, null, select, update

from ..db.clock import now_on
from ..db.compiled import number
from ..db.session import Session
from ..db.tables import attempt, dead, job, worker
from ..events import origin
from ..failpoint import crash_point
from ..state import DEAD, LEASED, LOST, READY
from ..stats import failures
from ..stats.counters import add
from ..stats.failure_deltas import Alike, Failed, gathered
from .lease_expiry import Loss, after_loss

_COLUMNS = (
    job.c.id, job.c.fence, job.c.kind, job.c.key, job.c.priority, job.c.attempts, job.c.max_attempts, job.c.crashes, job.c.worker,
    job.c.started_at, job.c.reason, job.c.lease_until, job.c.dead_id, job.c.version, job.c.payload, job.c.headers, job.c.ids,
    worker.c.seen_at,
)  # fmt: skip
_BACK = (
    update(job)
    .where(job.c.id == bindparam("of_id"))
    .values(
        state=bindparam("to_state"),
        crashes=bindparam("to_crashes"),
        priority=bindparam("to_priority"),
        reason=bindparam("why"),
        error=bindparam("fault"),
        lease_until=null(),
        started_at=bindparam("began"),
        due_at=bindparam("due"),
        ended_at=bindparam("ended"),
    )
)
_EXPIRED = select(exists().where(job.c.state == number(LEASED), job.c.lease_until < func.clock_timestamp()))
_RETURNED = (
    update(dead)
    .where(dead.c.id == bindparam("of_id"))
    .values(
        status="pending", job_id=bindparam("died"), reason=bindparam("why"), blocked=False, blocked_until=null(),
        error=bindparam("fault"), signature=bindparam("why"), attempts=bindparam("made"), last_attempt_at=bindparam("last"),
        updated_at=bindparam("moment"),
    )
)  # fmt: skip


def reap(session: Session, limit: int, /, *, trusts: Callable[[datetime], bool] | None = None) -> list[int]:
    """Take back leases that ran out, the oldest first.

    Args:
        session: With no transaction open.
        limit: Maximum number of leases.
        trusts: Whether leases may be measured by this time of the ledger's clock; if not, none is taken back.

    Returns:
        The ids of their jobs.
    """
    if not session.sqlite and not _any_expired(session):
        return []
    with session.transaction("reap") as connection:
        now = now_on(session)
        if trusts is not None and not trusts(now):
            return []
        expired = (
            select(*_COLUMNS)
            .outerjoin_from(job, worker, worker.c.name == job.c.worker)
            .where(job.c.state == number(LEASED), job.c.lease_until < now)
            .order_by(job.c.lease_until)
            .limit(limit)
            .with_for_update(of=job, skip_locked=True)
        )
        lost = connection.execute(expired).all()
        if lost:
            _record(session, connection, lost, now)
    return [row.id for row in lost]


def _any_expired(session: Session) -> bool:
    """Most of the time there are none. On Postgres a look is one round trip, a transaction four."""
    crash_point("reap.before_commit")
    found = session.core.execute(_EXPIRED).scalar()
    crash_point("reap.after_commit")
    return bool(found)


def _record(session: Session, connection: Connection, lost: Any, now: Any) -> None:
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    failed: list[tuple[Alike, Failed]] = []
    backs, attempts, letters, returned = [], [], [], []
    for row in lost:
        after = after_loss(
            started=row.started_at is not None,
            alive=row.seen_at is not None and row.seen_at > row.lease_until,
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            crashes=row.crashes,
            priority=row.priority,
        )
        error = _words(row, after)
        is_dead = after.state == DEAD
        backs.append(
            {
                "of_id": row.id, "to_state": after.state, "to_crashes": after.crashes, "to_priority": after.priority,
                # What was only claimed goes back as it was, with what it was given back for before.
                "why": after.reason if after.attempt else row.reason, "fault": error,
                "began": row.started_at if is_dead else None, "due": now, "ended": now if is_dead else None,
            }
        )  # fmt: skip
        changes[row.kind].update({"leased": -1, "dead" if is_dead else "ready": 1})
        if after.attempt or is_dead:
            died = int(is_dead)
            failed.append(((row.kind, after.reason or ""), Failed(int(after.attempt), died, died, 0, row.id, error)))
        if after.attempt:
            attempts.append(
                {
                    "job_id": row.id, "fence": row.fence, "number": row.attempts, "outcome": LOST, "worker": row.worker,
                    "reason": after.reason, "error": error, "started_at": row.started_at, "ended_at": now,
                }
            )  # fmt: skip
        if is_dead and row.dead_id is not None:
            returned.append(
                {
                    "of_id": row.dead_id, "died": row.id, "why": after.reason, "fault": error, "made": row.attempts,
                    "last": row.started_at, "moment": now,
                }
            )  # fmt: skip
        elif is_dead:
            source, source_id = origin(row.headers)
            letters.append(
                {
                    "kind": row.kind, "key": row.key, "job_id": row.id, "reason": after.reason, "error": error,
                    "signature": after.reason, "attempts": row.attempts, "version": row.version, "payload": row.payload,
                    "headers": row.headers, "ids": row.ids, "last_attempt_at": row.started_at,
                    "created_at": now, "updated_at": now, "source": source, "source_id": source_id,
                }
            )  # fmt: skip
    for statement, rows in ((_BACK, backs), (insert(attempt), attempts), (insert(dead), letters), (_RETURNED, returned)):
        if rows:
            connection.execute(statement, rows)
    add(session, changes)
    failures.add(session, gathered(failed), now)


def _words(row: Any, after: Loss) -> str | None:
    if not after.attempt:
        return None
    if after.state == READY and after.reason == "lost_lease":
        return f"the worker {row.worker} did not renew its lease"
    return f"the worker {row.worker} was lost, with its lease, during attempt {row.attempts} (crash {after.crashes})"
