"""The queue of partitions: due work by stream, and whether the control plane has maintenance to do.

A stream is the work of one dataset, lane and sweep. Work is found by equality of these columns, so
that paused work, and work that is not due, is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    DateTime,
    Integer,
    Select,
    SmallInteger,
    Text,
    bindparam,
    func,
    literal_column,
    select,
    true,
    update,
)

from ...ledger.db.clock import now_micros, now_on
from ...ledger.db.compiled import (
    compile_postgres,
    compile_sqlite,
    int_array,
    sql_int,
    text_array,
    unnest,
)
from ...ledger.db.partition_tables import work
from ...ledger.db.session import Session
from ...ledger.timestamps import from_db, to_micros
from .sweeps import CANCELLED, RUNNING


class StreamKey(NamedTuple):
    """Names a stream. Without a sweep, `sweep_id` is 0."""

    source: str
    query_name: str
    lane: int
    sweep_id: int


class DueWork(NamedTuple):
    """Due work of a stream, the oldest first."""

    stream: StreamKey
    due_at: list[datetime]
    ids: list[int]


_DUE_ON_SQLITE = compile_sqlite(
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
    .offset(sql_int(0)),
    "of_source",
    "of_query",
    "of_lane",
    "of_sweep",
    "now",
    "most",
)
_want = unnest(
    "want", place=Integer(), source=Text(), query=Text(), lane=SmallInteger(), sweep=BigInteger()
)
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
_DUE_ON_POSTGRES = compile_postgres(
    select(_want.c.place, _due.c.due_at, _due.c.partition_id).select_from(_want.join(_due, true()))
)


def read_due_work(
    session: Session, streams: Sequence[StreamKey], limit: int, now: datetime | None, /
) -> list[DueWork]:
    """Return the due work of streams that have some, at most `limit` of each.

    Args:
        limit: Maximum number for each stream.
        now: The time. None: the time of the database.
    """
    due: dict[int, DueWork] = {}
    if session.sqlite:
        at = now_micros() if now is None else to_micros(now)
        for place, stream in enumerate(streams):
            if queued := session.raw.execute(_DUE_ON_SQLITE, (*stream, at, limit)).fetchall():
                due_at = [_moment(row[0]) for row in queued]
                due[place] = DueWork(stream, due_at, [row[1] for row in queued])
    else:
        parameters = {
            "want_place": int_array(range(len(streams))),
            "want_source": text_array(stream.source for stream in streams),
            "want_query": text_array(stream.query_name for stream in streams),
            "want_lane": int_array(int(stream.lane) for stream in streams),
            "want_sweep": int_array(stream.sweep_id for stream in streams),
            "now": now,
            "most": limit,
        }
        for place, at, partition_id in session.raw.execute(_DUE_ON_POSTGRES, parameters).fetchall():
            stream_work = due.setdefault(place, DueWork(streams[place], [], []))
            stream_work.due_at.append(_moment(at))
            stream_work.ids.append(partition_id)
    return [due[place] for place in sorted(due)]


def _moment(stored: object) -> datetime:
    at = from_db(stored)  # type: ignore[arg-type]  # what either driver returns
    assert at is not None
    return at


class PendingMaintenance(NamedTuple):
    """What the control plane has to do."""

    lost: bool
    """Leases have expired."""
    running: bool
    """Sweeps are running, of any dataset."""
    cancelled: bool
    """Cancelled sweeps still have queued work."""


def _pending_query(now: object) -> Select[bool, bool, bool]:
    expired = select(work.c.partition_id).where(
        work.c.lease_until.is_not(None), work.c.lease_until < now
    )
    return select(expired.exists(), RUNNING.order_by(None).exists(), CANCELLED.exists())


_PENDING_ON_SQLITE = _pending_query(bindparam("now", type_=work.c.lease_until.type))
_PENDING_ON_POSTGRES = _pending_query(func.now())


def read_pending_maintenance(session: Session, /) -> PendingMaintenance:
    """Return whether the control plane has maintenance to do: one cheap query without a lock."""
    if session.sqlite:
        row = session.core.execute(_PENDING_ON_SQLITE, {"now": now_on(session)}).one()
    else:
        row = session.core.execute(_PENDING_ON_POSTGRES).one()
    return PendingMaintenance._make(row)


def seconds_since_expiry(session: Session, /) -> float:
    """Return the seconds since the first lease expired, or 0."""
    first = session.core.execute(select(func.min(work.c.lease_until))).scalar()
    return 0.0 if first is None else max(0.0, (now_on(session) - first).total_seconds())


def make_due(session: Session, source: str, strategy: str, now: datetime, because: str, /) -> None:
    """Let queued partitions of a source start now.

    Args:
        session: The session, in a transaction.
        source: The source.
        strategy: Only partitions whose strategy begins with this text.
        now: The time.
        because: Their new strategy.
    """
    waits = (
        work.c.source == source,
        work.c.lease_until.is_(None),
        work.c.due_at > now,
        work.c.strategy.startswith(strategy, autoescape=True),
    )
    session.core.execute(update(work).where(*waits).values(due_at=now, strategy=because))
