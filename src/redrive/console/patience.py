"""Patience: how many wrong passwords are borne, from one address and from all of them together."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ..core.clock import SYSTEM, Clock

FROM_ONE, FROM_ALL = 5, 50
"""Wrong ones within WINDOW."""
WINDOW = 60.0
REMEMBERED = 10_000
"""Addresses; the oldest are forgotten."""


class Patience:
    """Counts failures by address over a window of a minute. Threads may share one."""

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, address: str, /) -> float:
        """Seconds before this address may try again; 0: now."""
        now = self._clock.monotonic()
        with self._lock:
            return max(self._left(self._failed.get(address, []), FROM_ONE, now), self._left(self._all(), FROM_ALL, now))

    def failed(self, address: str, /) -> None:
        """A wrong password came from there."""
        now = self._clock.monotonic()
        with self._lock:
            kept = [at for at in self._failed.pop(address, []) if at > now - WINDOW]
            self._failed[address] = [*kept, now][-FROM_ONE:]
            while len(self._failed) > REMEMBERED:
                self._failed.popitem(last=False)

    def _all(self) -> list[float]:
        """The newest of all addresses: each keeps few, and the last ones in the dict are the newest."""
        found: list[float] = []
        for address in reversed(self._failed):
            found += self._failed[address]
            if len(found) >= FROM_ALL:
                break
        return sorted(found)

    @staticmethod
    def _left(at: list[float], most: int, now: float) -> float:
        recent = [one for one in at if one > now - WINDOW]
        return 0.0 if len(recent) < most else recent[-most] + WINDOW - now
