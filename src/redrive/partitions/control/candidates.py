"""Streams: what is due, of which dataset, lane and sweep. Found by equality: what is paused, or not due, is never read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import BigInteger, DateTime, Integer, SmallInteger, Text, bindparam, func, insert, literal_column, select, true

from ...ledger.db.clock import now_micros
from ...ledger.db.compiled import compile_postgres, compile_sqlite, sql_int, unnest
from ...ledger.db.partition_tables import partition, work
from ...ledger.db.session import Session
from ...ledger.store.postgres.arrays import int_array, text_array
from ...ledger.timestamps import from_db, to_micros
from ..key import Partition
from ..model import Kind
from ..store.queries import known_by
from ..store.rows import ROW, Mark, Row, Work, marks, works
from .sweeps import Grid, Range


class Due(NamedTuple):
    """Which stream."""

    source: str
    query_name: str
    lane: int
    sweep_id: int


_one = (
    select(work.c.due_at, work.c.partition_id)
    .where(
        work.c.lease_until.is_(None),
        work.c.source == bindparam("of_source"),
        work.c.query_name == bindparam("of_query"),
        work.c.lane == bindparam("of_lane"),
        work.c.sweep_id == bindparam("of_sweep"),
        work.c.due_at <= bindparam("now"),
    )
    .order_by(work.c.due_at, work.c.partition_id)
    .limit(bindparam("most"))
    .offset(sql_int(0))
)
ONE = compile_sqlite(_one, "of_source", "of_query", "of_lane", "of_sweep", "now", "most")

_want = unnest("want", place=Integer(), source=Text(), query=Text(), lane=SmallInteger(), sweep=BigInteger())
_due = (
    select(work.c.due_at, work.c.partition_id)
    .where(
        work.c.lease_until.is_(None),
        work.c.source == literal_column("want.source"),
        work.c.query_name == literal_column("want.query"),
        work.c.lane == literal_column("want.lane"),
        work.c.sweep_id == literal_column("want.sweep"),
        work.c.due_at <= func.coalesce(bindparam("now", type_=DateTime(timezone=True)), func.now()),
    )
    .order_by(work.c.due_at, work.c.partition_id)
    .limit(bindparam("most", type_=Integer()))
    .lateral("due")
)
MANY = compile_postgres(select(_want.c.place, _due.c.due_at, _due.c.partition_id).select_from(_want.join(_due, true())))


def due(
    session: Session, wanted: Sequence[Due], most: int, now: datetime | None, /
) -> list[tuple[Due, list[datetime], list[int]]]:
    """What is due in each of these, the oldest first; those with nothing are left out. now: None for the database's own."""
    found: dict[int, tuple[list[datetime], list[int]]] = {}
    if session.sqlite:
        at = now_micros() if now is None else to_micros(now)
        for place, one in enumerate(wanted):
            if some := session.raw.execute(ONE, (*one, at, most)).fetchall():
                found[place] = [_moment(row[0]) for row in some], [row[1] for row in some]
    else:
        given = {
            "want_place": int_array(range(len(wanted))), "want_source": text_array(one.source for one in wanted),
            "want_query": text_array(one.query_name for one in wanted), "want_lane": int_array(one.lane for one in wanted),
            "want_sweep": int_array(one.sweep_id for one in wanted), "now": now, "most": most,
        }  # fmt: skip
        for place, when, id_ in session.raw.execute(MANY, given).fetchall():
            dues, ids = found.setdefault(place, ([], []))
            dues.append(_moment(when))
            ids.append(id_)
    return [(wanted[place], *found[place]) for place in sorted(found)]


def _moment(stored: object) -> datetime:
    found = from_db(stored)  # type: ignore[arg-type]  # what either driver gives
    assert found is not None
    return found


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
