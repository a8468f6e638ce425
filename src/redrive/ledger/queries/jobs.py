"""Find: a job by its id or key, its attempts, and pages of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, get_args

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    Select,
    SmallInteger,
    Text,
    and_,
    bindparam,
    case,
    false,
    func,
    literal,
    null,
    or_,
    select,
    true,
    union_all,
)

from ..db.compiled import number, rows, sqlite
from ..db.tables import CURRENT, attempt, dead, job
from ..db.types import moment
from ..record import Attempt, Job
from ..state import DEAD, DONE, DROPPED, LEASED, PRUNED, READY, STATES, Shown, State

# Not EXISTS: Postgres may make a table of all blocked letters for that.
_its_letter = (
    select(dead.c.blocked).where(dead.c.job_id == job.c.id).limit(number(1)).offset(number(0)).correlate(job).scalar_subquery()
)
_blocked = case((job.c.state == number(DEAD), _its_letter))
_named: dict[str, ColumnElement[Any]] = {
    "state_stored": job.c.state,
    "ids_stored": job.c.ids,
    "headers_stored": job.c.headers,
    "blocked": _blocked,
}
_JOB: Select[Any] = select(*((_named[name] if name in _named else job.c[name]).label(name) for name in Job._fields))

_bare: dict[str, ColumnElement[Any]] = {
    **_named,
    **dict.fromkeys(("ids_stored", "headers_stored", "request_hash", "result"), null()),
    "payload": literal(b"", LargeBinary),
}
_LINE: Select[Any] = select(*((_bare[name] if name in _bare else job.c[name]).label(name) for name in Job._fields))
"""Without what is in it: for lists."""


def by_id(connection: Connection, ids: Sequence[int], /) -> dict[int, Job]:
    """Jobs by their ids; those that are gone are missing."""
    return {row[0]: Job._make(row) for row in connection.execute(_JOB.where(job.c.id.in_(list(ids))))}


def by_key(connection: Connection, kind: str, key: str, /) -> Job | None:
    """The job that a key has now."""
    row = connection.execute(_JOB.where(job.c.kind == kind, job.c.key == key, CURRENT)).first()
    return None if row is None else Job._make(row)


def by_keys(connection: Connection, keys: Sequence[tuple[str, str]], /) -> list[Job]:
    """The jobs that these keys have now, each a kind and a key; without what is in them."""
    if not keys:
        return []
    any_of = or_(*(and_(job.c.kind == kind, job.c.key == key) for kind, key in keys))
    return [Job._make(row) for row in connection.execute(_LINE.where(any_of, CURRENT))]


def lines(connection: Connection, ids: Sequence[int], /) -> dict[int, Job]:
    """Jobs by their ids, without what is in them."""
    return {row[0]: Job._make(row) for row in connection.execute(_LINE.where(job.c.id.in_(list(ids))))}


def recent(connection: Connection, /, *, kind: str | None, limit: int) -> list[Job]:
    """Those that were done last, without what is in them; pruned ones are not among them."""
    query = _LINE.where(job.c.state == number(DONE)).order_by(job.c.ended_at.desc(), job.c.id.desc()).limit(limit)
    return [Job._make(row) for row in connection.execute(query if kind is None else query.where(job.c.kind == kind))]


def died_since(since: datetime, /) -> ColumnElement[bool]:
    """Dead letters that died since then, for the first time or again, as a replay."""
    again = and_(dead.c.status == "pending", dead.c.updated_at >= since)
    return or_(dead.c.created_at >= since, again)


def died_before(until: datetime, /) -> ColumnElement[bool]:
    """Dead letters that died last before then. `Letter.died_at` is the same time."""
    decided = or_(dead.c.last_attempt_at.is_(None), dead.c.last_attempt_at < until)
    return or_(
        and_(dead.c.status == "pending", dead.c.updated_at < until),
        and_(dead.c.status != "pending", dead.c.created_at < until, decided),
    )


def attempts(connection: Connection, job_id: int, /) -> list[Attempt]:
    """The attempts of a job that did not end well, in their order."""
    query = select(*(attempt.c[name] for name in Attempt._fields)).where(attempt.c.job_id == job_id).order_by(attempt.c.fence)
    return [Attempt._make(row) for row in connection.execute(query)]


def page(connection: Connection, state: State, /, *, kind: str | None, limit: int) -> list[Job]:
    """Some jobs in a state: those due or expiring first, those done last; each through its index."""
    stored = STATES.index(state)
    order: dict[int, Any] = {
        READY: (job.c.kind, job.c.priority, job.c.due_at),
        LEASED: (job.c.lease_until,),
        DONE: (job.c.ended_at.desc(),),
    }
    query = _JOB.where(job.c.state == number(stored)).order_by(*order.get(stored, (job.c.id,))).limit(limit)
    if kind is not None:
        query = query.where(job.c.kind == kind)
    return [Job._make(row) for row in connection.execute(query)]


def named(connection: Connection, name: Shown | None, /, *, kind: str | None, limit: int) -> list[Job]:
    """Some jobs by the name that people have for their state: those that wait in the order they are due, ended ones the last
    first; all of them, the newest first. Without what is in them."""
    query = _LINE.limit(limit)
    if kind is not None:
        query = query.where(job.c.kind == kind)
    where, order = ((CURRENT,), (job.c.id.desc(),)) if name is None else (_NAMED[name], _ORDER[name])
    query = query.where(*where).order_by(*order)
    return [Job._make(row) for row in connection.execute(query)]


_tried = or_(job.c.attempts > number(0), job.c.reason.is_not(None))
_waits = or_(job.c.state == number(READY), and_(job.c.state == number(LEASED), job.c.started_at.is_(None)))
_letter_waits = job.c.id.in_(select(dead.c.job_id).where(dead.c.status == "pending", dead.c.blocked))
_NAMED: dict[Shown, tuple[Any, ...]] = {
    "idle": (false(),),
    "queued": (_waits, ~_tried, job.c.dead_id.is_(None)),
    "replaying": (_waits, ~_tried, job.c.dead_id.is_not(None)),
    "retry_wait": (_waits, _tried),
    "running": (job.c.state == number(LEASED), job.c.started_at.is_not(None)),
    "blocked": (job.c.state == number(DEAD), _letter_waits),
    "dlq": (job.c.state == number(DEAD), ~_letter_waits),
    "done": (job.c.state.in_((number(DONE), number(PRUNED))),),
    "discarded": (job.c.state == number(DROPPED), CURRENT),
}
"""What `state.shown` computes, as conditions."""
_ORDER: dict[Shown, tuple[Any, ...]] = {
    **dict.fromkeys(get_args(Shown), (job.c.ended_at.desc(), job.c.id.desc())),
    **dict.fromkeys(("queued", "replaying", "retry_wait"), (job.c.due_at, job.c.id)),
    "running": (job.c.started_at, job.c.id),
}


def next_due(connection: Connection, kinds: Sequence[str], priorities: Sequence[int], /) -> datetime | None:
    """The earliest due time among waiting jobs of these kinds: one look into the index for each kind and priority."""
    looks = [(kind, priority) for kind in kinds for priority in priorities]
    if connection.dialect.name == "postgresql":
        # All in one statement: a worker asks each time that it finds nothing.
        asked = {"look_kind": [look[0] for look in looks], "look_priority": [look[1] for look in looks]}
        return moment(connection.execute(_NEXT_DUE, asked).scalar())
    run: Any = connection.connection.driver_connection
    some = [looks[at : at + LOOKS] for at in range(0, len(looks), LOOKS)]
    found = [run.execute(earliest(len(each)), list(chain.from_iterable(each))).fetchone()[0] for each in some]
    return moment(min((due for due in found if due is not None), default=None))


def _first_due(kind: Any, priority: Any) -> Select[Any]:
    waiting = (job.c.state == number(READY), job.c.kind == kind, job.c.priority == priority)
    return select(job.c.due_at).where(*waiting).order_by(job.c.due_at, job.c.id).limit(number(1)).offset(number(0))


LOOKS = 100
"""In one statement; SQLite takes 500 parts in one."""


@cache
def earliest(looks: int) -> str:
    """On SQLite: one statement, and so one moment in which other threads go first."""
    names = [(f"kind{at}", f"priority{at}") for at in range(looks)]
    firsts = [select(_first_due(bindparam(kind), bindparam(priority)).scalar_subquery().label("due")) for kind, priority in names]
    return sqlite(select(func.min(union_all(*firsts).subquery().c.due)), *chain.from_iterable(names)).text


_look = rows("look", kind=Text(), priority=SmallInteger())
_first = _first_due(_look.c.kind, _look.c.priority).lateral("first")
_NEXT_DUE = select(func.min(_first.c.due_at)).select_from(_look.join(_first, true()))
