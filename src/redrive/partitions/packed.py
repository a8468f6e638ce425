"""Packed: very many partitions as numbers, three of each: id, shade, attempts. Read by the thousand, without a row for each.

On Postgres the server packs and counts them: to hand over a million rows takes a driver longer than the server needs to find
them. SQLite is in this process, and its rows cost little.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, LargeBinary, bindparam, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import ARRAY

from ..ledger.partition_tables import partition, work
from .rows import chunks

PAGE = 20_000
LARGE = 100_000
"""Partitions of a page, on SQLite and on Postgres."""
BUSY = -1
"""In the place of a shade: somebody has it."""
_at = partition.c
COLUMNS = (_at.id, _at.shade, _at.attempt_count, _at.reason)
_PLACE = select(_at.logical_date, _at.customer_id)
_leased = sa.exists(select(work.c.partition_id).where(work.c.partition_id == _at.id, work.c.lease_until.is_not(None)))

_FEW = select(*COLUMNS[:3]).where(_at.id.in_(bindparam("these", expanding=True)))


class Page(NamedTuple):
    """Some of those that were asked for."""

    numbers: array[int]
    """Of those that may be acted on."""
    reasons: Counter[str]
    left: Counter[int]
    """How many are left alone: by shade, or BUSY."""


def pages(connection: Connection, query: Any, allowed: Sequence[int], busy: set[int], /, *, by_id: bool) -> Iterator[Page]:
    """In the order of an index: neither sorted, nor in memory as a whole. query: over COLUMNS. allowed: shades to be acted on."""
    on_postgres = connection.dialect.name != "sqlite"
    read = _large if on_postgres else _small
    first = query.order_by(_at.id) if by_id else query.order_by(_at.logical_date, _at.customer_id)
    query, most = first, LARGE if on_postgres else PAGE
    while True:
        page, many, last = read(connection, query.limit(most), allowed, busy)
        if many:
            yield page
        if many < most:
            return
        place = connection.execute(_PLACE.where(_at.id == last)).one()
        there = tuple_(literal(place.logical_date, sa.Date), literal(place.customer_id, sa.Text))
        query = first.where(_at.id > last if by_id else tuple_(_at.logical_date, _at.customer_id) > there)


def _small(connection: Connection, query: Any, allowed: Sequence[int], busy: set[int]) -> tuple[Page, int, int]:
    found = connection.execute(query)
    rows = list(found.cursor.fetchall())  # as the driver has them: numbers and text, which need no second look
    found.close()
    shades = frozenset(allowed)
    left = [row for row in rows if row[0] in busy or row[1] not in shades]
    mine = [row for row in rows if row[0] not in busy and row[1] in shades] if left else rows
    numbers = array("q", [number for row in mine for number in row[:3]])
    reasons = Counter([row[3] for row in mine if row[3] is not None])
    alone = Counter([BUSY if row[0] in busy else row[1] for row in left])
    return Page(numbers, reasons, alone), len(rows), rows[-1][0] if rows else 0


def _large(connection: Connection, query: Any, allowed: Sequence[int], _busy: set[int]) -> tuple[Page, int, int]:
    some = query.add_columns(_leased.label("busy")).subquery()
    place = sa.case((some.c.busy, sa.literal_column(str(BUSY))), else_=some.c.shade).label("place")
    page = select(some, place, func.row_number().over().label("number")).cte("page")
    of = page.c
    mine = of.place.in_(list(allowed))
    numbers = select(func.string_agg(_packed(of), literal(b"", LargeBinary))).where(mine).scalar_subquery()
    reasons = select(of.reason, func.count().label("n")).where(mine, of.reason.is_not(None)).group_by(of.reason).subquery()
    left = select(of.place, func.count().label("n")).where(~mine).group_by(of.place).subquery()
    row = connection.execute(
        select(
            numbers,
            select(func.json_object_agg(reasons.c.reason, reasons.c.n)).scalar_subquery(),
            select(func.json_object_agg(left.c.place, left.c.n)).scalar_subquery(),
            select(func.count()).select_from(page).scalar_subquery(),
            select(of.id).order_by(of.number.desc()).limit(1).scalar_subquery(),
        )
    ).one()
    alone: Counter[int] = Counter({int(shade): many for shade, many in (row[2] or {}).items()})
    return Page(_unpacked(row[0]), Counter(row[1] or {}), alone), row[3], row[4] or 0


def these(connection: Connection, ids: Sequence[int], /) -> array[int]:
    """These partitions, in their order; those that are gone are left out."""
    if connection.dialect.name == "sqlite":
        there = {row[0]: row for some in chunks(ids) for row in connection.execute(_FEW, {"these": list(some)})}
        return array("q", [number for one in ids if one in there for number in there[one]])
    return _unpacked(connection.execute(_THESE, {"these": list(ids)}).scalar())


def _packed(of: Any) -> Any:
    numbers = [func.int8send(sa.cast(column, sa.BigInteger), type_=LargeBinary) for column in (of.id, of.shade, of.attempt_count)]
    return numbers[0].concat(numbers[1]).concat(numbers[2])


def _unpacked(stored: Any) -> array[int]:
    found: array[int] = array("q")
    if stored is not None:
        found.frombytes(bytes(stored))
        if sys.byteorder == "little":  # a server sends numbers the other way round
            found.byteswap()
    return found


_given = func.unnest(sa.cast(bindparam("these"), ARRAY(sa.BigInteger))).table_valued("id", with_ordinality="place")
_paired = _given.render_derived(name="given")
_there = select(*COLUMNS[:3]).select_from(_paired.join(partition, _at.id == _paired.c.id)).order_by(_paired.c.place).subquery()
_THESE = select(func.string_agg(_packed(_there.c), literal(b"", LargeBinary)))
