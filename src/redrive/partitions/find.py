"""Find: partitions by what is asked for, page by page, and all that is known of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

from sqlalchemy import Connection, Select, select, tuple_

from ..ledger.partition_tables import TROUBLE, partition, rollup, work
from .partition import Partition, days
from .record import LANES, SHADES, Facts, Selection
from .rows import ROW, Mark, Row, Work, chunks, marks, read, works

MOST = 100_000
"""Of a selection by customers: as many lookups."""


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
    query = narrowed(connection, select(*ROW), asked)
    if query is None:
        return []
    rows = connection.execute(query.where(partition.c.id > after).order_by(partition.c.id).limit(limit))
    return _facts(connection, [Row._make(row) for row in rows])


def narrowed(connection: Connection, query: Select[Any], asked: Selection, /) -> Select[Any] | None:
    """The query, for what is asked only; None: there cannot be any."""
    at = partition.c
    for column, value in ((at.source, asked.source), (at.query_name, asked.query_name), (at.reason, asked.reason)):
        if value is not None:
            query = query.where(column == value)
    if asked.ids is not None:
        query = query.where(at.id.in_(list(asked.ids)))
    if asked.min_attempts is not None:
        query = query.where(at.attempt_count >= asked.min_attempts)
    if asked.shades is not None:
        numbers = sorted({SHADES.index(one) for one in asked.shades})
        query = query.where(at.shade.in_(numbers))
        if numbers and numbers[0] > 1:
            query = query.where(TROUBLE)  # by name of the index over those that somebody may want to look at
    if asked.lane is not None:
        query = query.where(at.id.in_(select(work.c.partition_id).where(work.c.lane == LANES.index(asked.lane))))
    if asked.keys is not None:
        keys = [(key.source, key.query_name, key.logical_date, key.customer_id) for key in asked.keys]
        query = query.where(tuple_(at.source, at.query_name, at.logical_date, at.customer_id).in_(keys))
    return _dated(connection, query, asked)


def _dated(connection: Connection, query: Select[Any], asked: Selection) -> Select[Any] | None:
    at = partition.c
    if asked.customers is None:
        if asked.since is not None:
            query = query.where(at.logical_date >= asked.since)
        return query if asked.until is None else query.where(at.logical_date <= asked.until)
    # By each of the days that there are: the index has the customer after the date.
    there = select(rollup.c.logical_date).distinct()
    for column, value in ((rollup.c.source, asked.source), (rollup.c.query_name, asked.query_name)):
        there = there if value is None else there.where(column == value)
    there = there if asked.since is None else there.where(rollup.c.logical_date >= asked.since)
    there = there if asked.until is None else there.where(rollup.c.logical_date <= asked.until)
    dates = list(connection.execute(there).scalars())
    if not dates or not asked.customers:
        return None
    if asked.source is None or asked.query_name is None:
        pairs = select(rollup.c.source, rollup.c.query_name).distinct()
        datasets = [(row[0], row[1]) for row in connection.execute(pairs)]
        query = query.where(tuple_(at.source, at.query_name).in_(datasets))
    return query.where(at.logical_date.in_(dates), at.customer_id.in_(list(asked.customers)))


def _facts(connection: Connection, rows: Sequence[Row]) -> list[Facts]:
    ids = [row.id for row in rows]
    waiting, marked = works(connection, ids), marks(connection, ids)
    return [_one(row, waiting.get(row.id), marked.get(row.id, {})) for row in rows]


def _one(row: Row, mine: Work | None, marked: dict[str, Mark]) -> Facts:
    terminal, paused = marked.get("terminal"), marked.get("paused")
    found = {
        name: getattr(row, name)
        for name in Row._fields
        if name not in ("source", "query_name", "customer_id", "logical_date", "shade")
    }
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
