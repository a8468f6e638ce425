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
    """Counts tries that did not go well by address, over a window of a minute. Threads may share one."""

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, address: str, /) -> float:
        """Seconds before this address may try again; 0: now, and this is counted as a try until it went well.

        Before the password is looked at, which takes a while: many that come at once are many tries.
        """
        now = self._clock.monotonic()
        with self._lock:
            left = max(self._left(self._failed.get(address, []), FROM_ONE, now), self._left(self._all(), FROM_ALL, now))
            if not left:
                kept = [at for at in self._failed.pop(address, []) if at > now - WINDOW]
                self._failed[address] = [*kept, now][-FROM_ONE:]
                while len(self._failed) > REMEMBERED:
                    self._failed.popitem(last=False)
            return left

    def well(self, address: str, /) -> None:
        """A right password came from there: the last try does not count."""
        with self._lock:
            tries = self._failed.get(address)
            if tries:
                tries.pop()

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
