"""Recovery of expired leases: what becomes of a job whose worker crashed or lost its lease.

Refunds take back attempts and crashes that were not the fault of the job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, exists, func, insert, null, select, update

from ...core.job_reasons import UNCOUNTED_REASONS, JobReason
from ..db.clock import now_on, now_sql
from ..db.compiled import sql_int
from ..db.partition_tables import work
from ..db.session import Session
from ..db.tables import attempt, dead, job, worker
from ..events import read_origin
from ..failpoint import crash_point
from ..model import CANCELLED, DEAD, FAILED, LEASED, LOST, QUARANTINE, READY, Lease, Settlement
from ..stats import counters
from ..stats.counters import add, add_failures
from ..stats.failure_groups import FailureDelta, FailureGroup, merge_deltas
from ..store import sequences
from .job_changes import end_cancelled, return_letters

QUARANTINE_CRASHES = 2
"""Crashes after which a job runs alone. One crash may be an operator's kill, or another job's
fault."""
MAX_CRASHES = 3
MICROSECOND = timedelta(microseconds=1)


class ExpiredJob(NamedTuple):
    """The state of a job after its lease expired."""

    state: int
    crashes: int
    priority: int
    lost_attempt: bool
    """An attempt had started, and is recorded as lost."""
    reason: JobReason | None
    """Why the job is dead or retried."""


def after_lease_expiry(
    *,
    started: bool,
    alive: bool,
    attempts: int,
    max_attempts: int | None,
    crashes: int,
    priority: int,
    cancelled: bool = False,
) -> ExpiredJob:
    """Decide what becomes of a job whose lease expired.

    A job that was only claimed goes back unchanged. A started attempt counts, and counts as a crash
    of its worker. A job that was asked to stop is cancelled.

    Args:
        started: Whether the attempt had started.
        alive: The worker sent a heartbeat after the lease expired, so it did not crash.
        attempts: Attempts of the job, with this one.
        max_attempts: Maximum number of attempts.
        crashes: Crashes before this one.
        priority: Priority of the job.
        cancelled: The job was asked to stop.
    """
    if cancelled:
        return ExpiredJob(CANCELLED, crashes, priority, started, "cancelled" if started else None)
    if not started:
        return ExpiredJob(READY, crashes, priority, False, None)
    if not alive:
        crashes += 1
    if crashes >= MAX_CRASHES:
        return ExpiredJob(DEAD, crashes, priority, True, "crashed_worker")
    if max_attempts is not None and attempts >= max_attempts:
        return ExpiredJob(DEAD, crashes, priority, True, "attempts")
    if alive:
        return ExpiredJob(READY, crashes, priority, True, "lost_lease")
    next_priority = QUARANTINE if crashes >= QUARANTINE_CRASHES else priority
    return ExpiredJob(READY, crashes, next_priority, True, "lost_worker")


_COLUMNS = (
    *("id", "fence", "kind", "key", "priority", "attempts", "max_attempts", "crashes", "worker"),
    *("started_at", "reason", "signature", "lease_until", "dead_id", "version", "payload"),
    *("headers", "ids", "cancel_at", "sequence"),
)
_UPDATE_JOB = (
    update(job)
    .where(job.c.id == bindparam("of_id"))
    .values(
        state=bindparam("to_state"),
        crashes=bindparam("to_crashes"),
        priority=bindparam("to_priority"),
        reason=bindparam("to_reason"),
        error=bindparam("to_error"),
        signature=bindparam("to_signature"),
        lease_until=null(),
        started_at=bindparam("to_started"),
        due_at=bindparam("now"),
        ended_at=bindparam("to_ended"),
        waits_for=null(),
    )
)
_UPDATE_LETTER = (
    update(dead)
    .where(dead.c.id == bindparam("of_id"))
    .values(
        status="pending",
        job_id=bindparam("to_job"),
        reason=bindparam("to_reason"),
        blocked=False,
        blocked_until=null(),
        error=bindparam("to_error"),
        signature=bindparam("to_reason"),
        attempts=bindparam("to_attempts"),
        last_attempt_at=bindparam("to_last"),
        updated_at=bindparam("now"),
    )
)


def reap(
    session: Session, limit: int, /, *, trusts: Callable[[datetime], bool] | None = None
) -> list[int]:
    """Recover expired leases, the oldest first.

    Args:
        session: A session without a transaction.
        limit: Maximum number of leases.
        trusts: Whether leases may be measured by this time of the ledger's clock. If not, none is
            recovered.

    Returns:
        The ids of their jobs.
    """
    if session.has_round_trips:
        has_expired, has_marks = _has_expired(session)
        if has_marks:
            sequences.repair(session)
        if not has_expired:
            return []
    with session.transaction("reap") as connection:
        now = now_on(session)
        if trusts is not None and not trusts(now):
            return []
        expired = (
            select(*(job.c[name] for name in _COLUMNS), worker.c.seen_at)
            .outerjoin_from(job, worker, worker.c.name == job.c.worker)
            .where(job.c.state == sql_int(LEASED), job.c.lease_until < now)
            .order_by(job.c.lease_until)
            .limit(limit)
            .with_for_update(of=job, skip_locked=True)
        )
        rows = connection.execute(expired).all()
        if rows:
            _record(session, connection, rows, now)
    return [row.id for row in rows]


def _has_expired(session: Session) -> tuple[bool, bool]:
    """Return whether any lease expired, and whether a sequence needs another look.

    Usually none of both, so it is one query.
    """
    crash_point("reap.before_commit")
    is_expired = (job.c.state == sql_int(LEASED), job.c.lease_until < now_sql(session))
    row = session.core.execute(select(exists().where(*is_expired), sequences.HAS_MARKS)).one()
    crash_point("reap.after_commit")
    return bool(row[0]), bool(row[1])


def _record(session: Session, connection: Connection, rows: Sequence[Any], now: datetime) -> None:
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    failures: list[tuple[FailureGroup, FailureDelta]] = []
    jobs, attempts, new_letters, old_letters, ended = [], [], [], [], []
    replays: dict[int, int] = {}
    """By dead letter: its cancelled replay."""
    for row in rows:
        after = after_lease_expiry(
            started=row.started_at is not None,
            alive=row.seen_at is not None and row.seen_at > row.lease_until,
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            crashes=row.crashes,
            priority=row.priority,
            cancelled=row.cancel_at is not None,
        )
        error = _describe(row, after)
        is_dead, is_cancelled = after.state == DEAD, after.state == CANCELLED
        jobs.append(
            {
                "of_id": row.id,
                "to_state": after.state,
                "to_crashes": after.crashes,
                "to_priority": after.priority,
                # A job that was only claimed keeps its reason.
                "to_reason": after.reason if after.lost_attempt else row.reason,
                "to_error": error,
                "to_signature": after.reason if after.lost_attempt else row.signature,
                "to_started": row.started_at if is_dead or is_cancelled else None,
                "to_ended": now if is_dead or is_cancelled else None,
                "now": now,
            }
        )
        bucket = {DEAD: "dead", CANCELLED: "cancelled"}.get(after.state, "ready")
        changes[row.kind].update({"leased": -1, bucket: 1})
        if after.state != READY:
            ended.append(row)
        if is_cancelled and row.dead_id is not None:
            replays[row.dead_id] = row.id
        if after.lost_attempt and not is_cancelled:
            delta = FailureDelta(1, int(is_dead), int(is_dead), 0, row.id, error)
            failures.append(((row.kind, after.reason or ""), delta))
        if after.lost_attempt:
            attempts.append(
                {
                    "job_id": row.id,
                    "fence": row.fence,
                    "number": row.attempts,
                    "outcome": LOST,
                    "worker": row.worker,
                    "reason": after.reason,
                    "error": error,
                    "started_at": row.started_at,
                    "ended_at": now,
                }
            )
        if is_dead and row.dead_id is not None:
            old_letters.append(
                {
                    "of_id": row.dead_id,
                    "to_job": row.id,
                    "to_reason": after.reason,
                    "to_error": error,
                    "to_attempts": row.attempts,
                    "to_last": row.started_at,
                    "now": now,
                }
            )
        elif is_dead:
            source, source_id = read_origin(row.headers)
            copied = ("kind", "key", "attempts", "version", "payload", "headers", "ids")
            new_letters.append(
                {
                    **{name: getattr(row, name) for name in copied},
                    "job_id": row.id,
                    "reason": after.reason,
                    "error": error,
                    "signature": after.reason,
                    "source": source,
                    "source_id": source_id,
                    "last_attempt_at": row.started_at,
                    "created_at": now,
                    "updated_at": now,
                }
            )
    for statement, values in (
        (_UPDATE_JOB, jobs),
        (insert(attempt), attempts),
        (insert(dead), new_letters),
        (_UPDATE_LETTER, old_letters),
    ):
        if values:
            connection.execute(statement, values)
    sequences.release(session, ended)
    add(session, changes)
    add_failures(session, merge_deltas(failures), now)
    return_letters(session, replays, now)


def _describe(row: Any, after: ExpiredJob) -> str | None:
    if not after.lost_attempt:
        return None
    if after.state == CANCELLED:
        return f"the worker {row.worker} did not end the attempt after the job was cancelled"
    if after.state == READY and after.reason == "lost_lease":
        return f"the worker {row.worker} did not renew its lease"
    return (
        f"the worker {row.worker} was lost, with its lease, during attempt {row.attempts} "
        f"(crash {after.crashes})"
    )


def expire_leases_of_dead_workers(session: Session, names: Sequence[str], /) -> int:
    """Expire all leases of workers whose processes are known to be dead, also of partitions.

    `reap` then recovers them. A worker's name must belong to one process only.

    Returns:
        The number of leases.
    """
    if not names:
        return 0
    with session.transaction("bury") as connection:
        now = now_on(session)
        expired = now - MICROSECOND
        held = (job.c.state == sql_int(LEASED), job.c.worker.in_(list(names)))
        jobs = update(job).where(*held).values(lease_until=expired)
        held = (work.c.lease_until.is_not(None), work.c.worker.in_(list(names)))
        partitions = update(work).where(*held).values(lease_until=expired)
        count = connection.execute(jobs).rowcount + connection.execute(partitions).rowcount
        # The last heartbeat must be before the expiry, or the leases would not count as crashes. It
        # must also be before `ended_at`: a worker that stops in order has both at the same time.
        is_dead = worker.c.name.in_(list(names))
        values = {"ended_at": now, "seen_at": expired - MICROSECOND}
        connection.execute(update(worker).where(is_dead).values(values))
        return count


PARKED_REASON = "parked"
"""Reason of an attempt that failed in an outage and does not count."""

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
        columns = (job.c.id, job.c.kind, job.c.cancel_at, job.c.dead_id, job.c.sequence)
        claimed = select(*columns).where(*is_claimed, job.c.token.in_(list(tokens)))
        rows = connection.execute(claimed.with_for_update()).all()
        if rows:
            released = [row.id for row in rows if row.cancel_at is None]
            stopped = [row for row in rows if row.cancel_at is not None]
            connection.execute(_RELEASE.where(job.c.id.in_(released)))
            changes: dict[str, Counter[str]] = defaultdict(Counter)
            for row in rows:
                bucket = "ready" if row.cancel_at is None else "cancelled"
                changes[row.kind].update({"leased": -1, bucket: 1})
            counters.add(session, changes)
            end_cancelled(session, stopped, now_on(session))
    return len(rows)


def count_refunded(session: Session, ids: Collection[int], /) -> dict[int, int]:
    """Count the attempts of each job that were refunded because of outages.

    The rows of attempts exist as long as the job does. Jobs without a refund are missing.
    """
    if not ids:
        return {}
    is_refunded = (attempt.c.job_id.in_(ids), attempt.c.reason.in_(UNCOUNTED_REASONS))
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
        before = Counter(row.job_id for row in rows if row.reason in UNCOUNTED_REASONS)
        counts: Counter[int] = Counter()
        attempts = []
        for row in rows:
            is_chargeable = row.outcome == FAILED and row.reason not in UNCOUNTED_REASONS
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
