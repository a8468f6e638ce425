"""Workers and their heartbeats, which decide whether a lost lease was a crash."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, case, delete, literal, select, update

from ..db.clock import now_on, now_sql
from ..db.session import Session, upsert
from ..db.tables import worker

DEFAULT_LEASE_SECONDS = 7.0
"""Of a worker that does not report the duration of its leases."""
BEATS_PER_LEASE = 4
FRESH_BEATS = 1.5
"""Number of heartbeats after which a worker is not fresh."""
RETENTION = timedelta(days=7)
"""How long a worker is stored after its last heartbeat."""


class WorkerRecord(NamedTuple):
    """A worker at its last heartbeat."""

    name: str
    host: str | None
    pid: int | None
    info: dict[str, Any]
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None

    @property
    def lost(self) -> bool:
        """Whether other workers found that its process was dead.

        A worker that stops in order is seen when it ends, see `expire_leases_of_dead_workers`.
        """
        return self.ended_at is not None and self.seen_at < self.ended_at


def is_fresh(worker_: WorkerRecord, now: datetime, /) -> bool:
    """Return whether the last heartbeat is so recent that the worker must be alive.

    Args:
        worker_: The worker.
        now: Time of the ledger's clock.
    """
    beat = (_lease_seconds(worker_.info) or DEFAULT_LEASE_SECONDS) / BEATS_PER_LEASE
    return now - worker_.seen_at < timedelta(seconds=beat * FRESH_BEATS)


def lease_of(info: str | None, /) -> float | None:
    """Return the seconds of a worker's leases, from its stored info. None: not reported."""
    return _lease_seconds(json.loads(info or "{}"))


def _lease_seconds(info: Mapping[str, Any]) -> float | None:
    lease = info.get("lease")
    return float(lease) if isinstance(lease, (int, float)) and lease > 0 else None


def heartbeat(session: Session, name: str, info: Mapping[str, Any] | None, /) -> datetime:
    """Write that the worker is alive.

    Returns:
        The time of the ledger's clock, which saves a query.
    """
    with session.single_statement("beat") as connection:
        now = now_sql(session)
        new = upsert(session, worker).values(
            name=name,
            host=socket.gethostname(),
            pid=os.getpid(),
            info=json.dumps(dict(info or {})),
            started_at=now,
            seen_at=now,
        )
        values: dict[str, Any] = {"seen_at": _latest(now), "ended_at": None}
        if info is not None:
            values["info"] = new.excluded.info
        statement = new.on_conflict_do_update(index_elements=[worker.c.name], set_=values)
        beat_at: datetime = connection.execute(statement.returning(now)).scalar_one()
        return beat_at


def _latest(now: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the new time of a heartbeat, which never moves back.

    After the ledger's clock was set back, the stored time shows by how much, until
    `correct_setback` moves it. Postgres reads its clock here once the row is locked, so a heartbeat
    that waited for `correct_setback` does not store the old clock.
    """
    return case((worker.c.seen_at > now, worker.c.seen_at), else_=now)


def deregister(session: Session, name: str, /) -> None:
    """Write that the worker has stopped."""
    with session.transaction("beat") as connection:
        # One time for both columns: `Worker.lost` compares them.
        now = literal(now_on(session), worker.c.seen_at.type)
        values = {"seen_at": _latest(now), "ended_at": now}
        connection.execute(update(worker).where(worker.c.name == name).values(values))


_WORKERS = select(*(worker.c[name] for name in WorkerRecord._fields))
_BY_LAST_SEEN = _WORKERS.order_by(worker.c.seen_at.desc(), worker.c.name)
_ACTIVE = _WORKERS.where(worker.c.ended_at.is_(None)).order_by(worker.c.name)


def list_workers(connection: Connection, /) -> list[WorkerRecord]:
    """Return all workers, the last seen first."""
    return [_from_row(row) for row in connection.execute(_BY_LAST_SEEN)]


def active_workers(connection: Connection, /) -> list[WorkerRecord]:
    """Return the workers that have not ended, as far as is known."""
    return [_from_row(row) for row in connection.execute(_ACTIVE)]


def _from_row(row: Any) -> WorkerRecord:
    return WorkerRecord._make(row)._replace(info=json.loads(row.info or "{}"))


def delete_old(session: Session, /) -> int:
    """Delete workers that were not seen for `RETENTION`, and return how many."""
    with session.transaction("beat") as connection:
        is_old = worker.c.seen_at < now_on(session) - RETENTION
        return connection.execute(delete(worker).where(is_old)).rowcount
