"""Claim, start and renew on SQLite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, case, func, select, update

from ...db.compiled import BatchRunner, compile_sqlite, sql_int
from ...db.tables import job
from ...model import LEASED, QUARANTINE, READY, Lease, Settlement, lease_key
from ...timestamps import MICROSECONDS
from ..protocol import BELOW_ALL_PRIORITIES, ClaimOptions

LEASE_COLUMNS = tuple(
    job.c[name]
    for name in (
        *("id", "fence", "kind", "key", "attempts", "crashes", "max_attempts", "version"),
        *("dead_id", "due_at", "deadline", "ids", "headers", "payload", "started_at"),
        *("sequence", "token"),
    )
)
"""The columns of a `Lease`, in its order."""

_is_ready = (job.c.state == sql_int(READY), job.c.kind == bindparam("of_kind"))
_due = (
    select(job.c.id)
    .where(*_is_ready, job.c.priority == bindparam("of_priority"))
    .where(job.c.due_at <= bindparam("now"))
    .order_by(job.c.due_at, job.c.id)
    .limit(bindparam("most"))
    .offset(sql_int(0))
)
update_job = update(job).prefix_with("OR ROLLBACK")
"""Otherwise SQLite copies each changed page to undo the statement alone, above 64 KiB to a file."""
_is_last = job.c.attempts + sql_int(1) >= job.c.max_attempts
_claim = update_job.values(
    state=sql_int(LEASED),
    fence=job.c.fence + sql_int(1),
    attempts=job.c.attempts + case((_is_last, bindparam("charge_last")), else_=bindparam("charge")),
    lease_until=bindparam("until"),
    started_at=case((_is_last, bindparam("started_last")), else_=bindparam("started")),
    worker=bindparam("by"),
    token=bindparam("drawn"),
)
_CLAIM_PARAMETERS = (
    *("charge_last", "charge", "until", "started_last", "started", "by", "drawn"),
    *("of_kind", "of_priority", "now", "most"),
)
CLAIM = compile_sqlite(
    _claim.where(job.c.id.in_(_due)).returning(*LEASE_COLUMNS), *_CLAIM_PARAMETERS
)
CLAIM_ONE = compile_sqlite(
    _claim.where(job.c.id == _due.scalar_subquery()).returning(*LEASE_COLUMNS), *_CLAIM_PARAMETERS
)
"""`IN` builds a temporary table even for one id, which takes a tenth of the turn."""
LISTED = select(func.json_each(bindparam("ids")).table_valued("value").c.value)
CLAIM_IDS = compile_sqlite(
    _claim.where(job.c.id.in_(LISTED), job.c.state == sql_int(READY)).returning(*LEASE_COLUMNS),
    *_CLAIM_PARAMETERS[:7],
    "ids",
)
NEXT_PRIORITY = compile_sqlite(
    select(job.c.priority)
    .where(*_is_ready, job.c.priority > bindparam("beyond"))
    .order_by(job.c.priority)
    .limit(sql_int(1))
    .offset(sql_int(0)),
    "of_kind",
    "beyond",
)
IS_HELD = (
    job.c.id == bindparam("of_id"),
    job.c.fence == bindparam("of_fence"),
    job.c.token == bindparam("of_token"),
    job.c.state == sql_int(LEASED),
)
IS_HELD_RANGE = (
    job.c.id.between(bindparam("first"), bindparam("last")),
    job.c.fence == bindparam("of_fence"),
    job.c.token == bindparam("of_token"),
    # The sum keeps SQLite from the index over leases: a range of ids is shorter.
    (job.c.state + sql_int(0)) == sql_int(LEASED),
)
"""Leases of one claim with consecutive ids, by one statement: each statement releases the GIL."""
RANGE_PARAMETERS = ("first", "last", "of_fence", "of_token")
START = compile_sqlite(
    update_job.values(attempts=job.c.attempts + sql_int(1), started_at=bindparam("now"))
    .where(*IS_HELD_RANGE, job.c.started_at.is_(None))
    .returning(job.c.id, job.c.fence, job.c.token),
    "now",
    *RANGE_PARAMETERS,
)
RENEW = compile_sqlite(
    update(job).values(lease_until=bindparam("until")).where(*IS_HELD),
    *("until", "of_id", "of_fence", "of_token"),
)


def claim(run: BatchRunner, options: ClaimOptions, now: int, /) -> list[Lease]:
    """Lease due jobs, by job type, the most urgent first. The caller updates the counters."""
    total, alone = options.total, options.alone
    shared = lease_values(options, now)
    leases: list[Lease] = []
    for kind, limit in options.kinds.items():
        most = min(limit, total - len(leases))
        claimed = 0
        priority = QUARANTINE - 1 if alone else BELOW_ALL_PRIORITIES
        while claimed < most:
            # Query which priorities are in use: 2 µs, and a claim in vain takes 20 µs.
            row = run.execute(NEXT_PRIORITY, (kind, priority)).fetchone()
            if row is None or (row[0] == QUARANTINE) is not alone:
                break
            priority = row[0]
            rows = claim_in_order(run, shared, kind, priority, most - claimed, now)
            claimed += len(rows)
            leases += rows
    return leases


def lease_values(options: ClaimOptions, now: int, /) -> tuple[object, ...]:
    """Return the first parameters of `CLAIM`, which describe the lease."""
    until = now + int(options.seconds * MICROSECONDS)
    starts, starts_last = options.start, options.start and options.start_last
    started, started_last = now if starts else None, now if starts_last else None
    return (
        *(int(starts_last), int(starts), until, started_last, started),
        *(options.worker, options.token),
    )


def claim_in_order(
    run: BatchRunner,
    values: tuple[object, ...],
    kind: str,
    priority: int,
    most: int,
    now: int,
    /,
) -> list[Lease]:
    """Lease the first due jobs of one type and priority."""
    statement = CLAIM_ONE if most == 1 else CLAIM
    rows = run.execute(statement, (*values, kind, priority, now, most)).fetchall()
    return list(map(Lease._make, rows))


def lease_ids(run: BatchRunner, values: tuple[object, ...], ids: Sequence[int], /) -> list[Lease]:
    """Lease these ready jobs."""
    if not ids:
        return []
    rows = run.execute(CLAIM_IDS, (*values, json.dumps(list(ids)))).fetchall()
    return list(map(Lease._make, rows))


def start(run: BatchRunner, leases: Sequence[Lease], now: int, /) -> list[Lease]:
    """Write that attempts start. Returns the leases that are not lost."""
    started: set[tuple[int, ...]] = set()
    for ids in id_ranges(leases):
        started.update(run.execute(START, (now, *ids)).fetchall())
    # By fence and token, too: a lost lease and a newer one of the same job may be among them.
    return [
        lease._replace(attempt=lease.attempt + 1, started_stored=now)
        for lease in leases
        if lease_key(lease) in started
    ]


def id_ranges(leases: Iterable[Lease | Settlement], /) -> list[tuple[int, int, int, int]]:
    """Group leases of one claim with consecutive ids: first id, last id, fence and token.

    Jobs that were stored and started together have consecutive ids. A statement for each job would
    let other threads run in between.
    """
    ranges: list[tuple[int, int, int, int]] = []
    first = last = fence = token = -1
    for job_id, of_fence, of_token in sorted(map(lease_key, leases)):
        if job_id == last + 1 and of_fence == fence and of_token == token:
            last = job_id
            continue
        if last >= 0:
            ranges.append((first, last, fence, token))
        first, last, fence, token = job_id, job_id, of_fence, of_token
    return [*ranges, (first, last, fence, token)] if last >= 0 else ranges


def renew(run: BatchRunner, leases: Sequence[Lease], seconds: float, now: int, /) -> list[Lease]:
    """Extend leases. Returns the leases that are lost."""
    until = now + int(seconds * MICROSECONDS)
    return [
        lease for lease in leases if not run.execute(RENEW, (until, *lease_key(lease))).rowcount
    ]
