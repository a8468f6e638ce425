"""Store events with their handlers' jobs on SQLite, many rows by one statement.

Each statement releases the GIL, so fewer statements mean that fewer other threads run in between.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, compress
from operator import not_
from sqlite3 import Connection

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import BatchRunner, compile_sqlite
from ...db.tables import CURRENT, event, job
from ...events import EventJob, IncomingEvent, StartQuota, StoreResult, event_tags, started_leases
from ...failpoint import crash_point
from ...model import LEASED, READY, Lease, Settlement
from ...timestamps import MICROSECONDS, to_micros
from .counters import add, add_all
from .submit import insert_tags

_EVENT_COLUMNS = (
    *("source", "event_id", "type", "payload", "headers", "ids", "source_id"),
    *("handlers", "at", "received_at"),
)
_event = insert(event).values({name: bindparam(name) for name in _EVENT_COLUMNS})
_event = _event.on_conflict_do_nothing(index_elements=[event.c.source, event.c.event_id])
INSERT_EVENTS = compile_sqlite(_event, *_EVENT_COLUMNS)
INSERT_EVENT = compile_sqlite(_event.returning(event.c.id), *_EVENT_COLUMNS)
_JOB_COLUMNS = (
    *("state", "fence", "attempts", "max_attempts", "due_at", "lease_until", "created_at"),
    *("started_at", "kind", "key", "worker", "ids", "headers", "payload", "token"),
)
_job = insert(job).values({name: bindparam(name) for name in _JOB_COLUMNS})
_job = _job.on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
INSERT_JOBS = compile_sqlite(_job, *_JOB_COLUMNS)
INSERT_JOB = compile_sqlite(_job.returning(job.c.id), *_JOB_COLUMNS)
_cached_micros = lru_cache(maxsize=100)(to_micros)
"""Many events were sent in the same millisecond."""


class _Quota:
    """The rest of a `StartQuota`, with the columns that all started or all ready jobs share."""

    def __init__(self, quota: StartQuota, now: int) -> None:
        self._left = dict(quota.kinds)
        times = {"due_at": now, "created_at": now}
        lease = {
            "lease_until": now + int(quota.seconds * MICROSECONDS),
            "started_at": now,
            "worker": quota.worker,
            "token": quota.token,
        }
        no_lease = dict.fromkeys(lease)
        self.started: dict[str, object] = {"state": LEASED, "fence": 1, "attempts": 1}
        self.started |= {**times, **lease}
        self.ready: dict[str, object] = {"state": READY, "fence": 0, "attempts": 0}
        self.ready |= {**times, **no_lease}

    def split(self, jobs: list[EventJob], /) -> tuple[list[EventJob], list[EventJob]]:
        """Return the jobs that start, and those that are ready."""
        counts = Counter([part.kind for _, part in jobs])
        if all(self._left.get(kind, 0) >= count for kind, count in counts.items()):
            return jobs, []
        starts = [self.take(part.kind) for _, part in jobs]
        return list(compress(jobs, starts)), list(compress(jobs, map(not_, starts)))

    def take(self, kind: str, /) -> bool:
        """Return whether one more job of this type may start."""
        left = self._left.get(kind, 0)
        if left:
            self._left[kind] = left - 1
        return left > 0


def receive_new(
    run: Connection,
    events: Sequence[IncomingEvent],
    quota: StartQuota,
    done: Sequence[Settlement],
    now: int,
    /,
) -> StoreResult | None:
    """Store new events at once, and count them together with jobs that are done.

    Returns:
        None if an event or a key existed. Then roll back and use `receive`.
    """
    if insert_rows(run, INSERT_EVENTS, {"received_at": now}, _event_rows(events))[0] != len(events):
        return None
    crash_point("receive.between")
    rest = _Quota(quota, now)
    started, ready = rest.split([(each, part) for each in events for part in each.jobs])
    inserted, last = insert_rows(run, INSERT_JOBS, rest.started, _job_rows(started))
    # AUTOINCREMENT: the ids of one transaction are consecutive.
    first = last - len(started) + 1
    inserted_ready, last_ready = insert_rows(run, INSERT_JOBS, rest.ready, _job_rows(ready))
    if inserted + inserted_ready != len(started) + len(ready):
        return None
    leases = started_leases(started, range(first, last + 1), now, quota.token)
    if any(each.extra_ids is not None for each in events):
        _add_tags(run, started, range(first, last + 1))
        _add_tags(run, ready, range(last_ready - len(ready) + 1, last_ready + 1))
    leased_counts = Counter([part.kind for _, part in started])
    ready_counts = Counter([part.kind for _, part in ready])
    done_counts = Counter([each.kind for each in done])
    for kind in leased_counts.keys() | ready_counts.keys() | done_counts.keys():
        add(
            run,
            kind,
            submitted=leased_counts[kind] + ready_counts[kind],
            ready=ready_counts[kind],
            leased=leased_counts[kind] - done_counts[kind],
            done=done_counts[kind],
        )
    return StoreResult([True] * len(events), leases)


def receive(
    run: BatchRunner, events: Iterable[IncomingEvent], quota: StartQuota, now: int, /
) -> StoreResult:
    """Store events one by one. Existing events and jobs do not change."""
    are_new: list[bool] = []
    leases: list[Lease] = []
    rest = _Quota(quota, now)
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for each in events:
        row = run.execute(INSERT_EVENT, (*_event_rows((each,))[0], now)).fetchone()
        are_new.append(row is not None)
        crash_point("receive.between")
        for part in each.jobs if are_new[-1] else ():
            starts = rest.take(part.kind)
            shared = rest.started if starts else rest.ready
            values = (*shared.values(), *_job_rows(((each, part),))[0])
            created = run.execute(statement(INSERT_JOB, tuple(shared)), values).fetchone()
            if created is None:
                continue  # the event was pruned and came again, but its job still exists
            if each.extra_ids is not None:
                _add_tags(run, ((each, part),), created)
            changes[part.kind].update({"submitted": 1, "leased" if starts else "ready": 1})
            if starts:
                leases += started_leases(((each, part),), created, now, quota.token)
    add_all(run, changes)
    return StoreResult(are_new, leases)


def _add_tags(run: BatchRunner, jobs: Iterable[EventJob], job_ids: Iterable[int]) -> None:
    tagged = zip(jobs, job_ids, strict=True)
    insert_tags(run, [(*tag, job_id) for (each, _), job_id in tagged for tag in event_tags(each)])


def _event_rows(events: Iterable[IncomingEvent]) -> list[tuple[object, ...]]:
    return [
        (
            each.source,
            each.event_id,
            each.type,
            each.payload,
            each.headers,
            each.extra_ids,
            each.source_id,
            each.handlers,
            None if each.at is None else _cached_micros(each.at),
        )
        for each in events
    ]


def _job_rows(jobs: Iterable[EventJob]) -> list[tuple[object, ...]]:
    return [
        (part.max_attempts, part.kind, part.key, each.ids, each.job_headers, each.payload)
        for each, part in jobs
    ]


# --- Many rows by one statement

STATEMENT_ROWS = (100, 10, 1)
"""Rows in one statement. Few sizes, so that all statements stay prepared."""
MIN_SHARED_ROWS = 10
"""Number of rows from which on it pays to look for columns with one value."""


@cache
def statement(insert_one: str, shared: tuple[str, ...], rows: int = 1) -> str:
    """Return the INSERT for several rows.

    Args:
        insert_one: The INSERT for one row.
        shared: Columns with the same value in all rows. They are the first parameters.
        rows: Number of rows.
    """
    head, _, rest = insert_one.partition(" VALUES (")
    own = [name for name in _columns(insert_one) if name not in shared]
    columns = [*("?" for _ in shared), *(f"column{number}" for number in range(1, len(own) + 1))]
    row = f"({', '.join('?' for _ in own)})"
    into, tail = f"{head.partition('(')[0]}({', '.join([*shared, *own])})", rest.partition(")")[2]
    # Not by numbers (?1), which sqlite3 takes for names. Without WHERE, SQLite would parse ON
    # CONFLICT as a part of a join.
    return (
        f"{into} SELECT {', '.join(columns)} FROM (VALUES {', '.join([row] * rows)}) "  # noqa: S608
        f"WHERE true{tail}"
    )


@cache
def _columns(insert_one: str) -> list[str]:
    return insert_one.partition(" VALUES (")[0].partition("(")[2].rstrip(")").split(", ")


def insert_rows(
    run: Connection,
    insert_one: str,
    shared: Mapping[str, object],
    rows: Sequence[tuple[object, ...]],
    /,
) -> tuple[int, int]:
    """Insert rows.

    Args:
        run: The connection.
        insert_one: The INSERT for one row.
        shared: Columns with the same value in all rows.
        rows: Values of the other columns.

    Returns:
        The number of inserted rows, and the id of the last one.
    """
    if len(rows) >= MIN_SHARED_ROWS:
        shared, rows = _find_shared(insert_one, shared, rows)
    start = inserted = last = 0
    names, values = tuple(shared), tuple(shared.values())
    for size in STATEMENT_ROWS:
        while len(rows) - start >= size:
            parameters = (*values, *chain.from_iterable(rows[start : start + size]))
            cursor = run.execute(statement(insert_one, names, size), parameters)
            inserted += cursor.rowcount
            last = cursor.lastrowid or 0
            start += size
    return inserted, last


def _find_shared(
    insert_one: str, shared: Mapping[str, object], rows: Sequence[tuple[object, ...]]
) -> tuple[Mapping[str, object], Sequence[tuple[object, ...]]]:
    """Move columns that happen to have one value to `shared`: comparing is faster than binding."""
    names = [name for name in _columns(insert_one) if name not in shared]
    columns = list(zip(*rows, strict=True))
    same = [
        column[0] == column[-1] and column.count(column[0]) == len(column) for column in columns
    ]
    if all(same):
        return shared, rows
    values = {name: column[0] for name, column in compress(zip(names, columns, strict=True), same)}
    return {**shared, **values}, list(zip(*compress(columns, map(not_, same)), strict=True))
