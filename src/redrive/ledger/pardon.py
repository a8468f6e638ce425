"""Pardon: what was charged to a job, and was not its fault, is taken back."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, case, update

from .record import Lease, Settlement
from .session import Session
from .state import LOST, QUARANTINE, READY
from .statement import number
from .tables import attempt, job

_ALIVE = (
    update(attempt)
    .where(
        # After a failover another job may have this id and this fence: it is not the worker's.
        attempt.c.job_id == bindparam("of_id"), attempt.c.fence == bindparam("of_fence"), attempt.c.worker == bindparam("by"),
        attempt.c.outcome == LOST, attempt.c.reason == "lost_worker",
    )
    .values(reason="lost_lease", error="the worker did not renew its lease; it was slow, or stopped for a while")
)  # fmt: skip
# What it was before it was set apart is not remembered: the middle.
_back = case(((job.c.priority == number(QUARANTINE)) & (job.c.crashes == number(1)), number(0)), else_=job.c.priority)
_NO_CRASH = (
    update(job)
    .where(job.c.id == bindparam("of_id"), job.c.crashes > number(0))
    .values(crashes=job.c.crashes - number(1), priority=_back)
)
_UNCHARGED = (
    update(job)
    .where(
        job.c.id == bindparam("of_id"), job.c.fence == bindparam("of_fence"), job.c.state == number(READY),
        job.c.attempts > number(0),
    )
    .values(attempts=job.c.attempts - number(1))
)  # fmt: skip


def alive(session: Session, worker: str, leases: Iterable[Lease | Settlement], /) -> int:
    """The worker that lost these leases lives: it did not crash. How many were counted as crashes of it, and are no more."""
    taken_back = 0
    with session.transaction("pardon") as connection:
        for lease in leases:
            if connection.execute(_ALIVE, {"of_id": lease.job_id, "of_fence": lease.fence, "by": worker}).rowcount:
                connection.execute(_NO_CRASH, {"of_id": lease.job_id})
                taken_back += 1
    return taken_back


def uncharged(session: Session, attempts: Iterable[tuple[int, int]], /) -> int:
    """These failed attempts (job and fence) were an outage's fault: jobs that wait since then get them back. How many."""
    given = [{"of_id": job_id, "of_fence": fence} for job_id, fence in attempts]
    with session.transaction("pardon") as connection:
        return sum(connection.execute(_UNCHARGED, one).rowcount for one in given)
