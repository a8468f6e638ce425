"""Find: partitions by what is asked for, page by page, and all that is known of each."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timezone
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Connection, Date, Select, Text, bindparam, cast, func, literal, select, text

from ...ledger.db.compiled import sql_int
from ...ledger.db.partition_tables import TROUBLE, partition, rollup, run, verdict, work
from ..key import Partition, days
from ..model import DAMAGED, LANES, SHADES, Facts, Run, Selection, Verdict
from .changes import Among
from .rows import ROW, Mark, Row, Work, chunks, marks, read, works

_ALIKE = [name for name in Row._fields if name not in ("source", "query_name", "customer_id", "logical_date", "shade")]
"""What a row and its facts have in common."""
_alike = itemgetter(*map(Row._fields.index, _ALIKE))
NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)


def known(connection: Connection, key: Partition, /) -> Row | None:
    """A partition's outcomes; None: nothing is stored of it."""
    query = select(*ROW).where(
        partition.c.source == key.source, partition.c.query_name == key.query_name,
        partition.c.logical_date == key.logical_date, partition.c.customer_id == key.customer_id,
    )  # fmt: skip
    row = connection.execute(query).first()
    return None if row is None else Row._make(row)


def of_days(
    connection: Connection, source: str, query_name: str, customer: str, since: date, until: date, /
) -> dict[date, Facts]:
    """One customer's days; those of which nothing is stored are left out. As many lookups as there are days."""
    found: list[Row] = []
    for some in chunks(list(days(since, until))):
        query = select(*ROW).where(
            partition.c.source == source, partition.c.query_name == query_name, partition.c.logical_date.in_(some),
            partition.c.customer_id == customer,
        )  # fmt: skip
        found += map(Row._make, connection.execute(query))
    return {one.partition.logical_date: one for one in _facts(connection, found)}


def facts(connection: Connection, ids: Collection[int], /) -> list[Facts]:
    """All that is known of these, by their ids."""
    return _facts(connection, list(read(connection, ids).values()))


def selected(connection: Connection, asked: Selection, /, *, after: int = 0, limit: int = 100) -> list[Facts]:
    """Those that are asked for, by their ids, from the one after `after` on."""
    rows: list[Row] = []
    # An id that is reckoned is no way in: ordered by the id itself, a database may read all of them to save itself the sorting.
    by: Any = partition.c.id + 0 if asked.dated else partition.c.id
    few = sql_int(limit)  # in the text: not knowing how few, Postgres would rather sort all that there are
    for _, query in by_dataset(connection, ROW, asked):
        rows += map(Row._make, connection.execute(query.where(by > after).order_by(by).limit(few)))
    return _facts(connection, sorted(rows, key=lambda row: row.id)[:limit])


def newest(connection: Connection, asked: Selection, /, *, limit: int = 100) -> list[Facts]:
    """Those that are asked for, the one that was judged last first; behind them those that never were."""
    rows: list[Row] = []
    when, by = partition.c.verdict_at, partition.c.id.desc()
    for _, query in by_dataset(connection, ROW, asked):
        if asked.dated:  # a moment that is reckoned is no way in: the dates are
            found = query.order_by(func.coalesce(when, literal(NEVER, when.type)).desc(), by)
            rows += map(Row._make, connection.execute(found.limit(sql_int(limit))))
            continue
        judged = query.where(when.is_not(None)).order_by(when.desc(), by).limit(sql_int(limit))
        some = list(map(Row._make, connection.execute(judged)))
        if len(some) < limit:
            never = query.where(when.is_(None)).order_by(by).limit(limit - len(some))
            some += map(Row._make, connection.execute(never))
        rows += some
    rows.sort(key=lambda row: (row.verdict_at or NEVER, row.id), reverse=True)
    return _facts(connection, rows[:limit])


def by_dataset(
    connection: Connection, columns: Sequence[Any], asked: Selection, /
) -> Iterator[tuple[tuple[str, str], Select[Any]]]:
    """Queries that together find what is asked for: one to a dataset, as the indexes begin."""
    query, at = select(*columns), partition.c
    if asked.reason is not None:
        query = query.where(at.reason == asked.reason)
    if asked.min_attempts is not None:
        query = query.where(at.attempt_count >= asked.min_attempts)
    if asked.shades is not None:
        query = query.where(at.shade.in_(sorted({SHADES.index(one) for one in asked.shades})))
        if asked.troubled:
            query = query.where(TROUBLE)  # as the index has it
    if asked.lane is not None:
        query = query.where(at.id.in_(select(work.c.partition_id).where(work.c.lane == LANES.index(asked.lane))))
    if asked.ids is not None:
        query = query.where(at.id.in_(list(asked.ids)))
    if asked.keys is not None:
        query = query.where(at.id.in_(_ids(connection, asked.keys)))
    for source, query_name in _datasets(connection, asked):
        here = query.where(at.source == source, at.query_name == query_name)
        if asked.customers is not None:
            # By each of the days that there are: the index has the customer after the date.
            dates = _dates(connection, source, query_name, asked)
            if not dates or not asked.customers:
                continue
            here = here.where(at.logical_date.in_(dates), at.customer_id.in_(list(asked.customers)))
        else:
            here = here if asked.since is None else here.where(at.logical_date >= asked.since)
            here = here if asked.until is None else here.where(at.logical_date <= asked.until)
        yield (source, query_name), here


def _ids(connection: Connection, keys: Sequence[Partition]) -> list[int]:
    found: list[int] = []
    for source, query_name in sorted({(key.source, key.query_name) for key in keys}):
        mine = [key for key in keys if (key.source, key.query_name) == (source, query_name)]
        found += [row.id for some in chunks(mine) for row in known_by(connection, source, query_name, some).values()]
    return found


def _datasets(connection: Connection, asked: Selection) -> list[tuple[str, str]]:
    if asked.source is not None and asked.query_name is not None:
        return [(asked.source, asked.query_name)]
    there = select(rollup.c.source, rollup.c.query_name).distinct()
    for column, value in ((rollup.c.source, asked.source), (rollup.c.query_name, asked.query_name)):
        there = there if value is None else there.where(column == value)
    return sorted((row[0], row[1]) for row in connection.execute(there))


def _dates(connection: Connection, source: str, query_name: str, asked: Selection) -> list[date]:
    at = rollup.c
    there = select(at.logical_date).distinct().where(at.source == source, at.query_name == query_name)
    there = there if asked.since is None else there.where(at.logical_date >= asked.since)
    there = there if asked.until is None else there.where(at.logical_date <= asked.until)
    return list(connection.execute(there).scalars())


def _facts(connection: Connection, rows: Sequence[Row]) -> list[Facts]:
    ids = [row.id for row in rows]
    waiting, marked = works(connection, ids), marks(connection, ids)
    return [_one(row, waiting.get(row.id), marked.get(row.id, {})) for row in rows]


def _one(row: Row, mine: Work | None, marked: dict[str, Mark]) -> Facts:
    terminal, paused = marked.get("terminal"), marked.get("paused")
    found: dict[str, Any] = dict(zip(_ALIKE, _alike(row), strict=True))
    if mine is not None:
        found |= {
            "lane": mine.in_lane, "strategy": mine.strategy, "run_id": mine.run_id, "worker": mine.worker,
            "until": mine.lease_until, "sweep_id": mine.sweep_id or None, "next_at": None if mine.leased else mine.due_at,
        }  # fmt: skip
    return Facts(
        partition=row.partition, shade=row.seen, **found,
        terminal=None if terminal is None else f"{terminal.cause}: {terminal.because}",
        paused=None if paused is None else f"{paused.actor}: {paused.because}",
    )  # fmt: skip


_here = (partition.c.source == bindparam("of_source"), partition.c.query_name == bindparam("of_query"))
# CROSS JOIN, which SQLite never turns around: it would read the whole dataset and look each row up in the list.
_ON_SQLITE: Any = text(
    # Names of our own columns: nobody else's words.
    f"""SELECT {", ".join(f"p.{column.name}" for column in ROW)}
    FROM json_each(:keys) AS k CROSS JOIN redrive_partition AS p ON p.source = :of_source AND p.query_name = :of_query
    AND p.logical_date = json_extract(k.value, '$[0]') AND p.customer_id = json_extract(k.value, '$[1]')"""  # noqa: S608
).columns(*ROW)
_arrays = (cast(bindparam("dates"), ARRAY(Date)), cast(bindparam("customers"), ARRAY(Text)))
_paired = func.unnest(*_arrays).table_valued("day", "customer").render_derived(name="paired")
_ON_POSTGRES: Any = (
    select(*ROW)
    .select_from(_paired)
    .where(*_here, partition.c.logical_date == _paired.c.day, partition.c.customer_id == _paired.c.customer)
)


def known_by(connection: Connection, source: str, query_name: str, keys: Sequence[Partition], /) -> dict[Partition, Row]:
    """Those of one dataset's partitions that have rows."""
    given: dict[str, Any] = {"of_source": source, "of_query": query_name}
    on_sqlite = connection.dialect.name == "sqlite"
    if on_sqlite:
        given["keys"] = json.dumps([[key.logical_date.isoformat(), key.customer_id] for key in keys])
    else:
        given |= {"dates": [key.logical_date for key in keys], "customers": [key.customer_id for key in keys]}
    found = connection.execute(_ON_SQLITE if on_sqlite else _ON_POSTGRES, given)
    return {row.partition: row for row in map(Row._make, found)}


_COLUMNS = (
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
_VERDICT = ("decision", "validator", "version", "checks", "record_count", "reason", "message", "manifest", "at")
_RUN = select(*(run.c[name] for name in _COLUMNS))
_THESE = Among(run.c.run_id, _RUN.where)
_JOINED = select(
    *(run.c[name] for name in _COLUMNS), *(verdict.c[name].label(f"verdict_{name}") for name in _VERDICT)
).select_from(run.outerjoin(verdict, verdict.c.run_id == run.c.run_id))

_CURRENT = select(partition.c.id, partition.c.current_raw_id, partition.c.last_verdict)
_VALIDATED = (
    select(run.c.partition_id, run.c.raw_run_id, run.c.state, verdict.c.manifest)
    .join(verdict, verdict.c.run_id == run.c.run_id)
    .order_by(run.c.partition_id, run.c.attempt_no)
)


def found(connection: Connection, run_ids: Collection[str], /) -> list[Run]:
    """These runs, without their verdicts."""
    return [_run(dict(zip(_COLUMNS, row, strict=True))) for row in _THESE.rows(connection, run_ids)]


def whole(connection: Connection, run_id: str, /) -> Run | None:
    """A run, with the verdict on it; None: there is none."""
    row = connection.execute(_JOINED.where(run.c.run_id == run_id)).mappings().first()
    return None if row is None else _run(row)


def history(connection: Connection, partition_id: int, /, *, before: int | None = None, limit: int = 100) -> list[Run]:
    """The runs of a partition, the newest first. before: an attempt_no."""
    query = _JOINED.where(run.c.partition_id == partition_id).order_by(run.c.attempt_no.desc()).limit(limit)
    if before is not None:
        query = query.where(run.c.attempt_no < before)
    return [_run(row) for row in connection.execute(query).mappings()]


def damaged(connection: Connection, partition_id: int, raw_run_id: str, /) -> Run | None:
    """The last one that judged this raw data, if its verdict was that it is not what was written."""
    query = _JOINED.where(run.c.partition_id == partition_id, run.c.raw_run_id == raw_run_id, verdict.c.run_id.is_not(None))
    row = connection.execute(query.order_by(run.c.attempt_no.desc()).limit(1)).mappings().first()
    return None if row is None or row["verdict_reason"] != DAMAGED else _run(row)


def to_validate(connection: Connection, ids: Collection[int], /) -> dict[int, str]:
    """The run whose raw data a revalidation of each partition reads; partitions without validated raw data are left out.

    That is the current run, whatever newer data an operator rolled back. Where the newest verdict is a rejection, it is the
    rejected run: its checks may have been too strict. Without either, it is the newest run whose raw data was validated.
    """
    mine = list(ids)
    at = partition.c
    current = {row[0]: row[1:] for row in connection.execute(_CURRENT.where(at.id.in_(mine)))}
    verdicts: dict[int, list[_Validated]] = {}
    for row in connection.execute(_VALIDATED.where(run.c.partition_id.in_(mine))):
        verdicts.setdefault(row[0], []).append(_Validated._make(row[1:]))
    chosen = {id_: _chosen(*standing, verdicts.get(id_, ())) for id_, standing in current.items()}
    return {id_: run_id for id_, run_id in chosen.items() if run_id is not None}


class _Validated(NamedTuple):
    """A run with a verdict, as far as the choice depends on it."""

    raw_run_id: str
    state: str
    manifest: str | None


def _chosen(current_raw_id: str | None, last_verdict: str | None, verdicts: Sequence[_Validated]) -> str | None:
    """Pure. verdicts: oldest first."""
    if current_raw_id is None:
        return next((one.raw_run_id for one in reversed(verdicts) if one.manifest is not None), None)
    newest = next((one for one in reversed(verdicts) if one.state != "late"), None)
    if last_verdict == "rejected" and newest is not None and newest.state == "rejected" and newest.manifest is not None:
        return newest.raw_run_id
    return current_raw_id


def _run(row: Any) -> Run:
    said = None
    if row.get("verdict_decision") is not None:
        said = Verdict(
            row["run_id"], row["verdict_decision"], row["verdict_validator"], row["verdict_version"],
            tuple(json.loads(row["verdict_checks"])), row["verdict_record_count"], row["verdict_reason"], row["verdict_message"],
            row["verdict_manifest"],
        )  # fmt: skip
    fields = {name: row[name] for name in _COLUMNS} | {"lane": LANES[row["lane"]], "sweep_id": row["sweep_id"] or None}
    return Run(**fields, verdict=said, verdict_at=row.get("verdict_at"))
