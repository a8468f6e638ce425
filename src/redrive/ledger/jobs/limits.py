"""Limited: claims of kinds with a limit over all workers. Each kind has a row, held until the claim is durable: the turnstile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select, update

from ..db.clock import now_on
from ..db.compiled import number
from ..db.session import Session
from ..db.tables import job, kind
from ..record import Lease
from ..state import LEASED
from ..store.protocol import Demand, Hot
from .parking import known

BURST = 0.1
"""Seconds' worth of starts that may come at once after a pause; one start at least."""


SET_BACK = 1.0
"""Seconds. What is stored this far in the future was written by another clock."""
BUSY = 0.02
"""Seconds until a row that another holds may be free."""


class Limit(NamedTuple):
    """Of one kind, over all workers."""

    concurrency: int | None = None
    rate: float | None = None
    """Starts in a second."""


class Limited(NamedTuple):
    """What a limited claim brought."""

    leases: list[Lease]
    after: dict[str, float]
    """Kinds of which more may be had soon: what their rate allows, or because another was at it; in so many seconds."""


def filled(tokens: float | None, seconds: float, rate: float, /) -> float:
    """What a rate allows now, so long after it allowed `tokens`.

    Where that is yet to come, the clock was set back: the bucket is as full as after a pause, and is written anew.
    """
    most = max(1.0, rate * BURST)
    return most if tokens is None or seconds < -SET_BACK else min(most, tokens + max(0.0, seconds) * rate)


def claim(session: Session, hot: Hot, demand: Demand, limits: Mapping[str, Limit], /) -> Limited:
    """Claim as much as the limits allow. Whoever claims of a kind holds its row: two can never take the same place.

    Nobody waits for the row: who holds it may be stopped. Come back soon.
    """
    leases: list[Lease] = []
    after: dict[str, float] = {}
    with session.transaction("limited"):
        now: datetime | None = None
        for name in sorted(demand.kinds):  # in one order, so that two who claim never wait for each other
            left = demand.total - len(leases)
            if left <= 0:
                break
            limit = limits[name]
            row = _row(session, name)
            if row is None:
                after[name] = BUSY
                continue
            now = now_on(session)
            most = min(demand.kinds[name], left)
            if limit.concurrency is not None:
                most = min(most, limit.concurrency - _leased(session, name))
            tokens = 0.0
            if limit.rate is not None:
                since = 0.0 if row.filled_at is None else (now - row.filled_at).total_seconds()
                tokens = filled(row.tokens, since, limit.rate)
                most = min(most, int(tokens))
                if tokens < 1:
                    after[name] = (1 - tokens) / limit.rate
            if most <= 0:
                continue
            got = hot.claim_in(session, demand._replace(kinds={name: most}, total=most))
            leases += got
            if limit.rate is not None and got:
                spent = update(kind).where(kind.c.kind == name).values(tokens=tokens - len(got), filled_at=now)
                session.core.execute(spent)
                after[name] = max(0.0, (1 - tokens + len(got)) / limit.rate)
    return Limited(leases, after)


def claimable(session: Session, limits: Mapping[str, Limit], /) -> set[str]:
    """The job types of which the limits allow another start now. Only reads: another worker may be faster."""
    now = now_on(session)
    query = select(kind.c.kind, kind.c.tokens, kind.c.filled_at).where(kind.c.kind.in_(limits))
    rows = {row.kind: row for row in session.core.execute(query)}
    names = set()
    for name, limit in limits.items():
        row = rows.get(name)
        if limit.rate is not None and row is not None:
            since = 0.0 if row.filled_at is None else (now - row.filled_at).total_seconds()
            if filled(row.tokens, since, limit.rate) < 1:
                continue
        if limit.concurrency is None or _leased(session, name) < limit.concurrency:
            names.add(name)
    return names


def _row(session: Session, name: str):  # type: ignore[no-untyped-def]  # a row of SQLAlchemy's
    query = select(kind.c.tokens, kind.c.filled_at).where(kind.c.kind == name).with_for_update(skip_locked=True)
    row = session.core.execute(query).first()
    if row is None:
        known(session, name)
        row = session.core.execute(query).first()
    return row


def _leased(session: Session, name: str) -> int:
    """Through the index over leases, of which there are never many."""
    query = select(func.count()).where(job.c.state == number(LEASED), job.c.kind == name)
    return session.core.execute(query).scalar_one()
