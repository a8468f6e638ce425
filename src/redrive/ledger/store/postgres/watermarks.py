"""Marks: from where on it is worth reading a kind's queue.

An index entry of a claimed job stays until a vacuum, at the very front, where every claim begins to read: without a mark
claims grow slower with each job that was done. A mark is a hint for a second at most. Nothing rests on it: where a claim with
marks comes back with less than was asked for, it is made again without.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime

from ...record import Lease

SECONDS = 1.0
EVERYTHING = "-infinity"


class Marks:
    """Of one ledger. Threads may share it; a forked child may go on with what it inherits."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[str, float]] = {}

    def since(self, kinds: Iterable[str], /) -> list[str]:
        """The moment to begin at, for each kind."""
        now = time.monotonic()
        found = (self._marks.get(kind) for kind in kinds)
        return [mark[0] if mark is not None and mark[1] > now else EVERYTHING for mark in found]

    def seen(self, kinds: Mapping[str, int], leases: Iterable[Lease], marked: Iterable[str], /) -> None:
        """What was claimed. A kind that gave all that was asked for is read from there on, the next time."""
        counts: dict[str, int] = {}
        oldest: dict[str, datetime] = {}
        for lease in leases:
            due = lease.due_stored
            assert isinstance(due, datetime)
            counts[lease.kind] = counts.get(lease.kind, 0) + 1
            if lease.kind not in oldest or due < oldest[lease.kind]:
                oldest[lease.kind] = due
        for (kind, most), mark in zip(kinds.items(), marked, strict=True):
            if counts.get(kind) != most:
                self._marks.pop(kind, None)
            else:
                # Its second runs from the last time that everything was read.
                until = time.monotonic() + SECONDS if mark == EVERYTHING else self._marks.get(kind, ("", 0.0))[1]
                self._marks[kind] = (oldest[kind].isoformat(), until)
