"""Groups of failures: failures of one job type with the same signature. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, TypeAlias

from ..timestamps import MICROSECONDS
from ..validation import storable_text

SLOT_SECONDS = 600
"""Failures are counted by slots of this length."""
SLOTS_PER_HOUR = 6
MAX_SIGNATURE_CHARS = 300
"""Also of the sample error. Both databases must be able to index the signature."""

ALL_SIGNATURES = "\x01"
"""Pseudo-signature for the totals of a job type, so the overview reads one row per slot, not one
per group."""

FailureGroup: TypeAlias = tuple[str, str]
"""Job type and signature."""


class FailureDelta(NamedTuple):
    """A change of the counters of a group. Immutable."""

    tries: int = 0
    died: int = 0
    pending: int = 0
    blocked: int = 0
    job_id: int | None = None
    """The job that failed last. None: no job failed."""
    error: str | None = None

    def __add__(self, other: FailureDelta, /) -> FailureDelta:  # type: ignore[override]  # adds counts
        return FailureDelta(
            self.tries + other.tries,
            self.died + other.died,
            self.pending + other.pending,
            self.blocked + other.blocked,
            self.job_id if other.job_id is None else other.job_id,
            self.error if other.error is None else other.error,
        )


class FailureSummary(NamedTuple):
    """The counters of a group. Immutable."""

    kind: str
    signature: str
    tries: int
    died: int
    pending: int
    blocked: int
    first_at: datetime
    last_at: datetime
    job_id: int | None
    error: str | None

    def plus(self, new: FailureSummary, /) -> FailureSummary:
        """Return the sum with a later change. Only a failure moves the timestamps."""
        has_failed = new.job_id is not None
        return self._replace(
            tries=self.tries + new.tries,
            died=self.died + new.died,
            pending=self.pending + new.pending,
            blocked=self.blocked + new.blocked,
            first_at=min(self.first_at, new.first_at) if has_failed else self.first_at,
            last_at=max(self.last_at, new.last_at) if has_failed else self.last_at,
            job_id=new.job_id or self.job_id,
            error=new.error or self.error,
        )


def merge_summaries(
    groups: dict[FailureGroup, FailureSummary], changes: Iterable[FailureSummary], /
) -> None:
    """Add changes to the summaries of their groups."""
    for change in changes:
        group = (change.kind, change.signature)
        groups[group] = groups[group].plus(change) if group in groups else change


def clip_signature(signature: str | None, /) -> str | None:
    """Return a signature as it is stored."""
    text = storable_text(signature)
    return None if text is None else text[:MAX_SIGNATURE_CHARS]


def sample(error: str | None, /) -> str | None:
    """Return the first line of an error, which is stored as the sample of its group."""
    return None if error is None else error.partition("\n")[0][:MAX_SIGNATURE_CHARS]


def no_longer_pending(
    letters: Iterable[tuple[str, str | None, bool]], /
) -> Mapping[FailureGroup, FailureDelta]:
    """Return the changes for dead letters (kind, signature, blocked) that got a decision."""
    return merge_deltas(
        ((kind, signature or ""), FailureDelta(pending=-1, blocked=-int(blocked)))
        for kind, signature, blocked in letters
    )


def merge_deltas(
    changes: Iterable[tuple[FailureGroup, FailureDelta]], /
) -> Mapping[FailureGroup, FailureDelta]:
    """Add up the changes of each group. Sorted, so that concurrent writers cannot deadlock."""
    sums: dict[FailureGroup, FailureDelta] = {}
    for group, change in changes:
        if any(change):
            sums[group] = sums.get(group, FailureDelta()) + change
    return {group: sums[group] for group in sorted(sums)}


def slot_of(timestamp: datetime, /) -> int:
    """Return the number of the slot that a timestamp is in."""
    return int(timestamp.timestamp()) // SLOT_SECONDS


def slot_of_micros(now: int, /) -> int:
    """Return the number of the slot that a time in microseconds since 1970 is in."""
    return now // (SLOT_SECONDS * MICROSECONDS)
