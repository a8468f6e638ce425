"""Queries: partitions by selection, their runs, and the schedules of datasets. Reads only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timezone
from operator import itemgetter
from textwrap import shorten
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    Connection,
    Date,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    func,
    literal,
    select,
    text,
)

from ...ledger.db.compiled import sql_int
from ...ledger.db.partition_tables import (
    TROUBLE,
    dataset,
    marker,
    partition,
    range_,
    rollup,
    run,
    verdict,
    work,
)
from ...ledger.db.tables import sweep
from ..key import Partition, days_between
from ..model import (
    DAMAGED,
    DISPLAY_STATUSES,
    LANE_NAMES,
    MANUAL,
    Lane,
    PartitionFilter,
    PartitionRun,
    PartitionView,
    Verdict,
)
from .rows import (
    PARTITION_COLUMNS,
    VERDICT_FIELDS,
    Markers,
    PartitionRow,
    PartitionWork,
    read_markers,
    read_work,
)
from .statements import InListStatement, chunks

_VIEWED = [
    name
    for name in PartitionRow._fields
    if name not in ("source", "query_name", "customer_id", "logical_date", "shade")
]
"""Fields that a view takes from the row as they are."""
_viewed_values = itemgetter(*map(PartitionRow._fields.index, _VIEWED))
NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)


# ---- partitions ----


def load_row(connection: Connection, key: Partition, /) -> PartitionRow | None:
    """Return the stored row of a partition."""
    query = select(*PARTITION_COLUMNS).where(
        partition.c.source == key.source,
        partition.c.query_name == key.query_name,
        partition.c.logical_date == key.logical_date,
        partition.c.customer_id == key.customer_id,
    )
    row = connection.execute(query).first()
    return None if row is None else PartitionRow._make(row)


def load_view(connection: Connection, key: Partition, /) -> PartitionView | None:
    """Return a partition, if anything is stored of it."""
    row = load_row(connection, key)
    return None if row is None else _views(connection, [row])[0]


def load_days(
    connection: Connection,
    source: str,
    query_name: str,
    customer: str,
    since: date,
    until: date,
    /,
) -> dict[date, PartitionView]:
    """Return the stored days of one customer, with an index lookup for each day."""
    rows: list[PartitionRow] = []
    for chunk in chunks(list(days_between(since, until))):
        query = select(*PARTITION_COLUMNS).where(
            partition.c.source == source,
            partition.c.query_name == query_name,
            partition.c.logical_date.in_(chunk),
            partition.c.customer_id == customer,
        )
        rows += map(PartitionRow._make, connection.execute(query))
    return {view.partition.logical_date: view for view in _views(connection, rows)}


def find_partitions(
    connection: Connection, selection: PartitionFilter, /, *, after: int = 0, limit: int = 100
) -> list[PartitionView]:
    """Return selected partitions in the order of their ids, after this id."""
    rows: list[PartitionRow] = []
    # `id + 0` stops the planner from walking the primary key to avoid a sort; the date index is
    # better.
    order: Any = partition.c.id + 0 if selection.is_dated else partition.c.id
    # Inline the LIMIT: under a generic plan Postgres would sort the whole range.
    inline_limit = sql_int(limit)
    for _, query in queries_by_dataset(connection, PARTITION_COLUMNS, selection):
        page = query.where(order > after).order_by(order).limit(inline_limit)
        rows += map(PartitionRow._make, connection.execute(page))
    return _views(connection, sorted(rows, key=lambda row: row.id)[:limit])


def find_newest(
    connection: Connection, selection: PartitionFilter, /, *, limit: int = 100
) -> list[PartitionView]:
    """Return selected partitions, the newest verdict first, then those without a verdict."""
    rows: list[PartitionRow] = []
    verdict_at = partition.c.verdict_at
    newest_id = partition.c.id.desc()
    inline_limit = sql_int(limit)
    for _, query in queries_by_dataset(connection, PARTITION_COLUMNS, selection):
        if selection.is_dated:
            # An expression cannot use the index on verdict_at, so the planner takes the date index.
            by_expression = func.coalesce(verdict_at, literal(NEVER, verdict_at.type)).desc()
            page = query.order_by(by_expression, newest_id).limit(inline_limit)
            rows += map(PartitionRow._make, connection.execute(page))
            continue
        validated = query.where(verdict_at.is_not(None)).order_by(verdict_at.desc(), newest_id)
        page_rows = list(map(PartitionRow._make, connection.execute(validated.limit(inline_limit))))
        if len(page_rows) < limit:
            never = query.where(verdict_at.is_(None)).order_by(newest_id)
            rest = connection.execute(never.limit(limit - len(page_rows)))
            page_rows += map(PartitionRow._make, rest)
        rows += page_rows
    rows.sort(key=lambda row: (row.verdict_at or NEVER, row.id), reverse=True)
    return _views(connection, rows[:limit])


def queries_by_dataset(
    connection: Connection, columns: Sequence[Any], selection: PartitionFilter, /
) -> Iterator[tuple[tuple[str, str], Select[Any]]]:
    """Yield a query for each dataset, since the indexes start with source and query."""
    query = select(*columns)
    at = partition.c
    if selection.reason is not None:
        query = query.where(at.reason == selection.reason)
    if selection.min_attempts is not None:
        query = query.where(at.attempt_count >= selection.min_attempts)
    if selection.shades is not None:
        shades = sorted({DISPLAY_STATUSES.index(status) for status in selection.shades})
        query = query.where(at.shade.in_(shades))
        if selection.only_failing:
            query = query.where(TROUBLE)  # the condition of the partial index
    if selection.lane is not None:
        in_lane = select(work.c.partition_id).where(work.c.lane == int(Lane.of(selection.lane)))
        query = query.where(at.id.in_(in_lane))
    if selection.ids is not None:
        query = query.where(at.id.in_(list(selection.ids)))
    if selection.keys is not None:
        query = query.where(at.id.in_(_ids(connection, selection.keys)))
    for source, query_name in _datasets(connection, selection):
        own = query.where(at.source == source, at.query_name == query_name)
        if selection.customers is not None:
            # With a list of dates: in the index the customer comes after the date.
            dates = _dates(connection, source, query_name, selection)
            if not dates or not selection.customers:
                continue
            customers = list(selection.customers)
            own = own.where(at.logical_date.in_(dates), at.customer_id.in_(customers))
        else:
            own = in_range(own, at.logical_date, selection.since, selection.until)
        yield (source, query_name), own


def in_range(query: Select[Any], column: Any, since: date | None, until: date | None, /) -> Any:
    """Add the conditions of a range that may be open."""
    query = query if since is None else query.where(column >= since)
    return query if until is None else query.where(column <= until)


def of_dataset(
    query: Select[Any], table: Any, source: str | None, query_name: str | None, /
) -> Any:
    """Add the conditions for a source and a query, where they are set."""
    query = query if source is None else query.where(table.c.source == source)
    return query if query_name is None else query.where(table.c.query_name == query_name)


def _ids(connection: Connection, keys: Sequence[Partition]) -> list[int]:
    by_dataset: dict[tuple[str, str], list[Partition]] = {}
    for key in keys:
        by_dataset.setdefault((key.source, key.query_name), []).append(key)
    return [
        row.id
        for (source, query_name), own in sorted(by_dataset.items())
        for chunk in chunks(own)
        for row in load_rows_by_key(connection, source, query_name, chunk).values()
    ]


def _datasets(connection: Connection, selection: PartitionFilter) -> list[tuple[str, str]]:
    if selection.source is not None and selection.query_name is not None:
        return [(selection.source, selection.query_name)]
    stored = select(rollup.c.source, rollup.c.query_name).distinct()
    stored = of_dataset(stored, rollup, selection.source, selection.query_name)
    return sorted((row[0], row[1]) for row in connection.execute(stored))


def _dates(
    connection: Connection, source: str, query_name: str, selection: PartitionFilter
) -> list[date]:
    dates = of_dataset(select(rollup.c.logical_date).distinct(), rollup, source, query_name)
    dates = in_range(dates, rollup.c.logical_date, selection.since, selection.until)
    return list(connection.execute(dates).scalars())


def _views(connection: Connection, rows: Sequence[PartitionRow]) -> list[PartitionView]:
    ids = [row.id for row in rows]
    work_by_id, markers = read_work(connection, ids), read_markers(connection, ids)
    return [_view(row, work_by_id.get(row.id), markers.get(row.id, {})) for row in rows]


def _view(row: PartitionRow, own_work: PartitionWork | None, markers: Markers) -> PartitionView:
    terminal, paused = markers.get("terminal"), markers.get("paused")
    fields: dict[str, Any] = dict(zip(_VIEWED, _viewed_values(row), strict=True))
    if own_work is not None:
        fields |= {
            "lane": LANE_NAMES[own_work.lane],
            "strategy": own_work.strategy,
            "run_id": own_work.run_id,
            "worker": own_work.worker,
            "until": own_work.lease_until,
            "sweep_id": own_work.sweep_id or None,
            "next_at": None if own_work.is_leased else own_work.due_at,
        }
    return PartitionView(
        partition=row.partition,
        shade=row.display_status,
        **fields,
        terminal=None if terminal is None else f"{terminal.cause}: {terminal.because}",
        paused=None if paused is None else f"{paused.actor}: {paused.because}",
    )


# SQLite never reorders a CROSS JOIN. With a plain one it would read the whole dataset and look up
# each row in the list.
_BY_KEY_ON_SQLITE: Any = text(
    f"""SELECT {", ".join(f"p.{column.name}" for column in PARTITION_COLUMNS)}
    FROM json_each(:keys) AS k CROSS JOIN redrive_partition AS p
    ON p.source = :of_source AND p.query_name = :of_query
    AND p.logical_date = json_extract(k.value, '$[0]')
    AND p.customer_id = json_extract(k.value, '$[1]')"""  # noqa: S608  # names of our columns
).columns(*PARTITION_COLUMNS)
_key_arrays = (cast(bindparam("dates"), ARRAY(Date)), cast(bindparam("customers"), ARRAY(Text)))
_keys = func.unnest(*_key_arrays).table_valued("day", "customer").render_derived(name="paired")
_BY_KEY_ON_POSTGRES: Any = (
    select(*PARTITION_COLUMNS)
    .select_from(_keys)
    .where(
        partition.c.source == bindparam("of_source"),
        partition.c.query_name == bindparam("of_query"),
        partition.c.logical_date == _keys.c.day,
        partition.c.customer_id == _keys.c.customer,
    )
)


def load_rows_by_key(
    connection: Connection, source: str, query_name: str, keys: Sequence[Partition], /
) -> dict[Partition, PartitionRow]:
    """Return the stored rows among these partitions of one dataset."""
    parameters: dict[str, Any] = {"of_source": source, "of_query": query_name}
    if connection.dialect.name == "sqlite":
        pairs = [[key.logical_date.isoformat(), key.customer_id] for key in keys]
        result = connection.execute(_BY_KEY_ON_SQLITE, {**parameters, "keys": json.dumps(pairs)})
    else:
        dates = [key.logical_date for key in keys]
        customers = [key.customer_id for key in keys]
        arrays = {"dates": dates, "customers": customers}
        result = connection.execute(_BY_KEY_ON_POSTGRES, parameters | arrays)
    return {row.partition: row for row in map(PartitionRow._make, result)}


# ---- runs ----

_RUN_COLUMNS = (
    "partition_id",
    "attempt_no",
    "run_id",
    "raw_run_id",
    "kind",
    "state",
    "lane",
    "worker",
    "sweep_id",
    "leased_at",
    "ended_at",
    "note",
)
_RUNS = select(*(run.c[name] for name in _RUN_COLUMNS))
_RUNS_BY_ID = InListStatement(run.c.run_id, _RUNS.where)
_RUNS_WITH_VERDICT = _RUNS.add_columns(
    *(verdict.c[name].label(f"verdict_{name}") for name in VERDICT_FIELDS)
).select_from(run.outerjoin(verdict, verdict.c.run_id == run.c.run_id))
_CURRENT_RUNS = select(partition.c.id, partition.c.current_raw_id, partition.c.last_verdict)
_VALIDATED_RUNS = (
    select(run.c.partition_id, run.c.raw_run_id, run.c.state, verdict.c.manifest)
    .join(verdict, verdict.c.run_id == run.c.run_id)
    .order_by(run.c.partition_id, run.c.attempt_no)
)


def load_runs(connection: Connection, run_ids: Collection[str], /) -> list[PartitionRun]:
    """Return runs without their verdicts."""
    rows = _RUNS_BY_ID.rows(connection, run_ids)
    return [_run(dict(zip(_RUN_COLUMNS, row, strict=True))) for row in rows]


def load_run(connection: Connection, run_id: str, /) -> PartitionRun | None:
    """Return a run with its verdict."""
    row = connection.execute(_RUNS_WITH_VERDICT.where(run.c.run_id == run_id)).mappings().first()
    return None if row is None else _run(row)


def load_history(
    connection: Connection, partition_id: int, /, *, before: int | None = None, limit: int = 100
) -> list[PartitionRun]:
    """Return the runs of a partition, the newest first, before this attempt number."""
    query = _RUNS_WITH_VERDICT.where(run.c.partition_id == partition_id)
    if before is not None:
        query = query.where(run.c.attempt_no < before)
    query = query.order_by(run.c.attempt_no.desc()).limit(limit)
    return [_run(row) for row in connection.execute(query).mappings()]


def find_damage(
    connection: Connection, partition_id: int, raw_run_id: str, /
) -> PartitionRun | None:
    """Return the last run that validated this raw data, if it found the data damaged."""
    query = _RUNS_WITH_VERDICT.where(
        run.c.partition_id == partition_id,
        run.c.raw_run_id == raw_run_id,
        verdict.c.run_id.is_not(None),
    )
    row = connection.execute(query.order_by(run.c.attempt_no.desc()).limit(1)).mappings().first()
    return None if row is None or row["verdict_reason"] != DAMAGED else _run(row)


def runs_to_revalidate(connection: Connection, ids: Collection[int], /) -> dict[int, str]:
    """Return the run whose raw data a revalidation reads, by partition.

    That is the current run, whatever newer data an operator rolled back. If the newest verdict is a
    rejection, it is the rejected run: its checks may have been too strict. Without either, it is
    the newest run whose raw data was validated. Partitions without validated raw data are omitted.
    """
    id_list = list(ids)
    current = connection.execute(_CURRENT_RUNS.where(partition.c.id.in_(id_list)))
    standings = {row[0]: row[1:] for row in current}
    runs: dict[int, list[_ValidatedRun]] = {}
    for row in connection.execute(_VALIDATED_RUNS.where(run.c.partition_id.in_(id_list))):
        runs.setdefault(row[0], []).append(_ValidatedRun._make(row[1:]))
    chosen = {
        partition_id: _choose_run(*standing, runs.get(partition_id, ()))
        for partition_id, standing in standings.items()
    }
    return {partition_id: run_id for partition_id, run_id in chosen.items() if run_id is not None}


class _ValidatedRun(NamedTuple):
    """A run with a verdict, as far as the choice depends on it."""

    raw_run_id: str
    state: str
    manifest: str | None


def _choose_run(
    current_raw_id: str | None, last_verdict: str | None, runs: Sequence[_ValidatedRun]
) -> str | None:
    """Choose among runs, the oldest first."""
    if current_raw_id is None:
        with_raw = (each.raw_run_id for each in reversed(runs) if each.manifest is not None)
        return next(with_raw, None)
    newest = next((each for each in reversed(runs) if each.state != "late"), None)
    if (
        last_verdict == "rejected"
        and newest is not None
        and newest.state == "rejected"
        and newest.manifest is not None
    ):
        return newest.raw_run_id
    return current_raw_id


def _run(row: Any) -> PartitionRun:
    own_verdict = None
    if row.get("verdict_decision") is not None:
        values = {name: row[f"verdict_{name}"] for name in VERDICT_FIELDS if name != "at"}
        values["checks"] = tuple(json.loads(values["checks"]))
        own_verdict = Verdict(run_id=row["run_id"], **values)
    fields: dict[str, Any] = {name: row[name] for name in _RUN_COLUMNS}
    fields |= {"lane": LANE_NAMES[row["lane"]], "sweep_id": row["sweep_id"] or None}
    return PartitionRun(**fields, verdict=own_verdict, verdict_at=row.get("verdict_at"))


# ---- schedules ----

MAX_SCHEDULE_RUNS = 1000
"""Newest runs of all schedules among which the last run of each dataset is looked up."""


class LastRun(NamedTuple):
    """The last run of a dataset's schedule: the partitions of one day."""

    sweep_id: int
    state: str
    day: date
    total: int
    failed: int
    ended_at: datetime | None


class StoredSchedule(NamedTuple):
    """The schedule of a dataset, as a worker stored it."""

    cron: str
    fired_at: datetime | None
    """The last handled time of the schedule, or when a worker first saw the dataset."""
    last: LastRun | None


_SCHEDULES = select(
    dataset.c.source,
    dataset.c.query_name,
    dataset.c.cron,
    dataset.c.fired_at,
).where(dataset.c.cron.is_not(None))
_SCHEDULE_RUNS = (
    select(
        range_.c.datasets,
        sweep.c.id,
        sweep.c.state,
        range_.c.since,
        sweep.c.total,
        range_.c.failed,
        sweep.c.ended_at,
    )
    .join(range_, range_.c.sweep_id == sweep.c.id)
    .where(sweep.c.act == "fresh")
    .order_by(sweep.c.id.desc())
    .limit(MAX_SCHEDULE_RUNS)
)


def load_schedules(connection: Connection, /) -> dict[tuple[str, str], StoredSchedule]:
    """Return the stored schedules by source and query."""
    stored = connection.execute(_SCHEDULES).all()
    runs: dict[tuple[str, str], LastRun] = {}
    if not stored:
        return {}
    for row in connection.execute(_SCHEDULE_RUNS):
        for source, query in json.loads(row[0]):
            runs.setdefault((source, query), LastRun._make(row[1:]))
    return {
        (row[0], row[1]): StoredSchedule(row[2], row[3], runs.get((row[0], row[1])))
        for row in stored
    }


# --- Partitions that an operator marked as given up

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
