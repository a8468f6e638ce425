"""Bury: workers of which it is certain that they are gone. Nobody waits for their leases to run out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import update

from ..db.clock import now_on
from ..db.compiled import number
from ..db.partition_tables import work
from ..db.session import Session
from ..db.tables import job, worker
from ..state import LEASED


def bury(session: Session, names: Sequence[str], /) -> int:
    """Let the leases of these workers expire now, those of partitions too; the number of leases.

    A reaper takes them back. A name must belong to one process, for ever.
    """
    if not names:
        return 0
    with session.transaction("bury") as connection:
        now = now_on(session)
        # Before the moment they were last seen, none of them would count as a crash.
        held = update(job).where(job.c.state == number(LEASED), job.c.worker.in_(list(names)))
        ended = connection.execute(held.values(lease_until=now - timedelta(microseconds=1))).rowcount
        partitions = update(work).where(work.c.lease_until.is_not(None), work.c.worker.in_(list(names)))
        ended += connection.execute(partitions.values(lease_until=now - timedelta(microseconds=1))).rowcount
        past = now - timedelta(microseconds=2)  # before its end, too: whoever leaves in order is seen at that very moment
        connection.execute(update(worker).where(worker.c.name.in_(list(names))).values(ended_at=now, seen_at=past))
        return ended
