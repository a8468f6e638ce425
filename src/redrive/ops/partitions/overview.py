"""Partitions in the overview: their states, work, and failures by dataset and reason.

The cost does not grow with the number of partitions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from ...journal.redaction import redact_text
from ...ledger.ledger import Ledger
from ...ledger.queries.overview import CountSince
from ...partitions.store.overview import count_datasets, find_failing, queue_overview
from ...partitions.store.rows import POLICY, PartitionRow
from ..render import utc
from .datasets import label, parse_label

SPAN = timedelta(days=366)
"""Days that are counted. `redrive state inspect` shows older ones."""
RECENT = timedelta(hours=1)
MAX_COUNTED = 1_000
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
class PartitionQueue:
    """Queued, running and paused work of all datasets."""

    late: CountSince
    """Queued partitions that were due before the grace period."""
    running: int
    paused: tuple[PausedSource, ...]


def read_partition_queue(
    connection: Connection, now: datetime, grace: timedelta, /
) -> PartitionQueue:
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
    return PartitionQueue(CountSince(queue.late, queue.since), queue.running, paused)


def dataset_lines(connection: Connection, now: datetime, /) -> tuple[DatasetLine, ...]:
    """Return every dataset with its counts, those with problems first."""
    rows = count_datasets(
        connection, since=(now - SPAN).date(), lately=now - RECENT, most=MAX_COUNTED
    )
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


# --- Failures by dataset and reason

MAX_PER_DATASET = 30
"""Latest failures of each dataset that are read. The overview counts all of them."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Partitions of one dataset that failed for one reason, or whose newer run was rejected."""

    source: str
    query: str
    reason: str | None
    """Name of a check, or kind of error. None: given up by a person, or because workers died."""
    many: int
    more: bool
    """Whether there may be more, because only the latest of the dataset were read."""
    terminal: int
    """Of these: gave up."""
    readable: int
    """Of these: an older run is readable."""
    last_at: datetime | None
    """Time of the last verdict. None: there is none."""
    partition: str
    """The latest partition, as an example."""
    error: str | None
    """First line of its error."""

    @property
    def why(self) -> str:
        """The reason, or `gave up`."""
        return self.reason or "gave up"

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return label(self.source, self.query)


def rejections(
    ledger: Ledger,
    /,
    *,
    dataset: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 100,
) -> list[Rejection]:
    """Return failures of partitions, the latest verdict first.

    `dataset` is a name such as crm/orders.
    """
    only = None if dataset is None else parse_label(dataset)
    if dataset is not None and only is None:
        return []
    is_unbounded = since is None and until is None
    with ledger.reading() as connection:
        rows = find_failing(
            connection,
            dataset=only,
            since=since,
            until=until,
            each=MAX_PER_DATASET,
            unjudged=is_unbounded,
        )
    groups: dict[tuple[str, str, str | None], list[PartitionRow]] = {}
    read: Counter[tuple[tuple[str, str], bool]] = Counter()
    for row in rows:
        groups.setdefault((row.source, row.query_name, row.reason), []).append(row)
        read[row.dataset, row.verdict_at is None] += 1
    cut = {name for (name, _), count in read.items() if count >= MAX_PER_DATASET}
    return [
        _rejection(*key, rows, rows[0].dataset in cut) for key, rows in [*groups.items()][:limit]
    ]


def _rejection(
    source: str, query: str, reason: str | None, rows: list[PartitionRow], more: bool
) -> Rejection:
    latest = rows[0]
    error = (latest.error or "").strip().partition("\n")[0]
    return Rejection(
        source=source,
        query=query,
        reason=reason,
        many=len(rows),
        more=more,
        terminal=sum(row.display_status == "terminal" for row in rows),
        readable=sum(row.display_status == "refresh_failed" for row in rows),
        last_at=latest.verdict_at,
        partition=str(latest.partition),
        error=redact_text(error) if error else None,
    )
