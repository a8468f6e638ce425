"""Packed: very many partitions as numbers, three of each: id, shade, attempts with the current run's number. Read by the
thousand, without a row for each.

On Postgres the server packs and counts them: to hand over a million rows takes a driver longer than the server needs to find
them. SQLite is in this process, and its rows cost little.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import ARRAY, Connection, LargeBinary, bindparam, func, literal, select, tuple_

from ...ledger.db.partition_tables import partition, rollup, work
from ...ledger.store.postgres.arrays import int_array
from ..model import SHADES, Selection
from .changes import Among
from .queries import by_dataset, to_validate
from .rows import chunks, read

PAGE = 20_000
"""Partitions of a page on SQLite."""
LARGE = 100_000
"""On Postgres, more or less: as many days as have so many."""
BUSY = -1
"""In the place of a shade: somebody has it."""
_at = partition.c
# The current run's number too: after a rollback the attempts are the same, and the plan is not.
_STANDING = (sa.cast(_at.current_attempt_no, sa.BigInteger) * 2**32 + _at.attempt_count).label("standing")
COLUMNS = (_at.id, _at.shade, _STANDING, _at.reason)
_PLACE = select(_at.logical_date, _at.customer_id)
_FEW = Among(_at.id, select(*COLUMNS[:3]).where)
_leased = sa.exists(select(work.c.partition_id).where(work.c.partition_id == _at.id, work.c.lease_until.is_not(None)))


class Page(NamedTuple):
    """Some of those that were asked for."""

    numbers: array[int]
    """Of those that may be acted on."""
    reasons: Counter[str]
    left: Counter[int]
    """How many are left alone: by shade, or BUSY."""


def pages(
    connection: Connection, dataset: tuple[str, str], query: Any, allowed: Sequence[int], busy: set[int], asked: Selection, /
) -> Iterator[Page]:
    """All of one dataset that is asked for, in the order of an index. query: over COLUMNS. allowed: shades to be acted on."""
    if connection.dialect.name == "sqlite":
        yield from _small(connection, query, allowed, busy, asked.troubled)
    elif asked.troubled or any(each is not None for each in (asked.ids, asked.keys, asked.customers)):
        yield _large(connection, query.order_by(_at.id), allowed)
    else:
        for first, last in _days(connection, dataset, asked):
            days = query.where(_at.logical_date >= first, _at.logical_date <= last)
            yield _large(connection, days.order_by(_at.logical_date, _at.customer_id), allowed)


def _small(connection: Connection, query: Any, allowed: Sequence[int], busy: set[int], by_id: bool) -> Iterator[Page]:
    """Neither sorted, nor in memory as a whole."""
    shades = frozenset(allowed)
    first = (query.order_by(_at.id) if by_id else query.order_by(_at.logical_date, _at.customer_id)).limit(PAGE)
    query = first
    while rows := _plain(connection, query):
        left = [row for row in rows if row[0] in busy or row[1] not in shades]
        mine = [row for row in rows if row[0] not in busy and row[1] in shades] if left else rows
        numbers = array("q", [number for row in mine for number in row[:3]])
        reasons = Counter([row[3] for row in mine if row[3] is not None])
        yield Page(numbers, reasons, Counter([BUSY if row[0] in busy else row[1] for row in left]))
        if len(rows) < PAGE:
            return
        place = connection.execute(_PLACE.where(_at.id == rows[-1][0])).one()
        there = tuple_(literal(place.logical_date, sa.Date), literal(place.customer_id, sa.Text))
        query = first.where(_at.id > rows[-1][0] if by_id else tuple_(_at.logical_date, _at.customer_id) > there)


def _plain(connection: Connection, query: Any) -> list[Any]:
    """As the driver has them: numbers and text, which need no second look, a million times over."""
    found = connection.execute(query)
    rows = list(found.cursor.fetchall())
    found.close()
    return rows


def _large(connection: Connection, query: Any, allowed: Sequence[int]) -> Page:
    """In one pass: neither a row, nor a table in between."""
    of = query.add_columns(_leased.label("busy")).subquery().c
    mine = sa.and_(~of.busy, of.shade.in_(list(allowed)))
    count = func.count()
    row = connection.execute(
        select(
            func.string_agg(_packed(of), literal(b"", LargeBinary)).filter(mine),
            func.array_agg(of.reason).filter(mine, of.reason.is_not(None)),
            count.filter(of.busy),
            *(count.filter(~of.busy, of.shade == sa.literal_column(str(place))) for place in range(len(SHADES))),
        )
    ).one()
    left = {BUSY: row[2]} | {place: many for place, many in enumerate(row[3:]) if place not in allowed}
    return Page(_unpacked(row[0]), Counter(row[1] or ()), +Counter(left))


def _days(connection: Connection, dataset: tuple[str, str], asked: Selection) -> Iterator[tuple[date, date]]:
    """Days that follow each other, as many as have enough partitions: from the rollup, which is small."""
    at = rollup.c
    counted = select(at.logical_date, func.sum(at.n)).where(at.source == dataset[0], at.query_name == dataset[1])
    counted = counted if asked.since is None else counted.where(at.logical_date >= asked.since)
    counted = counted if asked.until is None else counted.where(at.logical_date <= asked.until)
    first: date | None = None
    last, together = date.min, 0
    for day, many in connection.execute(counted.group_by(at.logical_date).order_by(at.logical_date)):
        first = day if first is None else first
        last, together = day, together + many
        if together >= LARGE:
            yield first, last
            first, together = None, 0
    if first is not None:
        yield first, last


def these(connection: Connection, ids: Sequence[int], /) -> array[int]:
    """These partitions, in their order; those that are gone are left out."""
    if connection.dialect.name == "sqlite":
        there = {row[0]: row for row in _FEW.rows(connection, ids)}
        return array("q", [number for one in ids if one in there for number in there[one]])
    return _unpacked(connection.execute(_THESE, {"these": int_array(ids)}).scalar())


def _packed(of: Any) -> Any:
    numbers = [func.int8send(sa.cast(column, sa.BigInteger), type_=LargeBinary) for column in (of.id, of.shade, of.standing)]
    return numbers[0].concat(numbers[1]).concat(numbers[2])


def _unpacked(stored: Any) -> array[int]:
    found: array[int] = array("q")
    if stored is not None:
        found.frombytes(bytes(stored))
        if sys.byteorder == "little":  # a server sends numbers the other way round
            found.byteswap()
    return found


_given = func.unnest(sa.cast(bindparam("these", type_=sa.Text), ARRAY(sa.BigInteger))).table_valued("id", with_ordinality="place")
_paired = _given.render_derived(name="given")
_there = select(*COLUMNS[:3]).select_from(_paired.join(partition, _at.id == _paired.c.id)).order_by(_paired.c.place).subquery()
_THESE = select(func.string_agg(_packed(_there.c), literal(b"", LargeBinary)))

COUNTED = 1000
"""Plans of more do not say how many have no raw data."""
LISTED = 100
"""Partitions of a revalidation whose run the plan names."""
Verb: TypeAlias = Literal["retry", "reprocess", "revalidate"]


@dataclass(frozen=True, slots=True)
class Picked:
    """What would be acted on. Immutable: anything may share it."""

    act: Verb
    ids: Sequence[int] = field(repr=False)
    digest: str
    """Of the ids and how each stands: equal as long as nothing moved."""
    datasets: Sequence[tuple[str, str]]
    reasons: Mapping[str, int]
    """How many failed for what."""
    shades: Mapping[str, int]
    skipped: Mapping[str, int]
    """How many of those that were selected are left alone, and why."""
    readable: int
    """How many have an accepted run, which stays in force."""
    without_raw: int
    """How many have no raw data that was ever judged. Counted up to a thousand picks; beyond, 0 means not counted."""
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many of each dataset."""
    validates: Mapping[str, str] = field(default_factory=dict)
    """Of a revalidation: the run whose raw data is validated, by partition. The first 100."""

    @property
    def count(self) -> int:
        """How many would be acted on."""
        return len(self.ids)


def pick(connection: Connection, act: Verb, asked: Selection, /, *, clear_terminal: bool = False) -> Picked:
    """The partitions that this act would be for, and which of those selected it would leave alone."""
    ids: array[int] = array("q")
    datasets: dict[tuple[str, str], int] = {}
    reasons: Counter[str] = Counter()
    shades: Counter[int] = Counter()
    skipped: Counter[str] = Counter()
    said = hashlib.sha256()
    busy = _busy(connection)
    why = {place: left_alone(act, shade, clear_terminal) for place, shade in enumerate(SHADES)}
    allowed = [place for place, reason in why.items() if reason is None]
    for dataset, query in by_dataset(connection, COLUMNS, asked):
        before = len(ids)
        for page in pages(connection, dataset, query, allowed, busy, asked):
            ids.extend(page.numbers[0::3])
            said.update(page.numbers.tobytes())
            shades.update(page.numbers[1::3])
            reasons.update(page.reasons)
            for place, many in page.left.items():
                skipped["running now" if place == BUSY else why[place] or ""] += many
        if len(ids) > before:
            datasets[dataset] = len(ids) - before
    with_raw = to_validate(connection, ids) if len(ids) <= COUNTED else {}
    raw = len(ids) - len(with_raw) if len(ids) <= COUNTED else 0
    by_name: dict[str, int] = {SHADES[number]: many for number, many in sorted(shades.items())}
    readable = by_name.get("success", 0) + by_name.get("refresh_failed", 0)
    return Picked(
        act, ids, said.hexdigest(), sorted(datasets), reasons, by_name, skipped, readable, raw, datasets,
        _named(connection, with_raw or to_validate(connection, ids[:LISTED]), ids) if act == "revalidate" else {},
    )  # fmt: skip


def _busy(connection: Connection) -> set[int]:
    return set(connection.execute(select(work.c.partition_id).where(work.c.lease_until.is_not(None))).scalars())


def left_alone(act: str, shade: str, clear_terminal: bool, /) -> str | None:
    """Why this act is not for a partition of this shade; None: it is. Pure."""
    if shade == "terminal" and not clear_terminal and act != "revalidate":
        return "terminal"
    if act == "retry" and shade == "success":
        return "accepted already"
    if act == "reprocess" and shade not in ("success", "refresh_failed"):
        return "never accepted"
    return None


def drifted(connection: Connection, picked: Picked, /) -> dict[str, int]:
    """How many of them are not as they were planned, in a word each; empty: nothing moved."""
    said = hashlib.sha256()
    now: Counter[str] = Counter()
    busy, moved = _busy(connection), Counter[str]()
    for some in chunks(picked.ids, PAGE):
        numbers = these(connection, some)
        said.update(numbers.tobytes())
        now.update(SHADES[place] for place in numbers[1::3])
        moved["running now"] += len(busy.intersection(numbers[0::3]))
    moved = +moved
    if said.hexdigest() != picked.digest:
        before = Counter(picked.shades)
        for shade in SHADES:
            if now[shade] > before[shade]:
                moved[f"{shade} meanwhile"] = now[shade] - before[shade]
        if now.total() < len(picked.ids):
            moved["gone"] = len(picked.ids) - now.total()
        if not moved:
            moved["changed meanwhile"] = 1
    return dict(moved)


def _named(connection: Connection, runs: Mapping[int, str], ids: Sequence[int]) -> dict[str, str]:
    rows = read(connection, [id_ for id_ in ids if id_ in runs][:LISTED])
    return {str(row.partition): runs[id_] for id_, row in rows.items()}
