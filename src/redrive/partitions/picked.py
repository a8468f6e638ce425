"""Picked: the partitions that an operator's act is planned for, frozen. Making one leaves no trace."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlalchemy import Connection, select

from ..ledger.partition_tables import work
from .find import by_dataset
from .packed import BUSY, COLUMNS, PAGE, pages, these
from .record import SHADES, Selection
from .rows import chunks, read
from .runs import to_validate

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
