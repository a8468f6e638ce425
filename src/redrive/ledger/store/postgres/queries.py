"""Queries with a lookup for each job type or group, on Postgres: lateral joins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    Connection,
    Select,
    SmallInteger,
    Text,
    bindparam,
    column,
    func,
    select,
    true,
)

from ...db.compiled import unnest
from ...db.tables import dead
from ...stats.failure_groups import ALL_SIGNATURES, SLOT_SECONDS, FailureGroup
from ...timestamps import from_db
from ..statements import (
    ends_of_groups,
    first_due,
    in_order,
    sum_activity,
    sum_by_hour,
    sum_by_step,
    sum_kinds_by_step,
)


def first_of_kinds(ids: Select[Any], kinds: Sequence[str], limit: int, newest: bool, /) -> Any:
    """Return a subquery with the ids of the first dead letters of each job type, merged."""
    names = bindparam(None, list(kinds), type_=ARRAY(Text()))
    look = func.unnest(names).table_valued(column("kind", Text())).render_derived(name="look")
    few = in_order(ids.where(dead.c.kind == look.c.kind), dead.c.id, limit, newest)
    lateral = few.lateral()
    merged = select(lateral.c.id).select_from(look.join(lateral, true()))
    return in_order(merged, lateral.c.id, limit, newest).subquery()


_look = unnest("look", kind=Text(), priority=SmallInteger())
_first = first_due(_look.c.kind, _look.c.priority).lateral("first")
_EARLIEST = select(func.min(_first.c.due_at)).select_from(_look.join(_first, true()))


def next_due(connection: Connection, lookups: Sequence[tuple[str, int]], /) -> datetime | None:
    """Return the earliest due time of ready jobs, by job type and priority."""
    kinds, priorities = [each[0] for each in lookups], [each[1] for each in lookups]
    values = {"look_kind": kinds, "look_priority": priorities}
    return from_db(connection.execute(_EARLIEST, values).scalar())


# A lookup for each group. From a list of pairs, Postgres would make a scan of all groups, because
# it merges subqueries unless they have OFFSET 0.
_GROUPS = """(SELECT n - 1 AS place, kind, signature
FROM unnest(CAST(:kinds AS text[]), CAST(:signatures AS text[]))
WITH ORDINALITY AS each(kind, signature, n)) AS look"""
_SLOTS = f"""SELECT look.place, kept.slot, kept.tries, kept.died
FROM {_GROUPS} CROSS JOIN LATERAL (
SELECT slot, tries, died FROM redrive_failure_slot AS one
WHERE one.kind = look.kind AND one.signature = look.signature AND one.slot >= :since
OFFSET 0) AS kept"""  # noqa: S608
_DELTA_SLOT = f"CAST(floor(extract(epoch FROM delta.at) / {SLOT_SECONDS}) AS bigint) AS slot"
_DELTAS = f"""SELECT look.place, {_DELTA_SLOT},
delta.tries, delta.died
FROM redrive_failure_delta AS delta JOIN {_GROUPS} ON delta.kind = look.kind"""  # noqa: S608
_HAS_FAILED = "WHERE delta.job_id IS NOT NULL"
_BY_KIND = sum_by_hour(_SLOTS, f"{_DELTAS} {_HAS_FAILED}")
_IS_OF_GROUP = f"look.signature IN (delta.signature, chr({ord(ALL_SIGNATURES)}))"
_OF_GROUP = f"{_DELTAS} AND {_IS_OF_GROUP} {_HAS_FAILED}"
_BY_GROUP, _BY_STEP = sum_by_hour(_SLOTS, _OF_GROUP), sum_by_step(_SLOTS, _OF_GROUP)


def failures_by_hour(
    connection: Connection,
    times: dict[str, object],
    groups: Sequence[FailureGroup],
    by_kind: bool,
    /,
) -> Sequence[Any]:
    """Return failures within an hour, with the place of their group."""
    kinds, signatures = map(list, zip(*groups, strict=True))
    parameters = {**times, "kinds": kinds, "signatures": signatures}
    return connection.execute(_BY_KIND if by_kind else _BY_GROUP, parameters).all()


def failures_by_step(
    connection: Connection, times: dict[str, object], groups: Sequence[FailureGroup], /
) -> Sequence[Any]:
    """Return failures by steps of a chart, with the place of their group."""
    kinds, signatures = map(list, zip(*groups, strict=True))
    parameters = {**times, "kinds": kinds, "signatures": signatures}
    return connection.execute(_BY_STEP, parameters).all()


# A condition instead of a lookup for each job type: the rows of a minute or slot are stored
# together, so one scan reads each page once.
_OF_KINDS = "kind = ANY(CAST(:kinds AS text[]))"
_KINDS_BY_STEP = sum_kinds_by_step(
    f"""SELECT kind, slot, tries, died FROM redrive_failure_slot
WHERE {_OF_KINDS} AND signature = chr({ord(ALL_SIGNATURES)})
AND slot >= :since AND slot < :until""",  # noqa: S608
    f"""SELECT kind, {_DELTA_SLOT}, tries, died FROM redrive_failure_delta AS delta
WHERE {_OF_KINDS} AND job_id IS NOT NULL""",  # noqa: S608
)
_ACTIVITY = sum_activity(_OF_KINDS)


def failures_of_kinds_by_step(
    connection: Connection, times: dict[str, object], kinds: Sequence[str], /
) -> Sequence[Any]:
    """Return the steps of a chart, with the failures of all these job types."""
    return connection.execute(_KINDS_BY_STEP, {**times, "kinds": list(kinds)}).all()


def activity_of_kinds(
    connection: Connection, times: dict[str, object], kinds: Sequence[str], /
) -> Sequence[Any]:
    """Return the job types, with the sums of their activity between two minutes."""
    return connection.execute(_ACTIVITY, {**times, "kinds": list(kinds)}).all()


_ENDS = ends_of_groups(_GROUPS)


def ends_of_groups_by_place(
    connection: Connection, groups: Sequence[FailureGroup], /
) -> Sequence[Any]:
    """Return the place of each group, with its newest and oldest pending dead letter."""
    kinds, signatures = map(list, zip(*groups, strict=True))
    return connection.execute(_ENDS, {"kinds": kinds, "signatures": signatures}).all()
