"""Under way: which days have something queued or running, in which lane; from a bounded look at the work there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, TypeAlias

from sqlalchemy import Connection, Select, func, select, union_all

from ..ledger.partition_tables import partition, work
from .record import LANES, Lane

LOOKED_AT = 3000
"""Rows of work, together: of each dataset and lane the same number, however many there are."""
AT_ONCE = 25
"""Datasets in one query."""
Days: TypeAlias = dict[tuple[str, str, date], dict[Lane, int]]


def days(connection: Connection, datasets: Sequence[tuple[str, str]], since: date, until: date, /) -> Days:
    """How much of each day, by lane."""
    found: Days = {}
    each = max(20, LOOKED_AT // (4 * max(1, len(datasets))))
    for start in range(0, len(datasets), AT_ONCE):
        for source, query, on, lane, many in connection.execute(_query(datasets[start : start + AT_ONCE], each, since, until)):
            found.setdefault((source, query, on), {})[LANES[lane]] = many
    return found


def _query(datasets: Sequence[tuple[str, str]], each: int, since: date, until: date) -> Select[Any]:
    some = union_all(*(select(one.subquery()) for of in datasets for one in _parts(*of, each))).subquery()
    at = partition.c
    by = (at.source, at.query_name, at.logical_date, some.c.lane)
    shown = select(*by, func.count()).join_from(some, partition, at.id == some.c.partition_id)
    return shown.where(at.logical_date.between(since, until)).group_by(*by)


def _parts(source: str, query: str, each: int) -> Iterator[Select[Any]]:
    """As the indexes begin: what waits by lane, and what is running."""
    rows = select(work.c.partition_id, work.c.lane).where(work.c.source == source, work.c.query_name == query).limit(each)
    for lane in range(len(LANES)):
        yield rows.where(work.c.lane == lane, work.c.lease_until.is_(None))
    yield rows.where(work.c.lease_until.is_not(None))
