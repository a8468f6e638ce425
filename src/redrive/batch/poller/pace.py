"""Pace: how long a poller waits before it asks again. Pure: randomness is a parameter."""

from __future__ import annotations

from typing import NamedTuple

SPREAD = 0.25
"""Each wait is up to so much of it shorter, so that many processes do not ask at the same moment."""


class Pace(NamedTuple):
    """Slows down while nothing arrives, and is fast again after a signal. Immutable."""

    fast: float
    slow: float
    interval: float

    @classmethod
    def of(cls, fast: float, slow: float) -> Pace:
        """A poller that begins fast.

        Raises:
            ValueError: `slow` is shorter than `fast`.
        """
        if slow < fast:
            raise ValueError(f"max_interval={slow:g} is shorter than min_interval={fast:g}; the poller slows down to it")
        return cls(fast, slow, fast)

    def after(self, found: bool) -> Pace:
        """The pace after a poll: fast where it found something, else twice as slow."""
        return self.quick() if found else self._replace(interval=min(self.slow, 2 * self.interval))

    def quick(self) -> Pace:
        """The fastest pace."""
        return self._replace(interval=self.fast)

    def wait(self, draw: float) -> float:
        """Seconds until the next poll. draw: from 0 to 1."""
        return self.interval * (1 - SPREAD * draw)
