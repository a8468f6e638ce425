"""Lanes: whose turn it is. Fresh work, retries and backfills each have a share; what one does not use, the others get. Pure.

By strides: each lane has a pass that grows with every turn by 1 / its share, and the smallest goes next. So neither a million
backfill keys nor a flood of fresh ones can keep another lane waiting for longer than its share says. Sweeps within a lane take
turns in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from .record import LANES, Lane

WEIGHTS: Mapping[Lane, float] = {"fresh": 0.60, "retry": 0.25, "backfill": 0.15}
SHARE = 0.15
"""Of the slots, that a backfill has where nobody says otherwise."""
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
        room_of, room_at = Counter(dict(datasets)), Counter(dict(sources))
        shares = _shares(streams)
        for lane in LANES:
            if not any(one.lane == lane and one.dues for one in streams):
                self._served[lane] = now  # nobody waits in it
        while total > 0:
            open_ = [
                place
                for place, one in enumerate(streams)
                if taken[place] < len(one.dues) and room_of[one.dataset] > 0 and room_at[one.source] > 0
            ]
            if not open_:
                break
            lane = self._lane({streams[place].lane for place in open_}, shares, now)
            mine = [place for place in open_ if streams[place].lane == lane]
            sweep = self._next(lane, {streams[place].sweep: streams[place].share for place in mine})
            first = min(
                (place for place in mine if streams[place].sweep == sweep),
                key=lambda place: (streams[place].dues[taken[place]], place),
            )
            taken[first] += 1
            room_of[streams[first].dataset] -= 1
            room_at[streams[first].source] -= 1
            total -= 1
        return taken

    def _lane(self, waiting: set[Lane], shares: Mapping[Lane, float], now: datetime) -> Lane:
        late = [lane for lane in LANES if lane in waiting and now - self._served.setdefault(lane, now) > PATIENCE]
        longest = sorted(late, key=lambda lane: self._served[lane])
        lane = longest[0] if longest else self._next("lanes", {lane: shares[lane] for lane in LANES if lane in waiting})
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


def _shares(streams: Sequence[Stream]) -> dict[Lane, float]:
    """The part of each lane. A backfill's share is its part of all; those of fresh work and retries that wait divide the rest."""
    largest = max((one.share for one in streams if one.lane == "backfill" and one.dues), default=SHARE)
    others = [lane for lane in LANES if lane != "backfill" and any(one.lane == lane and one.dues for one in streams)]
    rest = (1 - largest) / (sum(WEIGHTS[lane] for lane in others) or 1.0)
    return {lane: WEIGHTS[lane] * rest for lane in LANES} | {"backfill": largest}
