"""Queries of jobs and attempts. Each is served by an index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    Select,
    and_,
    case,
    false,
    literal,
    null,
    or_,
    select,
)

from ..db.compiled import sql_int
from ..db.session import PerKind, from_json
from ..db.tables import CURRENT, TRIED, attempt, dead, job
from ..dead_letter import DeadLetterSummary
from ..filters import DeadLetterConditions
from ..model import (
    CANCELLED,
    DEAD,
    DONE,
    DROPPED,
    HELD,
    LEASED,
    PRIORITIES,
    PRUNED,
    QUARANTINE,
    READY,
    STATES,
    Attempt,
    DisplayState,
    Job,
    State,
)
from ..stats.counters import counts
from ..store.queries import queries_of
from . import dead_letters

# Not EXISTS: Postgres may build a table of all blocked dead letters for it.
_is_blocked = (
    select(dead.c.blocked)
    .where(dead.c.job_id == job.c.id)
    .limit(sql_int(1))
    .offset(sql_int(0))
    .correlate(job)
    .scalar_subquery()
)
_renamed: dict[str, ColumnElement[Any]] = {
    "state_stored": job.c.state,
    "ids_stored": job.c.ids,
    "headers_stored": job.c.headers,
    "blocked": case((job.c.state == sql_int(DEAD), _is_blocked)),
}
_without_content: dict[str, ColumnElement[Any]] = {
    **_renamed,
    **dict.fromkeys(("ids_stored", "headers_stored", "request_hash", "result"), null()),
    "payload": literal(b"", LargeBinary),
}


def _select_job(columns: dict[str, ColumnElement[Any]]) -> Select[Any]:
    names = Job._fields
    return select(
        *((columns[name] if name in columns else job.c[name]).label(name) for name in names)
    )


_JOB = _select_job(_renamed)
LINE = _select_job(_without_content)
"""Without payload, headers, ids and result, for lists."""


def read(connection: Connection, query: Select[Any], /) -> list[Job]:
    """Return the jobs of a query of `LINE`."""
    return [Job._make(row) for row in connection.execute(query)]


def by_id(connection: Connection, ids: Sequence[int], /) -> dict[int, Job]:
    """Return jobs by id. Jobs that no longer exist are missing."""
    return {each.id: each for each in read(connection, _JOB.where(job.c.id.in_(list(ids))))}


def by_key(connection: Connection, kind: str, key: str, /) -> Job | None:
    """Return the current job of a key, or None."""
    row = connection.execute(_JOB.where(job.c.kind == kind, job.c.key == key, CURRENT)).first()
    return None if row is None else Job._make(row)


def by_keys(connection: Connection, keys: Sequence[tuple[str, str]], /) -> list[Job]:
    """Return the current jobs of keys (job type and key), without their content."""
    if not keys:
        return []
    has_key = or_(*(and_(job.c.kind == kind, job.c.key == key) for kind, key in keys))
    return read(connection, LINE.where(has_key, CURRENT))


def lines(connection: Connection, ids: Sequence[int], /) -> dict[int, Job]:
    """Return jobs by id, without their content."""
    return {each.id: each for each in read(connection, LINE.where(job.c.id.in_(list(ids))))}


def attempts(connection: Connection, job_id: int, /) -> list[Attempt]:
    """Return the attempts of a job that failed, were lost or do not count, in order."""
    columns = (attempt.c[name] for name in Attempt._fields)
    query = select(*columns).where(attempt.c.job_id == job_id).order_by(attempt.c.fence)
    return [Attempt._make(row) for row in connection.execute(query)]


def in_state(connection: Connection, state: State, /, *, kind: str | None, limit: int) -> list[Job]:
    """Return jobs in a stored state: those that are due or expire first, or ended last."""
    number = STATES.index(state)
    order: dict[int, Any] = {
        READY: (job.c.kind, job.c.priority, job.c.due_at),
        LEASED: (job.c.lease_until,),
        DONE: (job.c.ended_at.desc(),),
    }
    query = _JOB.where(job.c.state == sql_int(number)).limit(limit)
    query = query.order_by(*order.get(number, (job.c.id,)))
    return read(connection, _of_kind(query, kind))


def _of_kind(query: Select[Any], kind: str | None) -> Select[Any]:
    return query if kind is None else query.where(job.c.kind == kind)


# --- By displayed state

_tried = or_(job.c.attempts > sql_int(0), job.c.reason.is_not(None))
_is_claimed = and_(job.c.state == sql_int(LEASED), job.c.started_at.is_(None))
_is_queued = or_(job.c.state.in_((sql_int(READY), sql_int(HELD))), _is_claimed)
_is_waiting = and_(_is_queued, job.c.waits_for.is_(None))
_is_pending_blocked = and_(dead.c.status == "pending", dead.c.blocked)
_has_blocked_letter = job.c.id.in_(select(dead.c.job_id).where(_is_pending_blocked))
CONDITIONS: dict[DisplayState, tuple[Any, ...]] = {
    "idle": (false(),),
    "queued": (_is_waiting, ~_tried, job.c.dead_id.is_(None)),
    "replaying": (_is_waiting, ~_tried, job.c.dead_id.is_not(None)),
    "retry_wait": (_is_waiting, _tried),
    "waiting": (_is_queued, job.c.waits_for.is_not(None)),
    "running": (job.c.state == sql_int(LEASED), job.c.started_at.is_not(None)),
    "blocked": (job.c.state == sql_int(DEAD), _has_blocked_letter),
    "dlq": (job.c.state == sql_int(DEAD), ~_has_blocked_letter),
    "done": (job.c.state.in_((sql_int(DONE), sql_int(PRUNED))),),
    "discarded": (job.c.state == sql_int(DROPPED), CURRENT),
    "cancelled": (job.c.state == sql_int(CANCELLED),),
}
"""The rules of `display_state` as SQL."""
_ORDERS: dict[DisplayState, tuple[Any, ...]] = {
    **dict.fromkeys(get_args(DisplayState), (job.c.ended_at.desc(), job.c.id.desc())),
    **dict.fromkeys(("queued", "replaying", "retry_wait", "waiting"), (job.c.due_at, job.c.id)),
    "running": (job.c.started_at, job.c.id),
}


def order_of(state: DisplayState | None, /) -> tuple[Any, ...]:
    """Return the order of a list of jobs in a displayed state. None: newest first."""
    return (job.c.id.desc(),) if state is None else _ORDERS[state]


def in_display_state(
    connection: Connection, state: DisplayState | None, /, *, kind: str | None, limit: int
) -> list[Job]:
    """Return jobs in a displayed state, without their content. None: all, newest first."""
    if state in ("dlq", "blocked", "discarded"):
        wanted = DeadLetterConditions(status="discarded", kind=kind)
        if state != "discarded":
            wanted = DeadLetterConditions(status="pending", kind=kind, blocked=state == "blocked")
        letters = _newest_letters(connection, wanted, limit)
        jobs = lines(connection, [each.job_id for each in letters if each.job_id is not None])
        return [jobs[each.job_id] for each in letters if each.job_id in jobs]
    if state == "queued" or state == "retry_wait":
        return _read_queue(connection, state, kind=kind, limit=limit)
    if state == "replaying":
        wanted = DeadLetterConditions(status="replaying", kind=kind)
        letters = _newest_letters(connection, wanted, limit)
        ids = [each.replay_job_id for each in letters if each.replay_job_id is not None]
        return [each for each in lines(connection, ids).values() if each.shown == "replaying"]
    if state == "done":
        order = (job.c.ended_at.desc(), job.c.id.desc())
        done = LINE.where(job.c.state == sql_int(DONE)).order_by(*order).limit(limit)
        recent = read(connection, _of_kind(done, kind))
        if len(recent) == limit:
            return recent  # otherwise pruned jobs fill the list
    where = (CURRENT,) if state is None else CONDITIONS[state]
    query = _of_kind(LINE.where(*where), kind).order_by(*order_of(state))
    return read(connection, query.limit(limit))


def _newest_letters(
    connection: Connection, wanted: DeadLetterConditions, limit: int
) -> list[DeadLetterSummary]:
    return dead_letters.summaries(connection, wanted, limit=limit, newest=True)


# --- Queued jobs in the order they are due: the first of each job type and priority, merged

_Queued: TypeAlias = Literal["queued", "retry_wait"]
_QUEUED_CONDITIONS: dict[_Queued, tuple[str, ...]] = {
    "queued": tuple(
        "state = 0 AND attempts = 0 AND reason IS NULL AND dead_id IS NULL "
        f"AND kind = look.kind AND priority = {priority}"
        for priority in (*PRIORITIES, QUARANTINE)
    ),
    "retry_wait": (f"kind = look.kind AND {TRIED.text}",),
}
_PACKED = {
    True: "(SELECT json_group_array(json_array(due_at, id)) FROM ({}))",
    False: "(SELECT json_agg(json_build_array(extract(epoch FROM due_at), id)) FROM ({}) AS few)",
}
"""On SQLite, and on Postgres."""


def _first_queued(state: _Queued) -> PerKind:
    first = "SELECT due_at, id FROM redrive_job WHERE {} ORDER BY due_at, id LIMIT :most"

    def build(sqlite: bool) -> str:
        queries = (first.format(condition) for condition in _QUEUED_CONDITIONS[state])
        return ", ".join(_PACKED[sqlite].format(query) for query in queries)

    return PerKind(build)


_FIRST_QUEUED = {state: _first_queued(state) for state in _QUEUED_CONDITIONS}


def _read_queue(
    connection: Connection, state: _Queued, *, kind: str | None, limit: int
) -> list[Job]:
    kinds = [kind] if kind is not None else []
    if kind is None:
        kinds = [name for name, tally in counts(connection).items() if tally.ready]
    rows = _FIRST_QUEUED[state].execute(connection, kinds, most=limit)
    cells = [cell for row in rows for cell in row if cell]
    pairs = sorted(chain.from_iterable(map(from_json, cells)))
    ids = [id_ for _due, id_ in pairs[:limit]]
    # Jobs that a worker has claimed and not started are queued, too.
    claimed = select(job.c.id).where(_is_claimed).order_by(job.c.lease_until).limit(limit)
    ids += connection.execute(_of_kind(claimed, kind)).scalars()
    jobs = [each for each in lines(connection, ids).values() if each.shown == state]
    return sorted(jobs, key=lambda each: (each.due_at, each.id))[:limit]


# --- Next due


def next_due(
    connection: Connection, kinds: Sequence[str], priorities: Sequence[int], /
) -> datetime | None:
    """Return the earliest due time of ready jobs, by one index lookup per job type and priority."""
    lookups = [(kind, priority) for kind in kinds for priority in priorities]
    return queries_of(connection).next_due(connection, lookups)
