"""Queries with a lookup for each job type or group, on SQLite.

It has no LATERAL, except for `json_each`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select, true, union_all

from ...db.compiled import compile_sqlite
from ...db.tables import dead
from ...stats.failure_groups import ALL_SIGNATURES, FailureGroup
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

MAX_LOOKUPS = 100
"""In one statement. SQLite takes 500 parts in a compound SELECT."""


def first_of_kinds(ids: Select[Any], kinds: Sequence[str], limit: int, newest: bool, /) -> Any:
    """Return a subquery with the ids of the first dead letters of each job type, merged."""
    look = func.json_each(json.dumps(list(kinds))).table_valued("value", name="look")
    few = in_order(ids.where(dead.c.kind == look.c.value), dead.c.id, limit, newest)
    rows = few.correlate(look).subquery()
    packed = select(func.json_group_array(rows.c.id)).scalar_subquery()
    each = func.json_each(packed).table_valued("value", name="each")
    merged = select(each.c.value.label("id")).select_from(look.join(each, true()))
    return in_order(merged, each.c.value, limit, newest).subquery()


@cache
def earliest_due_sql(lookups: int) -> str:
    """Return the statement for this many lookups. One, because each releases the GIL."""
    names = [(f"kind{place}", f"priority{place}") for place in range(lookups)]
    firsts = [
        select(first_due(bindparam(kind), bindparam(priority)).scalar_subquery().label("due"))
        for kind, priority in names
    ]
    earliest = select(func.min(union_all(*firsts).subquery().c.due))
    return compile_sqlite(earliest, *chain.from_iterable(names))


def next_due(connection: Connection, lookups: Sequence[tuple[str, int]], /) -> datetime | None:
    """Return the earliest due time of ready jobs, by job type and priority."""
    run: Any = connection.connection.driver_connection
    earliest = []
    for start in range(0, len(lookups), MAX_LOOKUPS):
        batch = lookups[start : start + MAX_LOOKUPS]
        statement = earliest_due_sql(len(batch))
        earliest.append(run.execute(statement, list(chain.from_iterable(batch))).fetchone()[0])
    return from_db(min((due for due in earliest if due is not None), default=None))


# A lookup for each group. From a list of pairs, SQLite would make a scan of all groups.
_GROUPS = """(SELECT key AS place, json_extract(value, '$[0]') AS kind,
json_extract(value, '$[1]') AS signature FROM json_each(:wanted)) AS look"""
_SLOTS = f"""SELECT look.place, kept.slot, kept.tries, kept.died
FROM {_GROUPS} CROSS JOIN redrive_failure_slot AS kept
WHERE kept.kind = look.kind AND kept.signature = look.signature AND kept.slot >= :since"""  # noqa: S608
_BY_HOUR, _BY_STEP = sum_by_hour(_SLOTS), sum_by_step(f"{_SLOTS} AND kept.slot < :until")


def failures_by_hour(
    connection: Connection,
    times: dict[str, object],
    groups: Sequence[FailureGroup],
    _by_kind: bool,
    /,
) -> Sequence[Any]:
    """Return failures within an hour, with the place of their group."""
    return connection.execute(_BY_HOUR, {**times, "wanted": json.dumps(list(groups))}).all()


def failures_by_step(
    connection: Connection, times: dict[str, object], groups: Sequence[FailureGroup], /
) -> Sequence[Any]:
    """Return failures by steps of a chart, with the place of their group."""
    return connection.execute(_BY_STEP, {**times, "wanted": json.dumps(list(groups))}).all()


_OF_KINDS = "kind IN (SELECT value FROM json_each(:kinds))"
_KINDS_BY_STEP = sum_kinds_by_step(
    f"""SELECT kind, slot, tries, died FROM redrive_failure_slot
WHERE {_OF_KINDS} AND signature = char({ord(ALL_SIGNATURES)})
AND slot >= :since AND slot < :until"""  # noqa: S608
)
_ACTIVITY = sum_activity(_OF_KINDS)


def failures_of_kinds_by_step(
    connection: Connection, times: dict[str, object], kinds: Sequence[str], /
) -> Sequence[Any]:
    """Return the steps of a chart, with the failures of all these job types."""
    return connection.execute(_KINDS_BY_STEP, {**times, "kinds": json.dumps(list(kinds))}).all()


def activity_of_kinds(
    connection: Connection, times: dict[str, object], kinds: Sequence[str], /
) -> Sequence[Any]:
    """Return the job types, with the sums of their activity between two minutes."""
    return connection.execute(_ACTIVITY, {**times, "kinds": json.dumps(list(kinds))}).all()


_ENDS = ends_of_groups(_GROUPS)


def ends_of_groups_by_place(
    connection: Connection, groups: Sequence[FailureGroup], /
) -> Sequence[Any]:
    """Return the place of each group, with its newest and oldest pending dead letter."""
    return connection.execute(_ENDS, {"wanted": json.dumps(list(groups))}).all()
