"""Glance: jobs and dead letters as lists show them: without payloads, which may be large."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import ARRAY, Connection, Select, Text, bindparam, column, func, select, true

from ..db.compiled import number
from ..db.tables import dead
from ..letter import Letter
from ..record import Job
from ..state import Shown, Status
from ..stats.counters import counts
from . import jobs as find
from . import queue

Window: TypeAlias = tuple[datetime | None, datetime | None]
"""From, until. None: without this end."""
ANY_TIME: Window = (None, None)
MANY = 200
"""Kinds that are looked at one by one; with more of them, the database sorts."""


def letters(
    connection: Connection, /, *, ids: Sequence[int] | None = None, status: Status | None = None, kind: str | None = None,
    reason: str | None = None, error: str | None = None, died: Window = ANY_TIME, source: str | None = None,
    blocked: bool | None = None, signature: str | None = None, after: int = 0, before: int | None = None, limit: int = 100,
    newest: bool = False,
) -> list[Letter]:  # fmt: skip
    """Dead letters in the order they came, behind the one numbered `after`; or the newest first, in front of `before`."""
    query = _narrowed(
        select(*(dead.c[name] for name in Letter.__slots__)), ids=ids, status=status, kind=None, reason=reason, error=error,
        died=died, source=source, blocked=blocked, signature=signature,
    )  # fmt: skip
    if after:
        query = query.where(dead.c.id > after)
    if before is not None:
        query = query.where(dead.c.id < before)
    kinds = [kind] if kind is not None else list(counts(connection)) if status is not None and ids is None else []
    found = connection.execute(_by_kind(query, kinds, limit, newest=newest, on_sqlite=connection.dialect.name == "sqlite"))
    return [Letter(*row) for row in found.all()]


def count_letters(
    connection: Connection, /, *, most: int, status: Status | None = None, kind: str | None = None, reason: str | None = None,
    error: str | None = None, died: Window = ANY_TIME, source: str | None = None,
) -> int:  # fmt: skip
    """How many dead letters match, counted up to `most`."""
    some = _narrowed(
        select(dead.c.id), ids=None, status=status, kind=kind, reason=reason, error=error, died=died,
        source=source, blocked=None, signature=None,
    ).limit(number(most))  # fmt: skip
    return int(connection.execute(select(func.count()).select_from(some.subquery())).scalar_one())


def _narrowed(
    query: Select[Any], /, *, ids: Sequence[int] | None, status: Status | None, kind: str | None, reason: str | None,
    error: str | None, died: Window, source: str | None, blocked: bool | None, signature: str | None,
) -> Select[Any]:  # fmt: skip
    for name, value in (("status", status), ("kind", kind), ("reason", reason), ("blocked", blocked)):
        if value is not None:
            query = query.where(dead.c[name] == value)
    if ids is not None:
        query = query.where(dead.c.id.in_(list(ids)))
    if error is not None:
        query = query.where(dead.c.error.icontains(error, autoescape=True) | (dead.c.signature == error))
    if signature is not None:
        query = query.where(dead.c.signature == signature if signature else dead.c.signature.is_(None))
    since, until = died
    if since is not None:
        query = query.where(find.died_since(since))
    if until is not None:
        query = query.where(find.died_before(until))
    return query if source is None else query.where(_of_source(source))


def _by_kind(query: Select[Any], kinds: Sequence[str], limit: int, *, newest: bool, on_sqlite: bool) -> Any:
    """The first of each kind, put together: the index has status, kind and number, and nothing is sorted but what is shown."""

    def ordered(one: Select[Any], column: Any) -> Select[Any]:
        # The limit in the text: not knowing how few they are, Postgres may rather sort all that there are.
        return one.order_by(column.desc() if newest else column).limit(number(limit))

    if not 0 < len(kinds) <= MANY:
        return ordered(query, dead.c.id)
    if len(kinds) == 1:
        return ordered(query.where(dead.c.kind == kinds[0]), dead.c.id)
    numbers = query.with_only_columns(dead.c.id)  # the rest is looked up for those that are shown
    # For each kind by the database: to say it twenty times takes longer than to answer it. SQLite has no LATERAL, but for this.
    if on_sqlite:
        look = func.json_each(json.dumps(list(kinds))).table_valued("value", name="look")
        few = ordered(numbers.where(dead.c.kind == look.c.value), dead.c.id).correlate(look).subquery()
        packed = select(func.json_group_array(few.c.id)).scalar_subquery()
        each = func.json_each(packed).table_valued("value", name="each")
        first = ordered(select(each.c.value.label("id")).select_from(look.join(each, true())), each.c.value).subquery()
    else:
        given = bindparam(None, list(kinds), type_=ARRAY(Text()))
        look = func.unnest(given).table_valued(column("kind", Text())).render_derived(name="look")
        some = ordered(numbers.where(dead.c.kind == look.c.kind), dead.c.id).lateral()
        first = ordered(select(some.c.id).select_from(look.join(some, true())), some.c.id).subquery()
    return ordered(select(*(dead.c[name] for name in Letter.__slots__)).join(first, first.c.id == dead.c.id), dead.c.id)


def jobs(connection: Connection, name: Shown | None, /, *, kind: str | None, limit: int) -> list[Job]:
    """Some jobs by the name that people have for their state, each list through an index, whatever there is beside it."""
    if name in ("dlq", "blocked", "discarded"):
        status: Status = "discarded" if name == "discarded" else "pending"
        blocked = None if name == "discarded" else name == "blocked"
        died = letters(connection, status=status, kind=kind, blocked=blocked, limit=limit, newest=True)
        rows = find.lines(connection, [one.job_id for one in died if one.job_id is not None])
        return [rows[one.job_id] for one in died if one.job_id in rows]
    if name == "queued" or name == "retry_wait":
        return queue.waiting(connection, name, kind=kind, limit=limit)
    if name == "replaying":
        under_way = letters(connection, status="replaying", kind=kind, limit=limit, newest=True)
        again = find.lines(connection, [one.replay_job_id for one in under_way if one.replay_job_id is not None])
        return [one for one in again.values() if one.shown == "replaying"]
    if name == "done":
        recent = find.recent(connection, kind=kind, limit=limit)
        if len(recent) == limit:
            return recent
    return find.named(connection, name, kind=kind, limit=limit)


def _of_source(source: str) -> Any:
    return dead.c.source.is_not(None) if source == "*" else dead.c.source == source
