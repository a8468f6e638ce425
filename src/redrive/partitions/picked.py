"""Picked: the partitions that an operator's act is planned for, frozen. Making one leaves no trace."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Date, Text, bindparam, literal, select, tuple_

from ..ledger.partition_tables import partition, run, verdict, work
from .find import narrowed
from .record import SHADES, Selection
from .rows import chunks

Verb: TypeAlias = Literal["retry", "reprocess", "revalidate"]
PAGE = 20_000
_WHAT = (partition.c.id, partition.c.shade, partition.c.attempt_count, partition.c.reason)
_THESE = select(*_WHAT[:3]).where(partition.c.id.in_(bindparam("these", expanding=True))).order_by(partition.c.id)
_PLACE = select(partition.c.logical_date, partition.c.customer_id, partition.c.source, partition.c.query_name)


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
    why = [left_alone(act, shade, clear_terminal) for shade in SHADES]
    for query in narrowed(connection, _WHAT, asked):
        before = len(ids)
        for page in _pages(connection, query, by_id=asked.troubled):
            left = [row for row in page if row[0] in busy or why[row[1]] is not None]
            skipped.update("running now" if row[0] in busy else why[row[1]] or "" for row in left)
            mine = [row for row in page if row[0] not in busy and why[row[1]] is None] if left else page
            if not mine:
                continue
            ids.extend([row[0] for row in mine])
            said.update(_digest(mine))
            shades.update([row[1] for row in mine])
            reasons.update([row[3] for row in mine if row[3] is not None])
        if len(ids) > before:
            source, query_name = connection.execute(_PLACE.where(partition.c.id == ids[-1])).one()[2:]
            datasets[source, query_name] = len(ids) - before
    raw = len(ids) - len(_judged_raw(connection, ids)) if len(ids) <= 1000 else 0
    by_name: dict[str, int] = {SHADES[number]: many for number, many in sorted(shades.items())}
    readable = by_name.get("success", 0) + by_name.get("refresh_failed", 0)
    return Picked(act, ids, said.hexdigest(), sorted(datasets), reasons, by_name, skipped, readable, raw, datasets)


def _pages(connection: Connection, query: Any, *, by_id: bool) -> Iterator[Sequence[Any]]:
    """In the order of an index, a few thousand at a time: neither sorted, nor in memory as a whole."""
    at = partition.c
    first = (query.order_by(at.id) if by_id else query.order_by(at.logical_date, at.customer_id)).limit(PAGE)
    query = first
    while page := _plain(connection, query):
        yield page
        if len(page) < PAGE:
            return
        place = connection.execute(_PLACE.where(at.id == page[-1][0])).one()
        there = tuple_(literal(place.logical_date, Date), literal(place.customer_id, Text))
        query = first.where(at.id > page[-1][0] if by_id else tuple_(at.logical_date, at.customer_id) > there)


def _plain(connection: Connection, query: Any) -> list[Any]:
    """As the driver has them: numbers and text, which need no second look, a million times over."""
    found = connection.execute(query)
    rows = list(found.cursor.fetchall())
    found.close()
    return rows


def _digest(rows: Iterable[Any]) -> bytes:
    """Which they are, and how each stands."""
    return array("q", [part for row in rows for part in row[:3]]).tobytes()


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
    for some in chunks(picked.ids):
        there = {row[0]: row for row in connection.execute(_THESE, {"these": list(some)})}
        rows = [there[one] for one in some if one in there]
        said.update(_digest(rows))
        now.update(SHADES[row[1]] for row in rows)
        moved["running now"] += sum(row[0] in busy for row in rows)
    moved = +moved
    if said.hexdigest() != picked.digest:
        before = Counter(picked.shades)
        for shade in SHADES:
            if now[shade] > before[shade]:
                moved[f"{shade} meanwhile"] = now[shade] - before[shade]
        if now.total() < len(picked.ids):
            moved["gone"] = len(picked.ids) - now.total()
        if not moved:
            moved["tried meanwhile"] = 1
    return dict(moved)


def _judged_raw(connection: Connection, ids: Sequence[int]) -> set[int]:
    query = select(run.c.partition_id).join(verdict, verdict.c.run_id == run.c.run_id)
    return set(connection.execute(query.where(run.c.partition_id.in_(list(ids)), verdict.c.manifest.is_not(None))).scalars())
