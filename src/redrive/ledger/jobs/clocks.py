"""Clocks that differ between machines, and clocks that were set.

On SQLite, leases depend on each machine's own clock. A worker whose clock differs from the others'
claims no jobs. After a clock was set back, `correct_setback` moves the stored times: due jobs stay
due, retries keep their backoff, and leases end in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, case, func, literal, or_, select, update

from ..audit import REDRIVE_ACTOR
from ..db.clock import earlier, has_one_clock, now_on
from ..db.compiled import sql_int
from ..db.job_tables import step as step_table
from ..db.partition_tables import run, source, work
from ..db.session import Session
from ..db.tables import attempt, job, kind, sweep, worker
from ..model import HELD, LEASED, READY
from .workers import lease_of

MIN_SETBACK_SECONDS = 1.0
"""A clock that is set back by less delays no job for long."""
CLOCK_TOLERANCE_SECONDS = 10.0
"""The clocks of two machines may differ by this much, so on SQLite a smaller step is ignored."""
JOB_LEASE_SECONDS = 60.0
"""Longest lease of a job whose holder does not report its own."""
PARTITION_LEASE_SECONDS = 300.0
"""Longest lease of a partition."""


class _Step(NamedTuple):
    """A step of the clock."""

    now: datetime
    old_now: datetime
    """The time of the old clock."""

    @property
    def size(self) -> timedelta:
        """By how much the clock was set back."""
        return self.old_now - self.now


def correct_setback(session: Session, /) -> float:
    """Move timestamps that the old clock wrote to the current clock.

    The newest stored heartbeat is the time of the old clock. Heartbeats are moved in the same
    transaction, so each step is applied once, even if many workers notice it.

    The old clock may have been right until it jumped ahead. So only rows whose last write is in the
    future are moved. A retry never runs before its backoff is over, and waits at most its backoff
    again. So do sleeps and waits for signals. Times that a caller asked for (`due=`) and that have
    not come stay.

    Args:
        session: A session without a transaction.

    Returns:
        The seconds by which the clock was set back. 0: it was not.
    """
    with session.transaction("beat") as connection:
        beats = select(worker.c.name, worker.c.info, worker.c.seen_at)
        rows = connection.execute(beats.order_by(worker.c.name).with_for_update()).all()
        now = now_on(session)  # under the lock: another worker may have moved the heartbeats
        step = _Step(now, max((row.seen_at for row in rows), default=now))
        tolerance = MIN_SETBACK_SECONDS if has_one_clock(session) else CLOCK_TOLERANCE_SECONDS
        if step.size <= timedelta(seconds=tolerance):
            connection.execute(_unschedule_future_jobs(now))
            return 0.0
        leases = {row.name: lease_of(row.info) for row in rows}
        for statement in _corrections(step, leases):
            connection.execute(statement)
    return step.size.total_seconds()


def _unschedule_future_jobs(now: datetime) -> Any:
    """Return the update of jobs without a delay that were created in the future.

    No heartbeat shows by how much the clock was set back.
    """
    is_new = and_(_is_queued(), job.c.fence == sql_int(0))
    is_undelayed = and_(job.c.due_at > now, job.c.due_at <= job.c.created_at)
    return update(job).where(is_new, job.c.created_at > now, is_undelayed).values(due_at=now)


def _is_queued() -> ColumnElement[bool]:
    """Return whether a job is queued, or held by an earlier job of its sequence."""
    return job.c.state.in_((sql_int(READY), sql_int(HELD)))


def _last_written() -> ColumnElement[Any]:
    """Return the time at which a queued job was last written."""
    is_last = (attempt.c.job_id == job.c.id, attempt.c.fence == job.c.fence)
    ended = select(attempt.c.ended_at).where(*is_last).scalar_subquery()
    asked_again = and_(job.c.reason == "again", job.c.started_at.is_not(None))
    waits = (step_table.c.job_id == job.c.id, step_table.c.act != "step")
    suspended = select(func.max(step_table.c.started_at)).where(*waits).scalar_subquery()
    otherwise = case(
        (job.c.waits_for.is_not(None), suspended),
        (job.c.fence == sql_int(0), job.c.created_at),
        (asked_again, job.c.started_at),
        # A claimed job without an attempt under that claim was released, and was due then.
        else_=job.c.due_at,
    )
    return func.coalesce(ended, otherwise)


def _corrections(step: _Step, leases: Mapping[str, float | None]) -> Iterator[Any]:
    """Yield the updates.

    Args:
        step: The step of the clock.
        leases: Seconds of each worker's leases. None: not reported.
    """
    now, old_now = step
    written = _last_written()
    is_ahead = and_(_is_queued(), job.c.due_at > now, written > now)
    was_due = or_(job.c.due_at <= old_now, job.c.due_at <= written)
    yield update(job).where(is_ahead, was_due).values(due_at=now)
    is_retry = and_(is_ahead, job.c.fence > sql_int(0), job.c.due_at > old_now)
    yield update(job).where(is_retry).values(due_at=earlier(job.c.due_at, step.size))
    yield _correct_sleeps(step)
    is_leased = job.c.state == sql_int(LEASED)
    reported = {name: seconds for name, seconds in leases.items() if seconds is not None}
    for seconds in sorted(set(reported.values())):
        holders = sorted(name for name in reported if reported[name] == seconds)
        yield _shorten_leases(job, and_(is_leased, job.c.worker.in_(holders)), step, seconds)
    is_unreported = or_(job.c.worker.is_(None), job.c.worker.not_in(sorted(reported)))
    yield _shorten_leases(job, and_(is_leased, is_unreported), step, JOB_LEASE_SECONDS)
    yield from _partition_corrections(step)
    yield update(kind).where(kind.c.parked_until > now).values(parked_until=now)
    is_running = sweep.c.state == "running"
    yield update(sweep).where(is_running, sweep.c.next_at > now).values(next_at=now)
    yield update(worker).where(worker.c.seen_at > now).values(seen_at=now)


def _correct_sleeps(step: _Step) -> Any:
    """Return the update of sleeps and waits for signals that began in the future."""
    now, old_now = step
    sleep = step_table.c
    is_open = and_(sleep.act != "step", sleep.ended_at.is_(None), sleep.wake_at > now)
    is_over = sleep.wake_at <= old_now
    wake_at = case(
        (is_over, literal(now, sleep.wake_at.type)), else_=earlier(sleep.wake_at, step.size)
    )
    moved = update(step_table).where(is_open, sleep.started_at > now)
    return moved.values(started_at=now, wake_at=wake_at)


def _partition_corrections(step: _Step) -> Iterator[Any]:
    now, old_now = step
    runs = select(run.c.ended_at).where(run.c.partition_id == work.c.partition_id)
    last_run = runs.order_by(run.c.attempt_no.desc()).limit(1).scalar_subquery()
    ended_ahead = last_run > now
    is_queued = and_(work.c.lease_until.is_(None), work.c.due_at > now)
    is_ahead = or_(work.c.queued_at > now, ended_ahead)
    yield update(work).where(is_queued, is_ahead, work.c.due_at <= old_now).values(due_at=now)
    is_retry = and_(is_queued, ended_ahead, work.c.due_at > old_now)
    yield update(work).where(is_retry).values(due_at=earlier(work.c.due_at, step.size))
    is_leased = work.c.lease_until.is_not(None)
    yield _shorten_leases(work, is_leased, step, PARTITION_LEASE_SECONDS)
    # A pause by an operator ends at the time that the operator set.
    is_paused = and_(source.c.actor == REDRIVE_ACTOR, source.c.paused_until > now)
    yield update(source).where(is_paused).values(paused_until=now)


def _shorten_leases(table: Any, where: Any, step: _Step, seconds: float) -> Any:
    """Return the update that ends leases by the new clock.

    A lease of at most `seconds` from now stays: the holder may have renewed it by the new clock.
    """
    latest = step.now + timedelta(seconds=seconds)
    until = table.c.lease_until
    is_later = until > latest + step.size
    moved = case((is_later, earlier(until, step.size)), else_=literal(latest, until.type))
    return update(table).where(where, until > latest).values(lease_until=moved)


# --- Clocks that differ, and jumps of a clock

HEARTBEAT_WAIT_SECONDS = 4.0
"""Time in which a live worker sends another heartbeat: twice its interval."""


class ClockReading(NamedTuple):
    """The ledger's clock, read between two times on the monotonic clock."""

    ledger_time: datetime
    began: float
    ended: float

    @property
    def is_prompt(self) -> bool:
        """Whether it took so little time that it can be compared.

        A slow one waited for a lock or a connection.
        """
        return self.ended - self.began <= MIN_SETBACK_SECONDS


def step(first: ClockReading, second: ClockReading, /) -> float:
    """Return the seconds by which the ledger's clock was certainly set between two readings.

    Negative if it was set back, and 0 if it may not have been set.
    """
    passed = (second.ledger_time - first.ledger_time).total_seconds()
    least, most = second.began - first.ended, second.ended - first.began
    return min(0.0, passed - least) or max(0.0, passed - most)


class Clocks:
    """Compares this machine's clock with the heartbeats of other workers.

    Pure. Used by the ledger thread only.

    A heartbeat that is an hour old may be a dead worker's. One that is an hour old and was not
    there shortly before is a live worker's on a machine with another clock.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._last_heartbeats: dict[str, datetime] = {}
        self._decide_at: float | None = None
        self.checked = not enabled
        """The clock agrees with the clocks of the other workers."""
        self.problem: str | None = None
        """Why this worker claims no jobs."""

    def doubt(self) -> None:
        """Compare again: this machine's clock was set."""
        if self._enabled:
            self._last_heartbeats, self._decide_at, self.checked = {}, None, False

    def look(self, heartbeats: Mapping[str, datetime], now: datetime, monotonic: float, /) -> None:
        """Compare with the last heartbeats of workers that have not ended.

        Args:
            heartbeats: By worker.
            now: By this machine's clock.
            monotonic: Seconds on the monotonic clock.
        """
        if self.checked:
            return
        if self._decide_at is None:
            self._decide_at = monotonic + HEARTBEAT_WAIT_SECONDS
        offsets = {name: (now - seen).total_seconds() for name, seen in heartbeats.items()}
        suspects = {
            name: offset
            for name, offset in offsets.items()
            if abs(offset) > CLOCK_TOLERANCE_SECONDS
        }
        last = self._last_heartbeats
        live = [
            offset
            for name, offset in suspects.items()
            if heartbeats[name] != last.get(name, heartbeats[name])
        ]
        self._last_heartbeats = dict(heartbeats)
        if live:
            self.problem = _describe_offset(max(live, key=abs))
            self._decide_at = monotonic + HEARTBEAT_WAIT_SECONDS
        elif not suspects or monotonic >= self._decide_at:
            self.checked, self.problem = True, None


class Jumps:
    """Tells expired leases from leases that seem expired because the ledger's clock jumped ahead.

    Used by one thread only.
    """

    def __init__(self) -> None:
        self._clean_at: float | None = None
        """When no lease was expired, on the monotonic clock; None: unknown."""
        self._trusted_from = -math.inf

    def nothing_expired(self, monotonic: float, /) -> None:
        """Note that no lease is expired."""
        self._clean_at = monotonic

    def trusts(self, late: float, monotonic: float, /) -> bool:
        """Return whether to recover leases, the first of which expired `late` seconds ago.

        A lease that was valid at the last look cannot be late by more than the time since then. If
        it is, the clock has jumped ahead, and live workers get 60 s to renew their leases.
        """
        if self._clean_at is not None and late > monotonic - self._clean_at + MIN_SETBACK_SECONDS:
            self._clean_at, self._trusted_from = None, monotonic + JOB_LEASE_SECONDS
        return monotonic >= self._trusted_from


def _describe_offset(seconds: float) -> str:
    where = f"{seconds:.0f} s ahead of" if seconds > 0 else f"{-seconds:.0f} s behind"
    return (
        f"clock: this machine's clock is {where} the ledger's last write by another worker, which "
        f"is alive; leases on SQLite depend on it, so this worker claims no jobs; set the clock "
        f"(NTP), or use Postgres for workers on several machines"
    )
