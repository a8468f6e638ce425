"""Mirrors: jobs in the ledger that another engine runs, such as Temporal.

The engine decides about such a job. The ledger has a row for it if the job was submitted through
the ledger, or if it became a dead letter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from sqlalchemy import and_, false, select, tuple_, update

from .db.clock import now_on
from .db.connections import Connections
from .db.session import Session, from_json
from .db.tables import CHANNEL, CURRENT, job
from .model import (
    CANCELLED,
    DONE,
    DROPPED,
    LEASED,
    PRUNED,
    READY,
    Lease,
    NewJob,
    Settlement,
    new_token,
)
from .stats import counters
from .validation import check_job

RUN_HEADER = "redrive-run"
"""Header of a dead letter: the run of the other engine that failed."""
ERASED_KEYS = ("erased:", "erased:~")
"""First and last key of erased jobs. They keep the header."""
REPLACED_STATES = (DONE, DROPPED, PRUNED, CANCELLED)
"""States of a job whose key the engine has used again."""
LEASE = timedelta(minutes=1)
"""Only inside the transaction."""


class FailedRun(NamedTuple):
    """A job that another engine gave up. Immutable.

    Attributes:
        job: The job, with the run in its headers.
        attempts: Number of attempts.
        closed_at: When it ended, by the clock of the engine. None: now.
        worker: Worker of the last attempt.
        outcome: Whether it is a dead letter, or a blocked one.
        reason: Why it is dead.
        error: The last error.
        signature: Signature of the error.
        until: When a blocked job is replayed.
    """

    job: NewJob
    attempts: int
    closed_at: datetime | None
    worker: str | None
    outcome: Literal["dead", "blocked"]
    reason: str
    error: str | None
    signature: str | None
    until: datetime | None = None


def record_failed(connections: Connections, run: FailedRun, max_payload: int, /) -> int | None:
    """Make a dead letter of a job that another engine gave up. Once for each run.

    Returns:
        The id of the job. None if the ledger has a job for it that has not ended, or the dead
        letter of this or an earlier run.
    """
    new = check_job(run.job, max_payload)
    with connections.write.use() as session, session.transaction("settle"):
        if not _is_recordable(session, new, run.closed_at):
            return None
        (submitted,) = connections.store.submit_in(session.run, [new])
        if not submitted.created:
            return None
        token, now = new_token(), now_on(session)
        leased = {
            "state": LEASED,
            "fence": 1,
            "token": token,
            "attempts": run.attempts,
            "lease_until": now + LEASE,
            "started_at": now,
            "worker": run.worker,
        }
        session.core.execute(update(job).where(job.c.id == submitted.id).values(leased))
        counters.add(session, {new.kind: {"ready": -1, "leased": 1}})
        settlement = Settlement(
            submitted.id,
            1,
            new.kind,
            run.outcome,
            reason=run.reason,
            error=run.error,
            signature=run.signature,
            until=run.until,
            token=token,
        )
        connections.store.settle_in(session.run, [settlement])
        return submitted.id


def _is_recordable(session: Session, new: NewJob, closed_at: datetime | None) -> bool:
    """Return whether the run needs a row. Free the key if a job has it that ended long ago.

    A pruned job has no headers. If it ended later, it was a replay of the run.
    """
    query = select(job.c.id, job.c.state, job.c.headers, job.c.ended_at)
    row = session.core.execute(
        query.where(job.c.kind == new.kind, job.c.key == new.key, CURRENT)
    ).one_or_none()
    if row is None:
        return True
    run_id = (new.headers or {}).get(RUN_HEADER)
    is_same_run = (from_json(row.headers) or {}).get(RUN_HEADER) == run_id
    is_later = row.state == PRUNED and closed_at is not None and closed_at <= row.ended_at
    if row.state not in REPLACED_STATES or is_same_run or is_later:
        return False
    session.core.execute(update(job).where(job.c.id == row.id).values(current=false()))
    return True


def recorded_runs(connections: Connections, keys: Collection[tuple[str, str]], /) -> set[str]:
    """Return the runs of these job types and keys that are dead letters, replays or erased."""
    is_named = tuple_(job.c.kind, job.c.key).in_(list(keys))
    is_erased = and_(
        job.c.kind.in_({kind for kind, _ in keys}),
        job.c.key >= ERASED_KEYS[0],  # BETWEEN does not take a collation on Postgres
        job.c.key <= ERASED_KEYS[1],
    )
    queries = [select(job.c.headers).where(each, CURRENT) for each in (is_named, is_erased)]
    with connections.read.use() as session:
        rows = [row for query in queries for row in session.core.execute(query)]
    headers = [from_json(row.headers) or {} for row in rows]
    return {each[RUN_HEADER] for each in headers if RUN_HEADER in each}


def set_attempts(connections: Connections, lease: Lease, attempts: int, /) -> None:
    """Write how many attempts the other engine has made, before the job is settled."""
    is_held = (job.c.id == lease.job_id, job.c.fence == lease.fence, job.c.token == lease.token)
    with connections.write.use() as session, session.transaction("start"):
        session.core.execute(update(job).where(*is_held).values(attempts=attempts))


def make_due(connections: Connections, kind: str, key: str, /) -> bool:
    """Make a job due that waits for the other engine. Return whether there is one."""
    waits = (job.c.kind == kind, job.c.key == key, CURRENT, job.c.state == READY)
    with connections.write.use() as session, session.transaction("signal"):
        now = now_on(session)
        rows = session.core.execute(
            update(job).where(*waits, job.c.due_at > now).values(due_at=now).returning(job.c.id)
        ).all()
        if rows:
            session.notify(CHANNEL)
    return bool(rows)


def cancelled_since(
    connections: Connections, kinds: Sequence[str], since: datetime, /
) -> list[tuple[int, str, str]]:
    """Return id, job type and key of jobs that were cancelled in the ledger since this time."""
    query = select(job.c.id, job.c.kind, job.c.key).where(
        job.c.state == CANCELLED, job.c.ended_at >= since, job.c.kind.in_(list(kinds))
    )
    with connections.read.use() as session:
        return [(row.id, row.kind, row.key) for row in session.core.execute(query)]
