"""Quarantine: when a worker runs jobs that were running when a worker died. Pure.

Such a job may have killed its worker. It runs last, and with no other job beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

LOOK_SECONDS = 1.0
"""Time between two looks for quarantined jobs, each a query."""
VISIT_SECONDS = 1.0
"""Time for quarantined jobs before normal jobs get four times as long."""
FIRST_HOLD_SECONDS = 2.0
"""How long claims stop at first, so that running jobs can end. Each failed wait doubles it, and
normal jobs run for three times that long in between."""


class Quarantine:
    """The schedule of quarantined jobs. Used by the ledger thread only.

    `_running_since` is set while quarantined jobs run, `_hold_until` while claims stop so that a
    quarantined job can run next, and neither is set while the worker runs normal jobs.
    """

    def __init__(self) -> None:
        self._next_look = 0.0
        self._running_since: float | None = None
        self._hold_until: float | None = None
        self._hold_seconds = FIRST_HOLD_SECONDS
        self._is_interrupted = False
        """Quarantined jobs were interrupted for normal jobs."""
        self.look_seconds = LOOK_SECONDS
        """Time between two looks, which is longer if the ledger is far away."""

    @property
    def blocks_other_claims(self) -> bool:
        """Whether nothing else may be claimed."""
        return self._running_since is not None or self._hold_until is not None

    @property
    def next_look(self) -> float:
        """When to call `should_claim` again, on the monotonic clock."""
        if self._hold_until is not None:
            return self._hold_until
        return math.inf if self._running_since is not None else self._next_look

    def look_soon(self) -> None:
        """Look again at once: a job may have been quarantined."""
        self._next_look = 0.0

    def should_claim(
        self,
        now: float,
        /,
        *,
        is_idle: bool,
        has_quarantined: Callable[[], bool],
        has_others: Callable[[], bool],
    ) -> bool:
        """Return whether to claim a quarantined job now.

        Args:
            now: On the monotonic clock.
            is_idle: Whether no job is running.
            has_quarantined: Queries whether a quarantined job is due.
            has_others: Queries whether a normal job is due.
        """
        if is_idle:
            return self._should_claim_idle(now, has_others)
        if self._running_since is not None:
            return False
        if self._hold_until is not None:
            if now >= self._hold_until:
                self._hold_until = None
                self._next_look = now + 3 * self._hold_seconds
                self._hold_seconds *= 2
        elif now >= self._next_look:
            self._next_look = now + self.look_seconds
            if has_quarantined():
                self._hold_until = now + self._hold_seconds
        return False

    def _should_claim_idle(self, now: float, has_others: Callable[[], bool]) -> bool:
        if self._running_since is not None and now - self._running_since >= VISIT_SECONDS:
            if has_others():
                self._leave(now, 4 * (now - self._running_since))
                self._is_interrupted = True
                return False
            self._running_since = now
        if self.blocks_other_claims or now >= self._next_look:
            return True
        return self._is_interrupted and not has_others()

    def on_claimed(self, now: float, /) -> None:
        """Note that a quarantined job was claimed."""
        self._is_interrupted = False
        self._hold_until, self._hold_seconds = None, FIRST_HOLD_SECONDS
        if self._running_since is None:
            self._running_since = now

    def on_empty(self, now: float, /) -> None:
        """Note that no quarantined job is due."""
        self._is_interrupted = False
        self._leave(now, self.look_seconds)

    def _leave(self, now: float, pause: float) -> None:
        self._running_since = self._hold_until = None
        self._next_look = now + pause
