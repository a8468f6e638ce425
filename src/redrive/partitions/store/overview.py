"""Overviews of all partitions: the queue, datasets, failing partitions, active days and leases.

Each reads a bounded number of rows, however many partitions there are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    select,
    text,
    union_all,
)

from ...ledger.db.compiled import sql_int, sql_text
from ...ledger.db.partition_tables import TROUBLE, marker, partition, rollup, run, source, work
from ...ledger.db.session import from_json
from ..key import Partition
from ..model import DISPLAY_STATUSES, LANE_NAMES, DisplayStatus, LaneName
from .rows import PARTITION_COLUMNS, SOURCE_COLUMNS, PartitionRow, SourceRow

# ---- the queue ----

MAX_QUEUE_ROWS = 10_000
"""Rows of the queue that are counted: larger counts are no more informative."""


class QueueOverview(NamedTuple):
    """The queue of partitions. Immutable."""

    late: int
    """Queued, and due for a while."""
    since: datetime | None
    """When the first of them was due."""
    running: int
    paused: tuple[SourceRow, ...]


def queue_overview(connection: Connection, before: datetime, /) -> QueueOverview:
    """Return the state of the queue. Work that was due before this time is late."""
    rows = connection.execute(_QUEUE, {"before": before}).all()
    late, since, running = rows[0][:3]
    paused = tuple(SourceRow._make(row[3:]) for row in rows if row[3] is not None)
    return QueueOverview(late, since, running, paused)


def _queue_query() -> Select[Any]:
    limit = sql_int(MAX_QUEUE_ROWS)
    queued = select(work.c.due_at).where(work.c.lease_until.is_(None)).limit(limit).subquery()
    leased = select(work.c.partition_id).where(work.c.lease_until.is_not(None)).limit(limit)
    running = select(func.count()).select_from(leased.subquery()).scalar_subquery()
    counts = select(
        func.count().label("many"),
        func.min(queued.c.due_at).label("since"),
        running.label("running"),
    )
    row = counts.where(queued.c.due_at <= bindparam("before", type_=work.c.due_at.type)).subquery()
    # One query for both: a page of the console has a small budget of queries.
    joined = row.outerjoin(source, source.c.paused_at.is_not(None))
    return select(row, *SOURCE_COLUMNS).select_from(joined).order_by(source.c.source)


_QUEUE = _queue_query()

# ---- datasets ----

MAX_DATASETS = 10
"""Datasets that are searched for failing partitions: those with the latest rejections."""
_AT = partition.c


class DatasetCounts(NamedTuple):
    """The partitions of a dataset by display status. Immutable."""

    source: str
    query_name: str
    shades: tuple[int, ...]
    """In the order of DISPLAY_STATUSES."""
    lately: int
    """Rejected lately and still failing, counted up to a limit."""
    queued: int
    """Queued for extraction, counted up to a limit."""
    running: int
    """Running, counted up to a limit."""


def count_datasets(
    connection: Connection, /, *, since: date, lately: datetime, most: int
) -> list[DatasetCounts]:
    """Count the partitions of every dataset.

    Args:
        since: First day that is counted.
        lately: Rejections since this time count as `lately`.
        most: Maximum of `lately`, `queued` and `running`.
    """
    rows = connection.execute(_dataset_query(most), {"since": since, "lately": lately}).all()
    return [DatasetCounts(row[0], row[1], tuple(map(int, row[2:-3])), *row[-3:]) for row in rows]


@lru_cache(maxsize=10)
def _dataset_query(most: int) -> Select[Any]:
    """Build it once: that takes longer than executing it."""
    at = rollup.c
    sums = [
        func.sum(case((at.shade == sql_int(shade), at.n), else_=sql_int(0))).label(name)
        for shade, name in enumerate(DISPLAY_STATUSES)
    ]
    days = at.logical_date >= bindparam("since", type_=at.logical_date.type)
    counts = select(at.source, at.query_name, *sums).where(days)
    of = counts.group_by(at.source, at.query_name).subquery()
    rejected = select(_AT.id).where(
        _AT.source == of.c.source,
        _AT.query_name == of.c.query_name,
        TROUBLE,
        _AT.verdict_at >= bindparam("lately", type_=_AT.verdict_at.type),
        _AT.last_verdict == sql_text("rejected"),
    )
    own_work = select(work.c.partition_id).where(
        work.c.source == of.c.source, work.c.query_name == of.c.query_name
    )
    queued = own_work.where(work.c.lease_until.is_(None))
    running = own_work.where(work.c.lease_until.is_not(None))
    counted = [
        select(func.count())
        .select_from(query.correlate(of).limit(sql_int(most)).subquery())
        .scalar_subquery()
        for query in (rejected, queued, running)
    ]
    return select(of, *counted).order_by(of.c.source, of.c.query_name)


def count_marked_by_operator(connection: Connection, /) -> dict[tuple[str, str], int]:
    """Count partitions that gave up by an operator's decision, by dataset. Reads all markers."""
    own = and_(marker.c.kind == sql_text("terminal"), marker.c.cause == sql_text("manual"))
    is_given_up = _AT.shade == sql_int(DISPLAY_STATUSES.index("terminal"))
    query = (
        select(_AT.source, _AT.query_name, func.count())
        .join(marker, marker.c.partition_id == _AT.id)
        .where(own, TROUBLE, is_given_up)
        .group_by(_AT.source, _AT.query_name)
    )
    return {(row[0], row[1]): row[2] for row in connection.execute(query)}


def count_rejected_updates(connection: Connection, /) -> dict[tuple[str, str], int]:
    """Count accepted partitions whose newer run was rejected and is not retried, by dataset."""
    is_rejected = _AT.shade == sql_int(DISPLAY_STATUSES.index("refresh_failed"))
    is_queued = exists(select(work.c.partition_id).where(work.c.partition_id == _AT.id))
    query = (
        select(_AT.source, _AT.query_name, func.count())
        .where(TROUBLE, is_rejected, ~is_queued)
        .group_by(_AT.source, _AT.query_name)
    )
    return {(row[0], row[1]): row[2] for row in connection.execute(query)}


# ---- failing partitions ----


def find_failing(
    connection: Connection,
    /,
    *,
    dataset: tuple[str, str] | None,
    since: datetime | None,
    until: datetime | None = None,
    each: int,
    unjudged: bool = False,
) -> list[PartitionRow]:
    """Return failing partitions, the newest verdict first.

    Args:
        dataset: Only this dataset. None: the datasets with the latest rejections.
        since: Only with a verdict since this time.
        until: Only with a verdict before this time.
        each: Maximum number for each dataset.
        unjudged: Also return as many that have no verdict.
    """
    if dataset is not None:
        datasets = [dataset]
    else:
        datasets = [(row[0], row[1]) for row in connection.execute(_FAILING_DATASETS).all()]
    if not datasets:
        return []
    times = {"since": since, "until": until}
    parameters: dict[str, Any] = {name: at for name, at in times.items() if at is not None}
    for place, (source_name, query_name) in enumerate(datasets):
        parameters |= {f"source_{place}": source_name, f"query_{place}": query_name}
    query = _failing_query(len(datasets), each, since is not None, until is not None, unjudged)
    rows = [PartitionRow._make(row) for row in connection.execute(query, parameters).all()]
    return sorted(
        rows, key=lambda row: (row.verdict_at is not None, row.verdict_at, row.id), reverse=True
    )


@lru_cache(maxsize=100)
def _failing_query(datasets: int, each: int, since: bool, until: bool, unjudged: bool) -> Any:
    limit = sql_int(each)  # inline: under a generic plan Postgres would sort the whole range
    at_type = _AT.verdict_at.type
    parts: list[Select[Any]] = []
    for place in range(datasets):
        failing = select(*PARTITION_COLUMNS).where(
            _AT.source == bindparam(f"source_{place}"),
            _AT.query_name == bindparam(f"query_{place}"),
            TROUBLE,
        )
        in_time: ColumnElement[bool] = _AT.verdict_at.is_not(None)
        if since:
            in_time = _AT.verdict_at >= bindparam("since", type_=at_type)
        if until:
            in_time = and_(in_time, _AT.verdict_at < bindparam("until", type_=at_type))
        parts.append(failing.where(in_time).order_by(_AT.verdict_at.desc()).limit(limit))
        if unjudged:
            parts.append(failing.where(_AT.verdict_at.is_(None)).limit(limit))
    return union_all(*(select(part.subquery()) for part in parts))


def _failing_datasets_query() -> Select[Any]:
    is_failing = rollup.c.shade > sql_int(DISPLAY_STATUSES.index("pending"))
    counted = select(rollup.c.source, rollup.c.query_name).where(
        is_failing, rollup.c.n > sql_int(0)
    )
    of = counted.group_by(rollup.c.source, rollup.c.query_name).subquery()
    verdicts = select(_AT.verdict_at).where(
        _AT.source == of.c.source,
        _AT.query_name == of.c.query_name,
        TROUBLE,
        _AT.verdict_at.is_not(None),
    )
    last = verdicts.order_by(_AT.verdict_at.desc()).limit(1).scalar_subquery().label("last")
    query = select(of.c.source, of.c.query_name, last)
    order = (last.desc().nulls_last(), of.c.source, of.c.query_name)
    return query.order_by(*order).limit(sql_int(MAX_DATASETS))


_FAILING_DATASETS = _failing_datasets_query()

# ---- active days ----

MAX_WORK_ROWS = 3000
"""Rows of work that are read, the same number for each dataset and lane."""
ActiveDays: TypeAlias = dict[tuple[str, str, date], dict[LaneName, int]]


def active_by_day(
    connection: Connection, datasets: Sequence[tuple[str, str]], since: date, until: date, /
) -> ActiveDays:
    """Count queued and running partitions by day and lane, of the first rows of each dataset."""
    if not datasets:
        return {}
    parameters: dict[str, Any] = {"each": max(20, MAX_WORK_ROWS // (4 * len(datasets)))}
    on_sqlite = connection.dialect.name == "sqlite"
    if on_sqlite:
        days = {"since": since.isoformat(), "until": until.isoformat()}
        rows = connection.execute(
            _ACTIVE_ON_SQLITE, parameters | days | {"datasets": json.dumps(datasets)}
        )
    else:
        sources = [name for name, _ in datasets]
        queries = [query for _, query in datasets]
        names = {"sources": sources, "queries": queries}
        rows = connection.execute(
            _ACTIVE_ON_POSTGRES, parameters | names | {"since": since, "until": until}
        )
    active: ActiveDays = {}
    for source_name, query, day, lane, count in rows:
        key = (source_name, query, date.fromisoformat(day) if on_sqlite else day)
        lanes = active.setdefault(key, {})
        lanes[LANE_NAMES[lane]] = lanes.get(LANE_NAMES[lane], 0) + count
    return active


# As the indexes start: queued work by lane, and running work. SQLite has no LATERAL, but table
# functions that see the tables before them, and it never reorders a CROSS JOIN.
_WORK = "FROM redrive_partition_work WHERE source = d.source AND query_name = d.query AND"
_QUEUED_WORK = f"{_WORK} lane = l.lane AND lease_until IS NULL"
_RUNNING_WORK = f"{_WORK} lease_until IS NOT NULL"
_LANES = ", ".join(f"({lane})" for lane in range(len(LANE_NAMES)))
_GROUPS = "GROUP BY 1, 2, 3, 4"


def _active_on_sqlite(own_work: str, lanes: str) -> str:
    limited = f"SELECT partition_id, lane {own_work} LIMIT :each"
    pairs = f"SELECT json_group_array(json_array(partition_id, lane)) FROM ({limited})"  # noqa: S608  # our own text
    return f"""SELECT
    p.source, p.query_name, p.logical_date, json_extract(w.value, '$[1]') AS lane, count(*)
FROM (
    SELECT json_extract(value, '$[0]') AS source, json_extract(value, '$[1]') AS query
    FROM json_each(:datasets)
) AS d {lanes}
CROSS JOIN json_each(({pairs})) AS w CROSS JOIN redrive_partition AS p
WHERE p.id = json_extract(w.value, '$[0]')
AND +p.logical_date BETWEEN :since AND :until {_GROUPS}"""  # noqa: S608  # our own text


def _active_on_postgres(own_work: str, lanes: str) -> str:
    return f"""SELECT p.source, p.query_name, p.logical_date, w.lane, count(*)
FROM unnest(CAST(:sources AS text[]), CAST(:queries AS text[])) AS d (source, query) {lanes}
CROSS JOIN LATERAL (SELECT partition_id, lane {own_work} LIMIT :each) AS w
JOIN redrive_partition AS p ON p.id = w.partition_id
WHERE p.logical_date BETWEEN :since AND :until {_GROUPS}"""  # noqa: S608  # our own text


_LANES_ON_SQLITE = f"CROSS JOIN (SELECT column1 AS lane FROM (VALUES {_LANES})) AS l"  # noqa: S608  # numbers
_ACTIVE_ON_SQLITE = text(
    f"{_active_on_sqlite(_QUEUED_WORK, _LANES_ON_SQLITE)} UNION ALL "
    f"{_active_on_sqlite(_RUNNING_WORK, '')}"
)
_LANES_ON_POSTGRES = f"CROSS JOIN (VALUES {_LANES}) AS l (lane)"
_ACTIVE_ON_POSTGRES = text(
    f"{_active_on_postgres(_QUEUED_WORK, _LANES_ON_POSTGRES)} UNION ALL "
    f"{_active_on_postgres(_RUNNING_WORK, '')}"
)

# ---- customers by day ----


def customers_by_day(
    connection: Connection,
    dataset: tuple[str, str],
    days: Sequence[date],
    /,
    *,
    after: str,
    limit: int,
) -> dict[str, dict[date, DisplayStatus]]:
    """Return the first customers of a dataset after a name, with the state of each day.

    Each day is a range of the index with at most `limit` rows. The first customers of all days are
    among the first ones of each day.
    """
    names = {"source": dataset[0], "query": dataset[1], "after": after, "each": limit}
    # One row for each day: thousands of rows take longer than the query.
    if connection.dialect.name == "sqlite":
        texts = json.dumps([day.isoformat() for day in days])
        rows = connection.execute(_CUSTOMERS_ON_SQLITE, {**names, "days": texts})
    else:
        rows = connection.execute(_CUSTOMERS_ON_POSTGRES, {**names, "days": list(days)})
    cells: dict[str, dict[date, DisplayStatus]] = {}
    for text_of_day, packed in rows:
        day = date.fromisoformat(text_of_day)
        for customer, shade in from_json(packed):
            cells.setdefault(customer, {})[day] = DISPLAY_STATUSES[shade]
    # By bytes, as both databases compare them.
    first = sorted(cells, key=str.encode)[:limit]
    return {customer: cells[customer] for customer in first}


_CUSTOMERS = """SELECT customer_id, shade FROM redrive_partition
WHERE source = :source AND query_name = :query AND logical_date = d.day AND customer_id > :after
ORDER BY customer_id LIMIT :each"""
_CUSTOMERS_ON_SQLITE = text(
    f"""SELECT d.day, (SELECT json_group_array(json_array(customer_id, shade)) FROM ({_CUSTOMERS}))
FROM (SELECT value AS day FROM json_each(:days)) AS d"""  # noqa: S608  # our own text
)
_CUSTOMERS_ON_POSTGRES = text(
    f"""SELECT CAST(d.day AS text),
    (SELECT coalesce(json_agg(json_build_array(customer_id, shade)), '[]') FROM ({_CUSTOMERS}) AS p)
FROM unnest(CAST(:days AS date[])) AS d (day)"""  # noqa: S608  # our own text
)

# ---- leases ----


class LeasedPartition(NamedTuple):
    """A partition that a worker extracts or validates. Immutable."""

    worker: str
    partition: Partition
    attempt_no: int
    leased_at: datetime


def leased_partitions(connection: Connection, limit: int, /) -> list[LeasedPartition]:
    """Return leased partitions."""
    # A subquery: otherwise the planner may start with all partitions.
    leases = select(work.c.worker, work.c.partition_id, work.c.attempt_no)
    leased = leases.where(work.c.lease_until.is_not(None)).limit(limit).subquery()
    own_run = and_(
        run.c.partition_id == leased.c.partition_id, run.c.attempt_no == leased.c.attempt_no
    )
    tables = leased.join(partition, partition.c.id == leased.c.partition_id).join(run, own_run)
    query = select(
        leased.c.worker,
        _AT.source,
        _AT.customer_id,
        _AT.query_name,
        _AT.logical_date,
        leased.c.attempt_no,
        run.c.leased_at,
    ).select_from(tables)
    return [
        LeasedPartition(row[0] or "", Partition(*row[1:5]), row[5], row[6])
        for row in connection.execute(query)
    ]
