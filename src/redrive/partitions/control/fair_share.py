"""Lanes: whose turn it is. Fresh work, retries and backfills each have a share; what one does not use, the others get. Pure.

By strides: each lane has a pass that grows with every turn by 1 / its share, and the smallest goes next. So neither a million
backfill keys nor a flood of fresh ones can keep another lane waiting for longer than its share says. Sweeps within a lane take
turns in the same way.

A share is for those who can wait. Where fresh work comes faster than the rest of the slots, a backfill that insisted on its share
would have it wait for longer and longer: so while fresh work is late, backfills yield, down to a floor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from ..model import LANES, Lane

WEIGHTS: Mapping[Lane, float] = {"fresh": 0.60, "retry": 0.25, "backfill": 0.15}
SHARE = 0.15
"""Of the slots, that a backfill has where nobody says otherwise."""
LATE = timedelta(seconds=10)
"""Fresh work that waits for longer than this is late."""
FLOOR = 1 / 3
"""Of its share, that a backfill keeps while fresh work is late."""
PATIENCE = timedelta(minutes=10)
"""A lane with due work that was not served for so long is next, whatever its pass."""
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Stream:
    """Due work of one dataset, in one lane, of one sweep (0: of none), oldest first. Immutable."""

    source: str
    query_name: str
    lane: Lane
    sweep: int
    dues: Sequence[datetime]
    share: float = SHARE
    """Of its sweep; in the backfill lane the largest one is the lane's own."""

    @property
    def dataset(self) -> tuple[str, str]:
        """Whose work it is."""
        return self.source, self.query_name


class Turns:
    """Whose turn it is, remembered from one choice to the next. Belongs to one control plane, and one thread at a time."""

    def __init__(self, draw: Callable[[], float], /) -> None:
        self._passes: dict[Hashable, float] = {}
        self._time: dict[Hashable, float] = {}
        self._draw = draw
        self._served: dict[Lane, datetime] = {}

    def choose(
        self, streams: Sequence[Stream], total: int, datasets: Mapping[tuple[str, str], int], sources: Mapping[str, int],
        now: datetime, /,
    ) -> list[int]:  # fmt: skip
        """How many to take of each stream, in all at most `total`. datasets, sources: how many more of each may run."""
        taken = [0] * len(streams)
        queues = _Queues(streams, datasets, sources)
        shares = _shares(streams, now)
        for lane in LANES:
            if lane not in queues.by_lane:
                self._served[lane] = now  # nobody waits in it
        while total > 0 and (waiting := queues.waiting()):
            lane = self._lane({lane: shares[lane] for lane in waiting}, now)
            taken[queues.take(lane, self._next(lane, waiting[lane]))] += 1
            total -= 1
        return taken

    def _lane(self, waiting: Mapping[Lane, float], now: datetime) -> Lane:
        late = [lane for lane in waiting if now - self._served.setdefault(lane, now) > PATIENCE]
        longest = sorted(late, key=lambda lane: self._served[lane])
        lane = longest[0] if longest else self._next("lanes", waiting)
        self._served[lane] = now
        return lane

    def _next(self, group: Hashable, waiting: Mapping[T, float]) -> T:
        """The one with the smallest pass. Who comes back from idleness begins where the others are, and catches up on nothing."""
        now = self._time.get(group, 0.0)
        for one, share in waiting.items():
            key = (group, one)
            # At random where each begins: programs that are started for one turn only keep the shares too.
            self._passes[key] = max(self._passes[key], now) if key in self._passes else now + self._draw() / share
        chosen = min(waiting, key=lambda one: self._passes[group, one])
        self._time[group] = self._passes[group, chosen]
        self._passes[group, chosen] += 1 / waiting[chosen]
        return chosen


class _Queues:
    """What waits, by lane and sweep, the oldest first; and how much more of each dataset and source may run. For one choice."""

    def __init__(self, streams: Sequence[Stream], datasets: Mapping[tuple[str, str], int], sources: Mapping[str, int]) -> None:
        self._streams = streams
        self._taken = [0] * len(streams)
        self._of, self._at = Counter(dict(datasets)), Counter(dict(sources))
        self.by_lane: dict[Lane, dict[int, list[tuple[datetime, int]]]] = {}
        self._shares: dict[tuple[Lane, int], float] = {}
        for lane in LANES:
            for place, one in enumerate(streams):
                if one.lane == lane and one.dues:
                    self.by_lane.setdefault(lane, {}).setdefault(one.sweep, []).append((one.dues[0], place))
                    self._shares[lane, one.sweep] = one.share
        for sweeps in self.by_lane.values():
            for queue in sweeps.values():
                heapify(queue)

    def waiting(self) -> dict[Lane, dict[int, float]]:
        """The lanes, and in each the sweeps, of which something may start, with their shares."""
        found: dict[Lane, dict[int, float]] = {}
        for lane, sweeps in self.by_lane.items():
            for sweep, queue in sweeps.items():
                while queue and not self._room(queue[0][1]):
                    heappop(queue)  # there will be no more room within this choice
                if queue:
                    found.setdefault(lane, {})[sweep] = self._shares[lane, sweep]
        return found

    def _room(self, place: int) -> bool:
        one = self._streams[place]
        return self._of[one.dataset] > 0 and self._at[one.source] > 0

    def take(self, lane: Lane, sweep: int) -> int:
        """The oldest of a sweep; which stream it is of."""
        queue = self.by_lane[lane][sweep]
        _, place = queue[0]
        one = self._streams[place]
        self._taken[place] += 1
        self._of[one.dataset] -= 1
        self._at[one.source] -= 1
        if self._taken[place] < len(one.dues):
            heapreplace(queue, (one.dues[self._taken[place]], place))
        else:
            heappop(queue)
        return place


def _shares(streams: Sequence[Stream], now: datetime) -> dict[Lane, float]:
    """The part of each lane. A backfill's share is its part of all; those of fresh work and retries that wait divide the rest."""
    largest = max((one.share for one in streams if one.lane == "backfill" and one.dues), default=SHARE)
    if any(one.lane == "fresh" and one.dues and now - one.dues[0] > LATE for one in streams):
        largest *= FLOOR
    others = [lane for lane in LANES if lane != "backfill" and any(one.lane == lane and one.dues for one in streams)]
    rest = (1 - largest) / (sum(WEIGHTS[lane] for lane in others) or 1.0)
    return {lane: WEIGHTS[lane] * rest for lane in LANES} | {"backfill": largest}
