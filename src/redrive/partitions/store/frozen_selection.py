"""FrozenSelection: the partitions that an act would change, frozen in a plan.

A plan may have millions of partitions. The database packs and counts them page by page: to return a
row for each takes a driver longer than the database needs to find them. Their ids are compressed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import sqlalchemy as sa
from sqlalchemy import ARRAY, Connection, func, select

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
from .sweeps import pack_ids, unpack_ids

PAGE_ROWS = 100_000
"""Partitions of a page: by id, or of as many whole days as have this many."""
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
class FrozenIds(Sequence[int]):
    """Ids of a plan, compressed: nine million take about one megabyte. Immutable.

    Iterate over them: an index or a slice reads all.
    """

    pages: tuple[bytes, ...] = field(default=(), repr=False)
    """As they were read: a page has whole days."""
    total: int = 0

    def read_pages(self) -> Iterator[list[int]]:
        """Yield the ids page by page."""
        for page in self.pages:
            columns = zlib.decompress(page)
            numbers, size = bytearray(len(columns)), len(columns) // 8
            for place in range(8):
                numbers[place::8] = columns[place * size : (place + 1) * size]
            yield unpack_ids(numbers)

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.read_pages())

    @overload
    def __getitem__(self, place: int, /) -> int: ...
    @overload
    def __getitem__(self, place: slice, /) -> list[int]: ...
    def __getitem__(self, place: int | slice, /) -> int | list[int]:
        return list(self)[place]


@dataclass(frozen=True, slots=True)
class FrozenSelection:
    """The partitions that an act would change. Immutable: threads may share it."""

    act: Verb
    ids: FrozenIds
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
    packed: list[bytes] = []
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    shades: Counter[int] = Counter()
    skipped: Counter[str] = Counter()
    digest = _Digest()
    skip_reasons = {
        shade: skip_reason(act, status, clear_terminal=clear_terminal)
        for shade, status in enumerate(DISPLAY_STATUSES)
    } | {RUNNING: "running now"}
    allowed = [shade for shade, reason in skip_reasons.items() if reason is None]
    leaves_out = clear_terminal and leaves_out_marked(selection, include_marked=include_marked)
    if leaves_out:
        skipped.update(count_marked(connection, selection))
    for dataset, query in queries_by_dataset(connection, _columns(connection), selection):
        if leaves_out:
            query = query.where(~IS_MARKED)
        for page in _pages(connection, dataset, query, allowed, selection):
            reasons.update(page.reasons)
            shades.update(page.shades)
            if page.numbers:
                packed.append(_compress(page.numbers))
                counts[dataset] += len(page.numbers) // 8
                digest.update(page)
    skipped.update({reason: shades[shade] for shade, reason in skip_reasons.items() if reason})
    ids = FrozenIds(tuple(packed), counts.total())
    first = list(islice(ids, MAX_COUNTED))
    is_counted = len(ids) <= MAX_COUNTED
    with_raw = runs_to_revalidate(connection, first) if is_counted else {}
    validates: dict[str, str] = {}
    if act == "revalidate":
        runs = with_raw or runs_to_revalidate(connection, first[:MAX_NAMED])
        named = [partition_id for partition_id in first if partition_id in runs][:MAX_NAMED]
        rows = read_partitions(connection, named)
        validates = {str(row.partition): runs[row.id] for row in rows.values()}
    by_name: dict[str, int] = {
        DISPLAY_STATUSES[shade]: shades[shade] for shade in allowed if shades[shade]
    }
    return FrozenSelection(
        act,
        ids,
        digest.hexdigest(),
        sorted(counts),
        reasons,
        by_name,
        +skipped,
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
    digest = _Digest()
    now: Counter[int] = Counter()
    query = select(*_columns(connection))
    for ids in planned.ids.read_pages():
        rows = query.select_from(_join_by_id(connection, ids))
        page = _read_page(connection, rows, range(len(DISPLAY_STATUSES)))
        digest.update(page)
        now.update(page.shades)
    if digest.hexdigest() == planned.digest:
        return {}
    drift = Counter({"running now": now[RUNNING], "gone": planned.count - now.total()})
    for shade, status in enumerate(DISPLAY_STATUSES):
        name = STATUS_NAMES.get(status, status)
        drift[f"{name} meanwhile"] = now[shade] - planned.shades.get(status, 0)
    return dict(+drift) or {"changed meanwhile": 1}


# ---- pages ----

_at = partition.c


class _Page(NamedTuple):
    """Some of the selected partitions."""

    numbers: bytes
    """Packed ids of the partitions that the act may change."""
    contents: tuple[bytes, bytes]
    """The ids and, in the same order, their states, for the digest. A state has the number of the
    current run too: a rollback changes it, but not the attempts."""
    reasons: Mapping[str, int]
    shades: Mapping[int, int]
    """Number of all selected partitions by display status, or RUNNING."""
    last_id: int | None
    """Highest id. None: no partition was selected."""


class _Digest:
    """Digest of pages. It does not depend on where a page ends: other partitions decide that."""

    def __init__(self) -> None:
        self._parts = hashlib.sha256(), hashlib.sha256()

    def update(self, page: _Page) -> None:
        for part, contents in zip(self._parts, page.contents, strict=True):
            part.update(contents)

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(part.digest() for part in self._parts)).hexdigest()


def _columns(connection: Connection) -> Sequence[Any]:
    leased = select(work.c.partition_id).where(work.c.lease_until.is_not(None))
    running = list(connection.execute(leased).scalars())
    shade: Any = _at.shade
    if running:
        shade = sa.case((is_one_of(_at.id, running), sql_int(RUNNING)), else_=shade).label("shade")
    state = (shade, _at.current_attempt_no, _at.attempt_count)
    return (_at.id, _at.logical_date, *state, _at.reason)


def _pages(
    connection: Connection,
    dataset: tuple[str, str],
    query: Any,
    allowed: Collection[int],
    selection: PartitionFilter,
) -> Iterator[_Page]:
    """Yield the selected partitions of one dataset.

    Args:
        dataset: Source and query.
        query: Selects the columns of a page.
        allowed: Display statuses that the act may change.
        selection: The selection behind the query.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    # The order of the index, which costs nothing on SQLite. On Postgres it would be a sort.
    ordered = query.order_by(_at.logical_date, _at.customer_id) if is_sqlite else query
    is_named = selection.ids is not None or selection.keys is not None
    if is_named or (selection.customers is not None and not is_sqlite):
        yield _read_page(connection, ordered, allowed)
    elif selection.only_failing:
        rows = query.order_by(_at.id).limit(sql_int(PAGE_ROWS))
        page = _read_page(connection, rows, allowed)
        while page.last_id is not None:
            yield page
            page = _read_page(connection, rows.where(_at.id > page.last_id), allowed)
    else:
        for first, last in _day_ranges(connection, dataset, selection):
            days = in_range(ordered, _at.logical_date, first, last)
            yield _read_page(connection, days, allowed)


def _read_page(connection: Connection, query: Any, allowed: Collection[int]) -> _Page:
    of = query.subquery().c
    is_allowed = of.shade.in_([sql_int(shade) for shade in allowed])
    is_sqlite = connection.dialect.name == "sqlite"
    return (_read_on_sqlite if is_sqlite else _read_on_postgres)(connection, of, is_allowed)


def _read_on_sqlite(connection: Connection, of: Any, is_allowed: Any) -> _Page:
    """Let SQLite pack the numbers as text: its GROUP BY would sort the rows."""
    number = of.current_attempt_no * sql_int(2**32) + of.attempt_count * sql_int(8) + of.shade
    shades = (RUNNING, *range(len(DISPLAY_STATUSES)))
    last_id, reasons, ids, numbers, *counts = connection.execute(
        select(
            func.max(of.id),
            func.json_group_array(of.reason).filter(is_allowed, of.reason.is_not(None)),
            func.group_concat(of.id).filter(is_allowed),
            func.group_concat(number).filter(is_allowed),
            *(func.count().filter(of.shade == sql_int(shade)) for shade in shades),
        )
    ).one()
    return _Page(
        pack_ids(json.loads(f"[{ids or ''}]")),
        (f"{ids},".encode(), f"{numbers},".encode()),
        Counter(json.loads(reasons)),
        dict(zip(shades, counts, strict=True)),
        last_id,
    )


def _read_on_postgres(connection: Connection, of: Any, is_allowed: Any) -> _Page:
    """Let Postgres group by day and state, so that only ids are returned for each partition."""
    keys = (of.logical_date, of.shade, of.current_attempt_no, of.attempt_count, of.reason)
    packed = func.string_agg(
        func.int8send(of.id, type_=sa.LargeBinary), sa.literal(b"", sa.LargeBinary)
    )
    columns = (func.count(), func.max(of.id), packed.filter(is_allowed))
    reasons: Counter[str] = Counter()
    shades: Counter[int] = Counter()
    groups: list[tuple[str, bytes]] = []
    last_id: int | None = None
    for day, *state, reason, count, highest, numbers in connection.execute(
        select(*keys, *columns).group_by(*keys)
    ):
        last_id = max(highest, last_id or 0)
        shades[state[0]] += count
        if numbers is not None:
            # Parallel workers return ids in any order.
            ids = pack_ids(sorted(unpack_ids(numbers)))
            groups.append((f"{day} {state} {count},", ids))
            reasons.update({reason: count} if reason is not None else {})
    groups.sort()
    ids = b"".join(ids for _, ids in groups)
    states = "".join(state for state, _ in groups).encode()
    return _Page(ids, (ids, states), reasons, shades, last_id)


def _join_by_id(connection: Connection, ids: Sequence[int]) -> Any:
    """Return the partitions with these ids, on SQLite in their order."""
    if connection.dialect.name == "sqlite":
        given: Any = func.json_each(json.dumps(ids)).table_valued("value").alias("given")
        return given.join(partition, _at.id == given.c.value)
    array = sa.cast(sa.literal(int_array(ids), sa.Text), ARRAY(sa.BigInteger))
    given = func.unnest(array).table_valued("value").render_derived(name="given")
    return given.join(partition, _at.id == given.c.value)


def _compress(numbers: bytes) -> bytes:
    # By columns of bytes: the higher ones are almost constant.
    return zlib.compress(b"".join(numbers[place::8] for place in range(8)), 1)


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
        if total >= PAGE_ROWS:
            yield first, last
            first, total = None, 0
    if first is not None:
        yield first, last
