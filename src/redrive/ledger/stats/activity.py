"""Activity: ended attempts by minute, with histograms of queue wait and run time.

Each worker writes rows of its own, so workers never wait for each other. A worker writes the totals
of a minute so far, so a repeated write changes nothing. Maintenance sums up old rows: minutes
become ten minutes, and these become hours. The number of rows does not grow with the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import log2
from time import monotonic
from typing import Any, NamedTuple, Protocol

from sqlalchemy import BigInteger, Connection, bindparam, cast, delete, func, select, tuple_

from ..db.clock import now_on
from ..db.compiled import sql_int, sql_text
from ..db.session import Session, upsert
from ..db.tables import ACTIVITY, activity
from ..model import Lease
from ..store.queries import queries_of
from . import histogram
from .histogram import (
    BUCKET_COUNT,
    BUCKETS_PER_DOUBLING,
    FIRST_MICROS,
    LAST_BUCKET,
    MICROS,
    OFFSET,
    Histogram,
    bucket_of,
    from_counts,
)

ALL_KINDS = ""
"""Pseudo job type for the totals of all job types, so that a chart of the app reads one row for
each slot."""
SUMMED = ""
"""The worker of rows that were summed up."""
MINUTE_SECONDS = 60
MINUTE, TEN_MINUTES, HOUR = 1, 10, 60
"""The spans of rows, in minutes."""
WORKERS_KEPT = timedelta(minutes=15)
"""After this time, the minutes of all workers become one row. No worker writes such a minute any
more, see `MAX_MINUTES`."""
MINUTES_KEPT = timedelta(hours=3)
TEN_MINUTES_KEPT = timedelta(hours=36)
HOURS_KEPT = timedelta(days=90)
MAX_ROWS = 2_000
"""Rows that one call of `sum_up` reads or deletes, of each span."""
LOCK = 7_203_611_502_915
"""Advisory lock of Postgres: one worker at a time sums up."""


class ActivityRow(NamedTuple):
    """The ended attempts of one job type in one slot. Immutable.

    Attributes:
        kind: Job type, or dataset such as crm/orders. `ALL_KINDS`: all of them.
        slot: First minute, counted since 1970.
        span: Number of minutes.
        done: Attempts that succeeded.
        failed: Attempts that failed and are retried.
        dead: Attempts that made a dead letter, or after which a partition gave up.
        cancelled: Attempts that ended because the job was cancelled.
        wait: Histogram of the time from due to start.
        run: Histogram of the duration.
    """

    kind: str
    slot: int
    span: int
    done: int
    failed: int
    dead: int
    cancelled: int
    wait: Histogram
    run: Histogram

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts, in the order of `ACTIVITY`."""
        return self.done, self.failed, self.dead, self.cancelled


def minute_of(time: datetime, /) -> int:
    """Return the minute of a time, counted since 1970."""
    return int(time.timestamp()) // MINUTE_SECONDS


def write(session: Session, worker: str, rows: Sequence[ActivityRow], /) -> None:
    """Write the totals of a worker's minutes. A repeated write changes nothing."""
    if rows:
        with session.single_statement("activity") as connection:
            _upsert(session, connection, worker, rows)


def _upsert(
    session: Session, connection: Connection, worker: str, rows: Iterable[ActivityRow]
) -> None:
    new = upsert(session, activity)
    changed = {name: new.excluded[name] for name in (*ACTIVITY, "wait", "run")}
    statement = new.on_conflict_do_update(index_elements=activity.primary_key.columns, set_=changed)
    connection.execute(statement, [_values(worker, row) for row in rows])


def _values(worker: str, row: ActivityRow) -> dict[str, Any]:
    texts = {"wait": histogram.to_text(row.wait), "run": histogram.to_text(row.run)}
    return {**row._asdict(), **texts, "worker": worker}


_ROWS = select(*(activity.c[name] for name in ActivityRow._fields))
_since, _step = (bindparam(name, type_=BigInteger) for name in ("since", "step"))
_STEP = (activity.c.slot - _since) // _step


def _join_texts(column: Any) -> Any:
    """Return the numbers of all histograms of a group. One row for each step is read faster."""
    numbers = func.nullif(func.trim(column, sql_text("[]")), sql_text(""))
    return func.coalesce(func.aggregate_strings(numbers, ","), sql_text(""))


_STEPS = (
    select(
        func.min(_STEP).label("place"),
        *(cast(func.sum(activity.c[name]), BigInteger).label(name) for name in ACTIVITY),
        _join_texts(activity.c.wait).label("wait"),
        _join_texts(activity.c.run).label("run"),
    )
    .where(
        activity.c.kind == bindparam("of_kind"),
        activity.c.slot >= bindparam("since"),
        activity.c.slot < bindparam("until"),
    )
    .group_by(_STEP)
)


def read_steps(
    connection: Connection, kind: str, since: int, step: int, count: int, /
) -> dict[int, ActivityRow]:
    """Return the sums of a job type by steps of so many minutes, without steps that have none."""
    parameters = {"of_kind": kind, "since": since, "until": since + count * step, "step": step}
    steps = {}
    for place, *counts, wait, run in connection.execute(_STEPS, parameters):
        histograms = (histogram.sum_texts(wait), histogram.sum_texts(run))
        steps[place] = ActivityRow._make((kind, since + place * step, step, *counts, *histograms))
    return steps


# The kinds are found one after the other in the primary key: a SELECT DISTINCT would read all rows.
_first_kind = select(func.min(activity.c.kind).label("kind")).cte("kinds", recursive=True)
_following = activity.alias("following")
_next_kind = select(func.min(_following.c.kind)).where(_following.c.kind > _first_kind.c.kind)
_kinds = _first_kind.union_all(
    select(_next_kind.scalar_subquery()).where(_first_kind.c.kind.is_not(None))
)
_KINDS = select(_kinds.c.kind).where(_kinds.c.kind > sql_text(ALL_KINDS))


def sums_by_kind(connection: Connection, since: int, until: int, /) -> dict[str, tuple[int, ...]]:
    """Return the counts of every job type between two minutes, in the order of `ACTIVITY`.

    It reads slots times job types, however many jobs there were.
    """
    kinds = connection.execute(_KINDS).scalars().all()
    if not kinds:
        return {}
    times: dict[str, object] = {"since": since, "until": until}
    rows = queries_of(connection).activity_of_kinds(connection, times, kinds)
    return {kind: tuple(counts) for kind, *counts in sorted(rows) if any(counts)}


def _from_row(row: Any) -> ActivityRow:
    wait, run = histogram.from_text(row.wait), histogram.from_text(row.run)
    return ActivityRow._make(row[:9])._replace(wait=wait, run=run)


# --- Maintenance


def sum_up(session: Session, /, *, limit: int = MAX_ROWS) -> int:
    """Sum up old rows, delete old hours, and return how many rows were read.

    Each span is a transaction of its own with at most `limit` rows.
    """
    now = now_on(session)
    changed = 0
    steps = (
        (MINUTE, MINUTE, WORKERS_KEPT),
        (MINUTE, TEN_MINUTES, MINUTES_KEPT),
        (TEN_MINUTES, HOUR, TEN_MINUTES_KEPT),
    )
    for span, larger, kept in steps:
        changed = max(changed, _sum_up(session, span, larger, minute_of(now - kept), limit))
    return max(changed, _delete_old(session, minute_of(now - HOURS_KEPT), limit))


def _oldest(span: int, before: int, limit: int) -> Any:
    columns = (*(activity.c[name] for name in ActivityRow._fields), activity.c.worker)
    # The span and the limit in the text: Postgres plans better if it knows them.
    return (
        select(*columns)
        .where(activity.c.span == sql_int(span), activity.c.slot < before)
        .order_by(activity.c.span, activity.c.slot, activity.c.kind)
        .limit(sql_int(limit))
    )


def _sum_up(session: Session, span: int, larger: int, before: int, limit: int) -> int:
    # Whole slots only: their rows are then summed up at once.
    before -= before % larger
    with session.transaction("activity") as connection:
        session.lock(LOCK)
        query = _oldest(span, before, limit)
        if span == larger:
            query = query.where(activity.c.worker != sql_text(SUMMED))
        old_rows = connection.execute(query).all()
        if not old_rows:
            return 0
        _delete_rows(connection, old_rows)
        slots: dict[tuple[str, int], list[ActivityRow]] = {}
        for row in old_rows:
            slot = row.slot - row.slot % larger
            slots.setdefault((row.kind, slot), []).append(_from_row(row))
        for stored in _read_slots(connection, larger, slots):
            slots[stored.kind, stored.slot].append(stored)
        sums = [total(kind, slot, larger, rows) for (kind, slot), rows in sorted(slots.items())]
        _upsert(session, connection, SUMMED, sums)
    return len(old_rows)


def _delete_rows(connection: Connection, rows: Sequence[Any]) -> None:
    is_read = [
        activity.c[name] == bindparam(f"of_{name}") for name in ("kind", "slot", "span", "worker")
    ]
    parameters = [
        {"of_kind": row.kind, "of_slot": row.slot, "of_span": row.span, "of_worker": row.worker}
        for row in rows
    ]
    connection.execute(delete(activity).where(*is_read), parameters)


def _read_slots(
    connection: Connection, span: int, slots: Mapping[tuple[str, int], object]
) -> list[ActivityRow]:
    """Return the rows of these slots that were summed up before."""
    places = tuple_(activity.c.kind, activity.c.slot).in_(sorted(slots))
    query = _ROWS.where(activity.c.span == span, activity.c.worker == SUMMED, places)
    return [_from_row(row) for row in connection.execute(query)]


def total(kind: str, slot: int, span: int, rows: Sequence[ActivityRow], /) -> ActivityRow:
    """Return the sum of rows, as a row of this job type and slot."""
    counts = (sum(numbers) for numbers in zip(*(row.counts for row in rows), strict=True))
    wait = histogram.merge(row.wait for row in rows)
    run = histogram.merge(row.run for row in rows)
    return ActivityRow._make((kind, slot, span, *counts, wait, run))


def _delete_old(session: Session, before: int, limit: int) -> int:
    with session.transaction("activity") as connection:
        session.lock(LOCK)
        rows = connection.execute(_oldest(HOUR, before, limit)).all()
        if rows:
            _delete_rows(connection, rows)
        return len(rows)


# --- The recorder of a worker

MAX_MINUTES = 10
"""Minutes that are kept while the ledger is away. Less than the time after which minutes are summed
up: a row that was summed up is never written again, which would count it twice."""
CLOCK_SECONDS = 1.0
"""Time between two looks at the clock."""
DONE, FAILED, DEAD, CANCELLED = range(4)
"""Outcomes, in the order of the columns."""
OUTCOMES = {"done": DONE, "failed": FAILED, "dead": DEAD, "cancelled": CANCELLED}
MICROSECOND = timedelta(microseconds=1)


class EndedAttempt(Protocol):
    """An attempt that has ended."""

    @property
    def lease(self) -> Lease:
        """Its lease, with the due time and the start."""

    @property
    def seconds(self) -> float:
        """How long it took."""


class KindActivity:
    """The ended attempts of one job type in one minute. Used by one thread only."""

    __slots__ = ("counts", "is_written", "run", "wait")

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]
        self.wait = [0] * BUCKET_COUNT
        self.run = [0] * BUCKET_COUNT
        self.is_written = False


class ActivityRecorder:
    """Counts ended attempts until they are written to the ledger. Used by the ledger thread only.

    A worker that is killed loses the counts since its last write. Jobs are not affected.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        """Start with no counts.

        Args:
            now: Returns the time by the ledger's clock.
        """
        self._now = now
        self._minutes: dict[int, dict[str, KindActivity]] = {}
        self._current: dict[str, KindActivity] = {}
        self._look_at = 0.0
        """When to look at the clock, on the monotonic clock."""

    def _kinds(self) -> dict[str, KindActivity]:
        """Return the counts of this minute."""
        at = monotonic()
        if at >= self._look_at:
            self._look_at = at + CLOCK_SECONDS
            self._current = self._minutes.setdefault(minute_of(self._now()), {})
        return self._current

    # ---- counting ----

    def add_successes(self, attempts: Iterable[EndedAttempt], /) -> None:
        """Count attempts that succeeded.

        It runs for every short job: `bucket_of` is written out here.
        """
        kinds = self._kinds()
        for attempt in attempts:
            lease = attempt.lease
            try:
                entry = kinds[lease.kind]
            except KeyError:
                entry = kinds[lease.kind] = KindActivity()
            entry.counts[0] += 1
            entry.is_written = False
            micros = attempt.seconds * MICROS
            bucket = 0
            if micros >= FIRST_MICROS:
                bucket = int(BUCKETS_PER_DOUBLING * log2(micros)) - OFFSET
            entry.run[bucket if bucket < LAST_BUCKET else LAST_BUCKET] += 1
            started = lease.started_stored
            if started:
                waited = started - lease.due_stored  # type: ignore[operator]  # of the same type
                micros = waited if waited.__class__ is int else waited / MICROSECOND  # type: ignore[operator]
                bucket = 0
                if micros >= FIRST_MICROS:
                    bucket = int(BUCKETS_PER_DOUBLING * log2(micros)) - OFFSET
                entry.wait[bucket if bucket < LAST_BUCKET else LAST_BUCKET] += 1

    def add(
        self, kind: str, outcome: str, /, *, run: float | None = None, wait: float | None = None
    ) -> None:
        """Count one attempt.

        Args:
            kind: Job type or dataset.
            outcome: `"done"`, `"failed"`, `"dead"` or `"cancelled"`.
            run: Seconds that it took. None: it did not run.
            wait: Seconds from due to start. None: not known.
        """
        entry = self._kinds().setdefault(kind, KindActivity())
        entry.counts[OUTCOMES[outcome]] += 1
        entry.is_written = False
        if run is not None:
            entry.run[bucket_of(run * MICROS)] += 1
        if wait is not None:
            entry.wait[bucket_of(wait * MICROS)] += 1

    # ---- writing ----

    def unwritten(self) -> list[ActivityRow]:
        """Return the totals of minutes that have changed since the last write."""
        rows = []
        for minute, kinds in sorted(self._minutes.items()):
            if any(not entry.is_written for entry in kinds.values()):
                own = {kind: _row(kind, minute, entry) for kind, entry in kinds.items()}
                rows += [row for kind, row in own.items() if not kinds[kind].is_written]
                rows.append(total(ALL_KINDS, minute, MINUTE, list(own.values())))
        return rows

    def on_written(self) -> None:
        """Note that the ledger has the rows of `unwritten`. Forget minutes that have ended."""
        for kinds in self._minutes.values():
            for entry in kinds.values():
                entry.is_written = True
        self._forget(minute_of(self._now()) - 1)

    def forget_old(self) -> None:
        """Forget minutes that could not be written in time."""
        self._forget(minute_of(self._now()) - MAX_MINUTES)

    def _forget(self, before: int) -> None:
        for minute in [each for each in self._minutes if each < before]:
            if self._minutes[minute] is not self._current:
                del self._minutes[minute]


def wait_seconds(lease: Lease, /) -> float | None:
    """Return the seconds from due to start. None: the job was not started."""
    started = lease.started_stored
    if not started:
        return None
    waited = started - lease.due_stored  # type: ignore[operator]  # of the same type
    return max(0.0, waited / MICROS if isinstance(waited, int) else waited.total_seconds())


def _row(kind: str, minute: int, entry: KindActivity) -> ActivityRow:
    wait, run = from_counts(entry.wait), from_counts(entry.run)
    return ActivityRow._make((kind, minute, MINUTE, *entry.counts, wait, run))
