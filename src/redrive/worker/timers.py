"""Timers: what is to be done now and then, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

PATIENCE = 20
"""A patient timer takes a twentieth of a worker's time at most, however far the ledger is."""


class Timer:
    """Something that is done every so often. Belongs to one thread."""

    def __init__(self, every: float, do: Callable[[], object], *, first: float = 0.0, patient: bool = True) -> None:
        """patient: may be late where the ledger is far away."""
        self.every = every
        self.patient = patient
        self.do = do
        self.due = monotonic() + first


class Timers:
    """In the order in which they were given: what is due at once is done in that order. Belongs to one thread."""

    def __init__(self, *timers: Timer) -> None:
        self._timers = timers

    def run(self, *, trip: float = 0.0) -> None:
        """Do what is due. What raises is due again after its time, like the others.

        trip: seconds of a round trip to the ledger. Patient timers leave it PATIENCE times as long between two runs.
        """
        for timer in self._timers:
            now = monotonic()
            if timer.due <= now:
                timer.due = now + (max(timer.every, PATIENCE * trip) if timer.patient else timer.every)
                timer.do()

    @property
    def next(self) -> float:
        """When something is due, on the monotonic clock."""
        return min(timer.due for timer in self._timers)
