"""Materialise: the next partitions of a grid get their rows when they are leased, and not before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import insert

from ..ledger.partition_tables import partition
from ..ledger.session import Session
from .grid import Grid
from .lookup import known_by
from .partition import Partition
from .ranges import Range
from .record import Kind
from .rows import ROW, Mark, Row, Work, marks, works

LOOK = 2000
"""Places of a grid that one claim looks at: what is skipped is cheap, but not free."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition that is to be leased. Immutable."""

    row: Row
    work: Work
    marks: Mapping[str, Mark]
    made: bool
    """Whether its work row is to be made."""
    born: bool = False
    """Whether it is new itself."""
    granted: Sequence[Mark] = ()
    cleared: bool = False


def materialised(
    session: Session, grid: Grid, of: Range, many: int, begun: Set[int], draw: Callable[[], float], now: datetime, /
) -> tuple[int, list[Taken], Counter[str]]:
    """The next ones from the cursor on: how many places were looked at, what is to be leased, and what was skipped for what."""
    taken: list[Taken] = []
    skips: Counter[str] = Counter()
    place, end = of.cursor, min(of.total, of.cursor + max(LOOK, many))
    while place < end and len(taken) < many:
        keys = [grid.at(at) for at in range(place, min(end, place + max(100, many - len(taken))))]
        known = known_by(session.core, grid.source, grid.query_name, keys)
        busy, marked = (
            works(session.core, [row.id for row in known.values()]),
            marks(session.core, [row.id for row in known.values()]),
        )
        new: list[Partition] = []
        for key in keys:
            if len(taken) + len(new) >= many:
                break
            place += 1
            row = known.get(key)
            if row is None:
                new.append(key)
                continue
            why = "queued already" if row.id in begun else _left_alone(row, busy.get(row.id), marked.get(row.id, {}), of)
            if why is not None:
                skips[why] += 1
            else:
                taken.append(_taken(row, marked.get(row.id, {}), of, draw(), now))
        taken += [replace(_taken(row, {}, of, draw(), now), born=True) for row in _made(session, new, now)]
    return place - of.cursor, taken, skips


def _left_alone(row: Row, work: Work | None, marked: Mapping[str, Mark], of: Range) -> str | None:
    if work is not None:
        return "running now" if work.leased else "queued already"
    if "paused" in marked:
        return "paused"
    if row.status == "success" and not of.again:
        return "accepted already"
    return "terminal" if "terminal" in marked and not of.clear else None


def _taken(row: Row, marked: Mapping[str, Mark], of: Range, seed: float, now: datetime) -> Taken:
    kind: Kind = "initial" if of.act == "fresh" else "backfill"
    if row.current_run_id is not None:
        kind = "reprocess"
    work = Work(
        row.id, row.source, row.query_name, of.lane, of.id, now, of.created_at, kind, None, seed, f"sweep {of.id}", 0,
        None, None, None, None,
    )  # fmt: skip
    # What was tried before begins anew: its budget is the sweep's to grant.
    anew = row.attempt_count > 0
    granted = (Mark(row.id, "grant", of.act, of.actor, of.because, now, row.attempt_count, of.amount),) if anew else ()
    return Taken(row, work, marked, made=True, granted=granted, cleared="terminal" in marked)


def _made(session: Session, keys: Sequence[Partition], now: datetime) -> list[Row]:
    if not keys:
        return []
    new = insert(partition).returning(*ROW)
    given = [
        {
            "source": key.source,
            "query_name": key.query_name,
            "logical_date": key.logical_date,
            "customer_id": key.customer_id,
            "updated_at": now,
        }
        for key in keys
    ]
    found = {row.partition: row for row in map(Row._make, session.core.execute(new, given))}
    return [found[key] for key in keys]
