"""Timers: what is to be done now and then, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Timer:
    """Something that is done every so often. Belongs to one thread."""

    def __init__(self, every: float, do: Callable[[], object], *, first: float = 0.0) -> None:
        self.every = every
        self.do = do
        self.due = monotonic() + first


class Timers:
    """In the order in which they were given: what is due at once is done in that order. Belongs to one thread."""

    def __init__(self, *timers: Timer) -> None:
        self._timers = timers

    def run(self) -> None:
        """Do what is due. What raises is due again after its time, like the others."""
        for timer in self._timers:
            now = monotonic()
            if timer.due <= now:
                timer.due = now + timer.every
                timer.do()

    @property
    def next(self) -> float:
        """When something is due, on the monotonic clock."""
        return min(timer.due for timer in self._timers)
