"""Overview: how the whole ledger stands, for those who look after it. Each reads one moment, see `Ledger.reading`."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, null, or_, select, union_all

from ..db.compiled import number, words
from ..db.tables import dead, item, job, key, kind
from ..db.types import Moment
from ..state import DEAD, LEASED, READY, Shown, shown


class Standing(NamedTuple):
    """The live jobs of one kind: how many there are by the names that people know, and how long the oldest has waited."""

    shown: Counter[Shown]
    due: int
    """Waiting, and due by now."""
    oldest_due: datetime | None
    next_due: datetime | None
    """When the next one falls due that is not due yet."""


class Some(NamedTuple):
    """How many there are, and since when."""

    many: int = 0
    since: datetime | None = None


def standing(connection: Connection, now: datetime, /) -> dict[str, Standing]:
    """Live jobs, by kind; ended ones are in the counts. Reads every live row."""
    tried = _flag(or_(job.c.attempts > 0, job.c.reason.is_not(None)))
    started, replay = _flag(job.c.started_at.is_not(None)), _flag(job.c.dead_id.is_not(None))
    due = and_(job.c.state == number(READY), job.c.due_at <= now)
    waits = and_(job.c.state == number(READY), job.c.due_at > now)
    alike = (job.c.kind, job.c.state, tried, started, replay)
    rows = connection.execute(
        select(
            *alike,
            func.count().label("jobs"),
            func.sum(_flag(due)).label("due"),
            func.min(case((due, job.c.due_at))).label("oldest"),
            func.min(case((waits, job.c.due_at))).label("soonest"),
        )
        .where(job.c.state.in_((number(READY), number(LEASED))))
        .group_by(*alike)
    )
    found: dict[str, Standing] = {}
    for name, state, was_tried, has_started, is_replay, jobs, are_due, oldest, soonest in rows:
        before = found.get(name) or Standing(Counter(), 0, None, None)
        before.shown[shown(state, attempts=was_tried, started=bool(has_started), replay=bool(is_replay))] += jobs
        found[name] = Standing(
            before.shown,
            before.due + int(are_due),
            _earlier(before.oldest_due, oldest),
            _earlier(before.next_due, soonest),
        )
    letters = select(dead.c.kind, dead.c.blocked, func.count()).where(dead.c.status == "pending", dead.c.job_id.is_not(None))
    for name, blocked, count in connection.execute(letters.group_by(dead.c.kind, dead.c.blocked)):
        found.setdefault(name, Standing(Counter(), 0, None, None)).shown[shown(DEAD, blocked=blocked)] += count
    return found


class Stuck(NamedTuple):
    """Work that no process continues. Immutable."""

    leases: Some
    """Expired leases that were not recovered."""
    items: dict[str, int]
    """Batch items that were given up lately, by batch, the most first."""


def read_stuck(connection: Connection, /, *, expired_before: datetime, given_up_since: datetime, most: int) -> Stuck:
    """Read both in one query: a page asks few. most: Maximum number of items that are counted."""
    leases, items = Some(), dict[str, int]()
    for batch, count, since in connection.execute(_stuck_query(most), {"before": expired_before, "since": given_up_since}):
        if batch is None:
            leases = Some(count, since)
        else:
            items[batch] = count
    return Stuck(leases, dict(sorted(items.items(), key=lambda pair: (-pair[1], pair[0]))))


@lru_cache(maxsize=10)
def _stuck_query(most: int) -> Any:
    """Built once for each bound."""
    given_up = (
        select(item.c.batch, item.c.given_up_at)
        .where(item.c.status == words("giveup"), item.c.given_up_at >= bindparam("since", type_=Moment))
        .order_by(item.c.given_up_at.desc())
        .limit(number(most))
        .subquery()
    )
    leases = select(null(), func.count(), func.min(job.c.lease_until)).where(job.c.state == number(LEASED))
    return union_all(
        select(given_up.c.batch, func.count(), func.min(given_up.c.given_up_at)).group_by(given_up.c.batch),
        leases.where(job.c.lease_until < bindparam("before", type_=Moment)),
    )


def overdue(connection: Connection, before: datetime, /) -> dict[str, Some]:
    """Jobs that were due before then, and that nobody has taken up; by kind."""
    query = select(job.c.kind, func.count(), func.min(job.c.due_at)).where(job.c.state == number(READY), job.c.due_at < before)
    rows = connection.execute(query.group_by(job.c.kind).order_by(job.c.kind))
    return {name: Some(many, since) for name, many, since in rows}


def wedged(connection: Connection, before: datetime, /) -> tuple[Some, list[str]]:
    """Idempotency keys in processing whose holder's lease ran out before then; and the first few of them."""
    held = and_(key.c.status == "processing", key.c.lease_until < before)
    found = Some(*connection.execute(select(func.count(), func.min(key.c.lease_until)).where(held)).one())
    first = connection.execute(select(key.c.key).where(held).order_by(key.c.lease_until).limit(3)).scalars().all()
    return found, list(first)


def died(connection: Connection, since: datetime, until: datetime, /) -> dict[str, int]:
    """Dead letters that came between two moments; by kind."""
    query = select(dead.c.kind, func.count()).where(dead.c.created_at >= since, dead.c.created_at < until)
    return {row[0]: row[1] for row in connection.execute(query.group_by(dead.c.kind).order_by(dead.c.kind))}


def undecided(connection: Connection, /) -> dict[str, Some]:
    """Dead letters that wait for a decision, not for a time; by kind."""
    query = select(dead.c.kind, func.count(), func.min(dead.c.created_at)).where(
        dead.c.status == "pending", dead.c.blocked_until.is_(None)
    )
    rows = connection.execute(query.group_by(dead.c.kind).order_by(dead.c.kind))
    return {name: Some(many, since) for name, many, since in rows}


def parked(connection: Connection, /) -> dict[str, str]:
    """Kinds that are not handed out for now, and why."""
    query = select(kind.c.kind, kind.c.reason).where(kind.c.parked_at.is_not(None)).order_by(kind.c.kind)
    return {row[0]: row[1] or "" for row in connection.execute(query)}


def _flag(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return case((condition, number(1)), else_=number(0))


def _earlier(one: Any, other: Any) -> Any:
    return other if one is None or (other is not None and other < one) else one
