"""A worker's turn on Postgres: settle, start and claim jobs in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    Select,
    Text,
    any_,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal_column,
    null,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, array
from sqlalchemy.sql.dml import ReturningUpdate

from ...db.compiled import (
    Runner,
    bytes_array,
    compile_postgres,
    int_array,
    sql_int,
    text_array,
    unnest,
)
from ...db.tables import job, tally_delta
from ...model import DONE, LEASED, PRIORITIES, QUARANTINE, READY, Lease, Settlement, lease_key
from ..protocol import ClaimOptions
from .submit import SECOND

LEASE_COLUMNS = tuple(
    job.c[name]
    for name in (
        *("id", "fence", "kind", "key", "attempts", "crashes", "max_attempts", "version"),
        *("dead_id", "due_at", "deadline", "ids", "headers", "payload", "started_at"),
        *("sequence", "token"),
    )
)
"""The columns of a `Lease`, in its order."""
COLUMN_COUNT = len(LEASE_COLUMNS)
# With `state = 1`, a cached plan may scan the index over leases for each row: quadratic in the
# batch.
IS_LEASED = (job.c.state + sql_int(0)) == sql_int(LEASED)
LEASE_UNTIL = func.now() + bindparam("seconds", type_=Float(53)) * SECOND


def _due_jobs(priority: int) -> Select[tuple[int]]:
    """Select due jobs of one type and priority.

    By equality, so that jobs that are not due yet in another priority are never read.
    """
    due = (
        select(job.c.id)
        .where(
            job.c.state == sql_int(READY),
            job.c.kind == literal_column("want.kind"),
            job.c.priority == sql_int(priority),
        )
        .where(job.c.due_at <= func.now(), job.c.due_at >= literal_column("want.since"))
        .order_by(job.c.due_at, job.c.id)
        .limit(literal_column("want.most"))
        .with_for_update(skip_locked=True)
        .subquery()
    )
    return select(due.c.id)


def _ids_to_claim(priorities: Sequence[int]) -> ColumnElement[int]:
    """Return the ids to lease: by job type, the most urgent first, up to the limits."""
    want = unnest("want", kind=Text(), most=Integer(), since=DateTime(timezone=True))
    queries = [_due_jobs(priority) for priority in priorities]
    jobs = (union_all(*queries) if len(queries) > 1 else queries[0]).subquery()
    due = select(jobs.c.id).limit(literal_column("want.most")).lateral("due")
    total = bindparam("total", type_=Integer())
    chosen = select(due.c.id).select_from(want.join(due, true())).limit(total)
    # array(…), because `IN (SELECT … LIMIT … SKIP LOCKED)` may run again for each row and exceed
    # its limit.
    return func.array(chosen.scalar_subquery())


def settle_successes() -> ReturningUpdate[tuple[int, str]]:
    """Return the update of jobs that are done, as a part of a larger statement."""
    done = unnest(
        "done", id=BigInteger(), fence=Integer(), token=BigInteger(), result=LargeBinary()
    )
    return (
        update(job)
        .values(state=sql_int(DONE), lease_until=null(), ended_at=func.now(), result=done.c.result)
        .where(
            job.c.id == done.c.id,
            job.c.fence == done.c.fence,
            job.c.token == done.c.token,
            IS_LEASED,
        )
        .returning(job.c.id, job.c.kind)
    )


_held = unnest("held", id=BigInteger(), fence=Integer(), token=BigInteger())
_is_held = (
    job.c.id == _held.c.id,
    job.c.fence == _held.c.fence,
    job.c.token == _held.c.token,
    IS_LEASED,
)
_lease_key = (job.c.id, job.c.fence, job.c.token)
_start = (
    update(job)
    .values(attempts=job.c.attempts + sql_int(1), started_at=func.now())
    .where(*_is_held, job.c.started_at.is_(None))
)


def build_turn(
    ids: ColumnElement[int],
    *,
    with_starts: bool = False,
    extra: Sequence[tuple[ColumnElement[Any], ColumnElement[Any]]] = (),
) -> str:
    """Build the statement of a turn.

    Its rows are the leases, and a last row with the ids of settled jobs.

    Args:
        ids: The ids to claim, as an array.
        with_starts: Also start leases. The last row then has pairs of id and token of the started
            leases, and the time.
        extra: More columns of the last row, each after a null for the other rows.
    """
    settled = settle_successes().cte("settled")
    start = bindparam("start", type_=Integer())
    start_last = bindparam("start_last", type_=Integer())
    is_last = job.c.attempts + sql_int(1) >= job.c.max_attempts
    starts = case((is_last, start_last), else_=start)
    claimed = (
        update(job)
        .values(
            state=sql_int(LEASED),
            fence=job.c.fence + sql_int(1),
            attempts=job.c.attempts + starts,
            lease_until=LEASE_UNTIL,
            started_at=case((starts == sql_int(1), func.now())),
            worker=bindparam("by", type_=Text()),
            token=bindparam("drawn", type_=BigInteger()),
        )
        .where(job.c.id == any_(ids))
        .returning(*LEASE_COLUMNS)
        .cte("claimed")
    )
    buckets = ("ready", "leased", "done")
    moved = union_all(
        select(settled.c.kind, *_int_columns(buckets, (0, -1, 1))),
        select(claimed.c.kind, *_int_columns(buckets, (-1, 1, 0))),
    ).subquery()
    sums = select(moved.c.kind, *(func.sum(moved.c[name]) for name in buckets))
    counted = (
        insert(tally_delta)
        .from_select(["kind", *buckets], sums.group_by(moved.c.kind))
        .cte("counted")
    )
    no_ids = cast(null(), ARRAY(BigInteger))
    nulls: list[ColumnElement[Any]] = [no_ids.label("settled")]
    summary: list[ColumnElement[Any]] = [func.array_agg(settled.c.id)]
    if with_starts:
        started = _start.returning(job.c.id, job.c.token).cte("started")
        nulls += [no_ids.label("started"), cast(null(), DateTime(timezone=True)).label("at")]
        pairs = select(func.array_agg(array([started.c.id, started.c.token])))
        summary += [pairs.scalar_subquery(), func.now()]
    nulls += [null_ for null_, _ in extra]
    summary += [value for _, value in extra]
    return compile_postgres(
        union_all(
            select(*claimed.c, *nulls),
            select(*(cast(null(), column.type) for column in LEASE_COLUMNS), *summary),
        ).add_cte(counted)
    )


def _int_columns(names: Sequence[str], values: Sequence[int]) -> list[ColumnElement[int]]:
    return [sql_int(value).label(name) for name, value in zip(names, values, strict=True)]


TURN = build_turn(_ids_to_claim(PRIORITIES))
TURN_ALONE = build_turn(_ids_to_claim((QUARANTINE,)))
TURN_START = build_turn(_ids_to_claim(PRIORITIES), with_starts=True)


class TurnRows(NamedTuple):
    """The result of the statement of a turn."""

    leases: list[Lease]
    settled: set[int]
    """The ids of settled jobs."""
    started: list[Lease]


def turn(
    run: Runner, done: Sequence[Settlement], options: ClaimOptions, since: Sequence[str], /
) -> TurnRows:
    """Settle plain successes, start leases, and claim jobs that are due since these times."""
    starts = options.starts
    parameters = turn_parameters(done, options)
    parameters["want_kind"] = text_array(options.kinds)
    parameters["want_most"] = int_array(options.kinds.values())
    parameters["want_since"] = text_array(since)
    statement = TURN_ALONE if options.alone else TURN_START if starts else TURN
    *leased, last = run.execute(statement, parameters).fetchall()
    return read_turn(leased, last, starts)


def turn_parameters(done: Sequence[Settlement], options: ClaimOptions, /) -> dict[str, object]:
    """Return the parameters of a turn, without those that choose the jobs to claim."""
    return {
        "done_id": int_array([each.job_id for each in done]),
        "done_fence": int_array([each.fence for each in done]),
        "done_token": int_array([each.token for each in done]),
        "done_result": bytes_array([each.result for each in done]),
        "total": options.total,
        "start": int(options.start),
        "start_last": int(options.start and options.start_last),
        "seconds": options.seconds,
        "by": options.worker,
        "drawn": options.token,
        **(_lease_arrays(options.starts) if options.starts else {}),
    }


def read_turn(leased: Sequence[Any], last: Any, starts: Sequence[Lease], /) -> TurnRows:
    """Read the rows of a turn: the leases, and the last row."""
    settled, *started = last[COLUMN_COUNT:]
    leases = [Lease._make(row[:COLUMN_COUNT]) for row in leased]
    return TurnRows(leases, set(settled or ()), _started_leases(starts, *started) if starts else [])


def _started_leases(
    starts: Sequence[Lease], pairs: Sequence[tuple[int, int]] | None, at: datetime
) -> list[Lease]:
    # By the token, too: a lost lease and a newer one of the same job may be among them.
    started = set(map(tuple, pairs or ()))
    return [
        lease._replace(attempt=lease.attempt + 1, started_stored=at)
        for lease in starts
        if (lease.job_id, lease.token) in started
    ]


START = compile_postgres(_start.returning(*_lease_key, job.c.started_at))
RENEW = compile_postgres(
    update(job).values(lease_until=LEASE_UNTIL).where(*_is_held).returning(*_lease_key)
)


def start(run: Runner, leases: Sequence[Lease], /) -> list[Lease]:
    """Write that attempts start. Returns the leases that are not lost."""
    rows = run.execute(START, _lease_arrays(leases)).fetchall()
    started = {tuple(key): at for *key, at in rows}
    return [
        lease._replace(attempt=lease.attempt + 1, started_stored=started[key])
        for lease in leases
        if (key := lease_key(lease)) in started
    ]


def renew(run: Runner, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
    """Extend leases. Returns the leases that are lost."""
    held = set(run.execute(RENEW, _lease_arrays(leases) | {"seconds": seconds}).fetchall())
    return [lease for lease in leases if lease_key(lease) not in held]


def _lease_arrays(leases: Sequence[Lease]) -> dict[str, object]:
    return {
        "held_id": int_array([lease.job_id for lease in leases]),
        "held_fence": int_array([lease.fence for lease in leases]),
        "held_token": int_array([lease.token for lease in leases]),
    }
