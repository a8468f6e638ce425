"""A worker's turn on Postgres: jobs are settled, started and claimed in one statement."""

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

from ...db.compiled import Runner, number, postgres, rows
from ...db.tables import job, tally_delta
from ...record import Lease, Settlement, lease_name
from ...state import DONE, LEASED, PRIORITIES, QUARANTINE, READY
from ..protocol import Demand
from .arrays import blobs, plain, texts
from .submit import SECOND

LEASE = (
    job.c.id, job.c.fence, job.c.kind, job.c.key, job.c.attempts, job.c.crashes, job.c.max_attempts, job.c.version,
    job.c.dead_id, job.c.due_at, job.c.deadline, job.c.ids, job.c.headers, job.c.payload,
    job.c.started_at, job.c.token,
)  # fmt: skip
"""The columns of a `Lease`, in its order."""
COLUMNS = len(LEASE)
# `state = 1` would let a cached plan go through the index over leases for each row: quadratic in the batch.
HELD = (job.c.state + number(0)) == number(LEASED)
UNTIL = func.now() + bindparam("seconds", type_=Float(53)) * SECOND


def _lane(priority: int) -> Select[tuple[int]]:
    """What is due in one kind at one priority. By equality: a pile that is not due yet elsewhere is never read through."""
    lane = (
        select(job.c.id)
        .where(job.c.state == number(READY), job.c.kind == literal_column("want.kind"), job.c.priority == number(priority))
        .where(job.c.due_at <= func.now(), job.c.due_at >= literal_column("want.since"))
        .order_by(job.c.due_at, job.c.id)
        .limit(literal_column("want.most"))
        .with_for_update(skip_locked=True)
        .subquery()
    )
    return select(lane.c.id)


def _claimed(lanes: Sequence[int]) -> ColumnElement[int]:
    """The ids to lease: kind by kind, the most urgent first; stops reading as soon as there are enough."""
    want = rows("want", kind=Text(), most=Integer(), since=DateTime(timezone=True))
    found = union_all(*map(_lane, lanes)).subquery() if len(lanes) > 1 else _lane(lanes[0]).subquery()
    due = select(found.c.id).limit(literal_column("want.most")).lateral("due")
    chosen = select(due.c.id).select_from(want.join(due, true())).limit(bindparam("total", type_=Integer()))
    # array(…), since `IN (SELECT … LIMIT … SKIP LOCKED)` may be run again for each row, beyond its limit.
    return func.array(chosen.scalar_subquery())


def settled() -> ReturningUpdate[tuple[int, str]]:
    """Say of these that they are done; for a statement that does more than that."""
    done = rows("done", id=BigInteger(), fence=Integer(), token=BigInteger(), result=LargeBinary())
    return (
        update(job)
        .values(state=number(DONE), lease_until=null(), ended_at=func.now(), result=done.c.result)
        .where(job.c.id == done.c.id, job.c.fence == done.c.fence, job.c.token == done.c.token, HELD)
        .returning(job.c.id, job.c.kind)
    )


_held = rows("held", id=BigInteger(), fence=Integer(), token=BigInteger())
_mine = (job.c.id == _held.c.id, job.c.fence == _held.c.fence, job.c.token == _held.c.token, HELD)
_named = (job.c.id, job.c.fence, job.c.token)
_started = (
    update(job).values(attempts=job.c.attempts + number(1), started_at=func.now()).where(*_mine, job.c.started_at.is_(None))
)


def _turn(lanes: Sequence[int], *, starting: bool = False) -> str:
    """starting: the statement also starts leases. Its last columns hold pairs of their id and token, and the time."""
    ended = settled().cte("settled")
    start, last = bindparam("start", type_=Integer()), bindparam("start_last", type_=Integer())
    starts = case((job.c.attempts + number(1) >= job.c.max_attempts, last), else_=start)
    claimed = (
        update(job)
        .values(
            state=number(LEASED),
            fence=job.c.fence + number(1),
            attempts=job.c.attempts + starts,
            lease_until=UNTIL,
            started_at=case((starts == number(1), func.now())),
            worker=bindparam("by", type_=Text()),
            token=bindparam("drawn", type_=BigInteger()),
        )
        .where(job.c.id == any_(_claimed(lanes)))
        .returning(*LEASE)
        .cte("claimed")
    )
    moved = union_all(
        select(ended.c.kind, number(0).label("ready"), number(-1).label("leased"), number(1).label("done")),
        select(claimed.c.kind, number(-1).label("ready"), number(1).label("leased"), number(0).label("done")),
    ).subquery()
    counted = (
        insert(tally_delta)
        .from_select(
            ["kind", "ready", "leased", "done"],
            select(moved.c.kind, *(func.sum(moved.c[name]) for name in ("ready", "leased", "done"))).group_by(moved.c.kind),
        )
        .cte("counted")
    )
    none = cast(null(), ARRAY(BigInteger))
    nones: list[ColumnElement[Any]] = [none.label("settled")]
    summary: list[ColumnElement[Any]] = [func.array_agg(ended.c.id)]
    if starting:
        started = _started.returning(job.c.id, job.c.token).cte("started")
        nones += [none.label("started"), cast(null(), DateTime(timezone=True)).label("at")]
        names = select(func.array_agg(array([started.c.id, started.c.token])))
        summary += [names.scalar_subquery(), func.now()]
    return postgres(
        union_all(
            select(*claimed.c, *nones),
            select(*(cast(null(), column.type) for column in LEASE), *summary),
        ).add_cte(counted)
    ).text


TURN = _turn(PRIORITIES)
TURN_ALONE = _turn((QUARANTINE,))
TURN_START = _turn(PRIORITIES, starting=True)


class Turned(NamedTuple):
    """What the statement of a turn did."""

    leases: list[Lease]
    settled: set[int]
    """The ids of settled jobs."""
    started: list[Lease]


def turn(run: Runner, done: Sequence[Settlement], demand: Demand, since: Sequence[str], /) -> Turned:
    """Settle jobs that are done and replay nothing, start leases, and claim jobs that are due since these times."""
    starts = demand.starts
    found = run.execute(
        TURN_ALONE if demand.alone else TURN_START if starts else TURN,
        {
            "done_id": plain([one.job_id for one in done]),
            "done_fence": plain([one.fence for one in done]),
            "done_token": plain([one.token for one in done]),
            "done_result": blobs([one.result for one in done]),
            "want_kind": texts(demand.kinds),
            "want_most": plain(demand.kinds.values()),
            "want_since": texts(since),
            "total": demand.total,
            "start": int(demand.start),
            "start_last": int(demand.start and demand.start_last),
            "seconds": demand.seconds,
            "by": demand.worker,
            "drawn": demand.token,
            **(_these(starts) if starts else {}),
        },
    ).fetchall()
    *leased, last = found
    settled, *begun = last[COLUMNS:]
    leases = [Lease._make(row[:COLUMNS]) for row in leased]
    return Turned(leases, set(settled or ()), _begun(starts, *begun) if starts else [])


def _begun(starts: Sequence[Lease], pairs: Sequence[tuple[int, int]] | None, at: datetime) -> list[Lease]:
    # Not by the id alone: a lost lease and a newer one of the same job may be among them.
    names = set(map(tuple, pairs or ()))
    return [
        lease._replace(attempt=lease.attempt + 1, started_stored=at) for lease in starts if (lease.job_id, lease.token) in names
    ]


START = postgres(_started.returning(*_named, job.c.started_at)).text
RENEW = postgres(update(job).values(lease_until=UNTIL).where(*_mine).returning(*_named)).text


def start(run: Runner, leases: Sequence[Lease], /) -> list[Lease]:
    """Write that these attempts begin; the ones that may."""
    begun = {tuple(name): at for *name, at in run.execute(START, _these(leases)).fetchall()}
    return [
        lease._replace(attempt=lease.attempt + 1, started_stored=begun[name])
        for lease in leases
        if (name := lease_name(lease)) in begun
    ]


def renew(run: Runner, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
    """Hold them longer; the ones that are lost."""
    held = set(run.execute(RENEW, _these(leases) | {"seconds": seconds}).fetchall())
    return [lease for lease in leases if lease_name(lease) not in held]


def _these(leases: Sequence[Lease]) -> dict[str, object]:
    return {
        "held_id": plain([lease.job_id for lease in leases]),
        "held_fence": plain([lease.fence for lease in leases]),
        "held_token": plain([lease.token for lease in leases]),
    }
