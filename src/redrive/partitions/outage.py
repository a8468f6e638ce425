"""Outage: when the extractions of many partitions of a source fail for one passing reason, that is no fault of theirs."""

from __future__ import annotations

from typing import NamedTuple

from ..worker.parking import Parking, Recent
from .record import Lease, Verdict


class Outage(NamedTuple):
    """What was recognised."""

    source: str
    signature: str
    attempts: tuple[tuple[int, int], ...]
    """Partition and number of each that failed for it, whether judged already or not."""

    @property
    def says(self) -> str:
        """In words."""
        return f"{len(self.attempts)} partitions failed for one reason: {self.signature}"


class Outages:
    """How the last few extractions of each source ended. Belongs to one thread."""

    def __init__(self, parking: Parking) -> None:
        self._parking = parking
        self._recent: dict[str, Recent] = {}

    def seen(self, lease: Lease, verdict: Verdict, now: float, /, *, answered: bool) -> Outage | None:
        """An extraction ended so. answered: the source gave data, whatever the checks thought of it. now: in seconds."""
        if not self._parking.enabled or (verdict.signature is None and not answered):
            return None
        name = lease.partition.source
        recent = self._recent.setdefault(name, Recent(self._parking))
        reason = recent.ended(lease.partition_id, lease.attempt_no, verdict.signature, now)
        if reason is None:
            return None
        found = Outage(name, reason, tuple(recent.charged(reason)))
        recent.clear()
        return found
