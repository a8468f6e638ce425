"""Failures of partitions, grouped by dataset and reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from ...journal.redaction import redact_text
from ...ledger.ledger import Ledger
from ...partitions.store.overview import find_failing
from ...partitions.store.rows import PartitionRow
from .datasets import label, parse_label

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
