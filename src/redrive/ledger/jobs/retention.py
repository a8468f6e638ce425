"""Prune: done jobs by age. Their keys stay done until the key's own expiry: the row stays, emptied, and keeps the key."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, null, select, update

from ..db.clock import now_on
from ..db.compiled import number
from ..db.session import Session
from ..db.tables import attempt, job
from ..state import DONE, PRUNED
from ..stats.counters import add

BOUND = 300
"""Seconds for one statement on Postgres. Not without a limit: a worker's heartbeat waits for it."""
_EMPTIED = (
    update(job)
    .where(job.c.id == bindparam("of_id"))
    .values(
        state=PRUNED, payload=b"", result=null(), error=null(), ids=null(), headers=null(), expires_at=bindparam("until")
    )
)  # fmt: skip


class Pruned(NamedTuple):
    """Numbers of rows that one call of `prune` changed."""

    jobs: int
    """Done jobs that were emptied."""
    keys: int
    """Pruned jobs whose rows were deleted, because their key expired."""


def prune(session: Session, older: float, limit: int, /) -> Pruned:
    """Empty done jobs that ended more than `older` seconds ago, oldest first.

    Also deletes pruned jobs whose key expired. Each of the two changes at most `limit` rows. Dead
    letters are kept.
    """
    with session.transaction("prune", bound=BOUND) as connection:
        jobs = pruned(session, connection, older, limit)
    return Pruned(jobs, _forget(session, limit))


def pruned(session: Session, connection: Connection, older: float, limit: int, /) -> int:
    """The first half of it, in the transaction that is open."""
    old = (
        select(job.c.id, job.c.kind, job.c.ended_at, job.c.keep)
        .where(job.c.state == number(DONE), job.c.ended_at < now_on(session) - timedelta(seconds=older))
        .order_by(job.c.ended_at, job.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    found = connection.execute(old).all()
    if not found:
        return 0
    connection.execute(delete(attempt).where(attempt.c.job_id.in_([row.id for row in found])))
    # Not by deleting the row and noting the key elsewhere: a submit that waited for the delete would not see the note.
    expiry = [
        {"of_id": row.id, "until": None if row.keep is None else row.ended_at + timedelta(seconds=row.keep)} for row in found
    ]
    connection.execute(_EMPTIED, expiry)
    add(session, {kind: {"done": -count, "pruned": count} for kind, count in Counter(row.kind for row in found).items()})
    return len(found)


def _forget(session: Session, limit: int) -> int:
    with session.transaction("prune", bound=BOUND) as connection:
        old = (
            select(job.c.id)
            .where(job.c.state == number(PRUNED), job.c.expires_at <= now_on(session))
            .order_by(job.c.expires_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        ids = connection.execute(old).scalars().all()
        if ids:
            connection.execute(delete(job).where(job.c.id.in_(ids)))
    return len(ids)
