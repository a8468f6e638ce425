"""Glance: jobs and dead letters as lists show them: without payloads, which may be large."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from .state import Status
from .tables import dead


class LetterLine(NamedTuple):
    """A dead letter, without what is in it."""

    id: int
    kind: str
    key: str
    status: Status
    reason: str
    blocked: bool
    blocked_until: datetime | None
    error: str | None
    signature: str | None
    attempts: int
    replay_count: int
    job_id: int | None
    replay_job_id: int | None
    source: str | None
    source_id: str | None
    last_attempt_at: datetime | None
    created_at: datetime
    updated_at: datetime


def letters(
    connection: Connection, /, *, ids: Sequence[int] | None = None, status: Status | None = None, kind: str | None = None,
    reason: str | None = None, error: str | None = None, since: datetime | None = None, source: str | None = None,
    after: int = 0, before: int | None = None, limit: int = 100, newest: bool = False, signature: str | None = None,
) -> list[LetterLine]:  # fmt: skip
    """Dead letters in the order they came, behind the one numbered `after`; or the newest first, in front of `before`."""
    columns = [dead.c[name] for name in LetterLine._fields]
    query = select(*columns).order_by(dead.c.id.desc() if newest else dead.c.id).limit(limit)
    if after:
        query = query.where(dead.c.id > after)
    if before is not None:
        query = query.where(dead.c.id < before)
    for name, value in (("status", status), ("kind", kind), ("reason", reason)):
        if value is not None:
            query = query.where(dead.c[name] == value)
    if ids is not None:
        query = query.where(dead.c.id.in_(list(ids)))
    if error is not None:
        query = query.where(dead.c.error.icontains(error, autoescape=True) | (dead.c.signature == error))
    if signature is not None:
        query = query.where(dead.c.signature == signature if signature else dead.c.signature.is_(None))
    if since is not None:
        query = query.where(dead.c.created_at >= since)
    if source is not None:
        query = query.where(_of_source(source))
    return [LetterLine._make(row) for row in connection.execute(query)]


def _of_source(source: str) -> Any:
    return dead.c.source.is_not(None) if source == "*" else dead.c.source == source
