"""Claim: leases due partitions and starts their runs, in one transaction.

Candidates are queued partitions by stream, and ranges whose partitions have no rows before their
turn. Limits, rates and shares decide how many of each are leased.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, insert, select

from ...journal.bus import emit
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import partition, work
from ...ledger.db.session import Session
from ...ledger.jobs.pauses import Pauses, read_pauses
from ..key import Partition
from ..model import MANUAL, Kind, Lane, Marker, PartitionLease, status_when_requeued
from ..retry_schedule import DatasetLimits, too_old
from ..store.changes import Changes
from ..store.queries import MARKED, load_rows_by_key
from ..store.queue import StreamKey, read_due_work
from ..store.rows import (
    PARTITION_COLUMNS,
    POLICY,
    Markers,
    PartitionRow,
    PartitionWork,
    SourceRow,
    lock_partitions,
    lock_sources,
    new_work,
    read_markers,
    read_work,
)
from ..store.sweeps import DEFAULT_SHARE, PartitionSweep, load_running
from . import source_health, sweeps
from .lanes import FairShare, WorkStream
from .limits import MIN_WAIT_SECONDS, attempt_budget, load_rate_limits, stored_age_limit
from .sweeps import Grid

MAX_AUDITED = 100
"""Partitions that an audit entry names."""
MAX_SCANNED = 2000
"""Positions of a range that one claim looks at: to skip one is cheap, but not free."""
SCAN_BATCH = 100
UNLIMITED = 2**31


class ExpiredPartition(NamedTuple):
    """A partition that gave up because it is too old."""

    partition: Partition
    attempts: int
    because: str


@dataclass
class ClaimState:
    """What a control plane remembers between claims. Used by one thread at a time."""

    datasets: Mapping[tuple[str, str], DatasetLimits]
    fair_share: FairShare
    draw: Callable[[], float]
    grids: dict[int, Grid] = field(default_factory=dict)
    """Ranges by sweep. They do not change, and may have many customers, so they are read once."""
    wait: float | None = None
    """Seconds until a rate allows more than the last claim leased. None: no rate limited it."""
    expired: list[ExpiredPartition] = field(default_factory=list)
    """Partitions that gave up in the last claim because they are too old."""
    paused: set[str] = field(default_factory=set)
    """Sources that were paused at the last claim."""

    def wait_at_most(self, seconds: float | None, /) -> None:
        """Claim again after this time."""
        if seconds is not None:
            seconds = max(MIN_WAIT_SECONDS, seconds)
            self.wait = seconds if self.wait is None else min(self.wait, seconds)


class Candidate(NamedTuple):
    """A stream of due work: ids of queued partitions, or a range from its cursor on."""

    stream: WorkStream
    ids: Sequence[int]
    sweep: PartitionSweep | None


@dataclass(frozen=True, slots=True)
class PendingLease:
    """A partition that is about to be leased. Immutable."""

    row: PartitionRow
    work: PartitionWork
    markers: Markers
    is_queued: bool
    """Its work is stored."""
    is_new: bool = False
    """Its row was inserted in this transaction."""
    grant: Marker | None = None
    """A new grant."""
    clears_terminal: bool = False


def has_candidates(session: Session, state: ClaimState, limit: int, /) -> bool:
    """Return whether a claim may lease something. No lock: idle workers do not delay others."""
    state.wait, state.expired = None, []
    if limit < 1 or not state.datasets:
        return False
    return _find_candidates(session, state, limit, None) != ([], [])


def claim_partitions(
    session: Session, state: ClaimState, limit: int, worker: str, seconds: float, /
) -> list[PartitionLease]:
    """Lease due partitions, in the open transaction."""
    now = now_on(session)
    sources = lock_sources(session, {name for name, _ in state.datasets}, now)
    _report_unpaused(state, sources)
    candidates, halting = _find_candidates(session, state, limit, now, lock=True)
    for sweep, because in halting:
        sweeps.halt_sweep(session, sweep, because, now)
    running = _count_running(session)
    dataset_room = {
        name: limits.concurrency - running[name] for name, limits in state.datasets.items()
    }
    pauses = read_pauses(session.core, now)
    source_room, probed = _source_room(state, running, sources, pauses, now)
    rates = load_rate_limits(session, state.datasets, sources, now)
    rates.limit(dataset_room, source_room)
    streams = [candidate.stream for candidate in candidates]
    counts = state.fair_share.choose(streams, limit, dataset_room, source_room, now)
    chosen = list(zip(candidates, counts, strict=True))
    lease = _LeaseTerms(worker, now, now + timedelta(seconds=seconds))
    leases = _lease_chosen(session, state, chosen, probed, lease)
    rates.spend(session, leases, now)
    unserved = {
        each.stream.dataset
        for each, count in chosen
        if len(each.stream.due_at) > count and not pauses.get("source", each.stream.source)
    }
    state.wait_at_most(rates.seconds_until_room(unserved))
    return leases


def _report_unpaused(state: ClaimState, sources: Mapping[str, SourceRow]) -> None:
    """Log sources that an operator has unpaused since the last claim."""
    for name in sorted(state.paused):
        row = sources.get(name)
        if row is not None and row.paused_at is None and row.actor is not None:
            emit("unparked", {"operation": name, "actor_key": row.actor})
    state.paused = {name for name, row in sources.items() if row.paused_at is not None}


# ---- candidates ----


def _find_candidates(
    session: Session, state: ClaimState, limit: int, now: datetime | None, *, lock: bool = False
) -> tuple[list[Candidate], list[tuple[PartitionSweep, str]]]:
    """Return what may be leased, and which sweeps must halt, with the reason."""
    running = load_running(session, state.datasets, lock=lock)
    for ended in state.grids.keys() - {sweep.id for sweep in running}:
        del state.grids[ended]
    wanted = [StreamKey(*dataset, int(lane), 0) for dataset in state.datasets for lane in Lane]
    wanted += [
        StreamKey(*dataset, sweep.lane, sweep.id)
        for sweep in running
        for dataset in sweep.dataset_names
        if dataset in state.datasets
    ]
    shares = {0: DEFAULT_SHARE} | {sweep.id: sweep.share for sweep in running}
    candidates = []
    for key, due_at, ids in read_due_work(session, wanted, limit, now):
        lane, share = Lane(key.lane), shares[key.sweep_id]
        stream = WorkStream(key.source, key.query_name, lane, key.sweep_id, due_at, share)
        candidates.append(Candidate(stream, ids, None))
    halting = []
    for sweep in running:
        now = now_on(session) if now is None else now
        allowed = sweeps.allowance(sweep, limit, now)
        if allowed.halt is not None:
            halting.append((sweep, allowed.halt))
            candidates = [each for each in candidates if each.stream.sweep != sweep.id]
        elif sweep.is_range and allowed.room:
            due_at = [sweep.created_at] * allowed.room
            lane, dataset = Lane(sweep.lane), sweep.dataset_names[0]
            stream = WorkStream(*dataset, lane, sweep.id, due_at, sweep.share)
            candidates.append(Candidate(stream, (), sweep))
        elif sweep.is_range and sweep.rate is not None and sweep.next_at > now:
            state.wait_at_most((sweep.next_at - now).total_seconds())
    return candidates, halting


def _count_running(session: Session) -> Counter[tuple[str, str]]:
    leased = select(work.c.source, work.c.query_name, func.count())
    leased = leased.where(work.c.lease_until.is_not(None))
    rows = session.core.execute(leased.group_by(work.c.source, work.c.query_name))
    return Counter({(row[0], row[1]): row[2] for row in rows})


def _source_room(
    state: ClaimState,
    running: Mapping[tuple[str, str], int],
    sources: Mapping[str, SourceRow],
    pauses: Pauses,
    now: datetime,
) -> tuple[dict[str, int], set[str]]:
    """Return how many more of each source may run, and which sources are probed.

    A source that is paused by hand gets no room, and is not probed.
    """
    room: dict[str, int] = {}
    probed = set()
    for name, row in sources.items():
        limits = [
            each.source_concurrency
            for each in state.datasets.values()
            if each.source == name and each.source_concurrency
        ]
        if pauses.get("source", name) is not None:
            room[name] = 0
            continue
        busy = sum(count for (source, _), count in running.items() if source == name)
        room[name] = min(limits) - busy if limits else UNLIMITED
        allowed = source_health.probe_allowance(row, now)
        if allowed is not None:
            room[name] = min(room[name], allowed)
            if allowed:
                probed.add(name)
    return room, probed


# ---- leases ----


class _LeaseTerms(NamedTuple):
    """Who leases, from when and until when."""

    worker: str
    now: datetime
    until: datetime


class _RangeScan(NamedTuple):
    """The partitions that a range contributes to a claim."""

    sweep: PartitionSweep
    scanned: int
    pending: Sequence[PendingLease]
    skips: Mapping[str, int]


def _lease_chosen(
    session: Session,
    state: ClaimState,
    chosen: Sequence[tuple[Candidate, int]],
    probed: set[str],
    terms: _LeaseTerms,
) -> list[PartitionLease]:
    taken: set[int] = set()  # two ranges may contain the same partition
    scans = [
        _scan_range(session, state, candidate.sweep, count, taken, terms.now)
        for candidate, count in chosen
        if candidate.sweep is not None and count
    ]
    queued = [each for candidate, count in chosen for each in candidate.ids[:count]]
    scanned = [pending for scan in scans for pending in scan.pending]
    # All partitions are locked at once, in their order.
    locked = [*queued, *(pending.row.id for pending in scanned if not pending.is_new)]
    rows = lock_partitions(session.core, locked)
    work_by_id, markers = read_work(session.core, queued), read_markers(session.core, queued)
    leases = [
        PendingLease(rows[each], work_by_id[each], markers.get(each, {}), is_queued=True)
        for each in queued
        if each in rows and each in work_by_id
    ]
    leases += [
        pending if pending.is_new else replace(pending, row=rows[pending.row.id])
        for pending in scanned
    ]
    inserted = [pending.row.id for pending in leases if pending.is_new]
    changes = Changes({pending.row.id: pending.row for pending in leases}, inserted)
    for scan in scans:
        sweeps.advance_sweep(
            session,
            changes,
            scan.sweep,
            terms.now,
            scanned=scan.scanned,
            queued=len(scan.pending),
            skips=scan.skips,
            passed=sweeps.allowance(scan.sweep, len(scan.pending), terms.now).passed,
        )
    return _start_runs(session, state, changes, leases, probed, terms)


def _start_runs(
    session: Session,
    state: ClaimState,
    changes: Changes,
    pending: Sequence[PendingLease],
    probed: set[str],
    terms: _LeaseTerms,
) -> list[PartitionLease]:
    leases = []
    retried = []
    for each in pending:
        if _give_up_if_too_old(session, state, changes, each, terms.now):
            continue
        if each.row.status == "failed":
            retried.append(str(each.row.partition))
        uncharged = source_health.count_uncharged(session.core, each.row, each.markers.get("grant"))
        leases.append(_lease(state, changes, each, uncharged, terms))
    changes.write(session, started=[_run_row(lease, terms) for lease in leases])
    if retried:
        because = "the wait after a rejection is over"
        audit.write(
            session,
            actor=POLICY,
            action="partition.retry",
            because=because,
            what={"count": len(retried), "partitions": retried[:MAX_AUDITED]},
        )
    for name in sorted(probed.intersection(lease.partition.source for lease in leases)):
        source_health.start_probe(session, name, terms.until, terms.now)
    return leases


def _give_up_if_too_old(
    session: Session, state: ClaimState, changes: Changes, pending: PendingLease, now: datetime
) -> bool:
    """Partitions past max_age are no longer retried automatically; explicit requests still are."""
    row = pending.row
    max_age_at = stored_age_limit(
        session.core, state.datasets[row.dataset].policy, row, pending.work, now
    )
    if max_age_at is None:
        return False
    because = too_old(max_age_at)
    changes.work_deleted.add(row.id)
    if row.current_run_id is None:
        changes.give_up(row, "age", POLICY, because, now)
        state.expired.append(ExpiredPartition(row.partition, row.attempt_count, because))
    return True


def _lease(
    state: ClaimState, changes: Changes, pending: PendingLease, uncharged: int, terms: _LeaseTerms
) -> PartitionLease:
    row = pending.row
    attempt_no = pending.row.dispatch_count + 1
    run_id = f"{terms.now:%Y%m%dT%H%M%S}-{secrets.token_hex(5)}"
    row = row._replace(
        status=status_when_requeued(row.status), dispatch_count=attempt_no, updated_at=terms.now
    )
    is_terminal = "terminal" in pending.markers and not pending.clears_terminal
    changes.rows[row.id] = row.with_display_status(is_terminal=is_terminal)
    leased = pending.work._replace(
        attempt_no=attempt_no, run_id=run_id, worker=terms.worker, lease_until=terms.until
    )
    if pending.is_queued:
        changes.work[row.id] = leased
    else:
        changes.work_inserted[row.id] = leased
    if pending.grant is not None:
        changes.set_marker(row.id, pending.grant)
    if pending.clears_terminal:
        changes.delete_marker(row.id, "terminal")
    grant = pending.grant or pending.markers.get("grant")
    policy = state.datasets[row.dataset].policy
    return PartitionLease(
        partition_id=row.id,
        partition=row.partition,
        attempt_no=attempt_no,
        run_id=run_id,
        kind=leased.kind,
        lane=Lane(leased.lane).label,
        attempts=attempt_budget(policy, row.attempt_count, grant).used,
        current_run_id=row.current_run_id,
        current_raw_id=row.current_raw_id,
        raw_run_id=leased.raw_run_id,
        sweep_id=leased.sweep_id or None,
        lost=leased.lost,
        until=terms.until,
        uncharged=uncharged,
        waited=(terms.now - pending.work.due_at).total_seconds() if pending.is_queued else None,
    )


def _run_row(lease: PartitionLease, terms: _LeaseTerms) -> dict[str, object]:
    return {
        "partition_id": lease.partition_id,
        "attempt_no": lease.attempt_no,
        "run_id": lease.run_id,
        "raw_run_id": lease.raw_run_id or lease.run_id,
        "kind": lease.kind,
        "state": "leased",
        "lane": int(Lane.of(lease.lane)),
        "sweep_id": lease.sweep_id or 0,
        "worker": terms.worker,
        "leased_at": terms.now,
    }


# ---- partitions of a range ----


def _scan_range(
    session: Session,
    state: ClaimState,
    sweep: PartitionSweep,
    count: int,
    taken: set[int],
    now: datetime,
) -> _RangeScan:
    """Return the next partitions of a range, from its cursor on. Missing rows are inserted."""
    grid = state.grids.get(sweep.id)
    if grid is None:
        grid = state.grids[sweep.id] = sweeps.load_grid(session.core, sweep)
    pending: list[PendingLease] = []
    skips: Counter[str] = Counter()
    place = sweep.cursor
    end = min(sweep.total, sweep.cursor + max(MAX_SCANNED, count))
    while place < end and len(pending) < count:
        batch_end = min(end, place + max(SCAN_BATCH, count - len(pending)))
        keys = [grid.at(each) for each in range(place, batch_end)]
        rows = load_rows_by_key(session.core, grid.source, grid.query_name, keys)
        ids = [row.id for row in rows.values()]
        work_by_id, markers = read_work(session.core, ids), read_markers(session.core, ids)
        new: list[Partition] = []
        for key in keys:
            if len(pending) + len(new) >= count:
                break
            place += 1
            row = rows.get(key)
            if row is None:
                new.append(key)
                continue
            own = markers.get(row.id, {})
            reason = "queued already" if row.id in taken else None
            reason = reason or _skip_reason(row, work_by_id.get(row.id), own, sweep)
            if reason is not None:
                skips[reason] += 1
            else:
                pending.append(_pending_lease(row, own, sweep, state.draw(), now))
        pending += [
            replace(_pending_lease(row, {}, sweep, state.draw(), now), is_new=True)
            for row in _insert_partitions(session, new, now)
        ]
    taken |= {each.row.id for each in pending}
    return _RangeScan(sweep, place - sweep.cursor, pending, skips)


def _skip_reason(
    row: PartitionRow, own: PartitionWork | None, markers: Markers, sweep: PartitionSweep
) -> str | None:
    if own is not None:
        return "running now" if own.is_leased else "queued already"
    if "paused" in markers:
        return "paused"
    if row.status == "success" and not sweep.again:
        return "accepted already"
    if "terminal" in markers and sweep.clear:
        return MARKED if markers["terminal"].cause == MANUAL else None
    return "terminal" if "terminal" in markers else None


def _pending_lease(
    row: PartitionRow, markers: Markers, sweep: PartitionSweep, seed: float, now: datetime
) -> PendingLease:
    kind: Kind = "initial" if sweep.act == "fresh" else "backfill"
    if row.current_run_id is not None:
        kind = "reprocess"
    own = new_work(
        row,
        kind,
        now,
        f"sweep {sweep.id}",
        seed=seed,
        lane=sweep.lane,
        sweep_id=sweep.id,
        queued_at=sweep.created_at,
    )
    grant = None
    if row.attempt_count > 0:  # the sweep grants new attempts
        request = (sweep.act, sweep.actor, sweep.because)
        grant = Marker("grant", *request, now, row.attempt_count, sweep.amount)
    clears_terminal = "terminal" in markers
    return PendingLease(
        row, own, markers, is_queued=False, grant=grant, clears_terminal=clears_terminal
    )


def _insert_partitions(
    session: Session, keys: Sequence[Partition], now: datetime
) -> list[PartitionRow]:
    if not keys:
        return []
    new = [
        {
            "source": key.source,
            "query_name": key.query_name,
            "logical_date": key.logical_date,
            "customer_id": key.customer_id,
            "updated_at": now,
        }
        for key in keys
    ]
    result = session.core.execute(insert(partition).returning(*PARTITION_COLUMNS), new)
    rows = {row.partition: row for row in map(PartitionRow._make, result)}
    return [rows[key] for key in keys]
