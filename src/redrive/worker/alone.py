"""Alone: when a worker turns to jobs that were running when a worker died. Those run last, and with nothing beside them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

LOOK = 1.0
"""Seconds between two looks for them."""
VISIT = 1.0
"""Seconds that one visit to them may take before others have their turn; those have four times as long."""
PATIENCE = 2.0
"""Seconds to wait at first for what runs to end. Each time in vain doubles it, and others have three times as long between."""


class Alone:
    """Belongs to the ledger thread."""

    def __init__(self) -> None:
        self._at = 0.0
        self._visiting: float | None = None
        self._holding: float | None = None
        self._patience = PATIENCE
        self._paused = False
        """A visit was left for the sake of others."""

    @property
    def holds(self) -> bool:
        """Nothing else is to be claimed: one of them runs, or what runs is waited for."""
        return self._visiting is not None or self._holding is not None

    @property
    def next(self) -> float:
        """When to look again, on the monotonic clock."""
        if self._holding is not None:
            return self._holding
        return math.inf if self._visiting is not None else self._at

    def soon(self) -> None:
        """There may be some now."""
        self._at = 0.0

    def visits(self, now: float, /, *, idle: bool, waits: Callable[[], bool], others: Callable[[], bool] = lambda: True) -> bool:
        """Whether to claim one of them now. waits: looks whether there is any. others: whether other jobs are due."""
        if idle:
            if self._visiting is not None and now - self._visiting >= VISIT:
                if others():
                    self._leave(now, 4 * (now - self._visiting))
                    self._paused = True
                    return False
                self._visiting = now  # there is nothing else to do
            return self.holds or now >= self._at or (self._paused and not others())
        if self._visiting is not None:
            return False
        if self._holding is not None:
            if now >= self._holding:
                self._holding = None
                self._at = now + 3 * self._patience
                self._patience *= 2
            return False
        if now >= self._at:
            self._at = now + LOOK
            if waits():
                self._holding = now + self._patience
        return False

    def began(self, now: float, /) -> None:
        """One was claimed."""
        self._paused = False
        self._holding, self._patience = None, PATIENCE
        if self._visiting is None:
            self._visiting = now

    def nothing(self, now: float, /) -> None:
        """There is none."""
        self._paused = False
        self._leave(now, LOOK)

    def _leave(self, now: float, pause: float) -> None:
        self._visiting = self._holding = None
        self._at = now + pause
