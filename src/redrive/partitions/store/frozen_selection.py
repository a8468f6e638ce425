"""FrozenSelection: the partitions that an act would change, frozen in a plan.

Very many partitions are kept as packed numbers, three for each: id, display status, and attempts
with the number of the current run. The database packs and counts them: to return a million rows
takes a driver longer than the database needs to find them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import ARRAY, Connection, LargeBinary, bindparam, func, literal, select

from ...ledger.db.compiled import int_array, is_one_of, sql_int
from ...ledger.db.partition_tables import partition, rollup, work
from ..model import DISPLAY_STATUSES, PartitionFilter
from .queries import (
    IS_MARKED,
    count_marked,
    in_range,
    leaves_out_marked,
    of_dataset,
    queries_by_dataset,
    runs_to_revalidate,
)
from .rows import read_partitions
from .statements import InListStatement, chunks

PAGE_ROWS = 20_000
"""Partitions of a page by id on SQLite."""
MIN_PAGE_ROWS = 100_000
"""Partitions of a page of whole days: as many days as have this many."""
RUNNING = -1
"""In place of a display status: a worker has the partition."""
MAX_COUNTED = 1000
"""Plans of more partitions do not count those without raw data."""
MAX_NAMED = 100
"""Partitions of a revalidation whose run the plan names."""
STATUS_NAMES = {
    "success": "accepted",
    "refresh_failed": "newer run rejected",
    "terminal": "gave up",
}
"""Display statuses whose name in a message differs from the stored one."""
Verb: TypeAlias = Literal["retry", "reprocess", "revalidate"]


@dataclass(frozen=True, slots=True)
class FrozenSelection:
    """The partitions that an act would change. Immutable: threads may share it."""

    act: Verb
    ids: Sequence[int] = field(repr=False)
    digest: str
    """Of the ids and their states: equal as long as nothing changed."""
    datasets: Sequence[tuple[str, str]]
    reasons: Mapping[str, int]
    """Number of partitions by the reason of their rejection."""
    shades: Mapping[str, int]
    skipped: Mapping[str, int]
    """Number of selected partitions that are skipped, by reason."""
    readable: int
    """Number of partitions with an accepted run, which stays current."""
    without_raw: int
    """Number of partitions without validated raw data. Above MAX_COUNTED it is 0: not counted."""
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Number of partitions by dataset."""
    validates: Mapping[str, str] = field(default_factory=dict)
    """Of a revalidation: the validated run by partition. The first MAX_NAMED."""

    @property
    def count(self) -> int:
        """Number of partitions that would change."""
        return len(self.ids)


def freeze_selection(
    connection: Connection,
    act: Verb,
    selection: PartitionFilter,
    /,
    *,
    clear_terminal: bool = False,
    include_marked: bool = False,
) -> FrozenSelection:
    """Return the partitions that an act would change, and which selected ones it would skip.

    Args:
        connection: The connection.
        act: What is done to them.
        selection: Which partitions.
        clear_terminal: Include partitions that gave up.
        include_marked: Include those that an operator marked as given up, too. Partitions that are
            named one by one are always included.
    """
    ids: array[int] = array("q")
    counts: dict[tuple[str, str], int] = {}
    reasons: Counter[str] = Counter()
    shades: Counter[int] = Counter()
    skipped: Counter[str] = Counter()
    digest = hashlib.sha256()
    running = _running_ids(connection)
    skip_reasons = {
        shade: skip_reason(act, status, clear_terminal=clear_terminal)
        for shade, status in enumerate(DISPLAY_STATUSES)
    }
    allowed = [shade for shade, reason in skip_reasons.items() if reason is None]
    leaves_out = clear_terminal and leaves_out_marked(selection, include_marked=include_marked)
    if leaves_out:
        skipped.update(count_marked(connection, selection))
    for dataset, query in queries_by_dataset(connection, COLUMNS, selection):
        before = len(ids)
        if leaves_out:
            query = query.where(~IS_MARKED)
        for page in _pages(connection, dataset, query, allowed, running, selection):
            ids.extend(page.numbers[0::3])
            digest.update(page.numbers.tobytes())
            shades.update(page.numbers[1::3])
            reasons.update(page.reasons)
            for shade, count in page.skipped.items():
                skipped["running now" if shade == RUNNING else skip_reasons[shade] or ""] += count
        if len(ids) > before:
            counts[dataset] = len(ids) - before
    is_counted = len(ids) <= MAX_COUNTED
    with_raw = runs_to_revalidate(connection, ids) if is_counted else {}
    validates: dict[str, str] = {}
    if act == "revalidate":
        runs = with_raw or runs_to_revalidate(connection, ids[:MAX_NAMED])
        named = [partition_id for partition_id in ids if partition_id in runs][:MAX_NAMED]
        rows = read_partitions(connection, named)
        validates = {str(row.partition): runs[row.id] for row in rows.values()}
    by_name: dict[str, int] = {DISPLAY_STATUSES[shade]: n for shade, n in sorted(shades.items())}
    return FrozenSelection(
        act,
        ids,
        digest.hexdigest(),
        sorted(counts),
        reasons,
        by_name,
        skipped,
        readable=by_name.get("success", 0) + by_name.get("refresh_failed", 0),
        without_raw=len(ids) - len(with_raw) if is_counted else 0,
        counts=counts,
        validates=validates,
    )


def skip_reason(act: str, status: str, /, *, clear_terminal: bool) -> str | None:
    """Return why an act skips partitions of a display status. None: it does not."""
    if status == "terminal" and not clear_terminal and act != "revalidate":
        return "terminal"
    if act == "retry" and status == "success":
        return "accepted already"
    if act == "reprocess" and status not in ("success", "refresh_failed"):
        return "never accepted"
    return None


def find_drift(connection: Connection, planned: FrozenSelection, /) -> dict[str, int]:
    """Return how many partitions have changed since the plan, by kind of change."""
    digest = hashlib.sha256()
    now: Counter[str] = Counter()
    drift: Counter[str] = Counter()
    running = _running_ids(connection)
    for chunk in chunks(planned.ids, PAGE_ROWS):
        numbers = read_numbers(connection, chunk)
        digest.update(numbers.tobytes())
        now.update(DISPLAY_STATUSES[shade] for shade in numbers[1::3])
        drift["running now"] += len(running.intersection(numbers[0::3]))
    drift = +drift  # Drops zero counts.
    if digest.hexdigest() != planned.digest:
        before = Counter(planned.shades)
        for status in DISPLAY_STATUSES:
            if now[status] > before[status]:
                name = STATUS_NAMES.get(status, status)
                drift[f"{name} meanwhile"] = now[status] - before[status]
        if now.total() < len(planned.ids):
            drift["gone"] = len(planned.ids) - now.total()
        if not drift:
            drift["changed meanwhile"] = 1
    return dict(drift)


def _running_ids(connection: Connection) -> set[int]:
    leased = select(work.c.partition_id).where(work.c.lease_until.is_not(None))
    return set(connection.execute(leased).scalars())


# ---- packed numbers ----

_at = partition.c
# With the number of the current run: a rollback changes it, but not the attempts.
_STANDING = (sa.cast(_at.current_attempt_no, sa.BigInteger) * 2**32 + _at.attempt_count).label(
    "standing"
)
COLUMNS = (_at.id, _at.shade, _STANDING, _at.reason)
_NUMBERS_BY_ID = InListStatement(_at.id, select(*COLUMNS[:3]).where)


class _Page(NamedTuple):
    """Some of the selected partitions."""

    numbers: array[int]
    """Of partitions that the act may change."""
    reasons: Counter[str]
    skipped: Counter[int]
    """Number of skipped partitions by display status, or RUNNING."""
    last_id: int | None
    """Highest id. None: no partition was selected."""


def _pages(
    connection: Connection,
    dataset: tuple[str, str],
    query: Any,
    allowed: Sequence[int],
    running: set[int],
    selection: PartitionFilter,
) -> Iterator[_Page]:
    """Yield the selected partitions of one dataset, in the order of an index.

    Args:
        dataset: Source and query.
        query: Selects COLUMNS.
        allowed: Display statuses that the act may change.
        running: Ids of leased partitions.
        selection: The selection behind the query.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    busy = is_one_of(_at.id, running)
    # Not `~busy`: SQLAlchemy renders a shared, empty list the same way for IN and NOT IN.
    kept = sa.and_(
        ~is_one_of(_at.id, running), _at.shade.in_([sql_int(shade) for shade in allowed])
    )
    query = query.add_columns(busy.label("busy"), kept.label("kept"))
    picked = any(part is not None for part in (selection.ids, selection.keys))
    order = (_at.logical_date, _at.customer_id)
    if is_sqlite and selection.only_failing:
        rows = query.order_by(_at.id).limit(PAGE_ROWS)
        page = _read_page(connection, rows, allowed)
        while page.last_id is not None:
            yield page
            page = _read_page(connection, rows.where(_at.id > page.last_id), allowed)
    elif selection.only_failing or (not is_sqlite and (picked or selection.customers is not None)):
        yield _read_page(connection, query.order_by(_at.id), allowed)
    elif picked:
        yield _read_page(connection, query.order_by(*order), allowed)
    else:
        for first, last in _day_ranges(connection, dataset, selection):
            days = in_range(query, _at.logical_date, first, last)
            yield _read_page(connection, days.order_by(*order), allowed)


def _read_page(connection: Connection, query: Any, allowed: Sequence[int]) -> _Page:
    """Let the database pack and count in one pass, without a row for each partition."""
    is_sqlite = connection.dialect.name == "sqlite"
    of = query.subquery().c
    count = func.count()
    others = [shade for shade in range(len(DISPLAY_STATUSES)) if shade not in allowed]
    # On SQLite the numbers are text: a function in Python would be called for each row.
    numbers = [func.group_concat(column) for column in (of.id, of.shade, of.standing)]
    packed = numbers if is_sqlite else [func.string_agg(_pack(of), literal(b"", LargeBinary))]
    collect = func.json_group_array if is_sqlite else func.array_agg
    last_id, reasons, busy, *rest = connection.execute(
        select(
            func.max(of.id),
            collect(of.reason).filter(of.kept, of.reason.is_not(None)),
            count.filter(of.busy),
            *(count.filter(~of.busy, of.shade == sql_int(shade)) for shade in others),
            *(column.filter(of.kept) for column in packed),
        )
    ).one()
    columns = rest[len(others) :]
    skipped = dict(zip(others, rest, strict=False))
    return _Page(
        _interleave([json.loads(f"[{text or ''}]") for text in columns])
        if is_sqlite
        else _unpack(columns[0]),
        Counter(json.loads(reasons) if is_sqlite else reasons or ()),
        +Counter(skipped | {RUNNING: busy}),
        last_id,
    )


def _interleave(columns: Sequence[Sequence[int]]) -> array[int]:
    """Return the first number of each column, then the second ones, and so on."""
    numbers = array("q", bytes(8 * len(columns) * len(columns[0])))
    for place, column in enumerate(columns):
        numbers[place :: len(columns)] = array("q", column)
    return numbers


def _day_ranges(
    connection: Connection, dataset: tuple[str, str], selection: PartitionFilter
) -> Iterator[tuple[date, date]]:
    """Yield ranges of days with enough partitions for a page, by the rollup, which is small."""
    at = rollup.c
    counts = of_dataset(select(at.logical_date, func.sum(at.n)), rollup, *dataset)
    counts = in_range(counts, at.logical_date, selection.since, selection.until)
    first: date | None = None
    last, total = date.min, 0
    for day, count in connection.execute(
        counts.group_by(at.logical_date).order_by(at.logical_date)
    ):
        first = day if first is None else first
        last, total = day, total + count
        if total >= MIN_PAGE_ROWS:
            yield first, last
            first, total = None, 0
    if first is not None:
        yield first, last


def read_numbers(connection: Connection, ids: Sequence[int], /) -> array[int]:
    """Return the numbers of partitions in the order of the ids. Deleted ones are omitted."""
    if connection.dialect.name != "sqlite":
        return _unpack(connection.execute(_NUMBERS_ON_POSTGRES, {"ids": int_array(ids)}).scalar())
    rows = {row[0]: row for row in _NUMBERS_BY_ID.rows(connection, ids)}
    present = (rows[partition_id] for partition_id in ids if partition_id in rows)
    return array("q", [number for row in present for number in row])


def _pack(of: Any) -> Any:
    numbers = [
        func.int8send(sa.cast(column, sa.BigInteger), type_=LargeBinary)
        for column in (of.id, of.shade, of.standing)
    ]
    return numbers[0].concat(numbers[1]).concat(numbers[2])


def _unpack(stored: Any) -> array[int]:
    numbers: array[int] = array("q")
    if stored is not None:
        numbers.frombytes(bytes(stored))
        if sys.byteorder == "little":  # the server sends big-endian numbers
            numbers.byteswap()
    return numbers


_ids = func.unnest(sa.cast(bindparam("ids", type_=sa.Text), ARRAY(sa.BigInteger)))
_id_table = _ids.table_valued("id", with_ordinality="place").render_derived(name="given")
_numbers = (
    select(*COLUMNS[:3])
    .select_from(_id_table.join(partition, _at.id == _id_table.c.id))
    .order_by(_id_table.c.place)
    .subquery()
)
_NUMBERS_ON_POSTGRES = select(func.string_agg(_pack(_numbers.c), literal(b"", LargeBinary)))
