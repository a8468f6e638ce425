"""Setback: the ledger's clock was set back. Jobs that were due stay due, and leases end when they would have ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Interval, and_, literal, or_, select, type_coerce, update

from .moment import MICROSECONDS
from .now import now_on
from .partition_tables import work
from .session import Session
from .state import LEASED, READY
from .statement import number
from .tables import job, kind, sweep, worker

LEAST = 1.0
"""Seconds. A clock that is set back by less makes nobody wait for long."""
RECENT = 10.0
"""Seconds in which workers notice that the clock was set back."""


def set_back(session: Session, by: float = 0.0, /) -> float:
    """Move what the old clock wrote to the clock as it is now. Returns the seconds by which it was set back; 0: it was not.

    The last heartbeats say what the time was. Times that a caller asked for (`due=`) and that had not come stay.

    Args:
        session: With no transaction open.
        by: Seconds by which the caller has seen the clock go back, if it has.
    """
    with session.transaction("beat") as connection:
        now = now_on(session)
        late = worker.c.seen_at > now + timedelta(seconds=LEAST)
        # Locked: of two workers that begin, the second finds nothing left to do.
        beats = connection.execute(select(worker.c.seen_at).where(late).with_for_update()).scalars()
        was = max([now + timedelta(seconds=by), *beats])
        for statement in _moved(now, was, session.sqlite):
            connection.execute(statement)
    seconds: float = (was - now).total_seconds()
    return seconds


def _moved(now: datetime, was: datetime, sqlite: bool) -> list[Any]:
    """was: the time by the old clock."""
    by = was - now
    # Not what the new clock wrote since: a delay of a minute is a minute.
    written = or_(job.c.created_at > now, job.c.created_at < now - timedelta(seconds=RECENT))
    ready = and_(job.c.state == number(READY), job.c.due_at > now, written)
    # A job without a delay is due when it is created: where that is to come, it was due already.
    due = update(job).where(ready, or_(job.c.due_at <= was, job.c.due_at <= job.c.created_at))
    moved = [due.values(due_at=now)]
    if by.total_seconds() < LEAST:
        return moved
    retried = and_(ready, or_(job.c.attempts > number(0), job.c.reason.is_not(None)))
    return [
        *moved,
        update(job).where(retried, job.c.due_at > was).values(due_at=_earlier(job.c.due_at, by, sqlite)),
        update(job)
        .where(job.c.state == number(LEASED), job.c.lease_until > was)
        .values(lease_until=_earlier(job.c.lease_until, by, sqlite)),
        update(work).where(work.c.lease_until.is_(None), work.c.due_at > now, work.c.due_at <= was).values(due_at=now),
        update(work).where(work.c.lease_until > was).values(lease_until=_earlier(work.c.lease_until, by, sqlite)),
        update(kind).where(kind.c.parked_until > now).values(parked_until=now),
        update(sweep).where(sweep.c.state == "running", sweep.c.next_at > now).values(next_at=now),
        update(worker).where(worker.c.seen_at > now).values(seen_at=now),
    ]


def _earlier(column: Any, by: timedelta, sqlite: bool) -> Any:
    if not sqlite:
        return column - literal(by, Interval())
    stored = type_coerce(column, BigInteger()) - int(by.total_seconds() * MICROSECONDS)
    return type_coerce(stored, BigInteger())
