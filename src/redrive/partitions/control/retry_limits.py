"""The limits of automatic retries: the attempt budget with its grants, and the maximum age.

Claims, rejections, lost runs and explanations all use these rules.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone

from sqlalchemy import Connection, func, select

from ...ledger.db.partition_tables import marker, run
from ..key import ONE_DAY
from ..model import Lane, Marker
from ..retry_schedule import AttemptBudget, Policy
from ..store.rows import PartitionRow, PartitionWork

ON_TIME = timedelta(hours=36)
"""A schedule runs a day on the day after it. In any time zone that ends 36 hours after the day's
end in UTC.
"""
CLEARED = "clear_terminal"
UNPAUSED = "unpause"
REQUESTED = (CLEARED, UNPAUSED)
"""Causes of a grant that is an operator's request for this one partition."""
_REQUESTED = select(marker.c.partition_id).where(
    marker.c.kind == "grant", marker.c.cause.in_(REQUESTED)
)
_LAST_SCHEDULED = select(func.max(run.c.leased_at, type_=run.c.leased_at.type)).where(
    run.c.lane == int(Lane.FRESH)
)


def attempt_budget(policy: Policy, attempt_count: int, grant: Marker | None, /) -> AttemptBudget:
    """Return the used and allowed attempts of a partition.

    A grant restarts the count. It may also set how many attempts are allowed.
    """
    if grant is None:
        return AttemptBudget(attempt_count, policy.max_attempts)
    limit = policy.max_attempts if grant.amount is None else grant.amount
    return AttemptBudget(attempt_count - grant.attempts, limit)


def age_limit(
    policy: Policy,
    logical_date: date,
    /,
    *,
    requested: bool = False,
    scheduled_at: datetime | None = None,
) -> datetime | None:
    """Return when a partition is too old to be retried. None: never. Pure.

    Args:
        policy: The policy of its dataset, with `max_age`.
        logical_date: Its day. Its age counts from the end of that day.
        requested: An operator or a backfill requested it: it is old by nature.
        scheduled_at: When the schedule last started it. A run that was not on time, and started
            past the limit, is catch-up work. The schedule requested it nevertheless, so that only
            `max_attempts` limits it.
    """
    if policy.max_age is None or requested:
        return None
    day_end = datetime.combine(logical_date, time(), timezone.utc) + ONE_DAY
    limit = day_end + policy.max_age
    is_catch_up = scheduled_at is not None and scheduled_at >= max(limit, day_end + ON_TIME)
    return None if is_catch_up else limit


def is_requested(lane: int, sweep_id: int, /) -> bool:
    """Return whether queued work is an operator's: a backfill, or a sweep of retries. Pure."""
    return lane == Lane.BACKFILL or (lane == Lane.RETRY and sweep_id > 0)


def stored_age_limit(
    connection: Connection,
    policy: Policy,
    row: PartitionRow,
    work: PartitionWork,
    before: datetime,
    /,
) -> datetime | None:
    """Return the age limit of a stored partition if it is not later than `before`."""
    limit = age_limit(policy, row.logical_date, requested=is_requested(work.lane, work.sweep_id))
    if limit is None or limit > before:
        return None  # nearly always; only an old partition costs a query
    if connection.execute(_REQUESTED.where(marker.c.partition_id == row.id)).first() is not None:
        return None
    scheduled_at = connection.execute(_LAST_SCHEDULED.where(run.c.partition_id == row.id)).scalar()
    if work.lane == Lane.FRESH and scheduled_at is None:
        return None  # the schedule requested it, and its first run has not started
    return age_limit(policy, row.logical_date, scheduled_at=scheduled_at)
