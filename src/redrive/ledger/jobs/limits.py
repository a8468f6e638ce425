"""Limits of a job type over all workers: concurrency and rate.

Each limited job type has a row. A claim locks the row until it is committed, so that two workers
can never take the same slot. A limit that an operator sets at run time replaces the values in the
code until it is reset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, select, update

from ...core.token_bucket import refill_tokens
from .. import audit
from ..db.clock import now_on
from ..db.compiled import sql_int
from ..db.job_tables import limit as table
from ..db.session import Session, upsert
from ..db.tables import job, kind
from ..model import LEASED, Lease
from ..store import sequences
from ..store.protocol import ClaimOptions, JobStore
from ..validation import MAX_KIND_BYTES, check_name, storable_text
from . import tenants
from .parking import ensure_kind_row
from .tenants import TenantLimit

BUSY_SECONDS = 0.02
"""Time after which to retry if another worker has locked the row."""


class Limit(NamedTuple):
    """The limit of one job type."""

    concurrency: int | None = None
    rate: float | None = None
    """Starts per second."""
    tenants: TenantLimit | None = None
    """None: the job type has no tenants."""
    is_sequenced: bool = False
    """Whether its jobs have sequences. A claim holds the lock, so that no other worker takes a job
    of the same sequence."""

    @property
    def is_limited(self) -> bool:
        """Whether claims need the lock of the job type."""
        has_limit = self.concurrency is not None or self.rate is not None
        return has_limit or self.is_sequenced or (self.tenants is not None and any(self.tenants))

    @property
    def waits_for_running(self) -> bool:
        """Whether the end of a job may allow another one to start, in any worker."""
        per_tenant = self.tenants is not None and self.tenants.concurrency is not None
        return self.concurrency is not None or self.is_sequenced or per_tenant


class LimitedClaim(NamedTuple):
    """The result of a claim with limits."""

    leases: list[Lease]
    after: dict[str, float]
    """Seconds until more jobs of a type may be claimed, by its rate or because its row was
    locked."""


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
            if limit.is_sequenced:
                sequences.repair_in(session)
            wanted = options._replace(kinds={name: most}, total=most)
            wanted = wanted._replace(in_sequence=limit.is_sequenced)
            if limit.tenants is None or options.alone:
                claimed = store.claim_in(session, wanted)
            else:
                claimed, wait = tenants.claim(session, store, wanted, limit.tenants)
                after.update({} if wait is None else {name: wait})
            leases += claimed
            if limit.rate is not None and claimed:
                values = {"tokens": tokens - len(claimed), "filled_at": now}
                session.core.execute(update(kind).where(kind.c.kind == name).values(values))
                wait_for_token = max(0.0, (1 - tokens + len(claimed)) / limit.rate)
                after[name] = max(wait_for_token, after.get(name, 0.0))
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


# --- Limits at run time

MAX_CONCURRENCY = 2**31 - 1
MAX_RATE = 1e9
"""Starts in a second."""
INSTEAD = 'to stop a job type, pause it (`redrive pause job-type NAME --because "..."`)'


class RunTimeLimit(NamedTuple):
    """The limit of a job type that an operator has set. Immutable."""

    kind: str
    concurrency: int | None
    """Maximum number of running jobs over all workers. None: as in the code."""
    rate: float | None
    """Maximum number of starts in a second over all workers. None: as in the code."""
    actor: str
    because: str
    updated_at: datetime


COLUMNS = (
    table.c.kind,
    table.c.concurrency,
    table.c.rate,
    table.c.actor,
    table.c.because,
    table.c.updated_at,
)
"""The columns of a `RunTimeLimit`, in its order."""


def read_limits(connection: Connection, /) -> dict[str, RunTimeLimit]:
    """Return the limits at run time by job type."""
    rows = connection.execute(select(*COLUMNS).order_by(table.c.kind))
    return {limit.kind: limit for limit in map(RunTimeLimit._make, rows)}


def set_limit(
    session: Session,
    kind: str,
    /,
    *,
    concurrency: int | None = None,
    rate: float | None = None,
    actor: str,
    because: str,
) -> RunTimeLimit:
    """Set the limit of a job type. A value that is not passed keeps its value at run time.

    Args:
        session: A session without a transaction.
        kind: The job type.
        concurrency: Maximum number of running jobs, from 1.
        rate: Maximum number of starts in a second, above 0.
        actor: Who does this, for the audit log.
        because: Why.

    Raises:
        ValueError: A value is not valid. Nothing was changed.
    """
    audit.check_actor(actor, because)
    check_name("job type", kind, MAX_KIND_BYTES)
    concurrency, rate = check_limit(concurrency, rate)
    with session.transaction("limits"):
        now = now_on(session)
        query = select(table.c.concurrency, table.c.rate).where(table.c.kind == kind)
        row = session.core.execute(query.with_for_update()).first()
        before = (None, None) if row is None else tuple(row)
        new = RunTimeLimit(
            kind,
            before[0] if concurrency is None else concurrency,
            before[1] if rate is None else rate,
            storable_text(actor) or "",
            storable_text(because) or "",
            now,
        )
        values = {key: value for key, value in new._asdict().items() if key != "kind"}
        insert = upsert(session, table).values(kind=kind, **values)
        session.core.execute(
            insert.on_conflict_do_update(index_elements=[table.c.kind], set_=values)
        )
        what: dict[str, Any] = {
            "kind": kind,
            "concurrency": new.concurrency,
            "rate": new.rate,
        }
        what |= {"before": list(before)} if row is not None else {}
        audit.write(session, actor=actor, action="limits.set", because=because, what=what)
    return new


def reset_limit(session: Session, kind: str, /, *, actor: str, because: str) -> bool:
    """Return to the values in the code. Returns False if none was set: nothing was changed."""
    audit.check_actor(actor, because)
    check_name("job type", kind, MAX_KIND_BYTES)
    with session.transaction("limits"):
        ended = delete(table).where(table.c.kind == kind)
        row = session.core.execute(ended.returning(table.c.concurrency, table.c.rate)).first()
        if row is None:
            return False
        what = {"kind": kind, "before": list(row)}
        audit.write(session, actor=actor, action="limits.reset", because=because, what=what)
        return True


def check_limit(concurrency: object, rate: object, /) -> tuple[int | None, float | None]:
    """Return the checked values.

    Raises:
        ValueError: A value is not valid, or none was passed.
    """
    if concurrency is None and rate is None:
        raise ValueError("limits: no value; pass a concurrency or a rate; nothing was changed")
    if concurrency is not None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int):
            raise ValueError(
                f"concurrency {concurrency!r}: not a whole number; nothing was changed"
            )
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(
                f"concurrency {concurrency}: must be from 1 to {MAX_CONCURRENCY:,}; {INSTEAD}; "
                "nothing was changed"
            )
    if rate is not None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or math.isnan(rate):
            raise ValueError(f"rate {rate!r}: not a number; nothing was changed")
        if not 0 < rate <= MAX_RATE:
            raise ValueError(
                f"rate {rate:g}: must be above 0, up to {MAX_RATE:,.0f} starts in a second; "
                f"{INSTEAD}; nothing was changed"
            )
    return concurrency, None if rate is None else float(rate)
