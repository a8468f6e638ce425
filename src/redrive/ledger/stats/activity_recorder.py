"""ActivityRecorder: counts the ended attempts of one worker in memory, by minute and job type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from math import log2
from time import monotonic
from typing import Protocol

from ..model import Lease
from .activity import ALL_KINDS, MINUTE, ActivityRow, minute_of, total
from .histogram import (
    BUCKET_COUNT,
    BUCKETS_PER_DOUBLING,
    FIRST_MICROS,
    LAST_BUCKET,
    MICROS,
    OFFSET,
    bucket_of,
    from_counts,
)

MAX_MINUTES = 10
"""Minutes that are kept while the ledger is away. Less than the time after which minutes are summed
up: a row that was summed up is never written again, which would count it twice."""
CLOCK_SECONDS = 1.0
"""Time between two looks at the clock."""
DONE, FAILED, DEAD, CANCELLED = range(4)
"""Outcomes, in the order of the columns."""
OUTCOMES = {"done": DONE, "failed": FAILED, "dead": DEAD, "cancelled": CANCELLED}
MICROSECOND = timedelta(microseconds=1)


class EndedAttempt(Protocol):
    """An attempt that has ended."""

    @property
    def lease(self) -> Lease:
        """Its lease, with the due time and the start."""

    @property
    def seconds(self) -> float:
        """How long it took."""


class KindActivity:
    """The ended attempts of one job type in one minute. Used by one thread only."""

    __slots__ = ("counts", "is_written", "run", "wait")

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]
        self.wait = [0] * BUCKET_COUNT
        self.run = [0] * BUCKET_COUNT
        self.is_written = False


class ActivityRecorder:
    """Counts ended attempts until they are written to the ledger. Used by the ledger thread only.

    A worker that is killed loses the counts since its last write. Jobs are not affected.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        """Start with no counts.

        Args:
            now: Returns the time by the ledger's clock.
        """
        self._now = now
        self._minutes: dict[int, dict[str, KindActivity]] = {}
        self._current: dict[str, KindActivity] = {}
        self._look_at = 0.0
        """When to look at the clock, on the monotonic clock."""

    def _kinds(self) -> dict[str, KindActivity]:
        """Return the counts of this minute."""
        at = monotonic()
        if at >= self._look_at:
            self._look_at = at + CLOCK_SECONDS
            self._current = self._minutes.setdefault(minute_of(self._now()), {})
        return self._current

    # ---- counting ----

    def add_successes(self, attempts: Iterable[EndedAttempt], /) -> None:
        """Count attempts that succeeded.

        It runs for every short job: `bucket_of` is written out here.
        """
        kinds = self._kinds()
        for attempt in attempts:
            lease = attempt.lease
            try:
                entry = kinds[lease.kind]
            except KeyError:
                entry = kinds[lease.kind] = KindActivity()
            entry.counts[0] += 1
            entry.is_written = False
            micros = attempt.seconds * MICROS
            bucket = 0
            if micros >= FIRST_MICROS:
                bucket = int(BUCKETS_PER_DOUBLING * log2(micros)) - OFFSET
            entry.run[bucket if bucket < LAST_BUCKET else LAST_BUCKET] += 1
            started = lease.started_stored
            if started:
                waited = started - lease.due_stored  # type: ignore[operator]  # of the same type
                micros = waited if waited.__class__ is int else waited / MICROSECOND  # type: ignore[operator]
                bucket = 0
                if micros >= FIRST_MICROS:
                    bucket = int(BUCKETS_PER_DOUBLING * log2(micros)) - OFFSET
                entry.wait[bucket if bucket < LAST_BUCKET else LAST_BUCKET] += 1

    def add(
        self, kind: str, outcome: str, /, *, run: float | None = None, wait: float | None = None
    ) -> None:
        """Count one attempt.

        Args:
            kind: Job type or dataset.
            outcome: `"done"`, `"failed"`, `"dead"` or `"cancelled"`.
            run: Seconds that it took. None: it did not run.
            wait: Seconds from due to start. None: not known.
        """
        entry = self._kinds().setdefault(kind, KindActivity())
        entry.counts[OUTCOMES[outcome]] += 1
        entry.is_written = False
        if run is not None:
            entry.run[bucket_of(run * MICROS)] += 1
        if wait is not None:
            entry.wait[bucket_of(wait * MICROS)] += 1

    # ---- writing ----

    def unwritten(self) -> list[ActivityRow]:
        """Return the totals of minutes that have changed since the last write."""
        rows = []
        for minute, kinds in sorted(self._minutes.items()):
            if any(not entry.is_written for entry in kinds.values()):
                own = {kind: _row(kind, minute, entry) for kind, entry in kinds.items()}
                rows += [row for kind, row in own.items() if not kinds[kind].is_written]
                rows.append(total(ALL_KINDS, minute, MINUTE, list(own.values())))
        return rows

    def on_written(self) -> None:
        """Note that the ledger has the rows of `unwritten`. Forget minutes that have ended."""
        for kinds in self._minutes.values():
            for entry in kinds.values():
                entry.is_written = True
        self._forget(minute_of(self._now()) - 1)

    def forget_old(self) -> None:
        """Forget minutes that could not be written in time."""
        self._forget(minute_of(self._now()) - MAX_MINUTES)

    def _forget(self, before: int) -> None:
        for minute in [each for each in self._minutes if each < before]:
            if self._minutes[minute] is not self._current:
                del self._minutes[minute]


def wait_seconds(lease: Lease, /) -> float | None:
    """Return the seconds from due to start. None: the job was not started."""
    started = lease.started_stored
    if not started:
        return None
    waited = started - lease.due_stored  # type: ignore[operator]  # of the same type
    return max(0.0, waited / MICROS if isinstance(waited, int) else waited.total_seconds())


def _row(kind: str, minute: int, entry: KindActivity) -> ActivityRow:
    wait, run = from_counts(entry.wait), from_counts(entry.run)
    return ActivityRow._make((kind, minute, MINUTE, *entry.counts, wait, run))
