"""Glance: what of all partitions waits, runs and rests, by a bounded look at the queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, Select, and_, bindparam, case, func, select, text, union_all

from ...ledger.db.compiled import sql_int, sql_text
from ...ledger.db.partition_tables import TROUBLE, partition, rollup, run, source, work
from ..key import Partition
from ..model import LANES, SHADES, Lane, Shade

LOOKED = 10_000
"""Of what is queued so many rows are looked at: counts beyond it are no more telling."""


class Resting(NamedTuple):
    """A source of which nothing is handed out. Immutable."""

    name: str
    until: datetime | None
    actor: str
    because: str


class Glance(NamedTuple):
    """All partitions at one moment. Immutable."""

    late: int
    """Queued, and due for a while."""
    since: datetime | None
    """Of these the first one was."""
    running: int
    resting: tuple[Resting, ...]


def glance(connection: Connection, before: datetime, /) -> Glance:
    """How they stand. before: what was due then is late."""
    rows = connection.execute(_GLANCE, {"before": before}).all()
    many, since, running = rows[0][:3]
    return Glance(many, since, running, tuple(Resting._make(row[3:]) for row in rows if row[3] is not None))


def _glance() -> Select[Any]:
    queued = select(work.c.due_at).where(work.c.lease_until.is_(None)).limit(sql_int(LOOKED)).subquery()
    leased = select(work.c.partition_id).where(work.c.lease_until.is_not(None)).limit(sql_int(LOOKED)).subquery()
    running = select(func.count()).select_from(leased).scalar_subquery().label("running")
    late = select(func.count().label("many"), func.min(queued.c.due_at).label("since"), running)
    one = late.where(queued.c.due_at <= bindparam("before", type_=work.c.due_at.type)).subquery()
    rests = (source.c.source, source.c.paused_until, source.c.actor, source.c.because)
    both = one.outerjoin(source, source.c.paused_at.is_not(None))  # one question for both: a page asks few
    return select(one, *rests).select_from(both).order_by(source.c.source)


_GLANCE = _glance()

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
    sums = [func.sum(case((at.shade == sql_int(place), at.n), else_=sql_int(0))).label(name) for place, name in enumerate(SHADES)]
    whole = select(at.source, at.query_name, *sums).where(at.logical_date >= bindparam("since", type_=at.logical_date.type))
    of = whole.group_by(at.source, at.query_name).subquery()
    lately = _AT.verdict_at >= bindparam("lately", type_=_AT.verdict_at.type)
    mine = (
        _AT.source == of.c.source,
        _AT.query_name == of.c.query_name,
        TROUBLE,
        lately,
        _AT.last_verdict == sql_text("rejected"),
    )
    few = select(_AT.id).where(*mine).correlate(of).limit(sql_int(most)).subquery()
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
    for place, (source_name, query_name) in enumerate(datasets):
        given |= {f"source_{place}": source_name, f"query_{place}": query_name}
    rows = connection.execute(_of(len(datasets), each, since is not None, until is not None, unjudged), given).all()
    found = [Troubled._make(row) for row in rows]
    return sorted(found, key=lambda one: (one.verdict_at is not None, one.verdict_at, one.id), reverse=True)


@lru_cache(maxsize=100)
def _of(datasets: int, each: int, since: bool, until: bool, unjudged: bool) -> Any:
    """The question about so many datasets."""
    few = sql_int(each)  # in the text: not knowing how few, Postgres would rather sort all that there are
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
    wrong = rollup.c.shade > sql_int(SHADES.index("pending"))
    counted = select(rollup.c.source, rollup.c.query_name).where(wrong, rollup.c.n > sql_int(0))
    there = counted.group_by(rollup.c.source, rollup.c.query_name).subquery()
    mine = (_AT.source == there.c.source, _AT.query_name == there.c.query_name, TROUBLE, _AT.verdict_at.is_not(None))
    last = select(_AT.verdict_at).where(*mine).order_by(_AT.verdict_at.desc()).limit(1).scalar_subquery().label("last")
    found = select(there.c.source, there.c.query_name, last)
    return found.order_by(last.desc().nulls_last(), there.c.source, there.c.query_name).limit(sql_int(DATASETS))


_DATASETS = _datasets()

LOOKED_AT = 3000
"""Rows of work, together: of each dataset and lane the same number, however many there are."""
Days: TypeAlias = dict[tuple[str, str, date], dict[Lane, int]]


def days(connection: Connection, datasets: Sequence[tuple[str, str]], since: date, until: date, /) -> Days:
    """How much of each day, by lane."""
    if not datasets:
        return {}
    on_sqlite = connection.dialect.name == "sqlite"
    given: dict[str, Any] = {"each": max(20, LOOKED_AT // (4 * len(datasets))), "since": since, "until": until}
    if on_sqlite:
        given |= {"datasets": json.dumps(datasets), "since": since.isoformat(), "until": until.isoformat()}
    else:
        given |= {"sources": [name for name, _ in datasets], "queries": [query for _, query in datasets]}
    found: Days = {}
    for source_name, query, on, lane, many in connection.execute(_SQLITE if on_sqlite else _POSTGRES, given):
        day = found.setdefault((source_name, query, date.fromisoformat(on) if on_sqlite else on), {})
        day[LANES[lane]] = day.get(LANES[lane], 0) + many
    return found


# As the indexes begin: what waits by lane, and what is running. SQLite has no LATERAL, but functions of tables that see what
# stands before them; and a CROSS JOIN is done in the order in which it is written.
_SOME = "FROM redrive_partition_work WHERE source = d.source AND query_name = d.query AND"
_WAITS, _RUNS = f"{_SOME} lane = l.lane AND lease_until IS NULL", f"{_SOME} lease_until IS NOT NULL"
_LANES = ", ".join(f"({lane})" for lane in range(len(LANES)))
_BY = "GROUP BY 1, 2, 3, 4"


def _on_sqlite(some: str, lanes: str) -> str:
    picked = f"SELECT json_group_array(json_array(partition_id, lane)) FROM (SELECT partition_id, lane {some} LIMIT :each)"  # noqa: S608
    return f"""SELECT p.source, p.query_name, p.logical_date, json_extract(w.value, '$[1]'), count(*)
FROM (SELECT json_extract(value, '$[0]') AS source, json_extract(value, '$[1]') AS query FROM json_each(:datasets)) AS d {lanes}
CROSS JOIN json_each(({picked})) AS w CROSS JOIN redrive_partition AS p
WHERE p.id = json_extract(w.value, '$[0]') AND +p.logical_date BETWEEN :since AND :until {_BY}"""  # noqa: S608  # our own words


def _on_postgres(some: str, lanes: str) -> str:
    return f"""SELECT p.source, p.query_name, p.logical_date, w.lane, count(*)
FROM unnest(CAST(:sources AS text[]), CAST(:queries AS text[])) AS d (source, query) {lanes}
CROSS JOIN LATERAL (SELECT partition_id, lane {some} LIMIT :each) AS w
JOIN redrive_partition AS p ON p.id = w.partition_id WHERE p.logical_date BETWEEN :since AND :until {_BY}"""  # noqa: S608


_SQLITE = text(
    " UNION ALL ".join(
        (_on_sqlite(_WAITS, f"CROSS JOIN (SELECT column1 AS lane FROM (VALUES {_LANES})) AS l"), _on_sqlite(_RUNS, ""))  # noqa: S608
    )
)
_POSTGRES = text(" UNION ALL ".join((_on_postgres(_WAITS, f"CROSS JOIN (VALUES {_LANES}) AS l (lane)"), _on_postgres(_RUNS, ""))))


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
