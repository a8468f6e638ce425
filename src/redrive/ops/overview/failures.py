"""Failures of jobs, grouped by job type and signature of the error."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from ...ledger.filters import DeadLetterConditions
from ...ledger.ledger import Ledger
from ...ledger.queries import dead_letters
from ...ledger.stats import failures as stored
from ...ledger.stats.failure_groups import FailureSummary, slot_of
from ...ledger.stats.failures import HourCount
from ..dead_letters.model import Letter
from .trend import HOURS, SLOTS, Trend, trend

MAX_GROUPS = 500
"""Groups that are read if `until` is set."""
KEPT_HOURS = 31 * 24
"""Hours for which counts of failures are stored."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failures of one job type with one signature."""

    kind: str
    signature: str
    """Type and message of the error, without the parts that differ between jobs. May be empty."""
    pending: int
    """Dead letters without a decision, blocked ones included."""
    blocked: int
    tries: int
    """Failed attempts since the first one."""
    died: int
    """Jobs that died of it."""
    first_at: datetime
    last_at: datetime
    trend: Trend
    """Failed attempts over time."""
    job_id: int | None
    """Id of the last job, as an example."""
    error: str | None
    """First line of its error."""


@dataclass(frozen=True, slots=True)
class FailureReport:
    """A failure with its latest dead letters."""

    failure: Failure
    letters: tuple[Letter, ...]
    now: datetime


def failures(
    ledger: Ledger,
    /,
    *,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 100,
) -> list[Failure]:
    """Return groups of failures: the most frequent now first, then those with most dead letters.

    `since` and `until` select groups that were seen in this time.
    """
    now = slot_of(ledger.now())
    with ledger.reading() as connection:
        most = limit if until is None else max(limit, MAX_GROUPS)
        groups = stored.read_groups(connection, kind=kind, since=since, until=until, limit=most)
        groups = [group for group in groups if since is None or group.last_at >= since]
        if until is not None:
            groups = [group for group in groups if group.first_at < until]
            if since is not None:
                groups = _seen_between(connection, groups, slot_of(since), slot_of(until), now)
        recent = stored.last_hour(connection, now, list(map(_key, groups)))
        groups.sort(
            key=lambda group: (
                -recent.get(_key(group), 0),
                -group.pending,
                -group.last_at.timestamp(),
            )
        )
        groups = groups[:limit]
        counts = stored.hours_by_group(connection, now, HOURS, list(map(_key, groups)))
    return [_failure(group, counts.get(_key(group), []), now) for group in groups]


def failure(
    ledger: Ledger, kind: str, signature: str, /, *, limit: int = 50
) -> FailureReport | None:
    """Return one group with its latest dead letters. None: no such failure is stored."""
    now = ledger.now()
    slot, key = slot_of(now), (kind, signature)
    with ledger.reading() as connection:
        group = stored.read_group(connection, kind, signature)
        if group is None:
            return None
        counts = stored.hours_by_group(connection, slot, HOURS, [key])
        query = DeadLetterConditions(status="pending", kind=kind, signature=signature)
        letters = dead_letters.summaries(connection, query, limit=limit, newest=True)
    return FailureReport(_failure(group, counts.get(key, []), slot), tuple(letters), now)


def _key(group: FailureSummary) -> tuple[str, str]:
    return group.kind, group.signature


def _seen_between(
    connection: Connection, groups: list[FailureSummary], since: int, until: int, now: int
) -> list[FailureSummary]:
    """Return groups that were seen between two slots.

    A group may have been seen only before and after.
    """
    hours = min(max(now - since, 0) // SLOTS + 1, KEPT_HOURS)
    counts = stored.hours_by_group(connection, now, hours, list(map(_key, groups)))
    return [
        group
        for group in groups
        if any(since <= count.first <= until for count in counts.get(_key(group), ()))
    ]


def _failure(group: FailureSummary, counts: list[HourCount], slot: int) -> Failure:
    hours = [(count.first, count.last, count.tries or count.died) for count in counts]
    return Failure(
        kind=group.kind,
        signature=group.signature,
        pending=group.pending,
        blocked=group.blocked,
        tries=group.tries,
        died=group.died,
        first_at=group.first_at,
        last_at=group.last_at,
        trend=trend(hours, slot, first=group.first_at),
        job_id=group.job_id,
        error=group.error,
    )
