"""Limits at run time: an operator's concurrency and rate of a job type, over all workers.

They replace the values in the code until they are reset. `limits.py` claims within them.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select

from .. import audit
from ..db.clock import now_on
from ..db.job_tables import limit as table
from ..db.session import Session, upsert
from ..validation import MAX_KIND_BYTES, check_name, storable_text

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
