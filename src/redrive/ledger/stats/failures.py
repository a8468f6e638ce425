"""Failures by group: read, cleaned up and checked. The cost does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from sqlalchemy import (
    Connection,
    delete,
    func,
    select,
    tuple_,
    union_all,
)

from ..db.clock import now_on
from ..db.compiled import sql_int, sql_text
from ..db.session import Session
from ..db.tables import FAILURES, dead, failure, failure_delta, failure_slot
from ..store.queries import queries_of
from .failure_groups import (
    ALL_SIGNATURES,
    SLOTS_PER_HOUR,
    FailureDelta,
    FailureGroup,
    FailureSummary,
    merge_summaries,
    slot_of,
)

RETENTION = timedelta(days=31)
"""How long a group is stored after its last failure, once nothing of it is pending."""

# --- Groups

_GROUP = select(*(failure.c[name] for name in FailureSummary._fields))
_DELTAS = select(
    failure_delta.c.kind,
    failure_delta.c.signature,
    *(func.sum(failure_delta.c[name]) for name in FAILURES),
    func.min(failure_delta.c.at, type_=failure_delta.c.at.type),
    func.max(failure_delta.c.at, type_=failure_delta.c.at.type),
    func.max(failure_delta.c.job_id),
    func.max(failure_delta.c.error),
).group_by(failure_delta.c.kind, failure_delta.c.signature)
"""Changes that were not summed up yet: the last seconds on Postgres, nothing on SQLite."""


def read_groups(
    connection: Connection,
    /,
    *,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int,
) -> list[FailureSummary]:
    """Return the groups with most dead letters and those seen last, each through its index.

    At most `limit` of each. They were last seen after `since`, and first seen before `until`.
    """
    groups: dict[FailureGroup, FailureSummary] = {}
    by_pending = (failure.c.pending.desc(), failure.c.last_at.desc())
    for order in (by_pending, (failure.c.last_at.desc(),)):
        query = _GROUP.order_by(*order).limit(limit)
        if kind is not None:
            query = query.where(failure.c.kind == kind)
        if since is not None:
            query = query.where(failure.c.last_at >= since)
        if until is not None:
            query = query.where(failure.c.first_at < until)
        groups |= {(row[0], row[1]): FailureSummary._make(row) for row in connection.execute(query)}
    deltas = [each for each in _read_deltas(connection) if kind is None or each.kind == kind]
    _add_missing(connection, groups, deltas)
    merge_summaries(groups, deltas)
    return list(groups.values())


def pending_groups(connection: Connection, kind: str | None, limit: int, /) -> list[FailureSummary]:
    """Return the groups with pending dead letters, the largest first, by their counters."""
    query = _GROUP.where(failure.c.pending > sql_int(0)).order_by(failure.c.pending.desc())
    if kind is not None:
        query = query.where(failure.c.kind == kind)
    # A few more: changes that were not summed up yet may remove some.
    rows = connection.execute(query.limit(2 * limit))
    groups = {(row[0], row[1]): FailureSummary._make(row) for row in rows}
    deltas = [each for each in _read_deltas(connection) if kind is None or each.kind == kind]
    _add_missing(connection, groups, deltas)
    merge_summaries(groups, deltas)
    pending = [group for group in groups.values() if group.pending > 0]
    return sorted(pending, key=lambda group: (-group.pending, group.kind, group.signature))[:limit]


def _add_missing(
    connection: Connection,
    groups: dict[FailureGroup, FailureSummary],
    deltas: Sequence[FailureSummary],
) -> None:
    """Read the groups of changes that were not summed up yet."""
    missing = {(each.kind, each.signature) for each in deltas} - groups.keys()
    if missing:
        query = _GROUP.where(tuple_(failure.c.kind, failure.c.signature).in_(sorted(missing)))
        groups |= {(row[0], row[1]): FailureSummary._make(row) for row in connection.execute(query)}


def read_group(connection: Connection, kind: str, signature: str, /) -> FailureSummary | None:
    """Return a group, or None."""
    group = (kind, signature)
    query = _GROUP.where(failure.c.kind == kind, failure.c.signature == signature)
    row = connection.execute(query).first()
    groups = {} if row is None else {group: FailureSummary._make(row)}
    deltas = [each for each in _read_deltas(connection) if (each.kind, each.signature) == group]
    merge_summaries(groups, deltas)
    return groups.get(group)


def _read_deltas(connection: Connection) -> list[FailureSummary]:
    return [
        FailureSummary._make((*row[:2], *map(int, row[2:6]), *row[6:]))
        for row in connection.execute(_DELTAS)
    ]


# --- Failures by hour


class HourCount(NamedTuple):
    """Failures within an hour."""

    first: int
    last: int
    """The first and last slot with a failure."""
    tries: int
    died: int


def hours_by_kind(
    connection: Connection, kinds: Sequence[str], now: int, hours: int, /
) -> dict[str, list[HourCount]]:
    """Return the failures of job types in each of the last hours. `now` is the current slot."""
    wanted = [(kind, ALL_SIGNATURES) for kind in kinds]
    counts = _read_hours(connection, now, hours, wanted, by_kind=True)
    return {kind: each for (kind, _), each in counts.items()}


def hours_by_group(
    connection: Connection, now: int, hours: int, wanted: Sequence[FailureGroup], /
) -> dict[FailureGroup, list[HourCount]]:
    """Return the failures of groups in each of the last hours."""
    return _read_hours(connection, now, hours, wanted, by_kind=False)


def last_hour(
    connection: Connection, now: int, wanted: Sequence[FailureGroup], /
) -> dict[FailureGroup, int]:
    """Return the number of failed attempts of groups in the last hour."""
    since = now - SLOTS_PER_HOUR
    return {
        group: sum(each.tries for each in counts if each.last > since)
        for group, counts in hours_by_group(connection, now, 1, wanted).items()
    }


class StepCount(NamedTuple):
    """Failures within one step of a chart."""

    step: int
    """From 0."""
    tries: int
    died: int


def steps_by_group(
    connection: Connection,
    wanted: Sequence[FailureGroup],
    since: int,
    until: int,
    step: int,
    /,
) -> dict[FailureGroup, list[StepCount]]:
    """Return the failures of groups between two slots, by steps of so many slots.

    The signature `ALL_SIGNATURES` stands for all groups of a job type.
    """
    if not wanted:
        return {}
    times: dict[str, object] = {"since": since, "until": until, "step": step}
    counts: dict[FailureGroup, list[StepCount]] = {}
    for place, *values in queries_of(connection).failures_by_step(connection, times, wanted):
        counts.setdefault(wanted[place], []).append(StepCount(*values))
    return counts


def failed_by_step(
    connection: Connection, kinds: Sequence[str], since: int, until: int, step: int, /
) -> dict[int, int]:
    """Return the failures of all these job types between two slots, by steps of so many slots."""
    if not kinds:
        return {}
    times: dict[str, object] = {"since": since, "until": until, "step": step}
    rows = queries_of(connection).failures_of_kinds_by_step(connection, times, kinds)
    return dict(map(tuple, rows))


def _read_hours(
    connection: Connection, now: int, hours: int, wanted: Sequence[FailureGroup], *, by_kind: bool
) -> dict[FailureGroup, list[HourCount]]:
    if not wanted:
        return {}
    times: dict[str, object] = {"now": now, "since": now - SLOTS_PER_HOUR * hours}
    rows = queries_of(connection).failures_by_hour(connection, times, wanted, by_kind)
    counts: dict[FailureGroup, list[HourCount]] = {}
    for place, *values in rows:
        counts.setdefault(wanted[place], []).append(HourCount(*values))
    return counts


# --- Maintenance


def delete_old(session: Session, /) -> int:
    """Delete groups that were not seen for `RETENTION`, and return how many."""
    with session.transaction("beat") as connection:
        old = now_on(session) - RETENTION
        connection.execute(delete(failure_slot).where(failure_slot.c.slot < slot_of(old)))
        groups = delete(failure).where(
            failure.c.last_at < old, failure.c.pending == 0, failure.c.blocked == 0
        )
        return connection.execute(groups).rowcount


def imbalance(connection: Connection, /) -> list[str]:
    """Return where the groups differ from the dead letters. Reads every pending dead letter."""
    return [
        f"failures of {kind} like {signature!r}: {counted[0]} pending are counted "
        f"({counted[1]} blocked), and there are {stored[0]} ({stored[1]})"
        for (kind, signature), counted, stored in _differences(connection)
    ]


def drift_from_rows(connection: Connection, /) -> dict[FailureGroup, FailureDelta]:
    """Return the changes that make the groups agree with the dead letters."""
    return {
        group: FailureDelta(pending=stored[0] - counted[0], blocked=stored[1] - counted[1])
        for group, counted, stored in _differences(connection)
    }


_Counts: TypeAlias = tuple[int, int]
"""Pending dead letters, and how many of them are blocked."""


def _differences(connection: Connection) -> Iterator[tuple[FailureGroup, _Counts, _Counts]]:
    """Yield groups whose counters differ from the dead letters: as counted, and as stored."""
    names = ("kind", "signature", "pending", "blocked")
    rows = union_all(
        select(*(failure.c[name] for name in names)),
        select(*(failure_delta.c[name] for name in names)),
    ).subquery()
    counted = select(
        rows.c.kind, rows.c.signature, func.sum(rows.c.pending), func.sum(rows.c.blocked)
    ).group_by(rows.c.kind, rows.c.signature)
    group = (dead.c.kind, func.coalesce(dead.c.signature, sql_text("")))
    stored = (
        select(*group, func.count(), func.count().filter(dead.c.blocked))
        .where(dead.c.status == "pending")
        .group_by(*group)
    )
    in_counters, in_rows = (
        {(row[0], row[1]): (int(row[2]), int(row[3])) for row in connection.execute(query)}
        for query in (counted, stored)
    )
    for name in sorted(in_counters.keys() | in_rows.keys()):
        pair = (in_counters.get(name, (0, 0)), in_rows.get(name, (0, 0)))
        if pair[0] != pair[1]:
            yield name, *pair
