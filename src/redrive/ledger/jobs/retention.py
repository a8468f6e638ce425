"""Retention: prune done and cancelled jobs by age.

A pruned job keeps its row, emptied, until its key expires. Deleting the row and storing the key
elsewhere would not work: a submit that waits for the delete would not see the stored key. A
cancelled job does not hold its key, so its row is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, null, select, update

from ..db.clock import now_on
from ..db.compiled import sql_int
from ..db.job_tables import tag
from ..db.session import Session
from ..db.tables import attempt, dead, job
from ..model import CANCELLED, DONE, PRUNED
from ..stats.counters import add
from ..store import steps

STATEMENT_SECONDS = 300
"""Limit for one statement on Postgres, because a worker's heartbeat waits for it."""
_EMPTY = (
    update(job)
    .where(job.c.id == bindparam("of_id"))
    .values(
        state=PRUNED,
        payload=b"",
        result=null(),
        error=null(),
        ids=null(),
        headers=null(),
        expires_at=bindparam("until"),
    )
)


class Pruned(NamedTuple):
    """Numbers of rows that one call of `prune` changed."""

    jobs: int
    """Done jobs that were emptied, and cancelled jobs whose rows were deleted."""
    keys: int
    """Pruned jobs whose rows were deleted, because their key expired."""


def prune(session: Session, older: float, limit: int, /) -> Pruned:
    """Empty done jobs and delete cancelled jobs that ended more than `older` seconds ago, oldest
    first.

    Also deletes pruned jobs whose key expired. Each of these changes at most `limit` rows. Dead
    letters are kept, with the cancelled replays of pending ones.
    """
    with session.transaction("prune", bound=STATEMENT_SECONDS):
        jobs = prune_done(session, older, limit) + _delete_cancelled(session, older, limit)
    with session.transaction("prune", bound=STATEMENT_SECONDS):
        keys = _delete_expired(session, limit)
    return Pruned(jobs, keys)


def prune_done(session: Session, older: float, limit: int, /) -> int:
    """Empty done jobs in the open transaction, and return how many."""
    before = now_on(session) - timedelta(seconds=older)
    old = (
        select(job.c.id, job.c.kind, job.c.ended_at, job.c.keep)
        .where(job.c.state == sql_int(DONE), job.c.ended_at < before)
        .order_by(job.c.ended_at, job.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = session.core.execute(old).all()
    if not rows:
        return 0
    ids = [row.id for row in rows]
    session.core.execute(delete(attempt).where(attempt.c.job_id.in_(ids)))
    steps.delete_of_jobs(session.core, ids)
    delete_tags(session.core, ids)
    values = [
        {
            "of_id": row.id,
            "until": None if row.keep is None else row.ended_at + timedelta(seconds=row.keep),
        }
        for row in rows
    ]
    session.core.execute(_EMPTY, values)
    kinds = Counter(row.kind for row in rows)
    add(session, {kind: {"done": -count, "pruned": count} for kind, count in kinds.items()})
    return len(rows)


def _delete_cancelled(session: Session, older: float, limit: int) -> int:
    """Delete cancelled jobs. They stay counted as cancelled."""
    before = now_on(session) - timedelta(seconds=older)
    is_needed = exists().where(dead.c.job_id == job.c.id, dead.c.status == "pending")
    old = (
        select(job.c.id)
        .where(job.c.state == sql_int(CANCELLED), job.c.ended_at < before, ~is_needed)
        .order_by(job.c.ended_at, job.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = session.core.execute(old).scalars().all()
    if ids:
        session.core.execute(delete(attempt).where(attempt.c.job_id.in_(ids)))
        steps.delete_of_jobs(session.core, ids)
        delete_tags(session.core, ids)
        session.core.execute(delete(job).where(job.c.id.in_(ids)))
    return len(ids)


def _delete_expired(session: Session, limit: int) -> int:
    expired = (
        select(job.c.id)
        .where(job.c.state == sql_int(PRUNED), job.c.expires_at <= now_on(session))
        .order_by(job.c.expires_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = session.core.execute(expired).scalars().all()
    if ids:
        session.core.execute(delete(job).where(job.c.id.in_(ids)))
    return len(ids)


def delete_tags(connection: Connection, job_ids: Sequence[int], /) -> None:
    """Delete the tags of jobs."""
    connection.execute(delete(tag).where(tag.c.job_id.in_(list(job_ids))))
