"""Age: until when a partition is retried without a request. The one rule for claims, rejections and lost runs."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone

from sqlalchemy import Connection, func, select

from ...ledger.db.partition_tables import marker, run
from ..model import LANES
from ..retry_schedule import Policy
from ..store.rows import Row, Work

DAY = timedelta(days=1)
ON_TIME = timedelta(hours=36)
"""A schedule runs a day on the day after it. In any time zone that is over 36 hours after the day's end in UTC."""
FRESH = LANES.index("fresh")
RETRY, BACKFILL = LANES.index("retry"), LANES.index("backfill")
CLEARED = "clear_terminal"
UNPAUSED = "unpause"
REQUESTED = (CLEARED, UNPAUSED)
"""Causes of a grant that stands for an operator's request for this one partition."""
_GRANTED = select(marker.c.partition_id).where(marker.c.kind == "grant")
_REQUESTED = _GRANTED.where(marker.c.cause.in_(REQUESTED))
_SCHEDULED = select(func.max(run.c.leased_at, type_=run.c.leased_at.type)).where(run.c.lane == FRESH)


def age_limit(
    policy: Policy, logical_date: date, /, *, requested: bool = False, scheduled_at: datetime | None = None
) -> datetime | None:
    """When a partition of this date is too old to be retried; None: never. Pure.

    Args:
        policy: Its dataset's policy, with `max_age`.
        logical_date: Its day; its age counts from the end of that day.
        requested: An operator asked for it, or a backfill: it is old by nature.
        scheduled_at: When the schedule last had it run. A run that was not on time, and began past the limit, is catch-up
            work: the schedule asked for it all the same, and only `max_attempts` bounds it.
    """
    if policy.max_age is None or requested:
        return None
    day_end = datetime.combine(logical_date, time(), timezone.utc) + DAY
    limit = day_end + policy.max_age
    is_catch_up = scheduled_at is not None and scheduled_at >= max(limit, day_end + ON_TIME)
    return None if is_catch_up else limit


def is_requested(lane: int, sweep_id: int, /) -> bool:
    """Whether queued work is an operator's: a backfill, or a retry as a bulk operation. Pure."""
    return lane == BACKFILL or (lane == RETRY and sweep_id > 0)


def stored_age_limit(
    connection: Connection, policy: Policy, row: Row, work: Work, before: datetime, /
) -> datetime | None:  # fmt: skip
    """The limit of a stored partition. None also means that it is later than `before`, which is all that is asked."""
    limit = age_limit(policy, row.logical_date, requested=is_requested(work.lane, work.sweep_id))
    if limit is None or limit > before:
        return None  # nearly always; only an old partition costs a query
    if connection.execute(_REQUESTED.where(marker.c.partition_id == row.id)).first() is not None:
        return None  # an operator asked for it: only its attempts bound it
    scheduled_at = connection.execute(_SCHEDULED.where(run.c.partition_id == row.id)).scalar()
    if work.lane == FRESH and scheduled_at is None:
        return None  # the schedule asked for it, and its first run has not begun
    return age_limit(policy, row.logical_date, scheduled_at=scheduled_at)
