"""Partitions at a glance, for the overview: how they stand, wait and run, at a cost that does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..render import utc
from .datasets import label

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ...ledger.queries.overview import CountSince

SPAN = timedelta(days=366)
"""Days that are counted: what is older was looked at by somebody, or `redrive state inspect` has it."""
LATELY = timedelta(hours=1)
COUNTED = 1_000
"""Of what was rejected of late so many are counted."""


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """One dataset: how many of its partitions are in which state, of the last year's days."""

    source: str
    query: str
    accepted: int
    pending: int
    refresh_failed: int
    failed: int
    terminal: int
    lately: int
    """Rejected in the last hour, and not mended; counted up to 1,000."""

    @property
    def name(self) -> str:
        """As people write it."""
        return label(self.source, self.query)

    @property
    def wrong(self) -> int:
        """How many want to be looked at."""
        return self.refresh_failed + self.failed + self.terminal


@dataclass(frozen=True, slots=True)
class PausedSource:
    """A source of which nothing is handed out, and why, in words."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Partitioned:
    """What of all partitions waits, runs and rests at one moment."""

    late: CountSince
    """Queued, due for longer than the grace."""
    running: int
    paused: tuple[PausedSource, ...]


def partitioned(connection: Connection, now: datetime, grace: timedelta, /) -> Partitioned:
    """How they stand now, but for the datasets' counts: a bounded look at the queue."""
    from ...ledger.queries.overview import CountSince  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...partitions.store.overview import glance  # noqa: PLC0415  # the same

    seen = glance(connection, now - grace)
    paused = tuple(PausedSource(one.name, _why(one.until, one.actor, one.because)) for one in seen.resting)
    return Partitioned(CountSince(seen.late, seen.since), seen.running, paused)


def dataset_lines(connection: Connection, now: datetime, /) -> tuple[DatasetLine, ...]:
    """Every dataset, from the calendar's counts; those with something wrong first."""
    from ...partitions.store.overview import standings  # noqa: PLC0415  # the same

    counted = standings(connection, since=(now - SPAN).date(), lately=now - LATELY, most=COUNTED)
    lines = []
    for one in counted:
        accepted, pending, refresh_failed, failed, terminal = one.shades
        lines.append(DatasetLine(one.source, one.query_name, accepted, pending, refresh_failed, failed, terminal, one.lately))
    return tuple(sorted(lines, key=lambda line: (not line.wrong, line.name)))


def _why(until: datetime | None, actor: str, because: str) -> str:
    return f"{paused_by(until, actor)}: {because}"


def paused_by(until: datetime | None, actor: str, /) -> str:
    """Who paused a source, and how the pause ends: by a person, at a time, or by itself after an outage."""
    from ...partitions.store.rows import POLICY  # noqa: PLC0415  # the same

    if until is None:
        return f"by {actor}, until it is unpaused"
    if actor != POLICY:
        return f"by {actor}, until {utc(until)} UTC"
    return f"by {actor} after an outage, resumes by itself after a successful probe (next: {utc(until)} UTC)"
