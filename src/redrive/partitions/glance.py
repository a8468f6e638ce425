"""Glance: what of all partitions waits, runs and rests, by a bounded look at the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, func, select

from ..ledger.partition_tables import source, work
from ..ledger.statement import number

LOOKED = 10_000
"""Of what is queued so many rows are looked at: counts beyond it are no more telling."""


class Resting(NamedTuple):
    """A source of which nothing is handed out. Immutable."""

    name: str
    until: datetime | None
    actor: str
    because: str


class Glance(NamedTuple):
    """All partitions at one moment. Immutable."""

    late: int
    """Queued, and due for a while."""
    since: datetime | None
    """Of these the first one was."""
    running: int
    resting: tuple[Resting, ...]


def glance(connection: Connection, before: datetime, /) -> Glance:
    """How they stand. before: what was due then is late."""
    rows = connection.execute(_GLANCE, {"before": before}).all()
    many, since, running = rows[0][:3]
    return Glance(many, since, running, tuple(Resting._make(row[3:]) for row in rows if row[3] is not None))


def _glance() -> Select[Any]:
    queued = select(work.c.due_at).where(work.c.lease_until.is_(None)).limit(number(LOOKED)).subquery()
    leased = select(work.c.partition_id).where(work.c.lease_until.is_not(None)).limit(number(LOOKED)).subquery()
    running = select(func.count()).select_from(leased).scalar_subquery().label("running")
    late = select(func.count().label("many"), func.min(queued.c.due_at).label("since"), running)
    one = late.where(queued.c.due_at <= bindparam("before", type_=work.c.due_at.type)).subquery()
    rests = (source.c.source, source.c.paused_until, source.c.actor, source.c.because)
    both = one.outerjoin(source, source.c.paused_at.is_not(None))  # one question for both: a page asks few
    return select(one, *rests).select_from(both).order_by(source.c.source)


_GLANCE = _glance()
