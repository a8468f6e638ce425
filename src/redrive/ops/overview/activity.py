"""Activity: throughput, queue wait, run time and failures over time, for charts.

The cost depends on the number of points and job types, not on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from operator import sub

from sqlalchemy import Connection

from ...ledger.ledger import Ledger
from ...ledger.stats import activity as stored
from ...ledger.stats import failures
from ...ledger.stats.activity import ALL_KINDS, MINUTE_SECONDS, ActivityRow, minute_of
from ...ledger.stats.failure_groups import SLOT_SECONDS, FailureSummary
from ...ledger.stats.histogram import percentile

DEFAULT_RANGE = timedelta(days=1)
MAX_RANGE = stored.HOURS_KEPT
MAX_POINTS = 90
STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1440)
"""Minutes between two points of a chart."""
SLOT_MINUTES = SLOT_SECONDS // MINUTE_SECONDS
MAX_CAUSES = 6
"""Causes with a colour of their own. The others are one series."""
READ_CAUSES = 100
"""Error groups that are compared: those with most dead letters, and those seen last."""
MAX_SLOTS = 2_000
"""Stored failures of groups that are read to find the largest causes. A longer range reads fewer
groups, so that a month does not take 30 times as long as a day."""
MAX_CAUSE_KINDS = 50
"""Job types whose failures are counted for all other causes."""
EPOCH = datetime.fromtimestamp(0, timezone.utc)


@dataclass(frozen=True, slots=True)
class ActivityPoint:
    """Attempts that ended within one step of a chart, or within the whole range."""

    at: datetime
    """Start of the step."""
    done: int
    failed: int
    """Failed attempts that are retried."""
    dead: int
    """New dead letters, and partitions that gave up."""
    cancelled: int
    wait_p50: float | None
    """Seconds from due to start that half of the attempts did not exceed. None: no attempts."""
    wait_p95: float | None
    run_p50: float | None
    """Duration in seconds that half of the attempts did not exceed."""
    run_p95: float | None

    @property
    def ended(self) -> int:
        """Number of all attempts that ended."""
        return self.done + self.failed + self.dead + self.cancelled


@dataclass(frozen=True, slots=True)
class CauseLine:
    """Failed attempts of one error group over time."""

    kind: str | None
    """Job type. None: all other causes together."""
    signature: str | None
    counts: tuple[int, ...]
    """Failed attempts in each step of `Activity.cause_times`."""

    @property
    def total(self) -> int:
        """Failed attempts in the whole range."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class KindActivityLine:
    """The ended attempts of one job type or dataset in the whole range."""

    kind: str
    done: int
    failed: int
    dead: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened in a range of time, for the whole app or for one job type."""

    kind: str | None
    """Job type, or dataset such as crm/orders. None: the whole app."""
    since: datetime
    until: datetime
    now: datetime
    step: float
    """Seconds between two points."""
    points: tuple[ActivityPoint, ...]
    total: ActivityPoint
    """The whole range."""
    cause_step: float
    """Seconds of a step of the causes: at least 10 minutes."""
    cause_times: tuple[datetime, ...]
    causes: tuple[CauseLine, ...]
    """The largest first, and all others together last."""
    kinds: tuple[KindActivityLine, ...]
    """Job types and datasets of the whole app, the busiest first. Empty for one job type."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing ended and nothing failed in this range."""
        return not self.total.ended and not self.causes


def activity(
    ledger: Ledger,
    /,
    *,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    with_details: bool = True,
    now: datetime | None = None,
) -> Activity:
    """Return what happened in a range of time, see `OverviewOperations.activity`."""
    now = ledger.now() if now is None else now
    end = now if until is None else min(until, now)
    start = end - DEFAULT_RANGE if since is None else since
    _check_range(start, end, now)
    step = choose_step(start, end, now)
    first = minute_of(start) // step * step
    count = -(-(minute_of(end) + 1 - first) // step)
    with ledger.reading() as connection:
        name = ALL_KINDS if kind is None else kind
        steps = stored.read_steps(connection, name, first, step, count)
        has_kinds = kind is None and with_details
        kinds = stored.sums_by_kind(connection, first, first + count * step) if has_kinds else {}
        read_causes = READ_CAUSES if with_details else 0
        cause_step, cause_times, causes = _causes(connection, kind, start, end, step, read_causes)
    lines = [KindActivityLine(each, *counts) for each, counts in kinds.items()]
    return Activity(
        kind=kind,
        since=_time(first),
        until=end,
        now=now,
        step=step * MINUTE_SECONDS,
        points=tuple(_point(first + place * step, steps.get(place)) for place in range(count)),
        total=_point(first, stored.total(name, first, step, [*steps.values()]) if steps else None),
        cause_step=cause_step * MINUTE_SECONDS,
        cause_times=cause_times,
        causes=causes,
        kinds=tuple(sorted(lines, key=lambda line: (-line.done - line.failed, line.kind))),
    )


def _check_range(start: datetime, end: datetime, now: datetime) -> None:
    if start >= now:
        raise ValueError(f"invalid since {start:%Y-%m-%dT%H:%M}: it is in the future")
    if start >= end:
        raise ValueError(f"invalid until {end:%Y-%m-%dT%H:%M}: it is not after since")
    if end - start > MAX_RANGE:
        raise ValueError(
            f"invalid range {start:%Y-%m-%d} to {end:%Y-%m-%d}: activity is kept for "
            f"{MAX_RANGE.days} days; choose a shorter range"
        )


def choose_step(start: datetime, end: datetime, now: datetime, /) -> int:
    """Return the minutes between two points: as few as the stored rows and the chart allow."""
    age = now - start
    least = 1 if age < stored.MINUTES_KEPT else 10 if age < stored.TEN_MINUTES_KEPT else 60
    minutes = (end - start).total_seconds() / MINUTE_SECONDS
    return next(step for step in STEPS if step >= least and minutes / step <= MAX_POINTS)


def _point(minute: int, row: ActivityRow | None) -> ActivityPoint:
    if row is None:
        return ActivityPoint(_time(minute), 0, 0, 0, 0, None, None, None, None)
    durations = [percentile(each, share) for each in (row.wait, row.run) for share in (0.5, 0.95)]
    return ActivityPoint(_time(minute), *row.counts, *durations)


def _time(minute: int) -> datetime:
    return EPOCH + timedelta(minutes=minute)


# --- Causes


def _causes(
    connection: Connection, kind: str | None, start: datetime, end: datetime, step: int, limit: int
) -> tuple[int, tuple[datetime, ...], tuple[CauseLine, ...]]:
    """Return the minutes of a step, the steps, and the failures of each cause."""
    slots = max(1, step // SLOT_MINUTES)
    first = minute_of(start) // SLOT_MINUTES // slots * slots
    last = minute_of(end) // SLOT_MINUTES
    count = -(-(last + 1 - first) // slots)
    groups = (
        failures.read_groups(connection, kind=kind, since=start, until=end, limit=limit)
        if limit
        else []
    )
    largest = largest_groups(groups, start, end, MAX_SLOTS // (count * slots))
    kinds = sorted({group.kind for group in groups})
    # If every group is read, their sums are not needed.
    is_cut = len(largest) < len(groups) or len(groups) >= limit
    wanted = [(group.kind, group.signature) for group in largest]
    range_ = (first, first + count * slots, slots)
    steps = failures.steps_by_group(connection, wanted, *range_)
    sums = failures.failed_by_step(connection, kinds[:MAX_CAUSE_KINDS], *range_) if is_cut else {}
    failed = [sums.get(place, 0) for place in range(count)]
    lines = []
    for (of_kind, signature), counts in steps.items():
        numbers = [0] * count
        for each in counts:
            numbers[each.step] += each.tries or each.died
        lines.append(CauseLine(of_kind, signature, tuple(numbers)))
    lines.sort(key=lambda line: (-line.total, line.signature))
    drawn, others = _sum(lines[:MAX_CAUSES], count), _sum(lines[MAX_CAUSES:], count)
    rest = CauseLine(None, None, tuple(map(max, others, map(sub, failed, drawn))))
    minutes = slots * SLOT_MINUTES
    times = tuple(_time(first * SLOT_MINUTES + place * minutes) for place in range(count))
    return minutes, times, tuple(filter(_has_failures, (*lines[:MAX_CAUSES], rest)))


def largest_groups(
    groups: Collection[FailureSummary], start: datetime, end: datetime, most: int, /
) -> list[FailureSummary]:
    """Return groups that may have most failures in a range, by their counters.

    Half of them have most if a group fails evenly. The others have most ever: they may have failed
    in this range only. It returns at least twice as many as a chart shows.
    """

    def estimate(group: FailureSummary) -> float:
        lifetime = (group.last_at - group.first_at).total_seconds()
        inside = (min(end, group.last_at) - max(start, group.first_at)).total_seconds()
        share = min(1.0, max(0.0, inside / lifetime)) if lifetime else 1.0
        return share * max(group.tries, group.died)

    most = max(most, 2 * MAX_CAUSES)
    by_rate = sorted(groups, key=lambda each: (-estimate(each), each.kind, each.signature))
    by_count = sorted(by_rate[most // 2 :], key=lambda each: -max(each.tries, each.died))
    return by_rate[: most // 2] + by_count[: most - most // 2]


def _sum(lines: Collection[CauseLine], count: int) -> list[int]:
    return [sum(line.counts[place] for line in lines) for place in range(count)]


def _has_failures(line: CauseLine) -> bool:
    return line.total > 0
