"""Streams: what is due, of which dataset, lane and sweep. Found by equality: what is paused, or not due, is never read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import BigInteger, DateTime, Integer, SmallInteger, Text, bindparam, func, literal_column, select, true

from ..ledger.moment import micros, moment
from ..ledger.now import micros_now
from ..ledger.partition_tables import work
from ..ledger.postgres.literal import plain, texts
from ..ledger.session import Session
from ..ledger.statement import number, postgres, rows, sqlite


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
    .offset(number(0))
)
ONE = sqlite(_one, "of_source", "of_query", "of_lane", "of_sweep", "now", "most").text

_want = rows("want", place=Integer(), source=Text(), query=Text(), lane=SmallInteger(), sweep=BigInteger())
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
MANY = postgres(select(_want.c.place, _due.c.due_at, _due.c.partition_id).select_from(_want.join(_due, true()))).text


def due(
    session: Session, wanted: Sequence[Due], most: int, now: datetime | None, /
) -> list[tuple[Due, list[datetime], list[int]]]:
    """What is due in each of these, the oldest first; those with nothing are left out. now: None for the database's own."""
    found: dict[int, tuple[list[datetime], list[int]]] = {}
    if session.sqlite:
        at = micros_now() if now is None else micros(now)
        for place, one in enumerate(wanted):
            if some := session.raw.execute(ONE, (*one, at, most)).fetchall():
                found[place] = [_moment(row[0]) for row in some], [row[1] for row in some]
    else:
        given = {
            "want_place": plain(range(len(wanted))), "want_source": texts(one.source for one in wanted),
            "want_query": texts(one.query_name for one in wanted), "want_lane": plain(one.lane for one in wanted),
            "want_sweep": plain(one.sweep_id for one in wanted), "now": now, "most": most,
        }  # fmt: skip
        for place, when, id_ in session.raw.execute(MANY, given).fetchall():
            dues, ids = found.setdefault(place, ([], []))
            dues.append(_moment(when))
            ids.append(id_)
    return [(wanted[place], *found[place]) for place in sorted(found)]


def _moment(stored: object) -> datetime:
    found = moment(stored)  # type: ignore[arg-type]  # what either driver gives
    assert found is not None
    return found
