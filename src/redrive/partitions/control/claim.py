"""Claim: due work becomes leases, lane by lane, in one transaction with the runs that they begin."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select

from ...journal.bus import emit
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import work
from ...ledger.db.session import Session
from ..key import Partition
from ..model import LANES, Lease
from ..retry_schedule import Terms
from ..status import requeued
from ..store.rows import POLICY, Changes, Held, Mark, hold_sources, locked, marks, works
from . import source_health, sweeps
from .candidates import Due, Taken, due, materialised
from .fair_share import SHARE, Stream, Turns
from .max_age import stored_age_limit
from .rate_limits import LEAST, rated
from .source_health import uncharged
from .sweeps import Grid, Range

LISTED = 100
"""So many partitions are named in the audit, one by one."""


class Expired(NamedTuple):
    """A partition that gave up because it is too old."""

    partition: Partition
    attempts: int
    because: str


@dataclass
class Desk:
    """What a control plane remembers between claims. Belongs to one control plane, and one thread at a time."""

    terms: Mapping[tuple[str, str], Terms]
    turns: Turns
    draw: Callable[[], float]
    grids: dict[int, Grid] = field(default_factory=dict)
    """Grids do not change: their customers, which may be many, are read once."""
    after: float | None = None
    """Seconds until a rate, of a dataset, a source or a sweep, lets more begin than the last claim brought; None: none did."""

    expired: list[Expired] = field(default_factory=list)
    """Partitions that the last claim gave up because they are too old."""
    paused: set[str] = field(default_factory=set)
    """Sources that were paused at the last claim."""

    def look_after(self, seconds: float | None, /) -> None:
        """There may be more then."""
        if seconds is not None:
            self.after = max(LEAST, seconds) if self.after is None else min(self.after, max(LEAST, seconds))


class Offer(NamedTuple):
    """A stream, and what it is of: rows that wait, or a grid from its cursor on."""

    stream: Stream
    ids: Sequence[int]
    of: Range | None


def has_candidates(session: Session, desk: Desk, most: int, /) -> bool:
    """Return whether a claim may find work. Locks nothing, so that idle workers do not delay others."""
    desk.after, desk.expired = None, []
    return most > 0 and bool(desk.terms) and _offers(session, desk, most, None) != ([], [])


def claimed(session: Session, desk: Desk, most: int, worker: str, seconds: float, /) -> list[Lease]:
    """Lease up to so many, in the open transaction."""
    now = now_on(session)
    held = hold_sources(session, {name for name, _ in desk.terms}, now)
    _tell_resumed(desk, held)
    offers, halting = _offers(session, desk, most, now, hold=True)
    for one, because in halting:
        sweeps.halt(session, one, because, now)
    active = _active(session)
    of_dataset = {one.dataset: one.concurrency - active.get(one.dataset, 0) for one in desk.terms.values()}
    at_source, probes = _sources(desk, active, held, now)
    rates = rated(session, desk.terms, held, now)
    rates.narrow(of_dataset, at_source)
    counts = desk.turns.choose([one.stream for one in offers], most, of_dataset, at_source, now)
    chosen = list(zip(offers, counts, strict=True))
    leases = _leased(session, desk, chosen, probes, worker, timedelta(seconds=seconds), now)
    rates.spend(session, leases, now)
    desk.look_after(rates.after({offer.stream.dataset for offer, many in chosen if len(offer.stream.dues) > many}))
    return leases


def _tell_resumed(desk: Desk, held: Mapping[str, Held]) -> None:
    """Report sources that an operator has unpaused since the last claim, for this worker's log."""
    for name in sorted(desk.paused):
        row = held.get(name)
        if row is not None and row.paused_at is None and row.actor is not None:
            emit("unparked", {"operation": name, "actor_key": row.actor})
    desk.paused = {name for name, row in held.items() if row.paused_at is not None}


def _offers(
    session: Session, desk: Desk, most: int, now: datetime | None, *, hold: bool = False
) -> tuple[list[Offer], list[tuple[Range, str]]]:
    """What there is to choose from, and which sweeps are to be halted, for what."""
    swept = sweeps.running(session, desk.terms, hold=hold)
    for ended in desk.grids.keys() - {one.id for one in swept}:
        del desk.grids[ended]
    wanted = [Due(*dataset, lane, 0) for dataset in desk.terms for lane in range(len(LANES))]
    shares = {0: SHARE} | {one.id: one.share for one in swept}
    wanted += [Due(*dataset, one.lane, one.id) for one in swept for dataset in one.of if dataset in desk.terms]
    found = [
        Offer(Stream(at.source, at.query_name, LANES[at.lane], at.sweep_id, dues, shares[at.sweep_id]), ids, None)
        for at, dues, ids in due(session, wanted, most, now)
    ]
    halting = []
    for one in swept:
        now = now_on(session) if now is None else now
        may = sweeps.allowed(one, most, now)
        if may.halt is not None:
            halting.append((one, may.halt))
            found = [offer for offer in found if offer.stream.sweep != one.id]
        elif one.a_grid and may.many:
            stream = Stream(*one.of[0], one.in_lane, one.id, [one.created_at] * may.many, one.share)
            found.append(Offer(stream, (), one))
        elif one.a_grid and one.rate is not None and one.next_at > now:
            desk.look_after((one.next_at - now).total_seconds())
    return found, halting


def _active(session: Session) -> dict[tuple[str, str], int]:
    held = select(work.c.source, work.c.query_name, func.count()).where(work.c.lease_until.is_not(None))
    return {(row[0], row[1]): row[2] for row in session.core.execute(held.group_by(work.c.source, work.c.query_name))}


def _sources(
    desk: Desk, active: Mapping[tuple[str, str], int], held: Mapping[str, Held], now: datetime
) -> tuple[dict[str, int], set[str]]:
    """How many more of each source may run, and which of them are probed."""
    room: dict[str, int] = {}
    for name in held:
        limits = [one.source_concurrency for one in desk.terms.values() if one.source == name and one.source_concurrency]
        busy = sum(many for (of, _), many in active.items() if of == name)
        room[name] = min(limits) - busy if limits else 2**31
    probes = set()
    for name, row in held.items():
        may = source_health.room(row, now)
        if may is not None:
            room[name] = min(room[name], may)
            if may:
                probes.add(name)
    return room, probes


def _leased(
    session: Session,
    desk: Desk,
    chosen: Sequence[tuple[Offer, int]],
    probes: set[str],
    worker: str,
    lease: timedelta,
    now: datetime,
) -> list[Lease]:
    begun: set[int] = set()  # two grids may have the same partition, and it has one lease
    grids = [_from_grid(session, desk, offer.of, many, begun, now) for offer, many in chosen if offer.of is not None and many]
    ready = [id_ for offer, many in chosen if offer.of is None for id_ in offer.ids[:many]]
    stored = [*ready, *(one.row.id for grid in grids for one in grid.taken if not one.born)]
    was = locked(session.core, stored)  # all of them at once, in their order
    waiting, marked = works(session.core, ready), marks(session.core, ready)
    taken = [Taken(was[id_], waiting[id_], marked.get(id_, {}), made=False) for id_ in ready if id_ in was and id_ in waiting]
    taken += [one if one.born else replace(one, row=was[one.row.id]) for grid in grids for one in grid.taken]
    changes = Changes({one.row.id: one.row for one in taken}, [one.row.id for one in taken if one.born])
    for grid in grids:
        sweeps.advance(
            session, changes, grid.of, now, scanned=grid.scanned, made=len(grid.taken), skips=grid.skips, passed=grid.passed
        )
    return _begun(session, desk, changes, taken, probes, worker, now + lease, now)


def _begun(
    session: Session, desk: Desk, changes: Changes, taken: Sequence[Taken], probes: set[str], worker: str, until: datetime,
    now: datetime,
) -> list[Lease]:  # fmt: skip
    leases = []
    tried_again = []
    for one in taken:
        if _too_old(session, desk, changes, one, now):
            continue
        if one.row.status == "failed":
            tried_again.append(str(one.row.partition))
        leases.append(_lease(changes, one, uncharged(session.core, one.row, one.marks.get("grant")), worker, until, now))
    changes.write(session, begun=[_run(one, worker, now) for one in leases])
    if tried_again:
        what = {"count": len(tried_again), "partitions": tried_again[:LISTED]}
        audit.write(session, actor=POLICY, action="partition.retry", because="the wait after a rejection is over", what=what)
    for name in sorted(probes.intersection(one.partition.source for one in leases)):
        source_health.probing(session, name, until, now)
    return leases


class _Grid(NamedTuple):
    """What a grid gives to a claim."""

    of: Range
    scanned: int
    taken: Sequence[Taken]
    skips: Mapping[str, int]
    passed: bool


def _from_grid(session: Session, desk: Desk, one: Range, many: int, begun: set[int], now: datetime) -> _Grid:
    grid = desk.grids.get(one.id)
    if grid is None:
        grid = desk.grids[one.id] = sweeps.grid_of(session.core, one)
    found = materialised(session, grid, one, many, begun, desk.draw, now)
    begun |= {taken.row.id for taken in found[1]}
    return _Grid(one, *found, sweeps.allowed(one, many, now).passed)


def _too_old(session: Session, desk: Desk, changes: Changes, one: Taken, now: datetime) -> bool:
    """Give up a partition that is past its age, unless an operator or a backfill asked for it."""
    ends = stored_age_limit(session.core, desk.terms[one.row.dataset].policy, one.row, one.work, now)
    if ends is None:
        return False
    because = f"too old: no retries after {ends:%Y-%m-%d %H:%M}Z"
    changes.idle.add(one.row.id)
    if one.row.current_run_id is None:
        changes.mark(Mark(one.row.id, "terminal", "age", POLICY, because, now, one.row.attempt_count, None))
        changes.rows[one.row.id] = one.row._replace(updated_at=now).shaded(True)
        desk.expired.append(Expired(one.row.partition, one.row.attempt_count, because))
    return True


def _lease(changes: Changes, one: Taken, spared: int, worker: str, until: datetime, now: datetime) -> Lease:
    number = one.row.dispatch_count + 1
    run_id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(5)}"
    row = one.row._replace(status=requeued(one.row.status), dispatch_count=number, updated_at=now)
    changes.rows[row.id] = row.shaded("terminal" in one.marks and not one.cleared)
    held = one.work._replace(attempt_no=number, run_id=run_id, worker=worker, lease_until=until)
    (changes.new_work if one.made else changes.work)[row.id] = held
    for mark in one.granted:
        changes.mark(mark)
    if one.cleared:
        changes.unmark(row.id, "terminal")
    grant = changes.marked.get((row.id, "grant")) or one.marks.get("grant")
    return Lease(
        row.id, row.partition, number, run_id, held.kind, held.in_lane, row.attempt_count - (grant.attempts if grant else 0),
        row.current_run_id, row.current_raw_id, held.raw_run_id, held.sweep_id or None, held.lost, until, spared,
    )  # fmt: skip


def _run(lease: Lease, worker: str, now: datetime) -> dict[str, object]:
    return {
        "partition_id": lease.partition_id, "attempt_no": lease.attempt_no, "run_id": lease.run_id,
        "raw_run_id": lease.raw_run_id or lease.run_id, "kind": lease.kind, "state": "leased", "lane": LANES.index(lease.lane),
        "sweep_id": lease.sweep_id or 0, "worker": worker, "leased_at": now,
    }  # fmt: skip
