"""Mirrors: jobs in the ledger that another engine runs, such as Temporal.

The engine decides about such a job. The ledger has a row for it if the job was submitted through
the ledger, or if it became a dead letter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from sqlalchemy import and_, false, select, tuple_, update

from .db.clock import now_on
from .db.connections import Connections
from .db.session import Session, from_json
from .db.tables import CHANNEL, CURRENT, dead, job
from .model import (
    CANCELLED,
    DEAD,
    DONE,
    DROPPED,
    LEASED,
    PRUNED,
    READY,
    STATES,
    Lease,
    NewJob,
    Settlement,
    new_token,
)
from .stats import counters
from .stats.failure_groups import no_longer_pending
from .validation import check_job, to_json

RUN_HEADER = "redrive-run"
"""Header of a dead letter: the run of the other engine that failed."""
ERASED_KEYS = ("erased:", "erased:~")
"""First and last key of erased jobs. They keep the header."""
REPLACED_STATES = (DONE, DROPPED, PRUNED, CANCELLED)
"""States of a job whose key the engine has used again."""
LETTER_STATES = (DEAD, CANCELLED)
"""States of the job of a pending dead letter. The replay of a pending one may be cancelled."""
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
        joins: If the job is a pending dead letter of an earlier run, add this failure to it.
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
    joins: bool = False


def record_failed(connections: Connections, run: FailedRun, max_payload: int, /) -> int | None:
    """Make a dead letter of a job that another engine gave up. Once for each run.

    Returns:
        The id of the job. None if the ledger has a job for it that has not ended, or the dead
        letter of this or an earlier run.
    """
    new = check_job(run.job, max_payload)
    with connections.write.use() as session, session.transaction("settle"):
        row = _current_row(session, new)
        joined = _join(connections, session, run, new, row)
        if joined is not None:
            return joined
        if row is not None and not _free_key(session, new, row, run.closed_at):
            return None
        (submitted,) = connections.store.submit_in(session.run, [new])
        if not submitted.created:  # Another run of the job has been recorded meanwhile.
            return _join(connections, session, run, new, _current_row(session, new))
        counters.add(session, {new.kind: {"ready": -1, "leased": 1}})
        _settle(connections, session, run, submitted.id, 1, run.attempts)
        return submitted.id


def _settle(
    connections: Connections, session: Session, run: FailedRun, job_id: int, fence: int, made: int
) -> None:
    """Settle a job of which no worker has a lease, as if one had run it.

    Args:
        connections: Of the ledger.
        session: With an open transaction.
        run: How the job failed.
        job_id: The job.
        fence: Its new fence.
        made: Its attempts so far, with those of this run.
    """
    token, now = new_token(), now_on(session)
    leased = {
        "state": LEASED,
        "fence": fence,
        "token": token,
        "attempts": made,
        "lease_until": now + LEASE,
        "started_at": now,
        "worker": run.worker,
    }
    session.core.execute(update(job).where(job.c.id == job_id).values(leased))
    settlement = Settlement(
        job_id,
        fence,
        run.job.kind,
        run.outcome,
        reason=run.reason,
        error=run.error,
        signature=run.signature,
        until=run.until,
        token=token,
    )
    connections.store.settle_in(session.run, [settlement])


def _join(
    connections: Connections, session: Session, run: FailedRun, new: NewJob, row: Any
) -> int | None:
    """Add a failure to the pending dead letter of a job, as a failed replay does.

    Rows are locked in the order of a replay: the dead letter, then its job.

    Returns:
        The id of the job. None if the run must not join, or the job has no pending dead letter.
    """
    is_letter = run.joins and row is not None and row.state in LETTER_STATES
    if not is_letter or _is_same_run(row, new):
        return None
    job_id: int = row.id
    letters = select(dead.c.id, dead.c.kind, dead.c.signature, dead.c.blocked)
    is_pending = (dead.c.job_id == job_id, dead.c.status == "pending")
    letter = session.core.execute(letters.where(*is_pending).with_for_update()).one_or_none()
    if letter is None:
        return None
    row = _current_row(session, run.job, lock=True)
    # The job settles as a replay of its own dead letter, so that the letter is updated.
    own = update(job).where(job.c.id == job_id)
    headers = to_json("headers", {**(from_json(row.headers) or {}), **(run.job.headers or {})})
    session.core.execute(own.values(dead_id=letter.id, headers=headers))
    counters.add(session, {run.job.kind: {STATES[row.state]: -1, "leased": 1}})
    group = (letter.kind, letter.signature, letter.blocked)
    counters.add_failures(session, no_longer_pending([group]), now_on(session))
    _settle(connections, session, run, job_id, row.fence + 1, row.attempts + run.attempts)
    session.core.execute(own.values(dead_id=row.dead_id))
    return job_id


def _current_row(session: Session, new: NewJob, *, lock: bool = False) -> Any:
    """Return the row of the job that has this key, or None."""
    columns = ("id", "state", "headers", "ended_at", "fence", "attempts", "dead_id")
    query = select(*(job.c[name] for name in columns))
    is_current = (job.c.kind == new.kind, job.c.key == new.key, CURRENT)
    query = query.where(*is_current)
    return session.core.execute(query.with_for_update() if lock else query).one_or_none()


def _is_same_run(row: Any, new: NewJob) -> bool:
    run_id = (new.headers or {}).get(RUN_HEADER)
    return bool((from_json(row.headers) or {}).get(RUN_HEADER) == run_id)


def _free_key(session: Session, new: NewJob, row: Any, closed_at: datetime | None) -> bool:
    """Free the key of a job that ended before this run. False: the run needs no row.

    A pruned job has no headers. If it ended later, it was a replay of the run.
    """
    is_later = row.state == PRUNED and closed_at is not None and closed_at <= row.ended_at
    if row.state not in REPLACED_STATES or _is_same_run(row, new) or is_later:
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
