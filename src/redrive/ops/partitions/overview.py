"""Partitions in the overview: their states, and queued and running work. The cost does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from ...ledger.queries.overview import CountSince
from ...partitions.store.overview import count_datasets, queue_overview
from ...partitions.store.rows import POLICY
from ..render import utc
from .datasets import label

SPAN = timedelta(days=366)
"""Days that are counted. `redrive state inspect` shows older ones."""
RECENT = timedelta(hours=1)
COUNTED = 1_000
"""Recent rejections, and queued and running partitions of a dataset, that are counted."""


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """A dataset with the number of its partitions of the last year by state."""

    source: str
    query: str
    accepted: int
    pending: int
    refresh_failed: int
    failed: int
    terminal: int
    lately: int
    """Rejected in the last hour and not fixed, counted up to 1,000."""
    queued: int = 0
    """Queued for extraction, counted up to 1,000. A backfill queues its partitions step by step."""
    running: int = 0
    """Running, counted up to 1,000."""

    @property
    def name(self) -> str:
        """Name such as crm/orders."""
        return label(self.source, self.query)

    @property
    def wrong(self) -> int:
        """Number of partitions with problems."""
        return self.refresh_failed + self.failed + self.terminal


@dataclass(frozen=True, slots=True)
class PausedSource:
    """A paused source, and why it is paused."""

    name: str
    why: str
    actor: str = ""
    """Who paused it."""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """Queued, running and paused work of all datasets."""

    late: CountSince
    """Queued partitions that were due before the grace period."""
    running: int
    paused: tuple[PausedSource, ...]


def partitioned(connection: Connection, now: datetime, grace: timedelta, /) -> Partitioned:
    """Return queued, running and paused work. It reads a bounded part of the queue."""
    queue = queue_overview(connection, now - grace)
    paused = tuple(
        PausedSource(
            row.source,
            f"{paused_by(row.paused_until, row.actor or '')}: {row.because or ''}",
            row.actor or "",
        )
        for row in queue.paused
    )
    return Partitioned(CountSince(queue.late, queue.since), queue.running, paused)


def dataset_lines(connection: Connection, now: datetime, /) -> tuple[DatasetLine, ...]:
    """Return every dataset with its counts, those with problems first."""
    rows = count_datasets(connection, since=(now - SPAN).date(), lately=now - RECENT, most=COUNTED)
    lines = []
    for row in rows:
        accepted, pending, refresh_failed, failed, terminal = row.shades
        counts = (accepted, pending, refresh_failed, failed, terminal)
        active = (row.lately, row.queued, row.running)
        lines.append(DatasetLine(row.source, row.query_name, *counts, *active))
    return tuple(sorted(lines, key=lambda line: (not line.wrong, line.name)))


def paused_by(until: datetime | None, actor: str, /) -> str:
    """Say who paused a source, and how the pause ends."""
    if until is None:
        return f"by {actor}, until it is unpaused"
    if actor != POLICY:
        return f"by {actor}, until {utc(until)} UTC"
    probe = f"a successful probe (next: {utc(until)} UTC)"
    return f"by {actor} after an outage, resumes by itself after {probe}"
