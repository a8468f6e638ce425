"""Bury: workers of which it is certain that they are gone. Nobody waits for their leases to run out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import update

from .now import now_on
from .session import Session
from .state import LEASED
from .statement import number
from .tables import job, worker


def bury(session: Session, names: Sequence[str], /) -> int:
    """Their leases run out now, for `reap` to take back; how many. A name must be one process's alone, for ever."""
    if not names:
        return 0
    with session.transaction("bury") as connection:
        now = now_on(session)
        # Before the moment they were last seen, none of them would count as a crash.
        held = update(job).where(job.c.state == number(LEASED), job.c.worker.in_(list(names)))
        ended = connection.execute(held.values(lease_until=now - timedelta(microseconds=1))).rowcount
        past = now - timedelta(microseconds=2)  # before its end, too: whoever leaves in order is seen at that very moment
        connection.execute(update(worker).where(worker.c.name.in_(list(names))).values(ended_at=now, seen_at=past))
        return ended
