"""Backlog: how much a worker could begin at once, and has not."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select

from ..db.clock import now_on
from ..db.compiled import number
from ..db.session import Session
from ..db.tables import job
from ..jobs.parking import parked
from ..state import READY


def due(session: Session, kinds: Sequence[str], most: int, /) -> int:
    """How many jobs of these kinds are due and could be claimed; counts no further than so many.

    Not among them: what waits for its next attempt, what is in an outage, and what is to be run alone.
    """
    now, held = now_on(session), parked(session)
    found = 0
    for kind in kinds:
        if kind not in held and found < most:
            ready = (job.c.state == number(READY), job.c.kind == kind, job.c.priority == number(0), job.c.due_at <= now)
            some = select(job.c.id).where(*ready).limit(most - found).subquery()
            found += session.core.execute(select(func.count()).select_from(some)).scalar_one()
    return found
