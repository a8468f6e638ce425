"""Claim, start and renew on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, case, select, update

from ...db.compiled import Many, number, sqlite
from ...db.tables import job
from ...db.types import MICROSECONDS
from ...record import Lease, lease_name
from ...state import LEASED, QUARANTINE, READY
from ..protocol import Demand

LEASE = (
    job.c.id, job.c.fence, job.c.kind, job.c.key, job.c.attempts, job.c.crashes, job.c.max_attempts, job.c.version,
    job.c.dead_id, job.c.due_at, job.c.deadline, job.c.ids, job.c.headers, job.c.payload,
    job.c.started_at, job.c.token,
)  # fmt: skip
"""The columns of a `Lease`, in its order."""

_due = (
    select(job.c.id)
    .where(job.c.state == number(READY), job.c.kind == bindparam("of_kind"), job.c.priority == bindparam("of_priority"))
    .where(job.c.due_at <= bindparam("now"))
    .order_by(job.c.due_at, job.c.id)
    .limit(bindparam("most"))
    .offset(number(0))
)
_LAST = job.c.attempts + number(1) >= job.c.max_attempts
_leased = update(job).values(
    state=number(LEASED),
    fence=job.c.fence + number(1),
    attempts=job.c.attempts + case((_LAST, bindparam("charge_last")), else_=bindparam("charge")),
    lease_until=bindparam("until"),
    started_at=case((_LAST, bindparam("started_last")), else_=bindparam("started")),
    worker=bindparam("by"),
    token=bindparam("drawn"),
)
_GIVEN = ("charge_last", "charge", "until", "started_last", "started", "by", "drawn", "of_kind", "of_priority", "now", "most")
CLAIM = sqlite(_leased.where(job.c.id.in_(_due)).returning(*LEASE), *_GIVEN)
CLAIM_ONE = sqlite(_leased.where(job.c.id == _due.scalar_subquery()).returning(*LEASE), *_GIVEN)
"""A set of one id is a table that is made for it, and takes a tenth of the turn."""
NEXT = sqlite(
    select(job.c.priority)
    .where(job.c.state == number(READY), job.c.kind == bindparam("of_kind"), job.c.priority > bindparam("beyond"))
    .order_by(job.c.priority)
    .limit(number(1))
    .offset(number(0)),
    "of_kind",
    "beyond",
)
HELD = (
    job.c.id == bindparam("of_id"), job.c.fence == bindparam("of_fence"), job.c.token == bindparam("of_token"),
    job.c.state == number(LEASED),
)  # fmt: skip
START = sqlite(
    update(job)
    .values(attempts=job.c.attempts + number(1), started_at=bindparam("now"))
    # The sum keeps SQLite from the index over leases: a range of ids is shorter.
    .where(job.c.id.between(bindparam("first"), bindparam("last")), job.c.fence == bindparam("of_fence"))
    .where(job.c.token == bindparam("of_token"), (job.c.state + number(0)) == number(LEASED), job.c.started_at.is_(None))
    .returning(job.c.id, job.c.fence, job.c.token),
    "now", "first", "last", "of_fence", "of_token",
)  # fmt: skip
"""Leases of one claim whose ids follow one another: each statement releases the GIL, and other threads run first."""
RENEW = sqlite(update(job).values(lease_until=bindparam("until")).where(*HELD), "until", "of_id", "of_fence", "of_token")

ABOVE_ALL = -100


def claim(run: Many, demand: Demand, now: int, /) -> list[Lease]:
    """Lease what is due, kind by kind, the most urgent first; whoever asks for it sees to the counts."""
    total, alone = demand.total, demand.alone
    until = now + int(demand.seconds * MICROSECONDS)
    starts, starts_last = demand.start, demand.start and demand.start_last
    began, began_last = now if starts else None, now if starts_last else None
    terms = (int(starts_last), int(starts), until, began_last, began, demand.worker, demand.token)
    leases: list[Lease] = []
    for kind, limit in demand.kinds.items():
        most = min(limit, total - len(leases))
        claimed = 0
        priority = QUARANTINE - 1 if alone else ABOVE_ALL
        while claimed < most:
            # Which priorities are in use is asked, not tried: two microseconds instead of twenty.
            found = run.execute(NEXT.text, (kind, priority)).fetchone()
            if found is None or (found[0] == QUARANTINE) is not alone:
                break
            priority = found[0]
            left = most - claimed
            statement = CLAIM_ONE if left == 1 else CLAIM
            rows = run.execute(statement.text, (*terms, kind, priority, now, left)).fetchall()
            claimed += len(rows)
            leases += map(Lease._make, rows)
    return leases


def start(run: Many, leases: Sequence[Lease], now: int, /) -> list[Lease]:
    """Write that these attempts begin; the ones that may."""
    started: set[tuple[int, ...]] = set()
    for ids in ranges(leases):
        started.update(run.execute(START.text, (now, *ids)).fetchall())
    # Not by the id alone: a lost lease and a newer one of the same job may be among them.
    return [lease._replace(attempt=lease.attempt + 1, started_stored=now) for lease in leases if lease_name(lease) in started]


def ranges(leases: Sequence[Lease], /) -> list[tuple[int, int, int, int]]:
    """Group leases of one claim whose ids follow one another: the first id, the last id, the fence and the token."""
    grouped: list[tuple[int, int, int, int]] = []
    for job_id, fence, token in sorted(map(lease_name, leases)):
        if grouped and grouped[-1][1:] == (job_id - 1, fence, token):
            grouped[-1] = (grouped[-1][0], job_id, fence, token)
        else:
            grouped.append((job_id, job_id, fence, token))
    return grouped


def renew(run: Many, leases: Sequence[Lease], seconds: float, now: int, /) -> list[Lease]:
    """Hold them longer; the ones that are lost."""
    until = now + int(seconds * MICROSECONDS)
    return [lease for lease in leases if not run.execute(RENEW.text, (until, *lease_name(lease))).rowcount]
