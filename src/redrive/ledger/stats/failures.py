"""Failures, by what they are alike in: a kind and a signature. Counted in the transaction of what failed, and read at no cost
that grows with how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, exists, func, null, select, tuple_, union_all
from sqlalchemy.dialects.postgresql import insert

from ..db.clock import now_on
from ..db.compiled import number, words
from ..db.failure_tables import FAILURES, failure, failure_delta, failure_slot
from ..db.session import Session
from ..db.tables import dead
from ..db.tables import kind as kinds
from ..db.types import micros
from ..store.postgres import failure_counters as on_postgres
from ..store.sqlite import failure_counters as on_sqlite
from .failure_deltas import WHOLE, Alike, Failed, slot_of

FOLD = 10_000
REMEMBERED = timedelta(days=31)
"""How long failures are remembered after they were last seen, once nothing of them is pending."""


class Group(NamedTuple):
    """Failures that are alike. Immutable."""

    kind: str
    signature: str
    tries: int
    died: int
    pending: int
    blocked: int
    first_at: datetime
    last_at: datetime
    job_id: int | None
    error: str | None


def add(session: Session, changes: Mapping[Alike, Failed], now: datetime, /) -> None:
    """Add to what is counted, in the transaction that is open."""
    if session.sqlite:
        on_sqlite.add(session.raw, changes, micros(now))
    else:
        on_postgres.add(session.raw, changes)


# ---- read ----


def groups(
    connection: Connection,
    /,
    *,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int,
) -> list[Group]:
    """Those with most dead letters, and those that were seen last; some of each, each through its index.

    until: Only those that were first seen before.
    """
    found: dict[Alike, Group] = {}
    for order in ((failure.c.pending.desc(), failure.c.last_at.desc()), (failure.c.last_at.desc(),)):
        query = _GROUP.order_by(*order).limit(limit)
        if kind is not None:
            query = query.where(failure.c.kind == kind)
        if since is not None:
            query = query.where(failure.c.last_at >= since)
        if until is not None:
            query = query.where(failure.c.first_at < until)
        found |= {(row[0], row[1]): Group._make(row) for row in connection.execute(query)}
    fresh = [one for one in _deltas(connection) if kind is None or one.kind == kind]
    missing = [(one.kind, one.signature) for one in fresh if (one.kind, one.signature) not in found]
    if missing:
        query = _GROUP.where(tuple_(failure.c.kind, failure.c.signature).in_(missing))
        found |= {(row[0], row[1]): Group._make(row) for row in connection.execute(query)}
    return list(_merged(found, fresh).values())


def group(connection: Connection, kind: str, signature: str, /) -> Group | None:
    """One of them; None: nothing failed like this, as far as anybody remembers."""
    row = connection.execute(_GROUP.where(failure.c.kind == kind, failure.c.signature == signature)).first()
    found = {} if row is None else {(kind, signature): Group._make(row)}
    fresh = [one for one in _deltas(connection) if (one.kind, one.signature) == (kind, signature)]
    return _merged(found, fresh).get((kind, signature))


_GROUP = select(*(failure.c[name] for name in Group._fields))
_SUMMED = select(
    failure_delta.c.kind,
    failure_delta.c.signature,
    *(func.sum(failure_delta.c[name]) for name in FAILURES),
    func.min(failure_delta.c.at, type_=failure_delta.c.at.type),
    func.max(failure_delta.c.at, type_=failure_delta.c.at.type),
    func.max(failure_delta.c.job_id),
    func.max(failure_delta.c.error),
).group_by(failure_delta.c.kind, failure_delta.c.signature)


def _deltas(connection: Connection) -> list[Group]:
    """What was not summed up yet: nothing on SQLite, of the last seconds on Postgres."""
    if connection.dialect.name == "sqlite":
        return []
    return [Group._make((*row[:2], *map(int, row[2:6]), *row[6:])) for row in connection.execute(_SUMMED)]


def _merged(found: Mapping[Alike, Group], fresh: Iterable[Group]) -> dict[Alike, Group]:
    merged = dict(found)
    for one in fresh:
        old = merged.get((one.kind, one.signature))
        merged[one.kind, one.signature] = one if old is None else _together(old, one)
    return merged


def _together(old: Group, new: Group) -> Group:
    failed = new.job_id is not None
    counted = (getattr(old, name) + getattr(new, name) for name in FAILURES)
    ends = (min(old.first_at, new.first_at), max(old.last_at, new.last_at)) if failed else (old.first_at, old.last_at)
    return Group._make((old.kind, old.signature, *counted, *ends, new.job_id or old.job_id, new.error or old.error))


class Standing(NamedTuple):
    """Failures by job type."""

    blocked: dict[str, int]
    """Blocked dead letters."""
    parked: dict[str, tuple[str, datetime]]
    """Why and since when a job type is paused."""
    first_seen: dict[str, datetime]
    """The first failure of all groups that were seen since the given time."""


def standing(connection: Connection, since: datetime, /) -> Standing:
    """Read all three in one query: a page asks few."""
    found = Standing({}, {}, {})
    for kind, reason, at, count in connection.execute(_STANDING, {"since": since}):
        if count < 0:
            found.first_seen[kind] = at
        elif at is not None:
            found.parked[kind] = reason or "", at
        elif count:
            found.blocked[kind] = int(count)
    return found


_blocked = union_all(
    select(failure.c.kind, failure.c.blocked).where(failure.c.pending > number(0)),
    select(failure_delta.c.kind, failure_delta.c.blocked),
).subquery()
_summed = select(_blocked.c.kind, null(), null(), func.sum(_blocked.c.blocked)).group_by(_blocked.c.kind)
_parked = select(kinds.c.kind, kinds.c.reason, kinds.c.parked_at, number(0)).where(kinds.c.parked_at.is_not(None))
_seen = union_all(
    select(failure.c.kind, failure.c.first_at).where(failure.c.last_at >= bindparam("since", type_=failure.c.last_at.type)),
    select(failure_delta.c.kind, failure_delta.c.at.label("first_at")).where(failure_delta.c.job_id.is_not(None)),
).subquery()
_first = select(_seen.c.kind, null(), func.min(_seen.c.first_at), number(-1)).group_by(_seen.c.kind)
_STANDING = union_all(_parked, _summed, _first)


# ---- keep ----


def fold(session: Session, /) -> int:
    """Sum up the rows that changes left on Postgres; how many they were."""
    if session.sqlite or not session.core.execute(_ANY).scalar():
        return 0
    with session.transaction("fold") as connection:
        some = select(failure_delta.c.id).order_by(failure_delta.c.id).limit(FOLD).with_for_update(skip_locked=True)
        gone = delete(failure_delta).where(failure_delta.c.id.in_(some.scalar_subquery())).returning(failure_delta)
        found = connection.execute(gone).all()
        merged: dict[Alike, Group] = {}
        slots: dict[tuple[int, str, str], tuple[int, int]] = {}
        for row in sorted(found, key=lambda one: one.id):
            counts = (getattr(row, name) for name in FAILURES)
            one = Group._make((row.kind, row.signature, *counts, row.at, row.at, row.job_id, row.error))
            old = merged.get((one.kind, one.signature))
            merged[one.kind, one.signature] = one if old is None else _together(old, one)
            if one.tries or one.died:
                for name in (one.signature, WHOLE):
                    place = (slot_of(row.at), one.kind, name)
                    tries, died = slots.get(place, (0, 0))
                    slots[place] = (tries + one.tries, died + one.died)
        for alike in sorted(merged):  # in one order, so that two who fold never wait for each other
            connection.execute(_ADD, merged[alike]._asdict())
        for place in sorted(slots):
            slot, kind, signature = place
            tries, died = slots[place]
            counted = {"slot": slot, "kind": kind, "signature": signature, "tries": tries, "died": died}
            connection.execute(_ADD_SLOT, counted)
    return len(found)


_ANY = select(exists().select_from(failure_delta))
"""One round trip, where most of the time there is nothing."""
_add = insert(failure)
_failed_too = _add.excluded.job_id.is_not(None)
_ADD = _add.on_conflict_do_update(
    index_elements=[failure.c.kind, failure.c.signature],
    set_={
        **{name: failure.c[name] + _add.excluded[name] for name in FAILURES},
        "first_at": func.least(failure.c.first_at, _add.excluded.first_at),
        "last_at": case((_failed_too, func.greatest(failure.c.last_at, _add.excluded.last_at)), else_=failure.c.last_at),
        "job_id": func.coalesce(_add.excluded.job_id, failure.c.job_id),
        "error": func.coalesce(_add.excluded.error, failure.c.error),
    },
)
_slot = insert(failure_slot)
_ADD_SLOT = _slot.on_conflict_do_update(
    index_elements=[failure_slot.c.slot, failure_slot.c.kind, failure_slot.c.signature],
    set_={name: failure_slot.c[name] + _slot.excluded[name] for name in ("tries", "died")},
)


def forget(session: Session, /) -> int:
    """What was not seen for long, and of which nothing is pending; how many groups."""
    with session.transaction("beat") as connection:
        old = now_on(session) - REMEMBERED
        connection.execute(delete(failure_slot).where(failure_slot.c.slot < slot_of(old)))
        gone = delete(failure).where(failure.c.last_at < old, failure.c.pending == 0, failure.c.blocked == 0)
        return connection.execute(gone).rowcount


def imbalance(connection: Connection, /) -> list[str]:
    """Where the groups are not what the dead letters say, in words. Reads every pending dead letter."""
    counted = {alike: numbers for alike, numbers in _pending(connection).items() if numbers != (0, 0)}
    right = _right(connection)
    return [
        f"failures of {kind} like {signature!r}: {counted.get((kind, signature), (0, 0))[0]} pending are counted "
        f"({counted.get((kind, signature), (0, 0))[1]} blocked), and there are {right.get((kind, signature), (0, 0))[0]} "
        f"({right.get((kind, signature), (0, 0))[1]})"
        for kind, signature in sorted(counted.keys() | right.keys())
        if counted.get((kind, signature)) != right.get((kind, signature))
    ]


def lacking(connection: Connection, /) -> dict[Alike, Failed]:
    """What would have to be added to the groups to be what the dead letters say."""
    counted, right = _pending(connection), _right(connection)
    found: dict[Alike, Failed] = {}
    for alike in sorted(counted.keys() | right.keys()):
        (is_, is_blocked), (should, should_blocked) = counted.get(alike, (0, 0)), right.get(alike, (0, 0))
        if (is_, is_blocked) != (should, should_blocked):
            found[alike] = Failed(pending=should - is_, blocked=should_blocked - is_blocked)
    return found


def _pending(connection: Connection) -> dict[Alike, tuple[int, int]]:
    names = ("kind", "signature", "pending", "blocked")
    rows = union_all(select(*(failure.c[name] for name in names)), select(*(failure_delta.c[name] for name in names))).subquery()
    summed = select(rows.c.kind, rows.c.signature, func.sum(rows.c.pending), func.sum(rows.c.blocked))
    found = connection.execute(summed.group_by(rows.c.kind, rows.c.signature))
    return {(kind, signature): (int(pending), int(blocked)) for kind, signature, pending, blocked in found}


def _right(connection: Connection) -> dict[Alike, tuple[int, int]]:
    alike = (dead.c.kind, func.coalesce(dead.c.signature, words("")))
    there = select(*alike, func.count(), func.count().filter(dead.c.blocked)).where(dead.c.status == "pending").group_by(*alike)
    return {(kind, signature): (many, blocked) for kind, signature, many, blocked in connection.execute(there)}
