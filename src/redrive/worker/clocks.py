"""Clocks: detect clocks that differ between machines, and clocks that were set.

On SQLite, leases depend on each machine's own clock. A worker whose clock differs from the others'
claims no jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from ..ledger.jobs.clock_setback import (
    CLOCK_TOLERANCE_SECONDS,
    JOB_LEASE_SECONDS,
    MIN_SETBACK_SECONDS,
)

HEARTBEAT_WAIT_SECONDS = 4.0
"""Time in which a live worker sends another heartbeat: twice its interval."""


class ClockReading(NamedTuple):
    """The ledger's clock, read between two times on the monotonic clock."""

    ledger_time: datetime
    began: float
    ended: float

    @property
    def is_prompt(self) -> bool:
        """Whether it took so little time that it can be compared.

        A slow one waited for a lock or a connection.
        """
        return self.ended - self.began <= MIN_SETBACK_SECONDS


def step(first: ClockReading, second: ClockReading, /) -> float:
    """Return the seconds by which the ledger's clock was certainly set between two readings.

    Negative if it was set back, and 0 if it may not have been set.
    """
    passed = (second.ledger_time - first.ledger_time).total_seconds()
    least, most = second.began - first.ended, second.ended - first.began
    return min(0.0, passed - least) or max(0.0, passed - most)


class Clocks:
    """Compares this machine's clock with the heartbeats of other workers.

    Pure. Used by the ledger thread only.

    A heartbeat that is an hour old may be a dead worker's. One that is an hour old and was not
    there shortly before is a live worker's on a machine with another clock.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._last_heartbeats: dict[str, datetime] = {}
        self._decide_at: float | None = None
        self.checked = not enabled
        """The clock agrees with the clocks of the other workers."""
        self.problem: str | None = None
        """Why this worker claims no jobs."""

    def doubt(self) -> None:
        """Compare again: this machine's clock was set."""
        if self._enabled:
            self._last_heartbeats, self._decide_at, self.checked = {}, None, False

    def look(self, heartbeats: Mapping[str, datetime], now: datetime, monotonic: float, /) -> None:
        """Compare with the last heartbeats of workers that have not ended.

        Args:
            heartbeats: By worker.
            now: By this machine's clock.
            monotonic: Seconds on the monotonic clock.
        """
        if self.checked:
            return
        if self._decide_at is None:
            self._decide_at = monotonic + HEARTBEAT_WAIT_SECONDS
        offsets = {name: (now - seen).total_seconds() for name, seen in heartbeats.items()}
        suspects = {
            name: offset
            for name, offset in offsets.items()
            if abs(offset) > CLOCK_TOLERANCE_SECONDS
        }
        last = self._last_heartbeats
        live = [
            offset
            for name, offset in suspects.items()
            if heartbeats[name] != last.get(name, heartbeats[name])
        ]
        self._last_heartbeats = dict(heartbeats)
        if live:
            self.problem = _describe_offset(max(live, key=abs))
            self._decide_at = monotonic + HEARTBEAT_WAIT_SECONDS
        elif not suspects or monotonic >= self._decide_at:
            self.checked, self.problem = True, None


class Jumps:
    """Tells expired leases from leases that seem expired because the ledger's clock jumped ahead.

    Used by one thread only.
    """

    def __init__(self) -> None:
        self._clean_at: float | None = None
        """When no lease was expired, on the monotonic clock; None: unknown."""
        self._trusted_from = -math.inf

    def nothing_expired(self, monotonic: float, /) -> None:
        """Note that no lease is expired."""
        self._clean_at = monotonic

    def trusts(self, late: float, monotonic: float, /) -> bool:
        """Return whether to recover leases, the first of which expired `late` seconds ago.

        A lease that was valid at the last look cannot be late by more than the time since then. If
        it is, the clock has jumped ahead, and live workers get 60 s to renew their leases.
        """
        if self._clean_at is not None and late > monotonic - self._clean_at + MIN_SETBACK_SECONDS:
            self._clean_at, self._trusted_from = None, monotonic + JOB_LEASE_SECONDS
        return monotonic >= self._trusted_from


def _describe_offset(seconds: float) -> str:
    where = f"{seconds:.0f} s ahead of" if seconds > 0 else f"{-seconds:.0f} s behind"
    return (
        f"clock: this machine's clock is {where} the ledger's last write by another worker, which "
        f"is alive; leases on SQLite depend on it, so this worker claims no jobs; set the clock "
        f"(NTP), or use Postgres for workers on several machines"
    )
