"""Held: partitions in the hands of workers, for whoever looks at who works."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, and_, select

from ..ledger.partition_tables import partition, run, work
from .partition import Partition


class Held(NamedTuple):
    """A partition that a worker extracts or judges. Immutable."""

    worker: str
    partition: Partition
    attempt_no: int
    leased_at: datetime


def held(connection: Connection, most: int, /) -> list[Held]:
    """Those that are leased now, at most so many."""
    at = work.c
    # The leases first, by themselves: else a database may think it better to begin with all partitions.
    taken = select(at.worker, at.partition_id, at.attempt_no).where(at.lease_until.is_not(None)).limit(most).subquery()
    this_run = and_(run.c.partition_id == taken.c.partition_id, run.c.attempt_no == taken.c.attempt_no)
    where = taken.join(partition, partition.c.id == taken.c.partition_id).join(run, this_run)
    key = (partition.c.source, partition.c.customer_id, partition.c.query_name, partition.c.logical_date)
    rows = connection.execute(select(taken.c.worker, *key, taken.c.attempt_no, run.c.leased_at).select_from(where))
    return [Held(row[0] or "", Partition(*row[1:5]), row[5], row[6]) for row in rows]
