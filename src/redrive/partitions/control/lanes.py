"""Lanes: which of them is served next. Pure.

Fresh work, retries and backfills each have a share, and unused capacity goes to the other lanes.
This is stride scheduling: each lane has a pass that grows by 1 / share with every turn, and the
smallest pass is next. Neither a million backfill keys nor a flood of fresh ones can keep another
lane waiting for longer than its share implies. Sweeps within a lane take turns in the same way.

If fresh work arrives faster than the rest of the capacity can handle, a backfill that insisted on
its share would delay it more and more. So backfills yield while fresh work is late, down to a
minimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from ..model import Lane
from ..store.sweeps import DEFAULT_SHARE

WEIGHTS: Mapping[Lane, float] = {Lane.FRESH: 0.60, Lane.RETRY: 0.25, Lane.BACKFILL: 0.15}
LATE_AFTER = timedelta(seconds=10)
"""Fresh work that waits for longer is late."""
MIN_BACKFILL_PART = 1 / 3
"""Part of its share that a backfill keeps while fresh work is late."""
MAX_UNSERVED = timedelta(minutes=10)
"""A lane with due work that was not served for this long is next, whatever its pass is."""
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class WorkStream:
    """Due work of one dataset, lane and sweep (0: no sweep), the oldest first. Immutable."""

    source: str
    query_name: str
    lane: Lane
    sweep: int
    due_at: Sequence[datetime]
    share: float = DEFAULT_SHARE
    """Of its sweep. In the backfill lane, the largest share is that of the lane."""

    @property
    def dataset(self) -> tuple[str, str]:
        """Its source and query."""
        return self.source, self.query_name


class FairShare:
    """Remembers which lanes and sweeps were served. Used by one thread at a time."""

    def __init__(self, draw: Callable[[], float], /) -> None:
        self._passes: dict[Hashable, float] = {}
        self._time: dict[Hashable, float] = {}
        self._draw = draw
        self._served_at: dict[Lane, datetime] = {}

    def choose(
        self,
        streams: Sequence[WorkStream],
        total: int,
        datasets: Mapping[tuple[str, str], int],
        sources: Mapping[str, int],
        now: datetime,
        /,
    ) -> list[int]:
        """Return how many to take of each stream, at most `total` together.

        Args:
            total: Maximum number.
            datasets: How many more of each dataset may run.
            sources: How many more of each source may run.
        """
        taken = [0] * len(streams)
        queues = _Queues(streams, datasets, sources)
        shares = _shares(streams, now)
        for lane in Lane:
            if lane not in queues.by_lane:
                self._served_at[lane] = now  # it has no work
        while total > 0 and (ready := queues.ready()):
            lane = self._next_lane({lane: shares[lane] for lane in ready}, now)
            taken[queues.take(lane, self._next(lane, ready[lane]))] += 1
            total -= 1
        return taken

    def _next_lane(self, shares: Mapping[Lane, float], now: datetime) -> Lane:
        unserved = [
            lane for lane in shares if now - self._served_at.setdefault(lane, now) > MAX_UNSERVED
        ]
        by_age = sorted(unserved, key=lambda lane: self._served_at[lane])
        lane = by_age[0] if by_age else self._next("lanes", shares)
        self._served_at[lane] = now
        return lane

    def _next(self, group: Hashable, shares: Mapping[T, float]) -> T:
        """Return the member with the smallest pass.

        A member that was idle starts where the others are, and does not catch up.
        """
        now = self._time.get(group, 0.0)
        for member, share in shares.items():
            key = (group, member)
            if key in self._passes:
                self._passes[key] = max(self._passes[key], now)
            else:
                # A random start: programs that run for one turn only keep the shares too.
                self._passes[key] = now + self._draw() / share
        chosen = min(shares, key=lambda member: self._passes[group, member])
        self._time[group] = self._passes[group, chosen]
        self._passes[group, chosen] += 1 / shares[chosen]
        return chosen


class _Queues:
    """Due work by lane and sweep, the oldest first, within the limits of datasets and sources."""

    def __init__(
        self,
        streams: Sequence[WorkStream],
        datasets: Mapping[tuple[str, str], int],
        sources: Mapping[str, int],
    ) -> None:
        self._streams = streams
        self._taken = [0] * len(streams)
        self._datasets = Counter(dict(datasets))
        self._sources = Counter(dict(sources))
        self.by_lane: dict[Lane, dict[int, list[tuple[datetime, int]]]] = {}
        self._shares: dict[tuple[Lane, int], float] = {}
        for lane in Lane:
            for place, stream in enumerate(streams):
                if stream.lane == lane and stream.due_at:
                    sweeps = self.by_lane.setdefault(lane, {})
                    sweeps.setdefault(stream.sweep, []).append((stream.due_at[0], place))
                    self._shares[lane, stream.sweep] = stream.share
        for sweeps in self.by_lane.values():
            for queue in sweeps.values():
                heapify(queue)

    def ready(self) -> dict[Lane, dict[int, float]]:
        """Return the lanes, and in each the sweeps, that may start something, with their shares."""
        ready: dict[Lane, dict[int, float]] = {}
        for lane, sweeps in self.by_lane.items():
            for sweep, queue in sweeps.items():
                while queue and not self._has_room(queue[0][1]):
                    heappop(queue)  # room does not grow within one choice
                if queue:
                    ready.setdefault(lane, {})[sweep] = self._shares[lane, sweep]
        return ready

    def _has_room(self, place: int) -> bool:
        stream = self._streams[place]
        return self._datasets[stream.dataset] > 0 and self._sources[stream.source] > 0

    def take(self, lane: Lane, sweep: int) -> int:
        """Take the oldest work of a sweep. Return the position of its stream."""
        queue = self.by_lane[lane][sweep]
        _, place = queue[0]
        stream = self._streams[place]
        self._taken[place] += 1
        self._datasets[stream.dataset] -= 1
        self._sources[stream.source] -= 1
        if self._taken[place] < len(stream.due_at):
            heapreplace(queue, (stream.due_at[self._taken[place]], place))
        else:
            heappop(queue)
        return place


def _shares(streams: Sequence[WorkStream], now: datetime) -> dict[Lane, float]:
    """Return the share of each lane.

    The share of backfills is of the whole capacity. Fresh work and retries divide the rest.
    """
    due = [stream for stream in streams if stream.due_at]
    of_backfills = [stream.share for stream in due if stream.lane == Lane.BACKFILL]
    backfill = max(of_backfills, default=DEFAULT_SHARE)
    if any(stream.lane == Lane.FRESH and now - stream.due_at[0] > LATE_AFTER for stream in due):
        backfill *= MIN_BACKFILL_PART
    active = {stream.lane for stream in due} - {Lane.BACKFILL}
    rest = (1 - backfill) / (sum(WEIGHTS[lane] for lane in sorted(active)) or 1.0)
    return {lane: WEIGHTS[lane] * rest for lane in Lane} | {Lane.BACKFILL: backfill}
