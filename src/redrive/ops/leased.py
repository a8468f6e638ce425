"""Leased: partitions that somebody has right now: left alone by every act, and listed; and those without raw data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ledger.partition_tables import partition, work
from ..partitions.find import narrowed
from ..partitions.partition import Partition
from ..partitions.rows import chunks
from ..partitions.runs import with_raw

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..partitions.record import Selection

LISTED = 100
"""So many are named, one by one."""


def leased(ledger: Ledger, selection: Selection, /) -> dict[str, str]:
    """The first of them, as text, and who has each."""
    of = partition.c
    columns = (of.source, of.customer_id, of.query_name, of.logical_date, work.c.worker)
    held = (work.c.partition_id == of.id, work.c.lease_until.is_not(None))
    found: dict[str, str] = {}
    with ledger.reading() as connection:
        for query, by in narrowed(connection, columns, selection):
            for row in connection.execute(query.where(*held).order_by(by).limit(LISTED - len(found))):
                found[str(Partition(*row[:4]))] = f"running now, by {row.worker}"
            if len(found) >= LISTED:
                break
    return found


def without(ledger: Ledger, ids: Sequence[int], /) -> int:
    """How many of these have no raw data that was ever judged."""
    with ledger.reading() as connection:
        return len(ids) - sum(len(with_raw(connection, some)) for some in chunks(ids))
