"""Limits of a job type over all workers: concurrency and rate.

Each limited job type has a row. A claim locks the row until it is committed, so that two workers
can never take the same slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import func, select, update

from ..db.clock import now_on
from ..db.compiled import sql_int
from ..db.session import Session
from ..db.tables import job, kind
from ..model import LEASED, Lease
from ..store.protocol import ClaimOptions, JobStore
from .parking import ensure_kind_row

BURST_SECONDS = 0.1
"""Starts of this much time may happen at once after a pause, and at least one."""
MIN_SETBACK_SECONDS = 1.0
"""A timestamp this far in the future was written by another clock."""
BUSY_SECONDS = 0.02
"""Time after which to retry if another worker has locked the row."""


class Limit(NamedTuple):
    """The limit of one job type."""

    concurrency: int | None = None
    rate: float | None = None
    """Starts per second."""


class LimitedClaim(NamedTuple):
    """The result of a claim with limits."""

    leases: list[Lease]
    after: dict[str, float]
    """Seconds until more jobs of a type may be claimed, by its rate or because its row was
    locked."""


def refill_tokens(tokens: float | None, seconds: float, rate: float, /) -> float:
    """Return the tokens of the bucket, `seconds` after it had `tokens`.

    If the stored time is in the future, the clock was set back, and the bucket is full.
    """
    capacity = max(1.0, rate * BURST_SECONDS)
    if tokens is None or seconds < -MIN_SETBACK_SECONDS:
        return capacity
    return min(capacity, tokens + max(0.0, seconds) * rate)


def claim(
    session: Session, store: JobStore, options: ClaimOptions, limits: Mapping[str, Limit], /
) -> LimitedClaim:
    """Claim as many jobs as the limits allow.

    Skips a row that is locked, because its holder may be suspended.
    """
    leases: list[Lease] = []
    after: dict[str, float] = {}
    with session.transaction("limited"):
        for name in sorted(options.kinds):  # sorted, so that concurrent claims cannot deadlock
            left = options.total - len(leases)
            if left <= 0:
                break
            limit = limits[name]
            row = _lock_row(session, name)
            if row is None:
                after[name] = BUSY_SECONDS
                continue
            now = now_on(session)
            most = min(options.kinds[name], left)
            if limit.concurrency is not None:
                most = min(most, limit.concurrency - _count_leased(session, name))
            tokens = 0.0
            if limit.rate is not None:
                tokens = _tokens(row, limit.rate, now)
                most = min(most, int(tokens))
                if tokens < 1:
                    after[name] = (1 - tokens) / limit.rate
            if most <= 0:
                continue
            claimed = store.claim_in(session, options._replace(kinds={name: most}, total=most))
            leases += claimed
            if limit.rate is not None and claimed:
                values = {"tokens": tokens - len(claimed), "filled_at": now}
                session.core.execute(update(kind).where(kind.c.kind == name).values(values))
                after[name] = max(0.0, (1 - tokens + len(claimed)) / limit.rate)
    return LimitedClaim(leases, after)


def claimable(session: Session, limits: Mapping[str, Limit], /) -> set[str]:
    """Return the job types that may start another job now. Only reads."""
    now = now_on(session)
    query = select(kind.c.kind, kind.c.tokens, kind.c.filled_at).where(kind.c.kind.in_(limits))
    rows = {row.kind: row for row in session.core.execute(query)}
    names = set()
    for name, limit in limits.items():
        row = rows.get(name)
        if limit.rate is not None and row is not None and _tokens(row, limit.rate, now) < 1:
            continue
        if limit.concurrency is None or _count_leased(session, name) < limit.concurrency:
            names.add(name)
    return names


def _tokens(row: Any, rate: float, now: datetime) -> float:
    seconds = 0.0 if row.filled_at is None else (now - row.filled_at).total_seconds()
    return refill_tokens(row.tokens, seconds, rate)


def _lock_row(session: Session, name: str) -> Any:
    columns = select(kind.c.tokens, kind.c.filled_at)
    query = columns.where(kind.c.kind == name).with_for_update(skip_locked=True)
    row = session.core.execute(query).first()
    if row is None:
        ensure_kind_row(session, name)
        row = session.core.execute(query).first()
    return row


def _count_leased(session: Session, name: str) -> int:
    """Count through the index over leases, of which there are few."""
    query = select(func.count()).where(job.c.state == sql_int(LEASED), job.c.kind == name)
    return session.core.execute(query).scalar_one()
