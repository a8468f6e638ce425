"""Queries of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from ..db.compiled import sql_int
from ..db.tables import dead
from ..dead_letter import DeadLetter, DeadLetterSummary
from ..filters import DeadLetterConditions
from ..stats.counters import counts
from ..stats.failure_groups import FailureGroup
from ..store.queries import queries_of
from ..store.statements import in_order

MAX_KINDS = 200
"""Job types that are queried one by one. With more of them, the database sorts."""


def _narrow(query: Select[Any], wanted: DeadLetterConditions) -> Select[Any]:
    for name in ("status", "kind", "reason", "job_id", "blocked"):
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(dead.c[name] == value)
    if wanted.ids is not None:
        query = query.where(dead.c.id.in_(list(wanted.ids)))
    if wanted.error is not None:
        in_error = dead.c.error.icontains(wanted.error, autoescape=True)
        query = query.where(in_error | (dead.c.signature == wanted.error))
    if wanted.signature is not None:
        has_none = dead.c.signature.is_(None)
        query = query.where(dead.c.signature == wanted.signature if wanted.signature else has_none)
    if wanted.since is not None:
        query = query.where(_died_since(wanted.since))
    if wanted.until is not None:
        query = query.where(_died_before(wanted.until))
    if wanted.source == "*":
        query = query.where(dead.c.source.is_not(None))
    elif wanted.source is not None:
        query = query.where(dead.c.source == wanted.source)
    return query


def _died_since(since: datetime) -> ColumnElement[bool]:
    replay_died = and_(dead.c.status == "pending", dead.c.updated_at >= since)
    return or_(dead.c.created_at >= since, replay_died)


def _died_before(until: datetime) -> ColumnElement[bool]:
    """Return the condition for `DeadLetterSummary.died_at`."""
    attempted_before = or_(dead.c.last_attempt_at.is_(None), dead.c.last_attempt_at < until)
    return or_(
        and_(dead.c.status == "pending", dead.c.updated_at < until),
        and_(dead.c.status != "pending", dead.c.created_at < until, attempted_before),
    )


def with_payloads(
    connection: Connection,
    wanted: DeadLetterConditions,
    /,
    *,
    after: int = 0,
    limit: int = 100,
    newest: bool = False,
) -> list[DeadLetter]:
    """Return dead letters with their payloads, oldest first.

    Args:
        connection: The connection.
        wanted: Which dead letters.
        after: Only dead letters with a higher id.
        limit: Maximum number.
        newest: Newest first.
    """
    columns = (dead.c[name.removesuffix("_stored")].label(name) for name in DeadLetter._fields)
    order = dead.c.id.desc() if newest else dead.c.id
    query = select(*columns).where(dead.c.id > after).order_by(order).limit(limit)
    return [DeadLetter._make(row) for row in connection.execute(_narrow(query, wanted))]


_SUMMARY = tuple(dead.c[name] for name in DeadLetterSummary.__slots__)
_CAUSE = (dead.c.id, dead.c.kind, dead.c.reason, dead.c.signature)


def summaries(
    connection: Connection,
    wanted: DeadLetterConditions,
    /,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int = 100,
    newest: bool = False,
) -> list[DeadLetterSummary]:
    """Return dead letters without their payloads, which may be large, oldest first.

    Args:
        connection: The connection.
        wanted: Which dead letters.
        after: Only dead letters with a higher id.
        before: Only dead letters with a lower id.
        limit: Maximum number.
        newest: Newest first.
    """
    page = (after, before, limit, newest)
    return [DeadLetterSummary(*row) for row in _read_page(connection, _SUMMARY, wanted, *page)]


def causes(
    connection: Connection,
    wanted: DeadLetterConditions,
    /,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int = 100,
) -> Sequence[Any]:
    """Return id, job type, reason and signature of dead letters, oldest first."""
    return _read_page(connection, _CAUSE, wanted, after, before, limit, newest=False)


def _read_page(
    connection: Connection,
    columns: Sequence[Any],
    wanted: DeadLetterConditions,
    after: int,
    before: int | None,
    limit: int,
    newest: bool,
) -> Sequence[Any]:
    if wanted.kind is not None:
        kinds = [wanted.kind]
    elif wanted.status is not None and wanted.ids is None:
        kinds = list(counts(connection))
    else:
        kinds = []
    query = _narrow(select(*columns), wanted._replace(kind=None))
    if after:
        query = query.where(dead.c.id > after)
    if before is not None:
        query = query.where(dead.c.id < before)
    if len(kinds) == 1:
        query = query.where(dead.c.kind == kinds[0])
    elif 0 < len(kinds) <= MAX_KINDS:
        # The index is over status, kind and id, so only the result is sorted. The database runs one
        # lookup for each job type: writing the query twenty times takes longer than running it.
        ids = query.with_only_columns(dead.c.id)
        first = queries_of(connection).first_of_kinds(ids, kinds, limit, newest)
        query = select(*columns).join(first, first.c.id == dead.c.id)
    return connection.execute(in_order(query, dead.c.id, limit, newest)).all()


def count(
    connection: Connection,
    wanted: DeadLetterConditions,
    /,
    *,
    most: int,
    after: int = 0,
    before: int | None = None,
) -> int:
    """Return the number of dead letters, counted up to `most`.

    Args:
        connection: The connection.
        wanted: Which dead letters.
        most: Maximum number.
        after: Only dead letters with a higher id.
        before: Only dead letters with a lower id.
    """
    ids = _narrow(select(dead.c.id), wanted).limit(sql_int(most))
    if after:
        ids = ids.where(dead.c.id > after)
    if before is not None:
        ids = ids.where(dead.c.id < before)
    return int(connection.execute(select(func.count()).select_from(ids.subquery())).scalar_one())


def of_jobs(connection: Connection, jobs: Sequence[int], /) -> Sequence[Any]:
    """Return the pending dead letters of these jobs, without their payloads."""
    columns = (dead.c.id, dead.c.job_id, dead.c.kind, dead.c.key, dead.c.attempts, dead.c.reason)
    query = select(*columns, dead.c.error).where(dead.c.job_id.in_(list(jobs)))
    return connection.execute(query.where(dead.c.status == "pending")).all()


def ids_by_job(connection: Connection, jobs: Sequence[int], /) -> dict[int, int]:
    """Return the ids of the dead letters of these jobs, by job id."""
    query = select(dead.c.job_id, dead.c.id).where(dead.c.job_id.in_(list(jobs)))
    return {row.job_id: row.id for row in connection.execute(query)}


# --- Groups by cause


class LetterGroup(NamedTuple):
    """Dead letters of one job type and one cause. Immutable."""

    kind: str
    cause: str
    """The signature of the error, or without one the reason."""
    size: int
    first_at: datetime
    last_at: datetime
    newest_id: int


_cause = func.coalesce(func.nullif(dead.c.signature, ""), dead.c.reason)


def group_by_cause(
    connection: Connection, wanted: DeadLetterConditions, /, *, most: int, limit: int
) -> list[LetterGroup]:
    """Return groups of the newest matching dead letters, the largest first.

    Args:
        connection: The connection.
        wanted: Which dead letters.
        most: Maximum number of dead letters that are read.
        limit: Maximum number of groups.
    """
    columns = (dead.c.id, dead.c.kind, _cause.label("cause"), dead.c.created_at, dead.c.updated_at)
    ids = _narrow(select(*columns), wanted)
    read = ids.order_by(dead.c.id.desc()).limit(sql_int(most)).subquery()
    count = func.count().label("count")
    query = (
        select(
            read.c.kind,
            read.c.cause,
            count,
            func.min(read.c.created_at, type_=dead.c.created_at.type),
            func.max(read.c.updated_at, type_=dead.c.updated_at.type),
            func.max(read.c.id),
        )
        .group_by(read.c.kind, read.c.cause)
        .order_by(count.desc(), read.c.kind, read.c.cause)
        .limit(limit)
    )
    return [LetterGroup._make(row) for row in connection.execute(query)]


def ends_of_groups(
    connection: Connection, groups: Sequence[FailureGroup], /
) -> dict[FailureGroup, tuple[DeadLetterSummary, DeadLetterSummary]]:
    """Return the newest and oldest pending dead letter of groups that have a signature."""
    if not groups:
        return {}
    rows = queries_of(connection).ends_of_groups_by_place(connection, groups)
    ids = {letter_id for _, *ends in rows for letter_id in ends if letter_id is not None}
    letters = by_ids(connection, sorted(ids))
    return {
        groups[place]: (letters[newest], letters[oldest])
        for place, newest, oldest in rows
        if newest in letters and oldest in letters
    }


def by_ids(connection: Connection, ids: Sequence[int], /) -> dict[int, DeadLetterSummary]:
    """Return dead letters without their payloads, by id."""
    if not ids:
        return {}
    query = select(*_SUMMARY).where(dead.c.id.in_(ids))
    return {row.id: DeadLetterSummary(*row) for row in connection.execute(query)}
