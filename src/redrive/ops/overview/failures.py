"""Failures, grouped by kind and by what their errors are alike in: one problem or many, since when, growing; show me one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ...ledger.filters import DeadLetterFilter
from ..dead_letters.queries import Letter
from .trend import HOURS, SLOTS, Trend, trend

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ...ledger.ledger import Ledger
    from ...ledger.stats.failure_groups import FailureSummary
    from ...ledger.stats.failures import HourCount

LOOKED = 500
"""Groups that are looked at for a time that has an end."""
REMEMBERED = 31 * 24
"""Hours for which failures are counted."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failures that are alike."""

    kind: str
    signature: str
    """Of the error: its type and what it says, without what differs from one job to the next; may be empty."""
    pending: int
    """Dead letters that wait for somebody, blocked ones included."""
    blocked: int
    tries: int
    """Attempts that failed so, since they were first seen."""
    died: int
    """Of these, the last ones of their jobs."""
    first_at: datetime
    last_at: datetime
    trend: Trend
    """Attempts that failed so."""
    job_id: int | None
    """The last one, as a sample."""
    error: str | None
    """Of that one, the first line."""


@dataclass(frozen=True, slots=True)
class FailureReport:
    """One of these, with the last of its dead letters."""

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
    """What fails most now first; then what has most dead letters. since, until: only what was seen in this time."""
    from ...ledger.stats import failures as stored  # noqa: PLC0415  # the same
    from ...ledger.stats.failure_groups import slot_of  # noqa: PLC0415  # the same

    now = slot_of(ledger.now())
    with ledger.reading() as connection:
        most = limit if until is None else max(limit, LOOKED)
        groups = stored.read_groups(connection, kind=kind, since=since, until=until, limit=most)
        groups = [one for one in groups if since is None or one.last_at >= since]
        if until is not None:
            groups = [one for one in groups if one.first_at < until]
            if since is not None:
                groups = _between(connection, groups, slot_of(since), slot_of(until), now)
        fresh = stored.last_hour(connection, now, [(one.kind, one.signature) for one in groups])
        groups.sort(key=lambda one: (-fresh.get((one.kind, one.signature), 0), -one.pending, -one.last_at.timestamp()))
        counted = stored.hours_by_group(connection, now, HOURS, [(one.kind, one.signature) for one in groups[:limit]])
    return [_failure(one, counted.get((one.kind, one.signature), []), now) for one in groups[:limit]]


def _between(connection: Connection, groups: list[FailureSummary], since: int, until: int, now: int) -> list[FailureSummary]:
    """Those that were seen between two slots of ten minutes. A group may have been seen only before and after."""
    from ...ledger.stats import failures as stored  # noqa: PLC0415  # likewise

    hours = min(max(now - since, 0) // SLOTS + 1, REMEMBERED)
    counted = stored.hours_by_group(connection, now, hours, [(group.kind, group.signature) for group in groups])
    return [
        group for group in groups if any(since <= each.first <= until for each in counted.get((group.kind, group.signature), ()))
    ]


def failure(ledger: Ledger, kind: str, signature: str, /, *, limit: int = 50) -> FailureReport | None:
    """One of them; None: nothing failed like this, as far as anybody remembers."""
    from ...ledger.queries import dead_letters as lists  # noqa: PLC0415  # likewise
    from ...ledger.stats import failures as stored  # noqa: PLC0415  # likewise
    from ...ledger.stats.failure_groups import slot_of  # noqa: PLC0415  # likewise

    moment = ledger.now()
    now = slot_of(moment)
    with ledger.reading() as connection:
        found = stored.read_group(connection, kind, signature)
        if found is None:
            return None
        counted = stored.hours_by_group(connection, now, HOURS, [(kind, signature)])
        wanted = DeadLetterFilter(status="pending", kind=kind, signature=signature)
        letters = tuple(lists.summaries(connection, wanted, limit=limit, newest=True))
    return FailureReport(_failure(found, counted.get((kind, signature), []), now), letters, moment)


def _failure(one: FailureSummary, counted: list[HourCount], now: int) -> Failure:
    return Failure(
        kind=one.kind, signature=one.signature, pending=one.pending, blocked=one.blocked, tries=one.tries, died=one.died,
        first_at=one.first_at, last_at=one.last_at, job_id=one.job_id, error=one.error,
        trend=trend([(each.first, each.last, each.tries or each.died) for each in counted], now, first=one.first_at),
    )  # fmt: skip
