"""The journal in SQL: what happened last, read from the ledger's rows. Each part uses an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, select

from ..db.compiled import sql_int
from ..db.tables import attempt, audit, dead, job
from ..model import DONE, stored_mapping


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An event of a job or a partition, or a decision. Immutable. `ops` redacts it."""

    id: str
    """Unique, so that a reader recognises entries that it has seen."""
    at: datetime
    event: str
    """submitted, failed, lost, returned, done or dead. Of a partition: rejected. Or the action of
    an audit entry, such as dead.replay."""
    kind: str | None = None
    """Job type, or dataset of a partition such as crm/orders."""
    key: str | None = None
    """Job key, or name of a partition."""
    job_id: int | None = None
    attempt: int | None = None
    worker: str | None = None
    seconds: float | None = None
    """Duration of the attempt."""
    reason: str | None = None
    error: str | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    """Correlation ids."""
    dead_id: int | None = None
    actor: str | None = None


class _Window(NamedTuple):
    """Which entries."""

    since: datetime | None
    kind: str | None
    limit: int

    def select(self, *columns: Any, of_kind: Any = None, at: Any = None) -> Select[Any]:
        """Return a query of at most `limit` rows.

        Args:
            columns: The columns.
            of_kind: Column of the job type.
            at: Column of the time, if an index is ordered by it.
        """
        query = select(*columns)
        if at is not None and self.since is not None:
            query = query.where(at >= self.since)
        if self.kind is not None:
            query = query.where(of_kind == self.kind)
        # Inline the LIMIT: under a generic plan Postgres would join the whole range.
        return query.limit(sql_int(self.limit))

    def contains(self, at: datetime) -> bool:
        """Return whether the time is not before `since`."""
        return self.since is None or at >= self.since


def tail(
    connection: Connection,
    /,
    *,
    since: datetime | None,
    kind: str | None,
    events: frozenset[str] | None,
    limit: int,
) -> list[JournalEntry]:
    """Return the last entries, newest first.

    Args:
        connection: The connection.
        since: Not older than this.
        kind: Only of this job type.
        events: Only these, see `EVENTS`.
        limit: Maximum number.
    """
    window = _Window(since, kind, limit)
    entries: list[JournalEntry] = []
    for read, names in _PARTS.items():
        if events is None or events & names:
            entries += read(connection, window)
    if events is not None:
        entries = [
            each
            for each in entries
            if each.event in events or (each.actor is not None and "decided" in events)
        ]
    return sorted(entries, key=lambda each: (each.at, each.id), reverse=True)[:limit]


def _attempts(connection: Connection, window: _Window) -> Iterator[JournalEntry]:
    names = ("job_id", "fence", "ended_at", "outcome", "number", "worker", "reason", "error")
    columns = (attempt.c[name] for name in (*names, "started_at"))
    query = (
        window.select(
            *columns, job.c.kind, job.c.key, job.c.ids, of_kind=job.c.kind, at=attempt.c.ended_at
        )
        .outerjoin_from(attempt, job, job.c.id == attempt.c.job_id)
        .order_by(attempt.c.ended_at.desc(), attempt.c.job_id.desc(), attempt.c.fence.desc())
    )
    for row in connection.execute(query):
        yield JournalEntry(
            f"attempt {row.job_id} {row.fence}",
            row.ended_at,
            row.outcome,
            kind=row.kind,
            key=row.key,
            job_id=row.job_id,
            attempt=row.number,
            worker=row.worker,
            reason=row.reason,
            error=row.error,
            ids=stored_mapping(row.ids),
            seconds=_seconds(row.started_at, row.ended_at),
        )


def _seconds(started_at: datetime | None, ended_at: datetime) -> float | None:
    return None if started_at is None else max(0.0, (ended_at - started_at).total_seconds())


def _done(connection: Connection, window: _Window) -> Iterator[JournalEntry]:
    names = ("id", "ended_at", "kind", "key", "attempts", "worker", "ids", "started_at", "dead_id")
    columns = (job.c[name] for name in names)
    query = (
        window.select(*columns, of_kind=job.c.kind, at=job.c.ended_at)
        .where(job.c.state == sql_int(DONE))
        .order_by(job.c.ended_at.desc(), job.c.id.desc())
    )
    for row in connection.execute(query):
        yield JournalEntry(
            f"done {row.id}",
            row.ended_at,
            "done",
            kind=row.kind,
            key=row.key,
            job_id=row.id,
            attempt=row.attempts,
            worker=row.worker,
            ids=stored_mapping(row.ids),
            seconds=_seconds(row.started_at, row.ended_at),
            dead_id=row.dead_id,
        )


def _dead(connection: Connection, window: _Window) -> Iterator[JournalEntry]:
    names = ("id", "created_at", "kind", "key", "job_id", "attempts", "reason", "error", "ids")
    columns = (dead.c[name] for name in names)
    # By id, because no index is ordered by the time.
    query = window.select(*columns, of_kind=dead.c.kind).order_by(dead.c.id.desc())
    for row in connection.execute(query):
        if window.contains(row.created_at):
            yield JournalEntry(
                f"dead {row.id}",
                row.created_at,
                "dead",
                kind=row.kind,
                key=row.key,
                job_id=row.job_id,
                attempt=row.attempts,
                reason=row.reason,
                error=row.error,
                ids=stored_mapping(row.ids),
                dead_id=row.id,
            )


def _submissions(connection: Connection, window: _Window) -> Iterator[JournalEntry]:
    columns = (job.c[name] for name in ("id", "created_at", "kind", "key", "ids", "dead_id"))
    query = window.select(*columns, of_kind=job.c.kind).order_by(job.c.id.desc())
    for row in connection.execute(query):
        if window.contains(row.created_at):
            yield JournalEntry(
                f"job {row.id}",
                row.created_at,
                "submitted",
                kind=row.kind,
                key=row.key,
                job_id=row.id,
                ids=stored_mapping(row.ids),
                dead_id=row.dead_id,
            )


def _decisions(connection: Connection, window: _Window) -> Iterator[JournalEntry]:
    if window.kind is not None:
        return
    columns = (audit.c[name] for name in ("number", "at", "actor", "action", "because", "what"))
    for row in connection.execute(window.select(*columns).order_by(audit.c.number.desc())):
        at = datetime.fromisoformat(row.at)
        if window.contains(at):
            kind = json.loads(row.what).get("kind")
            yield JournalEntry(
                f"audit {row.number}",
                at,
                row.action,
                kind=kind if isinstance(kind, str) else None,
                reason=row.because,
                actor=row.actor,
            )


_PARTS: dict[Callable[[Connection, _Window], Iterator[JournalEntry]], frozenset[str]] = {
    _attempts: frozenset(("failed", "lost", "returned")),
    _done: frozenset(("done",)),
    _dead: frozenset(("dead",)),
    _submissions: frozenset(("submitted",)),
    _decisions: frozenset(("decided",)),
}
EVENTS = frozenset().union(*_PARTS.values())
"""Valid filters. "decided": decisions of people and automations, from the audit log."""
