"""Troubled: datasets and those of their partitions that somebody may want to look at, at a cost that does not grow with them."""

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, case, func, select, union_all

from ..ledger.partition_tables import TROUBLE, partition, rollup
from ..ledger.statement import number, words
from .partition import Partition
from .record import SHADES, Shade

DATASETS = 10
"""So many are looked at: those in which something was rejected last."""
_AT = partition.c
_COLUMNS = (
    _AT.id, _AT.source, _AT.customer_id, _AT.query_name, _AT.logical_date, _AT.shade, _AT.attempt_count, _AT.verdict_at,
    _AT.reason, _AT.error, _AT.last_verdict,
)  # fmt: skip


class Standing(NamedTuple):
    """How the partitions of a dataset stand. Immutable."""

    source: str
    query_name: str
    shades: tuple[int, ...]
    """As many as there are shades, in their order."""
    lately: int
    """Rejected of late, and not mended; counted up to a bound."""


def standings(connection: Connection, /, *, since: date, lately: datetime, most: int) -> list[Standing]:
    """Of every dataset. since: of this day's partitions and later ones'. lately: since when; most: counted up to this."""
    rows = connection.execute(_standings(most), {"since": since, "lately": lately}).all()
    return [Standing(row[0], row[1], tuple(map(int, row[2:-1])), row[-1]) for row in rows]


@lru_cache(maxsize=10)
def _standings(most: int) -> Select[Any]:
    """Built once: that takes longer than to answer it."""
    at = rollup.c
    sums = [func.sum(case((at.shade == number(place), at.n), else_=number(0))).label(name) for place, name in enumerate(SHADES)]
    whole = select(at.source, at.query_name, *sums).where(at.logical_date >= bindparam("since", type_=at.logical_date.type))
    of = whole.group_by(at.source, at.query_name).subquery()
    lately = _AT.verdict_at >= bindparam("lately", type_=_AT.verdict_at.type)
    mine = (_AT.source == of.c.source, _AT.query_name == of.c.query_name, TROUBLE, lately, _AT.last_verdict == words("rejected"))
    few = select(_AT.id).where(*mine).correlate(of).limit(number(most)).subquery()
    return select(of, select(func.count()).select_from(few).scalar_subquery()).order_by(of.c.source, of.c.query_name)


class Troubled(NamedTuple):
    """One that failed, or with a newer run that was rejected. Immutable."""

    id: int
    source: str
    customer_id: str
    query_name: str
    logical_date: date
    shade: int
    attempt_count: int
    verdict_at: datetime | None
    """None: it was given up before anybody judged it."""
    reason: str | None
    error: str | None
    last_verdict: str | None

    @property
    def dataset(self) -> tuple[str, str]:
        """Its source and query."""
        return self.source, self.query_name

    @property
    def partition(self) -> Partition:
        """Which."""
        return Partition(self.source, self.customer_id, self.query_name, self.logical_date)

    @property
    def seen(self) -> Shade:
        """How it stands."""
        return SHADES[self.shade]


def troubled(
    connection: Connection,
    /,
    *,
    dataset: tuple[str, str] | None,
    since: datetime | None,
    until: datetime | None = None,
    each: int,
    unjudged: bool = False,
) -> list[Troubled]:
    """Of every dataset the last so many; what was judged last comes first. unjudged: and as many that nobody judged.

    dataset: only of this one. since, until: only what was judged in this time.
    """
    datasets = [dataset] if dataset is not None else [(row[0], row[1]) for row in connection.execute(_DATASETS).all()]
    if not datasets:
        return []
    given: dict[str, Any] = {name: time for name, time in (("since", since), ("until", until)) if time is not None}
    for place, (source, query_name) in enumerate(datasets):
        given |= {f"source_{place}": source, f"query_{place}": query_name}
    rows = connection.execute(_of(len(datasets), each, since is not None, until is not None, unjudged), given).all()
    found = [Troubled._make(row) for row in rows]
    return sorted(found, key=lambda one: (one.verdict_at is not None, one.verdict_at, one.id), reverse=True)


@lru_cache(maxsize=100)
def _of(datasets: int, each: int, since: bool, until: bool, unjudged: bool) -> Any:
    """The question about so many datasets."""
    few = number(each)  # in the text: not knowing how few, Postgres would rather sort all that there are
    some: list[Select[Any]] = []
    for place in range(datasets):
        mine = select(*_COLUMNS).where(_AT.source == bindparam(f"source_{place}"), _AT.query_name == bindparam(f"query_{place}"))
        moment = _AT.verdict_at >= bindparam("since", type_=_AT.verdict_at.type) if since else _AT.verdict_at.is_not(None)
        moment = and_(moment, _AT.verdict_at < bindparam("until", type_=_AT.verdict_at.type)) if until else moment
        some.append(mine.where(TROUBLE, moment).order_by(_AT.verdict_at.desc()).limit(few))
        if unjudged:
            some.append(mine.where(TROUBLE, _AT.verdict_at.is_(None)).limit(few))  # in no order: none of them has a moment
    return union_all(*(select(one.subquery()) for one in some))


def _datasets() -> Select[Any]:
    wrong = rollup.c.shade > number(SHADES.index("pending"))
    counted = select(rollup.c.source, rollup.c.query_name).where(wrong, rollup.c.n > number(0))
    there = counted.group_by(rollup.c.source, rollup.c.query_name).subquery()
    mine = (_AT.source == there.c.source, _AT.query_name == there.c.query_name, TROUBLE, _AT.verdict_at.is_not(None))
    last = select(_AT.verdict_at).where(*mine).order_by(_AT.verdict_at.desc()).limit(1).scalar_subquery().label("last")
    found = select(there.c.source, there.c.query_name, last)
    return found.order_by(last.desc().nulls_last(), there.c.source, there.c.query_name).limit(number(DATASETS))


_DATASETS = _datasets()
