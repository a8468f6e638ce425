"""Pardon: give back attempts and crashes that were charged to a job and were not its fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import bindparam, case, func, null, select, update

from ..db.compiled import number
from ..db.session import Session
from ..db.tables import attempt, job
from ..record import Lease, Settlement
from ..state import FAILED, LEASED, LOST, QUARANTINE, READY
from ..stats import counters
from .lease_expiry import ALONE_CRASHES

UNCHARGED = "parked"
"""The reason of an attempt that failed in an outage, and was not charged."""
OF_LEDGER = "ledger"
"""The reason of an attempt that could not use the ledger, and was not charged."""

CHUNK = 500
"""Jobs in one transaction that gives attempts back: SQLite takes 32,766 parameters in a statement."""

_ALIVE = (
    update(attempt)
    .where(
        # After a failover another job may have this id and this fence: it is not the worker's.
        attempt.c.job_id == bindparam("of_id"), attempt.c.fence == bindparam("of_fence"), attempt.c.worker == bindparam("by"),
        attempt.c.outcome == LOST, attempt.c.reason == "lost_worker",
    )
    .values(reason="lost_lease", error="the worker did not renew its lease; it was slow or suspended")
)  # fmt: skip
# What it was before it was set apart is not remembered: the middle.
_is_alone = (job.c.priority == number(QUARANTINE)) & (job.c.crashes <= number(ALONE_CRASHES))
_back = case((_is_alone, number(0)), else_=job.c.priority)
_NO_CRASH = (
    update(job)
    .where(job.c.id == bindparam("of_id"), job.c.crashes > number(0))
    .values(crashes=job.c.crashes - number(1), priority=_back)
)
_SPARED = (
    update(attempt)
    .where(attempt.c.job_id == bindparam("of_id"), attempt.c.fence == bindparam("of_fence"))
    .values(reason=UNCHARGED)
)
_GIVE_BACK = update(job).values(
    state=number(READY),
    attempts=job.c.attempts - case((job.c.started_at.is_not(None), number(1)), else_=number(0)),
    lease_until=null(),
    started_at=null(),
)
_UNCHARGED = (
    update(job)
    .where(job.c.id == bindparam("of_id"))
    .values(attempts=job.c.attempts - bindparam("returned", type_=job.c.attempts.type))
)


def alive(session: Session, worker: str, leases: Iterable[Lease | Settlement], /) -> int:
    """The worker that lost these leases lives: it did not crash. How many were counted as crashes of it, and are no more."""
    taken_back = 0
    with session.transaction("pardon") as connection:
        for lease in leases:
            if connection.execute(_ALIVE, {"of_id": lease.job_id, "of_fence": lease.fence, "by": worker}).rowcount:
                connection.execute(_NO_CRASH, {"of_id": lease.job_id})
                taken_back += 1
    return taken_back


def undelivered(session: Session, worker: str, tokens: Collection[int], /) -> int:
    """Give back, as they were, the leases of claims whose response never reached this worker. How many.

    Their attempts did not start: they are not charged, and nothing is recorded of them.
    """
    with session.transaction("pardon") as connection:
        claimed = (job.c.state == number(LEASED), job.c.worker == worker, job.c.token.in_(list(tokens)))
        rows = connection.execute(select(job.c.id, job.c.kind).where(*claimed).with_for_update()).all()
        if rows:
            connection.execute(_GIVE_BACK.where(job.c.id.in_([row.id for row in rows])))
            changes = Counter(row.kind for row in rows)
            counters.add(session, {kind: {"leased": -many, "ready": many} for kind, many in changes.items()})
    return len(rows)


def uncharged(session: Session, ids: Collection[int], /) -> dict[int, int]:
    """How many attempts of each of these jobs were not charged because of outages, of the ledger's own too. Jobs without
    any are left out.

    The rows of attempts say so: they are kept as long as the job is, whatever becomes of the worker.
    """
    if not ids:
        return {}
    spared = (
        select(attempt.c.job_id, func.count())
        .where(attempt.c.job_id.in_(ids), attempt.c.reason.in_((UNCHARGED, OF_LEDGER)))
        .group_by(attempt.c.job_id)
    )
    return {row[0]: row[1] for row in session.core.execute(spared)}


def give_back(session: Session, runs: Mapping[int, Sequence[int]], /, *, most: int) -> dict[int, Sequence[int]]:
    """Give failed attempts back to their jobs: an outage caused them.

    Args:
        session: With no transaction open.
        runs: The fences of each job's failed attempts, by the job's id, up to `CHUNK` jobs. A job that has
            ended gets nothing back.
        most: Attempts of one job that are not charged, in all.

    Returns:
        The attempts to pass again later: their job is locked, or they are not settled yet. To pass an attempt
        twice changes nothing.
    """
    if not runs:
        return {}
    with session.transaction("pardon") as connection:
        query = (
            select(job.c.id, job.c.attempts, job.c.fence, job.c.state)
            .where(job.c.id.in_(runs), job.c.state.in_((READY, LEASED)))
            .order_by(job.c.id)
        )
        jobs = {row.id: row for row in connection.execute(query.with_for_update(skip_locked=True))}
        left = {row.id: runs[row.id] for row in connection.execute(query) if row.id not in jobs}
        made = select(attempt.c.job_id, attempt.c.fence, attempt.c.reason, attempt.c.outcome)
        rows = connection.execute(made.where(attempt.c.job_id.in_(jobs)).order_by(attempt.c.job_id, attempt.c.fence)).all()
        spared: Counter[int] = Counter(row.job_id for row in rows if row.reason in (UNCHARGED, OF_LEDGER))
        returned: Counter[int] = Counter()
        attempts = []
        for row in rows:
            of_run = row.fence in runs[row.job_id] and row.outcome == FAILED and row.reason not in (UNCHARGED, OF_LEDGER)
            room = min(most - spared[row.job_id], jobs[row.job_id].attempts) - returned[row.job_id]
            if of_run and room > 0:
                returned[row.job_id] += 1
                attempts.append({"of_id": row.job_id, "of_fence": row.fence})
        if attempts:
            connection.execute(_SPARED, attempts)
            connection.execute(_UNCHARGED, [{"of_id": id_, "returned": count} for id_, count in returned.items()])
    for id_, row in jobs.items():
        if row.state == LEASED and row.fence in runs[id_]:
            left[id_] = (row.fence,)  # its settlement is on the way
    return left
