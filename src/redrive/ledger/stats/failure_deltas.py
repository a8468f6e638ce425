"""Failed: what is counted of failures that are alike, on its way into the ledger, in the transaction of what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, TypeAlias

from ..db.types import MICROSECONDS
from ..validation import words

SLOT = 600
"""Seconds that are counted together."""
HOUR = 6
"""So many of these."""
LONGEST = 300
"""Characters of a signature, and of the error that is kept as a sample: both databases must be able to index it."""

WHOLE = "\x01"
"""In the place of a signature: all failures of a kind, slot by slot, so that the overview need not read every group's."""

Alike: TypeAlias = tuple[str, str]
"""A kind, and a signature."""


class Failed(NamedTuple):
    """What failures alike come to, by one change. Immutable."""

    tries: int = 0
    died: int = 0
    pending: int = 0
    blocked: int = 0
    job_id: int | None = None
    error: str | None = None

    def __add__(self, other: Failed, /) -> Failed:  # type: ignore[override]  # of counts, not of tuples
        return Failed(
            self.tries + other.tries, self.died + other.died, self.pending + other.pending, self.blocked + other.blocked,
            self.job_id if other.job_id is None else other.job_id, self.error if other.error is None else other.error,
        )  # fmt: skip


def alike(signature: str | None, /) -> str | None:
    """A signature as it may be kept."""
    kept = words(signature)
    return None if kept is None else kept[:LONGEST]


def sample(error: str | None, /) -> str | None:
    """What is kept of one error for all that are alike: its first line."""
    return None if error is None else error.partition("\n")[0][:LONGEST]


def dealt_with(letters: Iterable[tuple[str, str | None, bool]], /) -> dict[Alike, Failed]:
    """Dead letters (kind, signature, blocked) that are pending no more."""
    found: dict[Alike, Failed] = {}
    for kind, signature, blocked in letters:
        group = (kind, signature or "")
        found[group] = found.get(group, Failed()) + Failed(pending=-1, blocked=-int(blocked))
    return found


def gathered(changes: Iterable[tuple[Alike, Failed]], /) -> Mapping[Alike, Failed]:
    """Those alike, together; in one order, so that two who write them never wait for each other."""
    found: dict[Alike, Failed] = {}
    for group, change in changes:
        if any(change):
            found[group] = found.get(group, Failed()) + change
    return {group: found[group] for group in sorted(found)}


def slot_of(moment: datetime, /) -> int:
    """The ten minutes that a moment is in."""
    return int(moment.timestamp()) // SLOT


def slot_of_micros(now: int, /) -> int:
    """The same of microseconds since 1970."""
    return now // (SLOT * MICROSECONDS)
