"""Parking: when all of a kind fail for one reason, that is an outage, and no fault of the jobs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.outage import WINDOW, Parking

__all__ = ["WINDOW", "End", "Parking", "Recent"]


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
