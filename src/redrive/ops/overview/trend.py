"""Trend: a count by hour, and whether it grows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

HOURS = 24
"""Hours of a trend."""
SLOTS = 6
"""Slots of an hour, ten minutes each."""
SLOT = timedelta(minutes=10)
PAUSE = 3
"""Slots without a count that end a series."""
MIN_REPORTED_COUNT = 10
"""Count of the last hour that is reported, if the hourly average before was at most half."""
QUIET_SLOTS = 1
"""Whole slots without a count after which it no longer grows: ten to twenty minutes."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A count over time. Immutable."""

    hours: tuple[int, ...]
    """Count of each of the last 24 hours, the last one up to now."""
    hour: int
    """Count of the last hour, to ten minutes."""
    day: int
    since: datetime | None
    """Start of the current series, which has no pause of half an hour. None: there is none."""
    recent: bool = False
    """Whether the count of the last ten minutes is above zero."""

    @property
    def before(self) -> float:
        """Average count of an hour before the last."""
        return sum(self.hours[:-1]) / (len(self.hours) - 1)

    @property
    def is_unusual(self) -> bool:
        """Whether the last hour has at least 10, and more than twice the average before."""
        return self.hour >= MIN_REPORTED_COUNT and self.hour > 2 * self.before

    @property
    def is_growing(self) -> bool:
        """Whether the count is unusual, and there are still new ones."""
        return self.is_unusual and self.recent


NONE = Trend((0,) * HOURS, 0, 0, None)


def trend(
    counts: Sequence[tuple[int, int, int]], now: int, /, *, first: datetime | None = None
) -> Trend:
    """Return the trend of counts by hour.

    Args:
        counts: First slot, last slot and count of each hour.
        now: The current slot.
        first: Time of the first of all. A series does not start before it.
    """
    hours = [0] * HOURS
    seen: list[tuple[int, int]] = []
    for start, last, count in counts:
        ago = (now - last) // SLOTS
        if count and 0 <= ago < HOURS:
            hours[HOURS - 1 - ago] += count
            seen.append((start, last))
    if not seen:
        return NONE
    since = _since(seen, now)
    recent = now - max(last for _, last in seen) <= QUIET_SLOTS
    return Trend(
        tuple(hours), hours[-1], sum(hours), max(since, first) if since and first else since, recent
    )


def _since(seen: list[tuple[int, int]], now: int) -> datetime | None:
    seen.sort(reverse=True)
    if now - seen[0][1] > PAUSE:
        return None
    start = seen[0][0]
    for first, last in seen[1:]:
        if start - last > PAUSE:
            break
        start = first
    return datetime.fromtimestamp(0, timezone.utc) + start * SLOT
