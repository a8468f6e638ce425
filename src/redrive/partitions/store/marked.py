"""Partitions that an operator marked as given up: bulk operations leave them out."""

from __future__ import annotations

from collections import Counter
from textwrap import shorten
from typing import Any

from sqlalchemy import Connection, and_, exists, func, select

from ...ledger.db.partition_tables import marker, partition
from ..model import MANUAL, PartitionFilter
from .queries import queries_by_dataset

MARKED = "marked as given up"
"""Why a bulk operation leaves a partition out."""
MAX_DECISIONS = 5
"""Decisions that a plan names, each with its actor and reason."""
MAX_REASON = 80
"""Characters of a reason that a plan prints."""
_is_manual = and_(
    marker.c.partition_id == partition.c.id,
    marker.c.kind == "terminal",
    marker.c.cause == MANUAL,
)
IS_MARKED: Any = exists(select(marker.c.partition_id).where(_is_manual))
"""Condition on a partition: an operator marked it as given up."""


def leaves_out_marked(selection: PartitionFilter, /, *, include_marked: bool) -> bool:
    """Return whether marked partitions are left out: not if they are named one by one."""
    return not include_marked and selection.keys is None and selection.ids is None


def count_marked(connection: Connection, selection: PartitionFilter, /) -> dict[str, int]:
    """Return how many selected partitions are marked, by `marked as given up by ann: reason`."""
    counts: Counter[tuple[str, str]] = Counter()
    columns = (marker.c.actor, marker.c.because, func.count())
    for _, query in queries_by_dataset(connection, columns, selection):
        rows = connection.execute(query.where(_is_manual).group_by(*columns[:2]))
        counts.update({(actor, because): count for actor, because, count in rows})
    described: Counter[str] = Counter()
    for (actor, because), count in counts.most_common(MAX_DECISIONS):
        reason = shorten(because, MAX_REASON, placeholder=" …")
        described[f"{MARKED} by {actor}: {reason}"] += count
    rest = counts.total() - described.total()
    return dict(described) | ({f"{MARKED} by others": rest} if rest else {})
