"""Picked: the partitions that an operator's act is planned for, frozen. Making one leaves no trace."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlalchemy import Connection, bindparam, select

from ..ledger.partition_tables import partition, run, verdict, work
from .find import narrowed
from .record import SHADES, Selection
from .rows import chunks

Verb: TypeAlias = Literal["retry", "reprocess", "revalidate"]
PAGE = 20_000
_WHAT = (partition.c.id, partition.c.shade, partition.c.attempt_count, partition.c.current_run_id, partition.c.reason)
_THESE = select(*_WHAT).where(partition.c.id.in_(bindparam("these", expanding=True))).order_by(partition.c.id)


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
    datasets: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    shades: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    said = hashlib.sha256()
    readable = 0
    busy = set(connection.execute(select(work.c.partition_id).where(work.c.lease_until.is_not(None))).scalars())
    for query, by in narrowed(connection, (*_WHAT, partition.c.source, partition.c.query_name), asked):
        after = 0
        while True:
            page = connection.execute(query.where(by > after).order_by(by).limit(PAGE)).all()
            for id_, number, attempts, current, reason, source, query_name in page:
                after = id_
                why = "running now" if id_ in busy else left_alone(act, SHADES[number], clear_terminal)
                if why is not None:
                    skipped[why] += 1
                    continue
                ids.append(id_)
                datasets[source, query_name] += 1
                shades[SHADES[number]] += 1
                readable += current is not None
                if reason is not None:
                    reasons[reason] += 1
                said.update(b"%d:%d:%d;" % (id_, number, attempts))
            if len(page) < PAGE:
                break
    raw = len(ids) - len(_judged_raw(connection, ids)) if len(ids) <= 1000 else 0
    return Picked(act, ids, said.hexdigest(), sorted(datasets), reasons, shades, skipped, readable, raw, datasets)


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
    found: dict[int, int] = {}
    busy = set(connection.execute(select(work.c.partition_id).where(work.c.lease_until.is_not(None))).scalars())
    moved: Counter[str] = Counter()
    for some in chunks(picked.ids):
        now_are = {row[0]: row for row in connection.execute(_THESE, {"these": list(some)})}
        for id_, number, attempts, _, _ in (now_are[one] for one in some if one in now_are):
            said.update(b"%d:%d:%d;" % (id_, number, attempts))
            found[id_] = number
            if id_ in busy:
                moved["running now"] += 1
    if said.hexdigest() != picked.digest:
        before, now = Counter(picked.shades), Counter(SHADES[number] for number in found.values())
        for shade in SHADES:
            if now[shade] > before[shade]:
                moved[f"{shade} meanwhile"] = now[shade] - before[shade]
        if len(found) < len(picked.ids):
            moved["gone"] = len(picked.ids) - len(found)
        if not moved:
            moved["tried meanwhile"] = 1
    return dict(moved)


def _judged_raw(connection: Connection, ids: Sequence[int]) -> set[int]:
    query = select(run.c.partition_id).join(verdict, verdict.c.run_id == run.c.run_id)
    return set(connection.execute(query.where(run.c.partition_id.in_(list(ids)), verdict.c.manifest.is_not(None))).scalars())
