"""Heard: that something was submitted. Looked into at once; on SQLite now and then only while sources bring more than enough."""

from __future__ import annotations

import math
from time import monotonic

NOW_AND_THEN = 0.1
"""Seconds."""


class Heard:
    """Told by any thread, looked into by one."""

    def __init__(self, *, own: bool) -> None:
        """own: a worker hears of what it writes itself, too, as on SQLite: each look would be a transaction for nothing."""
        self.own = own
        self._told, self._looked = True, -math.inf

    def tell(self) -> None:
        """Something was submitted."""
        self._told = True

    def next(self, *, busy: bool) -> float:
        """When to look into it, on the monotonic clock."""
        if not self._told:
            return math.inf
        return self._looked + NOW_AND_THEN if busy and self.own else -math.inf

    def looked(self) -> None:
        """Whatever was heard is being looked into."""
        self._told, self._looked = False, monotonic()
