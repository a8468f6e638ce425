"""Trend: how many of something there were, hour by hour, and whether it grows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

HOURS = 24
"""How far back."""
SLOTS = 6
"""Ten minutes each, in an hour."""
SLOT = timedelta(minutes=10)
PAUSE = 3
"""Slots without any, after which it is another time."""
MANY = 10
"""In the last hour, that are reported if an hour before had at most half as many."""
QUIET_SLOTS = 1
"""Whole slots without any, after which it no longer grows: at least ten minutes, and less than twenty."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How many there were. Immutable."""

    hours: tuple[int, ...]
    """In each of the last 24 hours, the last one up to now."""
    hour: int
    """In the last hour, to ten minutes."""
    day: int
    since: datetime | None
    """Start of the current series, which has no pause of half an hour; None: there is none now."""
    recent: bool = False
    """Whether there were any in the last ten minutes."""

    @property
    def before(self) -> float:
        """In an hour of the day before."""
        return sum(self.hours[:-1]) / (len(self.hours) - 1)

    @property
    def many(self) -> bool:
        """Whether there were many in the last hour, and twice as many as in one before."""
        return self.hour >= MANY and self.hour > 2 * self.before

    @property
    def growing(self) -> bool:
        """Whether there were many, and there still are new ones."""
        return self.many and self.recent


NONE = Trend((0,) * HOURS, 0, 0, None)


def trend(counted: Sequence[tuple[int, int, int]], now: int, /, *, first: datetime | None = None) -> Trend:
    """Of what was counted hour by hour: the first and the last slot in which there were any, how many; now: the slot that is.

    first: the earliest of all: a series did not start before it.
    """
    hours = [0] * HOURS
    seen: list[tuple[int, int]] = []
    for began, last, many in counted:
        ago = (now - last) // SLOTS
        if many and 0 <= ago < HOURS:
            hours[HOURS - 1 - ago] += many
            seen.append((began, last))
    if not seen:
        return NONE
    since = _since(seen, now)
    recent = now - max(last for _, last in seen) <= QUIET_SLOTS
    return Trend(tuple(hours), hours[-1], sum(hours), max(since, first) if since and first else since, recent)


def _since(seen: list[tuple[int, int]], now: int) -> datetime | None:
    seen.sort(reverse=True)
    if now - seen[0][1] > PAUSE:
        return None
    began = seen[0][0]
    for first, last in seen[1:]:
        if began - last > PAUSE:
            break
        began = first
    return datetime.fromtimestamp(0, timezone.utc) + began * SLOT
