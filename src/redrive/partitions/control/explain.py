"""Explain: why a partition is not running now, when it will, and what else stands in its way."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, func, or_, select

from ...core.text import pluralise
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import range_, work
from ...ledger.db.partition_tables import source as source_table
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ..key import Partition
from ..model import Explanation, Facts, Run
from ..retry_schedule import Policy, Terms
from ..store import queries
from ..store.queries import facts, known
from ..store.rows import HELD, Held, Mark, Work, marks, works
from . import source_health, sweeps
from .rate_limits import rated
from .sweeps import ACTS, Range

COUNTED = 100_000
"""A longer queue is not counted to its end."""


def explained(session: Session, key: Partition, terms: Terms | None, /) -> Explanation:
    """What there is to say of it."""
    connection = session.core
    now = now_on(session)
    row = known(connection, key)
    found = None if row is None else next(iter(facts(connection, [row.id])), None)
    mine = None if row is None else works(connection, [row.id]).get(row.id)
    held = connection.execute(select(*HELD).where(source_table.c.source == key.source)).first()
    raw = None if found is None else found.current_raw_id
    damaged = None if row is None or raw is None else queries.damaged(connection, row.id, raw)
    why: list[str] = []
    position = queued = None
    inside = None
    if mine is None:
        inside = _waiting_in(session, key) if found is None or found.terminal is None else None
        if found is None and inside is None and key.logical_date > now.date():
            why.append("the day is in the future, so it cannot be extracted yet")
        else:
            why += _idle(found, inside, damaged)
    elif mine.leased:
        why.append(f"running now: run {mine.run_id} on {mine.worker}, lease until {_at(mine.lease_until)}")
        if mine.lease_until is not None and mine.lease_until < now:
            why.append("the lease has expired because the worker is offline; another worker recovers the partition")
    else:
        if mine.due_at > now:
            why.append(f"scheduled for {_at(mine.due_at)}: {mine.strategy}")
        why += _swept(session, mine)
        position, queued = _place(session, mine)
    if inside is not None or (mine is not None and not mine.leased):
        why += _in_the_way(session, key, Held._make(held) if held else None, terms, now)
    marked = {} if row is None else marks(connection, [row.id]).get(row.id, {})
    budget = None if found is None else _budget(found, marked.get("grant"), terms)
    return Explanation(found, now, tuple(why), position, queued, budget, inside.id if inside else None, damaged)


def _idle(found: Facts | None, inside: Range | None, damaged: Run | None) -> list[str]:
    if found is not None:
        if found.terminal is not None:
            return [f"gave up ({found.terminal}); clear-terminal allows retries"]
        if found.paused is not None:
            return [f"paused ({found.paused})"]
    if inside is not None:
        queued = f"{inside.cursor} of {inside.total} partitions are queued"
        return [f"not queued yet by sweep {inside.id} ({inside.act}, {inside.state}): {queued}"]
    if found is None:
        return ["never requested, neither by a schedule nor by a backfill"]
    if damaged is not None:
        return ["accepted, but its raw data is damaged and no new extraction is requested"]
    if found.status == "success":
        if found.last_verdict == "rejected":
            return ["accepted; a newer run was rejected, and no other is requested"]
        return ["accepted, so no extraction is needed"]
    return ["failed, and no retry is requested"]


def _swept(session: Session, mine: Work) -> list[str]:
    if not mine.sweep_id:
        return []
    state = session.core.execute(select(sweep.c.state).where(sweep.c.id == mine.sweep_id)).scalar()
    return [] if state == "running" else [f"sweep {mine.sweep_id} is {state}"]


def _place(session: Session, mine: Work) -> tuple[int, int]:
    """How many of its stream are due before it, and how many wait in all."""
    at = work.c
    here = (
        at.lease_until.is_(None), at.source == mine.source, at.query_name == mine.query_name, at.lane == mine.lane,
        at.sweep_id == mine.sweep_id,
    )  # fmt: skip
    before = or_(at.due_at < mine.due_at, and_(at.due_at == mine.due_at, at.partition_id < mine.partition_id))
    first = select(at.partition_id).where(*here, before).limit(COUNTED).subquery()
    all_ = select(at.partition_id).where(*here).limit(COUNTED).subquery()
    many = session.core.execute(
        select(
            select(func.count()).select_from(first).scalar_subquery(), select(func.count()).select_from(all_).scalar_subquery()
        )
    ).one()
    return many[0] + 1, many[1]


def _in_the_way(session: Session, key: Partition, held: Held | None, terms: Terms | None, now: datetime) -> list[str]:
    said = []
    if held is not None and source_health.room(held, now) is not None:
        until = f"until {_at(held.paused_until)}" if held.paused_until else "until it is unpaused"
        said.append(f"source {key.source} is paused by {held.actor} {until}: {held.because}")
    if terms is None:
        said.append(f"limits of {key.source}/{key.query_name} not checked, because only the app defines them")
        return said
    busy = select(work.c.query_name, func.count()).where(work.c.source == key.source, work.c.lease_until.is_not(None))
    active = {row[0]: row[1] for row in session.core.execute(busy.group_by(work.c.query_name))}
    if active.get(key.query_name, 0) >= terms.concurrency:
        leases = pluralise(terms.concurrency, "lease")
        said.append(f"{key.source}/{key.query_name} has {active[key.query_name]} of {leases} in use")
    if terms.source_concurrency is not None and sum(active.values()) >= terms.source_concurrency:
        said.append(f"source {key.source} has {sum(active.values())} of {pluralise(terms.source_concurrency, 'lease')} in use")
    if held is not None:
        said += _slowed(session, key, held, terms, now)
    return said


def _slowed(session: Session, key: Partition, held: Held, terms: Terms, now: datetime) -> list[str]:
    rates = rated(session, {terms.dataset: terms}, {key.source: held}, now)
    named = [(f"{key.source}/{key.query_name}", one) for one in rates.datasets.values()]
    named += [(f"source {key.source}", one) for one in rates.sources.values()]
    spent = [(name, one) for name, one in named if not one.room]
    return [f"{name} is limited to {one.rate:g} starts per second; the next one in {one.after(0):.1f} s" for name, one in spent]


def _waiting_in(session: Session, key: Partition) -> Range | None:
    """The sweep under way in whose range it stands, and whose cursor has not come to it."""
    query = select(*sweeps.COLUMNS).join(range_, range_.c.sweep_id == sweep.c.id)
    under_way = query.where(sweep.c.state.in_(("running", "paused", "halted")), sweep.c.act.in_(ACTS))
    for one in map(Range._make, session.core.execute(under_way.order_by(sweep.c.id))):
        if one.a_grid and one.of[0] == (key.source, key.query_name):
            place = sweeps.grid_of(session.core, one).place(key)
            if place is not None and place >= one.cursor:
                return one
    return None


def _budget(found: Facts, grant: Mark | None, terms: Terms | None) -> str | None:
    policy = Policy() if terms is None else terms.policy
    limit = grant.amount if grant is not None and grant.amount is not None else policy.max_attempts
    used = found.attempt_count - (grant.attempts if grant else 0)
    since = f" since the grant by {grant.actor}" if grant and (grant.attempts or grant.amount is not None) else ""
    ever = f"{pluralise(found.attempt_count, 'verdict')} and {pluralise(found.dispatch_count, 'run')} in total"
    return f"{max(0, limit - used)} of {pluralise(limit, 'attempt')} left{since}; {ever}"


def _at(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"
