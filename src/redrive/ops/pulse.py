"""Pulse: what tells that anything has changed in a ledger, read from a few small rows whatever its size."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger


def pulse(ledger: Ledger, /) -> str:
    """Another text whenever work moved, a person decided something, a sweep went on, or a worker came or went."""
    from sqlalchemy import func, select  # noqa: PLC0415  # not before a ledger is open

    from ..ledger import counts, overview  # noqa: PLC0415  # likewise
    from ..ledger.tables import audit, sweep, worker  # noqa: PLC0415  # likewise

    with ledger.reading() as connection:
        found = [
            sorted(counts.counts(connection).items()),
            sorted(overview.parked(connection).items()),
            connection.execute(select(func.max(audit.c.number))).scalar(),
            connection.execute(select(sweep.c.id, sweep.c.made, sweep.c.skipped).where(sweep.c.state == "running")).all(),
            connection.execute(select(func.max(sweep.c.id))).scalar(),
            connection.execute(select(func.count()).select_from(worker).where(worker.c.ended_at.is_(None))).scalar(),
        ]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]
