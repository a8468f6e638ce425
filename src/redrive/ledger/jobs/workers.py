"""Workers: who is at it, and when each was last seen. What a lost lease means depends on that."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert as insert_postgres
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from ..db.clock import now_on
from ..db.session import Session
from ..db.tables import worker
from ..failpoint import crash_point

LEASE = 7.0
"""Seconds, of a worker that does not say how long its own last."""
BEATS = 4
"""Heartbeats in the time of one lease."""
MISSED = 1.5
"""Heartbeats after which a worker is not fresh any more."""
REMEMBERED = timedelta(days=7)
"""How long a worker is remembered after it was last seen."""


class Worker(NamedTuple):
    """A worker, as it was last seen."""

    name: str
    host: str | None
    pid: int | None
    info: dict[str, Any]
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None

    @property
    def lost(self) -> bool:
        """It did not end in order: others found that its process was gone."""
        return self.ended_at is not None and self.seen_at < self.ended_at  # who leaves is seen leaving; see bury


def is_fresh(one: Worker, now: datetime, /) -> bool:
    """Whether this worker was heard of so recently that it must be alive. now: by the ledger's clock."""
    beat = (_lease(one.info) or LEASE) / BEATS
    return now - one.seen_at < timedelta(seconds=beat * MISSED)


def lease_of(info: str | None, /) -> float | None:
    """Seconds of the worker's leases, from its stored info. None: it does not report them."""
    return _lease(json.loads(info or "{}"))


def _lease(info: Mapping[str, Any]) -> float | None:
    lease = info.get("lease")
    return float(lease) if isinstance(lease, (int, float)) and lease > 0 else None


def beat(session: Session, name: str, info: Mapping[str, Any] | None, /) -> datetime:
    """Record that the worker is alive. Returns the time by the ledger's clock, which saves a query.

    A stored heartbeat never moves back. After the ledger's clock was set back it shows by how much, until `set_back` moves it.
    """
    if session.sqlite:
        with session.transaction("beat") as connection:
            now = now_on(session)
            latest: Any = func.max(worker.c.seen_at, literal(now, worker.c.seen_at.type))
            connection.execute(_seen_at(insert_sqlite(worker), name, info, now, latest))
        return now
    crash_point("beat.before_commit")  # one statement, in autocommit: one round trip
    clock = func.clock_timestamp(type_=worker.c.seen_at.type)
    # Read again once the row is locked: a heartbeat that waited for `set_back` must not store the clock of before.
    latest = func.greatest(worker.c.seen_at, clock)
    beaten = _seen_at(insert_postgres(worker), name, info, clock, latest).returning(clock)
    found: datetime = session.core.execute(beaten).scalar_one()
    crash_point("beat.after_commit")
    return found


def _seen_at(new: Any, name: str, info: Mapping[str, Any] | None, now: Any, latest: Any) -> Any:
    new = new.values(
        name=name, host=socket.gethostname(), pid=os.getpid(), info=json.dumps(dict(info or {})), started_at=now, seen_at=now
    )
    seen: dict[str, Any] = {"seen_at": latest, "ended_at": None}
    if info is not None:
        seen["info"] = new.excluded.info
    return new.on_conflict_do_update(index_elements=[worker.c.name], set_=seen)


def leave(session: Session, name: str, /) -> None:
    """The worker has ended, in order."""
    with session.transaction("beat") as connection:
        now = now_on(session)
        moment = literal(now, worker.c.seen_at.type)
        # As for `beat`: the last heartbeat by a clock that was set back shows by how much.
        latest = case((worker.c.seen_at > moment, worker.c.seen_at), else_=moment)
        connection.execute(update(worker).where(worker.c.name == name).values(seen_at=latest, ended_at=now))


def workers(connection: Connection, /) -> list[Worker]:
    """All that there are, the last seen first."""
    return [_seen(*row) for row in connection.execute(_WORKERS).all()]


def present(connection: Connection, /) -> list[Worker]:
    """Those that have not ended, as far as anybody knows."""
    return [_seen(*row) for row in connection.execute(_PRESENT).all()]


def _seen(name: str, host: str | None, pid: int | None, info: str | None, *moments: Any) -> Worker:
    return Worker(name, host, pid, json.loads(info or "{}"), *moments)


_ALL = select(*(worker.c[name] for name in Worker._fields))
_WORKERS = _ALL.order_by(worker.c.seen_at.desc(), worker.c.name)
_PRESENT = _ALL.where(worker.c.ended_at.is_(None)).order_by(worker.c.name)


def forget(session: Session, /) -> int:
    """Those that were not seen for long; how many."""
    with session.transaction("beat") as connection:
        return connection.execute(delete(worker).where(worker.c.seen_at < now_on(session) - REMEMBERED)).rowcount
