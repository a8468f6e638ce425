"""Pulse: what tells that anything has changed in a ledger, read from a few small rows whatever its size."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger


SOME = 500
"""Partitions of which work is queued or under way: so many are looked at."""


def pulse(ledger: Ledger, /) -> str:
    """Another text whenever work moved, a person decided something, a sweep went on, or a worker came or went.

    Of partitions the first of what is queued or extracted is looked at: whatever happens to one leaves a trace there.
    """
    from sqlalchemy import func, select  # noqa: PLC0415  # not before a ledger is open

    from ...ledger.db import secret_names  # noqa: PLC0415  # likewise
    from ...ledger.db.partition_tables import work  # noqa: PLC0415  # likewise
    from ...ledger.db.tables import audit, sweep, worker  # noqa: PLC0415  # likewise
    from ...ledger.queries import overview  # noqa: PLC0415  # likewise
    from ...ledger.stats import counters  # noqa: PLC0415  # likewise

    with ledger.reading() as connection:
        secret_names.learn(connection)  # a worker may have brought names of secret fields since the console started
        found = [
            sorted(counters.counts(connection).items()),
            sorted(overview.parked_reasons(connection).items()),
            connection.execute(select(func.max(audit.c.number))).scalar(),
            connection.execute(select(sweep.c.id, sweep.c.made, sweep.c.skipped).where(sweep.c.state == "running")).all(),
            connection.execute(select(func.max(sweep.c.id))).scalar(),
            connection.execute(select(work.c.partition_id, work.c.due_at, work.c.attempt_no).limit(SOME)).all(),
            connection.execute(select(func.count()).select_from(worker).where(worker.c.ended_at.is_(None))).scalar(),
        ]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]
