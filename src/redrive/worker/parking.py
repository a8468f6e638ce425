"""Parking: when all of a kind fail for one reason, that is an outage, and no fault of the jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Parking:
    """When a kind is parked, and how it is probed. Immutable."""

    least: int = 10
    """Distinct jobs that failed for one reason."""
    share: float = 0.9
    """Of all recent ones."""
    first: float = 5.0
    """Seconds until the first probe; each wait is twice the one before."""
    longest: float = 300.0
    """Seconds between probes, at most."""
    enabled: bool = True

    @classmethod
    def disabled(cls) -> Self:
        """Every failure is charged to its job, outage or not."""
        return cls(enabled=False)
