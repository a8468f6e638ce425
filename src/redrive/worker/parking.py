"""Parking: when all of a kind fail for one reason, that is an outage, and no fault of the jobs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from ..core.seconds import Seconds, positive, real, whole

WINDOW = 600.0
"""Seconds for which an end is recent."""


@dataclass(frozen=True, slots=True)
class Parking:
    """When a kind is parked, and how it is probed. Immutable: anything may share one."""

    least: int = 10
    """Distinct jobs that failed for one reason."""
    share: float = 0.9
    """Of all recent ones."""
    first: Seconds = 5.0
    """Until the first probe; each wait is twice the one before."""
    longest: Seconds = 300.0
    """Between two probes, at most."""
    enabled: bool = True

    def __post_init__(self) -> None:
        whole("least", self.least)
        if not 0 < real("share", self.share) <= 1:
            raise ValueError(f"share is a part of one, above 0 and up to 1: {self.share!r}")
        object.__setattr__(self, "first", positive("first", self.first))
        object.__setattr__(self, "longest", positive("longest", self.longest))

    @classmethod
    def disabled(cls) -> Self:
        """Every failure is charged to its job, outage or not."""
        return cls(enabled=False)

    def wait(self, probes: int, /) -> float:
        """Seconds until the next probe, after so many of them."""
        first, longest = positive("first", self.first), positive("longest", self.longest)
        return min(longest, first * 2.0 ** min(probes, 30))

    def outage(self, recent: Iterable[str | None], /) -> str | None:
        """The one reason for which these ends (of distinct jobs; None is a good one) are an outage, if they are."""
        ends = Counter(recent)
        good = ends.pop(None, 0)
        if not self.enabled or not ends:
            return None
        signature, many = ends.most_common(1)[0]
        total = good + ends.total()
        return signature if many >= self.least and many >= self.share * total - 1e-9 else None


class End(NamedTuple):
    """How a job's last attempt ended."""

    signature: str | None
    fence: int
    at: float


class Recent:
    """How the last few jobs of a kind ended. Belongs to one thread."""

    def __init__(self, parking: Parking) -> None:
        self._parking = parking
        self._most = 2 * parking.least
        self._ends: dict[int, End] = {}

    def ended(self, job_id: int, fence: int, signature: str | None, now: float, /) -> str | None:
        """A job ended, well or by this signature; the reason for which the kind is to be parked, if it is."""
        ends = self._ends
        ends.pop(job_id, None)  # its place is at the end
        ends[job_id] = End(signature, fence, now)
        while len(ends) > self._most or next(iter(ends.values())).at < now - WINDOW:
            del ends[next(iter(ends))]
        return None if signature is None else self._parking.outage(end.signature for end in ends.values())

    def well(self, jobs: Sequence[tuple[int, int]], now: float, /) -> None:
        """Jobs (and their fences) ended well; the last ones count."""
        for job_id, fence in jobs[-self._most :]:
            self.ended(job_id, fence, None, now)

    def charged(self, signature: str, /) -> list[tuple[int, int]]:
        """The attempts (job and fence) that failed for this reason."""
        return [(job_id, end.fence) for job_id, end in self._ends.items() if end.signature == signature]

    def clear(self) -> None:
        """What was, is over."""
        self._ends.clear()
