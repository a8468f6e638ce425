"""Find: partitions by what is asked for, page by page, and all that is known of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timezone
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Select, func, literal, select

from ..ledger.partition_tables import TROUBLE, partition, rollup, work
from ..ledger.statement import number
from .lookup import known_by
from .partition import Partition, days
from .record import LANES, SHADES, Facts, Selection
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
    few = number(limit)  # in the text: not knowing how few, Postgres would rather sort all that there are
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
            rows += map(Row._make, connection.execute(found.limit(number(limit))))
            continue
        judged = query.where(when.is_not(None)).order_by(when.desc(), by).limit(number(limit))
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
