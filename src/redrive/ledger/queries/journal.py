"""Tail: what happened last, read from the ledger's own rows: they are the journal in SQL. Each part through its index."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, select

from ..db.compiled import number
from ..db.tables import attempt, audit, dead, job
from ..state import DONE


class Happened(NamedTuple):
    """Something that happened to a job, or that somebody decided. Immutable."""

    id: str
    """Its own, for ever: what was seen already is known by it."""
    at: datetime
    event: str
    """submitted, failed, lost, returned, done, dead; or an audit's action."""
    kind: str | None
    key: str | None
    job_id: int | None
    attempt: int | None
    worker: str | None
    reason: str | None
    error: str | None
    ids: str | None
    started_at: datetime | None
    dead_id: int | None
    actor: str | None


def tail(
    connection: Connection, /, *, since: datetime | None, kind: str | None, events: frozenset[str] | None, limit: int
) -> list[Happened]:
    """The last so many, the newest first; since: only what is not older."""
    parts: dict[str, Any] = {"attempts": _attempts, "done": _done, "dead": _dead, "submitted": _submitted, "audit": _audit}
    found: list[Happened] = []
    for name, part in parts.items():
        if events is None or events & _EVENTS[name]:
            found += part(connection, since, kind, limit)
    if events is not None:
        found = [one for one in found if one.event in events or (one.actor is not None and "decided" in events)]
    return sorted(found, key=lambda one: (one.at, one.id), reverse=True)[:limit]


_EVENTS = {
    "attempts": frozenset(("failed", "lost", "returned")),
    "done": frozenset(("done",)),
    "dead": frozenset(("dead",)),
    "submitted": frozenset(("submitted",)),
    "audit": frozenset(("decided",)),
}
EVENTS = frozenset().union(*_EVENTS.values())
"""What may be asked for. Decided: by a person, or by an automation of a name; it is in the audit."""


def _attempts(connection: Connection, since: datetime | None, kind: str | None, limit: int) -> list[Happened]:
    columns = (
        attempt.c.job_id, attempt.c.fence, attempt.c.ended_at, attempt.c.outcome, attempt.c.number, attempt.c.worker,
        attempt.c.reason, attempt.c.error, attempt.c.started_at, job.c.kind, job.c.key, job.c.ids,
    )  # fmt: skip
    query = select(*columns).outerjoin_from(attempt, job, job.c.id == attempt.c.job_id)
    query = query.order_by(attempt.c.ended_at.desc(), attempt.c.job_id.desc(), attempt.c.fence.desc())
    return [
        Happened(
            f"attempt {row.job_id} {row.fence}", row.ended_at, row.outcome, row.kind, row.key, row.job_id, row.number, row.worker,
            row.reason, row.error, row.ids, row.started_at, None, None,
        )
        for row in connection.execute(_narrowed(query, attempt.c.ended_at, since, kind, limit))
    ]  # fmt: skip


def _done(connection: Connection, since: datetime | None, kind: str | None, limit: int) -> list[Happened]:
    columns = (job.c.id, job.c.ended_at, job.c.kind, job.c.key, job.c.attempts, job.c.worker, job.c.ids, job.c.started_at)
    query = select(*columns, job.c.dead_id).where(job.c.state == number(DONE)).order_by(job.c.ended_at.desc(), job.c.id.desc())
    return [
        Happened(
            f"done {row.id}", row.ended_at, "done", row.kind, row.key, row.id, row.attempts, row.worker, None, None, row.ids,
            row.started_at, row.dead_id, None,
        )
        for row in connection.execute(_narrowed(query, job.c.ended_at, since, kind, limit))
    ]  # fmt: skip


def _dead(connection: Connection, since: datetime | None, kind: str | None, limit: int) -> list[Happened]:
    columns = (dead.c.id, dead.c.created_at, dead.c.kind, dead.c.key, dead.c.job_id, dead.c.attempts, dead.c.reason, dead.c.error)
    query = select(*columns, dead.c.ids).order_by(dead.c.id.desc()).limit(number(limit))
    if kind is not None:
        query = query.where(dead.c.kind == kind)
    rows = connection.execute(query)  # in the order they came: by their numbers, since no index is by the moment
    return [
        Happened(
            f"dead {row.id}", row.created_at, "dead", row.kind, row.key, row.job_id, row.attempts, None, row.reason, row.error,
            row.ids, None, row.id, None,
        )
        for row in rows
        if since is None or row.created_at >= since
    ]  # fmt: skip


def _submitted(connection: Connection, since: datetime | None, kind: str | None, limit: int) -> list[Happened]:
    columns = (job.c.id, job.c.created_at, job.c.kind, job.c.key, job.c.ids, job.c.dead_id)
    query = select(*columns).order_by(job.c.id.desc()).limit(number(limit))
    if kind is not None:
        query = query.where(job.c.kind == kind)
    return [
        Happened(
            f"job {row.id}", row.created_at, "submitted", row.kind, row.key, row.id, None, None, None, None, row.ids, None,
            row.dead_id, None,
        )
        for row in connection.execute(query)
        if since is None or row.created_at >= since
    ]  # fmt: skip


def _audit(connection: Connection, since: datetime | None, kind: str | None, limit: int) -> list[Happened]:
    if kind is not None:
        return []  # it is of no kind
    query = select(audit.c.number, audit.c.at, audit.c.actor, audit.c.action, audit.c.because, audit.c.what)
    found = []
    for row in connection.execute(query.order_by(audit.c.number.desc()).limit(number(limit))):
        at = datetime.fromisoformat(row.at)
        if since is None or at >= since:
            its = json.loads(row.what).get("kind")
            found.append(
                Happened(
                    f"audit {row.number}", at, row.action, its if isinstance(its, str) else None, None, None, None, None,
                    row.because, None, None, None, None, row.actor,
                )
            )  # fmt: skip
    return found


def _narrowed(query: Select[Any], at: Any, since: datetime | None, kind: str | None, limit: int) -> Select[Any]:
    if since is not None:
        query = query.where(at >= since)
    if kind is not None:
        query = query.where(job.c.kind == kind)
    return query.limit(number(limit))  # in the text: not knowing how few, Postgres would rather join all that there are
