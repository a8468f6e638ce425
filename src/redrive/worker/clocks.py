"""Clocks: on SQLite leases go by each machine's own clock. A worker whose clock differs from the others' does not take jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from ..ledger.setback import JOB_LEASE, LEAST, TOLERANCE

PATIENCE = 4.0
"""Seconds in which a worker that is alive is seen again: twice its heartbeat."""


class Reading(NamedTuple):
    """The ledger's clock, read at some time between two readings of the monotonic clock."""

    theirs: datetime
    began: float
    ended: float

    @property
    def is_prompt(self) -> bool:
        """A reading that waited (for a lock, a new connection, a busy file) says little about the clock."""
        return self.ended - self.began <= LEAST


def step(first: Reading, second: Reading, /) -> float:
    """Seconds by which the ledger's clock was set for certain between two readings. Negative: set back; 0: perhaps not at all."""
    passed = (second.theirs - first.theirs).total_seconds()
    least, most = second.began - first.ended, second.ended - first.began
    return min(0.0, passed - least) or max(0.0, passed - most)


class Clocks:
    """Compares this machine's clock with the heartbeats of other workers. Belongs to the ledger thread. Pure.

    A heartbeat that is an hour old may be a dead worker's. One that is an hour old and was not there a moment ago is a live
    worker's on a machine with another clock.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._before: dict[str, datetime] = {}
        self._until: float | None = None
        self.checked = not enabled
        """The clock is known to be the others' clock."""
        self.problem: str | None = None
        """Why this worker takes no jobs."""

    def doubt(self) -> None:
        """This machine's clock was set: compare again."""
        if self._enabled:
            self._before, self._until, self.checked = {}, None, False

    def look(self, others: Mapping[str, datetime], now: datetime, monotonic: float, /) -> None:
        """Compare with the last heartbeats of workers that have not ended.

        Args:
            others: The heartbeats by worker.
            now: By this machine's clock.
            monotonic: Seconds on the monotonic clock.
        """
        if self.checked:
            return
        if self._until is None:
            self._until = monotonic + PATIENCE
        off = {name: (now - seen).total_seconds() for name, seen in others.items()}
        suspects = {name: by for name, by in off.items() if abs(by) > TOLERANCE}
        alive = [by for name, by in suspects.items() if others[name] != self._before.get(name, others[name])]
        self._before = dict(others)
        if alive:
            self.problem = _says(max(alive, key=abs))
            self._until = monotonic + PATIENCE
        elif not suspects or monotonic >= self._until:
            self.checked, self.problem = True, None


class Jumps:
    """Tells expired leases from leases that only seem so, because the ledger's clock jumped ahead. Belongs to one thread."""

    def __init__(self) -> None:
        self._clean: float | None = None
        """When no lease had expired, on the monotonic clock; None: not known."""
        self._from = -math.inf

    def nothing_expired(self, monotonic: float, /) -> None:
        """At this time no lease had expired."""
        self._clean = monotonic

    def trusts(self, late: float, monotonic: float, /) -> bool:
        """Whether to take back leases, the first of which expired `late` seconds ago by the ledger's clock.

        A lease that had not expired at the last look cannot be late by more than the time since then. If it is, the clock
        has jumped ahead: live workers get 60 s to renew their leases.
        """
        if self._clean is not None and late > monotonic - self._clean + LEAST:
            self._clean, self._from = None, monotonic + JOB_LEASE
        return monotonic >= self._from


def _says(by: float) -> str:
    where = f"{by:.0f} s ahead of" if by > 0 else f"{-by:.0f} s behind"
    return (
        f"clock: this machine's clock is {where} the ledger's last write by another worker, which is alive; leases on SQLite "
        f"depend on it, so this worker claims no jobs; set the clock (NTP), or use Postgres for workers on several machines"
    )
