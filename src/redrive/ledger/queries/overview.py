"""Summaries of the whole ledger for operators and metrics.

Those that read every live row say so. The others read counters and the ends of indexes, so their
cost does not grow with the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    func,
    null,
    or_,
    select,
    union_all,
)

from ..db.clock import UtcTimestamp, now_on
from ..db.compiled import sql_int, sql_text
from ..db.session import PerKind, Session, from_json
from ..db.tables import (
    TRIED,
    WAITING,
    dead,
    failure,
    failure_delta,
    item,
    job,
    key,
    kind,
    sweep,
)
from ..jobs.parking import parked_kinds
from ..jobs.pauses import COLUMNS as PAUSE_COLUMNS
from ..jobs.pauses import NO_PAUSES, Pause, Pauses, current_pauses
from ..model import (
    DEAD,
    HELD,
    LEASED,
    PRIORITIES,
    QUARANTINE,
    READY,
    DisplayState,
    display_state,
)
from ..timestamps import from_db

MAX_COUNTED_RETRIES = 1000
"""Jobs that wait for another attempt are counted up to this number."""
MAX_NAMED_KEYS = 3
RECENT_SWEEPS = 500
"""Newest bulk operations among which halted ones are looked for."""
MAX_HALTED = 5
MAX_BATCHES = 100
"""Batches whose pending items are counted."""


class CountSince(NamedTuple):
    """A number, and the earliest time."""

    many: int = 0
    since: datetime | None = None


def _count_by_kind(
    connection: Connection, kind_column: Any, at: Any, *where: Any
) -> dict[str, CountSince]:
    query = select(kind_column, func.count(), func.min(at)).where(*where)
    rows = connection.execute(query.group_by(kind_column).order_by(kind_column))
    return {name: CountSince(count, since) for name, count, since in rows}


# --- Jobs by job type


class KindSummary(NamedTuple):
    """The live jobs of one job type."""

    shown: Counter[DisplayState]
    due: int
    """Ready jobs that are due."""
    oldest_due: datetime | None
    next_due: datetime | None
    """When the next job that is not due yet is due."""


def kind_summaries(connection: Connection, now: datetime, /) -> dict[str, KindSummary]:
    """Return the live jobs by job type. Reads every live row."""
    tried = _flag(or_(job.c.attempts > 0, job.c.reason.is_not(None)))
    started = _flag(job.c.started_at.is_not(None))
    replay = _flag(job.c.dead_id.is_not(None))
    is_due = and_(job.c.state == sql_int(READY), job.c.due_at <= now)
    is_scheduled = and_(job.c.state == sql_int(READY), job.c.due_at > now)
    waits = _flag(job.c.waits_for.is_not(None))
    group = (job.c.kind, job.c.state, tried, started, replay, waits)
    rows = connection.execute(
        select(
            *group,
            func.count().label("jobs"),
            func.sum(_flag(is_due)).label("due"),
            func.min(case((is_due, job.c.due_at))).label("oldest"),
            func.min(case((is_scheduled, job.c.due_at))).label("soonest"),
        )
        .where(job.c.state.in_((sql_int(READY), sql_int(LEASED), sql_int(HELD))))
        .group_by(*group)
    )
    summaries: dict[str, KindSummary] = {}
    for name, state, was_tried, has_started, *flags, jobs, due, oldest, soonest in rows:
        before = summaries.get(name) or KindSummary(Counter(), 0, None, None)
        is_replay, is_waiting = map(bool, flags)
        shown = display_state(
            state,
            attempts=was_tried,
            started=bool(has_started),
            replay=is_replay,
            waits=is_waiting,
        )
        before.shown[shown] += jobs
        summaries[name] = KindSummary(
            before.shown,
            before.due + int(due),
            _earlier(before.oldest_due, oldest),
            _earlier(before.next_due, soonest),
        )
    letters = (
        select(dead.c.kind, dead.c.blocked, func.count())
        .where(dead.c.status == "pending", dead.c.job_id.is_not(None))
        .group_by(dead.c.kind, dead.c.blocked)
    )
    for name, blocked, count in connection.execute(letters):
        summary = summaries.setdefault(name, KindSummary(Counter(), 0, None, None))
        summary.shown[display_state(DEAD, blocked=blocked)] += count
    return summaries


def _flag(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return case((condition, sql_int(1)), else_=sql_int(0))


def _earlier(first: Any, second: Any) -> Any:
    return second if first is None or (second is not None and second < first) else first


class Queue(NamedTuple):
    """The ready jobs of one job type."""

    oldest_due: datetime | None
    """In the future if no job is due yet."""
    tried: int
    """Jobs that wait for another attempt, counted up to `MAX_COUNTED_RETRIES` + 1. If more jobs
    than that are suspended, some of these may be included."""
    suspended: int = 0
    """Jobs that sleep or wait for a signal, counted up to `MAX_COUNTED_RETRIES` + 1."""


WAS_TRIED = "CASE WHEN attempts > 0 OR reason IS NOT NULL THEN 1 ELSE 0 END"


def _queue_columns(_sqlite: bool) -> str:
    firsts = [
        "(SELECT due_at FROM redrive_job WHERE state = 0 AND kind = look.kind "  # noqa: S608
        f"AND priority = {priority} ORDER BY due_at, id LIMIT 1)"
        for priority in (*PRIORITIES, QUARANTINE)
    ]
    # The index of failed jobs does not say which of them wait for a signal. Reading the jobs to
    # leave these out takes 20 times as long as subtracting the few that there are.
    tried = (
        "(SELECT count(*) FROM (SELECT 1 FROM redrive_job "  # noqa: S608
        f"WHERE kind = look.kind AND {TRIED.text} LIMIT :tried) AS few)"
    )
    suspended, both = (
        f"(SELECT {count} FROM (SELECT attempts, reason FROM redrive_job "  # noqa: S608
        f"WHERE kind = look.kind AND {WAITING.text} LIMIT :most) AS few)"
        for count in ("count(*)", f"coalesce(sum({WAS_TRIED}), 0)")
    )
    return ", ".join(("look.kind", *firsts, tried, suspended, both))


_QUEUES = PerKind(_queue_columns)


def queues(connection: Connection, kinds: Sequence[str], /) -> dict[str, Queue]:
    """Return the ready jobs of job types, by nine index lookups for each."""
    if not kinds:
        return {}
    result: dict[str, Queue] = {}
    most = MAX_COUNTED_RETRIES + 1
    rows = _QUEUES.execute(connection, kinds, most=most, tried=most)
    # Twice as many are read only where suspended jobs may take the places of others.
    cut = {row[0] for row in rows if row[-3] >= most and row[-1]}
    more = _QUEUES.execute(connection, sorted(cut), most=most, tried=2 * most) if cut else []
    for name, *dues, tried, suspended, both in (*rows, *more):
        oldest = min((due for due in dues if due is not None), default=None)
        retries = min(int(tried) - int(both), most)
        result[name] = Queue(from_db(oldest), retries, int(suspended))
    return result


def count_due(session: Session, kinds: Sequence[str], most: int, /) -> int:
    """Return how many jobs of these types could be claimed now, counted up to `most`.

    Without retries that are not due, parked job types and jobs in quarantine.
    """
    now, parked = now_on(session), parked_kinds(session)
    count = 0
    for name in kinds:
        if name not in parked and count < most:
            is_claimable = (
                job.c.state == sql_int(READY),
                job.c.kind == name,
                job.c.priority == sql_int(0),
                job.c.due_at <= now,
            )
            ids = select(job.c.id).where(*is_claimable).limit(most - count).subquery()
            count += session.core.execute(select(func.count()).select_from(ids)).scalar_one()
    return count


class LeasedJob(NamedTuple):
    """A job that a worker holds."""

    id: int
    kind: str
    key: str
    worker: str
    attempts: int
    started_at: datetime | None
    lease_until: datetime


def leased_jobs(connection: Connection, limit: int, /) -> list[LeasedJob]:
    """Return jobs that workers hold, ordered by the end of their lease."""
    columns = (job.c[name] for name in LeasedJob._fields)
    query = select(*columns).where(job.c.state == sql_int(LEASED)).order_by(job.c.lease_until)
    return [LeasedJob._make(row) for row in connection.execute(query.limit(limit))]


class ScheduledJob(NamedTuple):
    """A job that a schedule submitted."""

    id: int
    kind: str
    key: str
    state: int
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    headers: str | None
    error: str | None


def _scheduled_ids(sqlite: bool) -> str:
    # Only keys of schedules begin with `cron::`. They sort by the time of the run.
    ids = (
        "SELECT id FROM redrive_job WHERE kind = look.kind AND key >= 'cron::' "
        "AND key < 'cron:;' AND current ORDER BY key DESC LIMIT :most"
    )
    pack = "json_group_array(id)" if sqlite else "json_agg(id)"
    return f"(SELECT {pack} FROM ({ids}) AS newest)"  # noqa: S608


_SCHEDULED = PerKind(_scheduled_ids)


def scheduled_jobs(
    connection: Connection, kinds: Sequence[str], limit: int, /
) -> dict[str, list[ScheduledJob]]:
    """Return the last jobs that schedules submitted, by job type, newest first."""
    if not kinds:
        return {}
    cells = [row[0] for row in _SCHEDULED.execute(connection, kinds, most=limit) if row[0]]
    ids = chain.from_iterable(map(from_json, cells))
    columns = (job.c[name] for name in ScheduledJob._fields)
    query = select(*columns).where(job.c.id.in_(list(ids))).order_by(job.c.kind, job.c.key.desc())
    jobs: dict[str, list[ScheduledJob]] = {}
    for row in connection.execute(query):
        jobs.setdefault(row.kind, []).append(ScheduledJob._make(row))
    return jobs


# --- Problems


class Stuck(NamedTuple):
    """Work that no process continues. Immutable."""

    leases: CountSince
    """Expired leases that were not recovered."""
    items: dict[str, int]
    """Batch items that were given up lately, by batch, the most first."""
    has_halted_sweeps: bool = False
    pending_items: Mapping[str, int] = MappingProxyType({})
    """Rejected batch items that are sent again, by batch."""


def read_stuck(
    connection: Connection, /, *, expired_before: datetime, given_up_since: datetime, most: int
) -> Stuck:
    """Read all in one query, because a page runs few. It counts at most `most` of each kind."""
    leases, items, pending, halted = CountSince(), dict[str, int](), dict[str, int](), 0
    parameters = {"before": expired_before, "since": given_up_since}
    for part, batch, count, since in connection.execute(_stuck_query(most), parameters):
        if part == "items":
            items[batch] = count
        elif part == "pending":
            pending[batch] = count
        elif part == "leases":
            leases = CountSince(count, since)
        else:
            halted = count
    most_first = dict(sorted(items.items(), key=lambda pair: (-pair[1], pair[0])))
    return Stuck(leases, most_first, halted > 0, dict(sorted(pending.items())))


@lru_cache(maxsize=10)
def _stuck_query(most: int) -> Any:
    since = bindparam("since", type_=UtcTimestamp)
    given_up = (
        select(item.c.batch, item.c.given_up_at)
        .where(item.c.status == sql_text("giveup"), item.c.given_up_at >= since)
        .order_by(item.c.given_up_at.desc())
        .limit(sql_int(most))
        .subquery()
    )
    is_expired = job.c.lease_until < bindparam("before", type_=UtcTimestamp)
    leases = select(sql_text("leases"), null(), func.count(), func.min(job.c.lease_until))
    times = (func.count(), func.min(given_up.c.given_up_at))
    batches = select(sql_text("items"), given_up.c.batch, *times)
    halted = select(sql_text("halted"), null(), func.count(), func.min(sweep.c.updated_at))
    return union_all(
        batches.group_by(given_up.c.batch),
        leases.where(job.c.state == sql_int(LEASED), is_expired),
        halted.where(sweep.c.state == sql_text("halted"), sweep.c.id > _oldest_recent_sweep()),
        _pending_items_query(most),
    )


def _pending_items_query(most: int) -> Any:
    # The index of items begins with the batch. Its batches are found one after the other, because
    # a search for the status alone would read every item.
    first = select(func.min(item.c.batch).label("batch"), sql_int(1).label("number"))
    batches = first.cte("batches", recursive=True)
    following = item.alias("following")
    next_batch = select(func.min(following.c.batch)).where(following.c.batch > batches.c.batch)
    batches = batches.union_all(
        select(next_batch.scalar_subquery(), batches.c.number + sql_int(1)).where(
            batches.c.batch.is_not(None), batches.c.number < sql_int(MAX_BATCHES)
        )
    )
    is_pending = and_(item.c.batch == batches.c.batch, item.c.status == sql_text("open"))
    pending = select(item.c.batch).join(batches, is_pending).limit(sql_int(most)).subquery()
    return select(sql_text("pending"), pending.c.batch, func.count(), null()).group_by(
        pending.c.batch
    )


def stuck_keys(connection: Connection, before: datetime, /) -> tuple[CountSince, list[str]]:
    """Return idempotency keys whose holder's lease expired before then, and the first of them."""
    is_stuck = and_(key.c.status == "processing", key.c.lease_until < before)
    count = select(func.count(), func.min(key.c.lease_until)).where(is_stuck)
    first = select(key.c.key).where(is_stuck).order_by(key.c.lease_until).limit(MAX_NAMED_KEYS)
    return (
        CountSince(*connection.execute(count).one()),
        list(connection.execute(first).scalars()),
    )


def deaths_by_kind(connection: Connection, since: datetime, until: datetime, /) -> dict[str, int]:
    """Return the number of dead letters that were created between two times, by job type."""
    is_between = (dead.c.created_at >= since, dead.c.created_at < until)
    deaths = _count_by_kind(connection, dead.c.kind, dead.c.created_at, *is_between)
    return {name: each.many for name, each in deaths.items()}


def undecided_dead_letters(connection: Connection, /) -> dict[str, CountSince]:
    """Return the dead letters that wait for a decision, not for a time, by job type."""
    is_undecided = (dead.c.status == "pending", dead.c.blocked_until.is_(None))
    return _count_by_kind(connection, dead.c.kind, dead.c.created_at, *is_undecided)


def parked_reasons(connection: Connection, /) -> dict[str, str]:
    """Return the parked job types, with the reason."""
    query = select(kind.c.kind, kind.c.reason).where(kind.c.parked_at.is_not(None))
    rows = connection.execute(query.order_by(kind.c.kind))
    return {row[0]: row[1] or "" for row in rows}


def probe_times(connection: Connection, /) -> dict[str, datetime]:
    """Return when each parked job type is probed next. A time in the past is due now."""
    is_parked = (kind.c.parked_at.is_not(None), kind.c.parked_until.is_not(None))
    rows = connection.execute(select(kind.c.kind, kind.c.parked_until).where(*is_parked))
    return {row[0]: row[1] for row in rows}


class KindStates(NamedTuple):
    """What is known of job types, apart from their counters."""

    blocked: dict[str, int]
    """Blocked dead letters."""
    parked: dict[str, tuple[str, datetime, datetime | None]]
    """Why and since when a job type is parked, and when it is probed next."""
    first_seen: dict[str, datetime]
    """The first failure of all groups that were seen since the given time."""
    pauses: Pauses
    """Pauses by hand, also of the app, sources and schedules."""


_PAUSED, _PARKED, _BLOCKED, _SEEN = "paused", "parked", "blocked", "seen"
_blocked = union_all(
    select(failure.c.kind, failure.c.blocked).where(failure.c.pending > sql_int(0)),
    select(failure_delta.c.kind, failure_delta.c.blocked),
).subquery()
_seen = union_all(
    select(failure.c.kind, failure.c.first_at).where(
        failure.c.last_at >= bindparam("since", type_=failure.c.last_at.type)
    ),
    select(failure_delta.c.kind, failure_delta.c.at.label("first_at")).where(
        failure_delta.c.job_id.is_not(None)
    ),
).subquery()
_KIND_STATES = union_all(
    select(sql_text(_PAUSED), sql_int(0), *PAUSE_COLUMNS),
    select(
        *(sql_text(_PARKED), sql_int(0), null(), kind.c.kind, kind.c.parked_at),
        *(kind.c.parked_until, null(), kind.c.reason),
    ).where(kind.c.parked_at.is_not(None)),
    select(
        *(sql_text(_BLOCKED), func.sum(_blocked.c.blocked), null(), _blocked.c.kind),
        *(null(), null(), null(), null()),
    ).group_by(_blocked.c.kind),
    select(
        *(sql_text(_SEEN), sql_int(0), null(), _seen.c.kind, func.min(_seen.c.first_at)),
        *(null(), null(), null()),
    ).group_by(_seen.c.kind),
)


def read_kind_states(connection: Connection, now: datetime, since: datetime, /) -> KindStates:
    """Read all in one query, because a page runs few. `since` is for `first_seen`."""
    states = KindStates({}, {}, {}, NO_PAUSES)
    pauses: list[Pause] = []
    for part, count, *columns in connection.execute(_KIND_STATES, {"since": since}):
        row = Pause._make(columns)
        if part == _PAUSED:
            pauses.append(row)
        elif part == _PARKED:
            states.parked[row.name] = row.because or "", row.paused_at, row.until
        elif part == _SEEN:
            states.first_seen[row.name] = row.paused_at
        elif count:
            states.blocked[row.name] = int(count)
    return states._replace(pauses=current_pauses(pauses, now))


# --- Bulk operations


class HaltedSweep(NamedTuple):
    """A bulk operation that stopped, because its canary or too many of its items failed."""

    id: int
    act: str
    reason: str | None
    left: int
    halted_at: datetime


def _oldest_recent_sweep() -> Any:
    newest = sweep.alias("newest")
    return select(func.max(newest.c.id) - sql_int(RECENT_SWEEPS)).scalar_subquery()


def halted_sweeps(connection: Connection, /) -> tuple[HaltedSweep, ...]:
    """Return halted sweeps, newest first. Looks at the newest `RECENT_SWEEPS` only."""
    left = sweep.c.total - sweep.c.made - sweep.c.skipped
    query = (
        select(sweep.c.id, sweep.c.act, sweep.c.reason, left, sweep.c.updated_at)
        .where(sweep.c.state == "halted", sweep.c.id > _oldest_recent_sweep())
        .order_by(sweep.c.id.desc())
        .limit(MAX_HALTED)
    )
    return tuple(HaltedSweep._make(row) for row in connection.execute(query))
