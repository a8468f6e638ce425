"""Refunds: take back attempts and crashes that were not the fault of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import bindparam, case, func, null, select, update

from ...core.job_reasons import UNCOUNTED_REASONS
from ..db.compiled import sql_int
from ..db.session import Session
from ..db.tables import attempt, job
from ..model import FAILED, LEASED, LOST, QUARANTINE, READY, Lease, Settlement
from ..store import counters
from .lease_recovery import QUARANTINE_CRASHES

PARKED_REASON = "parked"
"""Reason of an attempt that failed in an outage and does not count."""
LEDGER_REASON = "ledger"
"""Reason of an attempt that could not use the ledger and does not count."""
REFUNDED_REASONS = UNCOUNTED_REASONS

MAX_REFUND_JOBS = 500
"""Jobs in one transaction. SQLite takes 32,766 parameters in a statement."""

_is_attempt = (attempt.c.job_id == bindparam("of_id"), attempt.c.fence == bindparam("of_fence"))
_MARK_SLOW = (
    update(attempt)
    # By the worker, too: after a failover another job may have this id and fence.
    .where(*_is_attempt, attempt.c.worker == bindparam("by"))
    .where(attempt.c.outcome == LOST, attempt.c.reason == "lost_worker")
    .values(
        reason="lost_lease",
        error="the worker did not renew its lease; it was slow or suspended",
    )
)
# The priority before quarantine is not stored, so the default is restored.
_leaves_quarantine = (job.c.priority == sql_int(QUARANTINE)) & (
    job.c.crashes <= sql_int(QUARANTINE_CRASHES)
)
_REVOKE_CRASH = (
    update(job)
    .where(job.c.id == bindparam("of_id"), job.c.crashes > sql_int(0))
    .values(
        crashes=job.c.crashes - sql_int(1),
        priority=case((_leaves_quarantine, sql_int(0)), else_=job.c.priority),
    )
)
_MARK_REFUNDED = update(attempt).where(*_is_attempt).values(reason=PARKED_REASON)
_has_started = job.c.started_at.is_not(None)
_RELEASE = update(job).values(
    state=sql_int(READY),
    attempts=job.c.attempts - case((_has_started, sql_int(1)), else_=sql_int(0)),
    lease_until=null(),
    started_at=null(),
)
_REFUND = (
    update(job)
    .where(job.c.id == bindparam("of_id"))
    .values(attempts=job.c.attempts - bindparam("count", type_=job.c.attempts.type))
)


def revoke_crashes(session: Session, worker: str, leases: Iterable[Lease | Settlement], /) -> int:
    """Take back crashes of a worker that lost its leases but is alive, and return how many."""
    count = 0
    with session.transaction("pardon") as connection:
        for lease in leases:
            key = {"of_id": lease.job_id, "of_fence": lease.fence}
            if connection.execute(_MARK_SLOW, {**key, "by": worker}).rowcount:
                connection.execute(_REVOKE_CRASH, {"of_id": lease.job_id})
                count += 1
    return count


def release_undelivered(session: Session, worker: str, tokens: Collection[int], /) -> int:
    """Release the leases of claims whose response never reached the worker, and return how many.

    Their attempts did not start, so they do not count and leave no record.
    """
    with session.transaction("pardon") as connection:
        is_claimed = (job.c.state == sql_int(LEASED), job.c.worker == worker)
        claimed = select(job.c.id, job.c.kind).where(*is_claimed, job.c.token.in_(list(tokens)))
        rows = connection.execute(claimed.with_for_update()).all()
        if rows:
            connection.execute(_RELEASE.where(job.c.id.in_([row.id for row in rows])))
            kinds = Counter(row.kind for row in rows)
            changes = {kind: {"leased": -count, "ready": count} for kind, count in kinds.items()}
            counters.add(session, changes)
    return len(rows)


def count_refunded(session: Session, ids: Collection[int], /) -> dict[int, int]:
    """Count the attempts of each job that were refunded because of outages.

    The rows of attempts exist as long as the job does. Jobs without a refund are missing.
    """
    if not ids:
        return {}
    is_refunded = (attempt.c.job_id.in_(ids), attempt.c.reason.in_(REFUNDED_REASONS))
    query = select(attempt.c.job_id, func.count()).where(*is_refunded).group_by(attempt.c.job_id)
    return {row[0]: row[1] for row in session.core.execute(query)}


def refund_attempts(
    session: Session, runs: Mapping[int, Sequence[int]], /, *, most: int
) -> dict[int, Sequence[int]]:
    """Refund failed attempts that an outage caused.

    Args:
        session: A session without a transaction.
        runs: The fences of the failed attempts by job id, of at most `MAX_REFUND_JOBS` jobs. Jobs
            that have ended get no refund.
        most: Maximum number of refunds for one job, in total.

    Returns:
        The attempts to pass again later, because their job is locked or they are not settled yet.
        Passing an attempt twice changes nothing.
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
        later = {row.id: runs[row.id] for row in connection.execute(query) if row.id not in jobs}
        rows = connection.execute(
            select(attempt.c.job_id, attempt.c.fence, attempt.c.reason, attempt.c.outcome)
            .where(attempt.c.job_id.in_(jobs))
            .order_by(attempt.c.job_id, attempt.c.fence)
        ).all()
        before = Counter(row.job_id for row in rows if row.reason in REFUNDED_REASONS)
        counts: Counter[int] = Counter()
        attempts = []
        for row in rows:
            is_chargeable = row.outcome == FAILED and row.reason not in REFUNDED_REASONS
            left = min(most - before[row.job_id], jobs[row.job_id].attempts) - counts[row.job_id]
            if row.fence in runs[row.job_id] and is_chargeable and left > 0:
                counts[row.job_id] += 1
                attempts.append({"of_id": row.job_id, "of_fence": row.fence})
        if attempts:
            connection.execute(_MARK_REFUNDED, attempts)
            refunds = [{"of_id": id_, "count": count} for id_, count in counts.items()]
            connection.execute(_REFUND, refunds)
    for id_, row in jobs.items():
        if row.state == LEASED and row.fence in runs[id_]:
            later[id_] = (row.fence,)  # not settled yet
    return later
