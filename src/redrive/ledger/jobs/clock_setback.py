"""Setback: the ledger's clock was set back. Due jobs stay due, retries keep their backoff, and leases end in time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Interval, and_, case, func, literal, or_, select, type_coerce, update

from ..db.clock import now_on
from ..db.compiled import number
from ..db.partition_tables import run, source, work
from ..db.session import Session
from ..db.tables import attempt, job, kind, sweep, worker
from ..db.types import MICROSECONDS
from ..state import LEASED, READY
from .parking import ACTOR
from .workers import lease_of

LEAST = 1.0
"""Seconds. A clock that is set back by less delays no job for long."""
TOLERANCE = 10.0
"""Seconds by which the clocks of two machines may differ. On SQLite a smaller difference is not a clock that was set back."""
JOB_LEASE = 60.0
"""Seconds. Longest lease of a job whose holder does not report its own."""
WORK_LEASE = 300.0
"""Seconds. Longest lease of a partition."""


def set_back(session: Session, /) -> float:
    """Move timestamps that the old clock wrote to the clock as it is now. Returns the seconds it was set back; 0: it was not.

    The stored heartbeats alone show it: the newest was the time by the old clock. They are moved in the same transaction, so
    each step is applied once, however many workers notice it.

    The old clock may have been right until it jumped ahead, for an hour or for a second. So only rows whose last write is in
    the future are moved. All others keep their due time: a retry never runs before its backoff is over, and waits at most
    its backoff again. Times that a caller asked for (`due=`) and that had not come stay.

    Args:
        session: With no transaction open.
    """
    least = timedelta(seconds=TOLERANCE if session.sqlite else LEAST)
    with session.transaction("beat") as connection:
        beats = select(worker.c.name, worker.c.info, worker.c.seen_at).order_by(worker.c.name).with_for_update()
        rows = connection.execute(beats).all()
        now = now_on(session)  # read under the lock: a caller that waited for another finds the heartbeats moved
        was = max((row.seen_at for row in rows), default=now)
        if was - now <= least:
            connection.execute(_created_ahead(now))
            return 0.0
        for statement in _moved(now, was, {row.name: lease_of(row.info) for row in rows}, session.sqlite):
            connection.execute(statement)
    seconds: float = (was - now).total_seconds()
    return seconds


def _created_ahead(now: datetime) -> Any:
    """Jobs without a delay that were created in the future. No heartbeat shows by how much the clock was set back."""
    new = and_(job.c.state == number(READY), job.c.fence == number(0), job.c.created_at > now)
    return update(job).where(new, job.c.due_at > now, job.c.due_at <= job.c.created_at).values(due_at=now)


def _written() -> ColumnElement[Any]:
    """When a queued job was last written."""
    ended = select(attempt.c.ended_at).where(attempt.c.job_id == job.c.id, attempt.c.fence == job.c.fence).scalar_subquery()
    otherwise = case(
        (job.c.fence == number(0), job.c.created_at),
        (and_(job.c.reason == "again", job.c.started_at.is_not(None)), job.c.started_at),
        # A job that was claimed and has no attempt under that claim was given back, and was due at that time.
        else_=job.c.due_at,
    )
    return func.coalesce(ended, otherwise)


def _moved(now: datetime, was: datetime, leases: dict[str, float | None], sqlite: bool) -> Iterable[Any]:
    """Args: was: the time by the old clock. leases: seconds of each worker's leases; None: not reported."""
    by = was - now
    ahead = and_(job.c.state == number(READY), job.c.due_at > now, _written() > now)
    yield update(job).where(ahead, or_(job.c.due_at <= was, job.c.due_at <= _written())).values(due_at=now)
    retried = and_(ahead, job.c.fence > number(0), job.c.due_at > was)
    yield update(job).where(retried).values(due_at=_earlier(job.c.due_at, by, sqlite))
    held = job.c.state == number(LEASED)
    reported = {name: seconds for name, seconds in leases.items() if seconds is not None}
    for seconds in sorted(set(reported.values())):
        holders = job.c.worker.in_(sorted(name for name in reported if reported[name] == seconds))
        yield _shortened(job, and_(held, holders), now, by, seconds, sqlite)
    others = and_(held, or_(job.c.worker.is_(None), job.c.worker.not_in(sorted(reported))))
    yield _shortened(job, others, now, by, JOB_LEASE, sqlite)
    yield from _moved_partitions(now, was, sqlite)
    yield update(kind).where(kind.c.parked_until > now).values(parked_until=now)
    yield update(sweep).where(sweep.c.state == "running", sweep.c.next_at > now).values(next_at=now)
    yield update(worker).where(worker.c.seen_at > now).values(seen_at=now)


def _moved_partitions(now: datetime, was: datetime, sqlite: bool) -> Iterable[Any]:
    by = was - now
    runs = select(run.c.ended_at).where(run.c.partition_id == work.c.partition_id).order_by(run.c.attempt_no.desc())
    ended_ahead = runs.limit(1).scalar_subquery() > now
    queued = and_(work.c.lease_until.is_(None), work.c.due_at > now)
    ahead = or_(work.c.queued_at > now, ended_ahead)
    yield update(work).where(queued, ahead, work.c.due_at <= was).values(due_at=now)
    yield update(work).where(queued, ended_ahead, work.c.due_at > was).values(due_at=_earlier(work.c.due_at, by, sqlite))
    yield _shortened(work, work.c.lease_until.is_not(None), now, by, WORK_LEASE, sqlite)
    # A person's pause ends at the time that was asked for.
    yield update(source).where(source.c.actor == ACTOR, source.c.paused_until > now).values(paused_until=now)


def _shortened(table: Any, held: Any, now: datetime, by: timedelta, seconds: float, sqlite: bool) -> Any:
    """End leases by the new clock. A whole lease from now stays: the holder may have renewed it by the new clock."""
    most = now + timedelta(seconds=seconds)
    until = table.c.lease_until
    moved = case((until > most + by, _earlier(until, by, sqlite)), else_=literal(most, until.type))
    return update(table).where(held, until > most).values(lease_until=moved)


def _earlier(column: Any, by: timedelta, sqlite: bool) -> Any:
    if not sqlite:
        return column - literal(by, Interval())
    stored = type_coerce(column, BigInteger()) - int(by.total_seconds() * MICROSECONDS)
    return type_coerce(stored, BigInteger())
