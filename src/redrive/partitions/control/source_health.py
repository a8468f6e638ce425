"""Source health: pauses a source during an outage, and probes it before work goes on.

A worker detects outages with `OutageDetector`. Attempts that were rejected before the outage was
known are refunded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, func, or_, select, update

from ...core.outage import WINDOW, End, Parking, Recent, find_outage
from ...core.text import pluralise
from ...journal.bus import emit
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import partition, range_, run, source
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ...ledger.ledger import Ledger
from ...ledger.validation import storable_text
from ..key import Partition
from ..model import (
    Kind,
    Lane,
    Marker,
    PartitionLease,
    PartitionRun,
    SourceView,
    Verdict,
    VerdictResult,
)
from ..retry_schedule import SOURCE_DOWN, Policy, after_release, pause_seconds
from ..store.changes import Changes
from ..store.queue import make_due
from ..store.rows import (
    POLICY,
    SOURCE_COLUMNS,
    Markers,
    PartitionRow,
    PartitionWork,
    SourceRow,
    lock_sources,
    new_work,
)
from ..store.statements import InListStatement
from ..store.sweeps import UNFINISHED
from .limits import attempt_budget

# ---- pauses ----

UNPAUSED: Mapping[str, Any] = {
    "paused_at": None,
    "paused_until": None,
    "because": None,
    "actor": None,
    "signature": None,
    "probes": 0,
}


def paused_sources_of(connection: Connection, ids: Collection[int], /) -> list[str]:
    """Return the sources of these partitions that the policy has paused."""
    by_policy = (source.c.paused_at.is_not(None), source.c.actor == POLICY)
    paused = connection.execute(select(source.c.source).where(*by_policy)).scalars().all()
    if not paused:  # nearly always
        return []
    query = select(partition.c.source).where(partition.c.id.in_(ids)).distinct()
    return sorted(set(connection.execute(query).scalars()).intersection(paused))


def unpause_recovered(
    session: Session,
    row: SourceRow,
    result: VerdictResult,
    verdict: Verdict,
    of: PartitionRun,
    policy: Policy,
    now: datetime,
    /,
) -> bool:
    """Unpause a source that returned data. If a probe returned none, let another one follow.

    Returns:
        Whether the source has changed.
    """
    if row.paused_at is None or row.actor != POLICY:
        return False
    is_probe = of.leased_at > row.paused_at
    if result.outcome == "accepted" or (is_probe and verdict.manifest is not None):
        unpause_source(session, row.source, now)
    elif is_probe and verdict.signature is not None and verdict.charged:
        pause_for_outage(
            session,
            row,
            policy,
            now,
            partition=result.partition,
            error=verdict.message,
            signature=verdict.signature,
        )
    elif is_probe:
        # The partition's own failure says nothing about the source: probe again at once.
        _update(session, row.source, now, paused_until=now)
    return is_probe or result.outcome == "accepted"


def is_outage_echo(row: SourceRow | None, verdict: Verdict, of: PartitionRun, /) -> bool:
    """Return whether a rejection only repeats the current outage, so that it does not count.

    That is the fault that the source is paused for, or the probe's result. A probe that is refused
    while the source is paused for something else shows that the source responds.
    """
    if verdict.signature is None or verdict.charged or row is None:
        return False
    if row.paused_at is None or row.actor != POLICY:
        return False
    is_probe = of.leased_at > row.paused_at
    return verdict.signature == row.signature or (is_probe and not verdict.shared)


def is_only_customer(connection: Connection, name: str, customer: str, /) -> bool:
    """Return whether a source has no other customer, in partitions or in unfinished sweeps."""
    at = partition.c
    other = select(at.id).where(at.source == name, at.customer_id != customer).limit(1)
    if connection.execute(other).first() is not None:
        return False
    ranges = (
        select(range_.c.datasets, range_.c.customers)
        .join(sweep, sweep.c.id == range_.c.sweep_id)
        .where(sweep.c.state.in_(UNFINISHED), range_.c.customers.is_not(None))
    )
    return not any(
        set(json.loads(customers)) - {customer}
        for datasets, customers in connection.execute(ranges)
        if any(source_name == name for source_name, _ in json.loads(datasets))
    )


def only_customer_check(ledger: Ledger, /) -> Callable[[str, str], bool]:
    """Return `is_only_customer` for a ledger, for an `OutageDetector`."""

    def check(name: str, customer: str) -> bool:
        with ledger.connections.read.use() as session:
            return is_only_customer(session.core, name, customer)

    return check


def pause_for_outage(
    session: Session,
    row: SourceRow,
    policy: Policy,
    now: datetime,
    /,
    *,
    partition: Partition | None,
    error: str | None,
    signature: str | None,
    after: float | None = None,
) -> None:
    """Pause a source, each time for longer. A pause of an operator stays as it is.

    Args:
        policy: With the first pause.
        partition: The partition that failed.
        error: Its error.
        signature: Equal for faults of one cause.
        after: Minimum seconds of the pause.
    """
    if row.paused_at is not None and row.actor != POLICY:
        return
    if row.paused_until is not None and row.paused_until > now and row.probes == 0:
        return  # already paused; this run started before
    seconds = pause_seconds(policy, row.probes, after)
    because = storable_text(error) or "a fault of the whole source"
    _pause(session, row.source, now, now + timedelta(seconds=seconds), because, POLICY, signature)
    audit.write(
        session,
        actor=POLICY,
        action="source.pause",
        because=because,
        what={
            "source": row.source,
            "seconds": round(seconds),
            "signature": signature,
            "partition": str(partition),
        },
    )
    reason = because.partition("\n")[0]
    emit("parked", {"operation": row.source, "reason": reason, "wait": seconds})


def unpause_source(
    session: Session, name: str, now: datetime, /, *, actor: str | None = None
) -> None:
    """Start extractions of a source again.

    Args:
        actor: Who unpaused it, for the log of workers. None: it responds.
    """
    emit("unparked", {"operation": name} | ({} if actor is None else {"actor_key": actor}))
    _update(session, name, now, **{**UNPAUSED, "actor": actor})


def lose_probes(
    session: Session,
    sources: Mapping[str, SourceRow],
    run_ids: Collection[str],
    now: datetime,
    /,
) -> None:
    """If one of these lost runs was the probe of its source, let the next probe start at once."""
    leases = select(partition.c.source, run.c.leased_at)
    leases = leases.join(partition, partition.c.id == run.c.partition_id)
    for name, leased_at in session.core.execute(leases.where(run.c.run_id.in_(list(run_ids)))):
        row = sources.get(name)
        if row is not None and row.paused_at is not None and leased_at > row.paused_at:
            _update(session, name, now, paused_until=now)


def start_probe(session: Session, name: str, until: datetime, now: datetime, /) -> None:
    """Note that a probe starts: nothing else starts until it has ended, or is lost."""
    _update(session, name, now, paused_until=until, probes=source.c.probes + 1)


def probe_allowance(row: SourceRow, now: datetime, /) -> int | None:
    """Return how many extractions a pause allows to start. None: any number."""
    if row.paused_at is None:
        return None
    if row.paused_until is None or row.paused_until > now:
        return 0
    return 1 if row.actor == POLICY else None  # an operator's pause just ends, without a probe


def pause_by_operator(
    session: Session, name: str, until: datetime | None, actor: str, because: str, /
) -> SourceView:
    """Pause a source until a time, or until it is unpaused."""
    audit.check_actor(actor, because)
    now = now_on(session)
    lock_sources(session, [name], now)
    _pause(session, name, now, until, because, actor, None)
    audit.write(
        session,
        actor=actor,
        action="source.pause",
        because=because,
        what={"source": name, "until": audit.to_stamp(until)},
    )
    return list_sources(session.core, name)[0]


def unpause_by_operator(session: Session, name: str, actor: str, because: str, /) -> SourceView:
    """Unpause a source. Partitions that waited for the end of its outage are due now."""
    audit.check_actor(actor, because)
    now = now_on(session)
    lock_sources(session, [name], now)
    unpause_source(session, name, now, actor=actor)
    make_due(session, name, SOURCE_DOWN, now, f"source unpaused by {actor}")
    audit.write(
        session, actor=actor, action="source.unpause", because=because, what={"source": name}
    )
    return list_sources(session.core, name)[0]


def list_sources(connection: Connection, name: str | None = None, /) -> list[SourceView]:
    """Return all known sources, or one."""
    query = select(*SOURCE_COLUMNS).order_by(source.c.source)
    if name is not None:
        query = query.where(source.c.source == name)
    return [
        SourceView(
            source=row.source,
            paused=row.paused_at is not None,
            until=row.paused_until,
            because=row.because,
            actor=None if row.paused_at is None else row.actor,
            probes=row.probes,
            probing=row.probes > 0,
        )
        for row in map(SourceRow._make, connection.execute(query))
    ]


def _pause(
    session: Session,
    name: str,
    now: datetime,
    until: datetime | None,
    because: str,
    actor: str,
    signature: str | None,
) -> None:
    reason = {"because": because, "actor": actor, "signature": signature}
    _update(session, name, now, paused_at=now, paused_until=until, **reason)


def _update(session: Session, name: str, now: datetime, **values: Any) -> None:
    session.core.execute(
        update(source).where(source.c.source == name).values(**values, updated_at=now)
    )


# ---- detection of outages ----

MAX_CUSTOMERS = 200
"""Customers of a source that are remembered."""
MAX_FAILED_ATTEMPTS = 50
"""Failed attempts of one customer that are remembered."""


class SourceOutage(NamedTuple):
    """A detected outage. Immutable."""

    source: str
    signature: str
    attempts: tuple[tuple[int, int], ...]
    """Partition and number of each attempt that failed for it, with or without a stored verdict."""
    customers: int | None = None
    """Number of refused customers, if that is the evidence."""

    @property
    def reason(self) -> str:
        """Explanation for an operator."""
        if self.customers is None:
            partitions = len({partition_id for partition_id, _ in self.attempts})
            return f"attempts of {partitions} partitions failed for one reason: {self.signature}"
        refused = pluralise(self.customers, "customer was", "customers were")
        return f"{refused} refused: {self.signature}"


@dataclass
class _Customer:
    """The last end of a customer's extractions, and the failed attempts since a success."""

    end: End
    attempts: list[tuple[int, int]] = field(default_factory=list)


class OutageDetector:
    """Detects outages from the recent ends of extractions. Used by one thread."""

    def __init__(self, parking: Parking, is_only_customer: Callable[[str, str], bool], /) -> None:
        """Prepare.

        Args:
            parking: When failures count as an outage.
            is_only_customer: Whether a source (first) has no other customer (second).
        """
        self._parking = parking
        self._is_only_customer = is_only_customer
        self._recent: dict[str, Recent] = {}
        self._customers: dict[str, dict[str, _Customer]] = {}

    def add(
        self, lease: PartitionLease, verdict: Verdict, now: float, /, *, has_data: bool
    ) -> SourceOutage | None:
        """Remember the end of an extraction. Return the outage that it completes.

        Args:
            lease: Of the extraction.
            verdict: On it.
            now: In seconds, on any one clock.
            has_data: The source returned data, whatever the checks decided.
        """
        if not self._parking.enabled:
            return None
        name, customer = lease.partition.source, lease.partition.customer_id
        recent = self._recent.setdefault(name, Recent(self._parking))
        if has_data:
            recent.add(End(lease.partition_id, "success", "", customer, now))
            self._remember(name, _Customer(End(customer, "success", "", customer, now)), now)
            return None
        if verdict.signature is None:
            return None
        detect = self._detect_refusals if verdict.shared else self._detect_failures
        outage = detect(lease, verdict.signature, now)
        if outage is not None:
            recent.clear()
            self._customers.pop(name, None)
        return outage

    def _detect_failures(
        self, lease: PartitionLease, signature: str, now: float
    ) -> SourceOutage | None:
        """Handle a transient fault."""
        name, customer = lease.partition.source, lease.partition.customer_id
        end = End(lease.partition_id, "evidence", signature, customer, now, (lease.attempt_no,))
        outage = self._recent[name].add(end)
        if outage is None:
            return None
        is_one_customer = {end.group for end in outage.ends} == {customer}
        if is_one_customer and not self._is_only_customer(name, customer):
            return None
        attempts = tuple(
            (int(str(end.key)), number) for end in outage.ends for number in end.attempts
        )
        return SourceOutage(name, outage.signature, attempts)

    def _detect_refusals(
        self, lease: PartitionLease, signature: str, now: float
    ) -> SourceOutage | None:
        """Handle a fault that is usually the source's."""
        name, customer = lease.partition.source, lease.partition.customer_id
        before = self._customers.get(name, {}).get(customer)
        attempts = [] if before is None else before.attempts
        attempts = [*attempts, (lease.partition_id, lease.attempt_no)][-MAX_FAILED_ATTEMPTS:]
        end = End(customer, "evidence", signature, customer, now)
        customers = self._remember(name, _Customer(end, attempts), now)
        if len(customers) == 1:
            if not self._is_only_customer(name, customer):
                return None
            least = 1
        else:
            least = max(2, -(-len(customers) // 2))  # half of the customers, rounded up
        ends = [each.end for each in customers.values()]
        outage = find_outage(ends, replace(self._parking, least=least), now=now)
        if outage is None:
            return None
        refused = [customers[str(end.key)] for end in outage.ends]
        all_attempts = tuple(attempt for each in refused for attempt in each.attempts)
        return SourceOutage(name, outage.signature, all_attempts, len(refused))

    def _remember(self, name: str, customer: _Customer, now: float) -> dict[str, _Customer]:
        """Make a customer the newest one, and forget old ones."""
        customers = self._customers.setdefault(name, {})
        customers.pop(str(customer.end.key), None)
        customers[str(customer.end.key)] = customer
        oldest_at = now - WINDOW
        while len(customers) > MAX_CUSTOMERS or next(iter(customers.values())).end.at < oldest_at:
            del customers[next(iter(customers))]
        return customers


# ---- refunds ----

_RUN_COLUMNS = (
    "partition_id",
    "attempt_no",
    "run_id",
    "state",
    "ended_at",
    "note",
    "sweep_id",
    "kind",
    "lane",
)
_ALL_RUNS = select(*(run.c[name] for name in _RUN_COLUMNS)).order_by(run.c.attempt_no)
_RUNS = InListStatement(run.c.partition_id, _ALL_RUNS.where)
_ALL_STATES = select(sweep.c.id, sweep.c.state).order_by(sweep.c.id).with_for_update()
_LOCK_SWEEPS = InListStatement(sweep.c.id, _ALL_STATES.where)
REFUND_NOTE = "not charged: "
UNCHARGED_CAUSES = ("systemic", "rate_limited", "ledger")
"""Causes of a release that do not count as attempts, and whose number is limited."""
_is_released_for = [
    run.c.note.like(f"{cause.replace('_', '$_')}%", escape="$") for cause in UNCHARGED_CAUSES
]
_COUNT_UNCHARGED = select(func.count()).where(
    or_(
        and_(run.c.state == "returned", or_(*_is_released_for)),
        and_(run.c.state == "rejected", run.c.note.like(f"{REFUND_NOTE}%")),
    )
)


def count_uncharged(connection: Connection, row: PartitionRow, grant: Marker | None, /) -> int:
    """Count the attempts of a partition that were not charged, since an operator's last grant."""
    by_operator = grant if grant is not None and grant.actor != POLICY else None
    is_new = by_operator is not None and by_operator.attempts >= row.attempt_count
    if row.dispatch_count == row.attempt_count and (grant is None or is_new):
        return 0  # every run has a verdict, and none was released since the grant
    query = _COUNT_UNCHARGED.where(run.c.partition_id == row.id)
    if by_operator is not None:
        query = query.where(run.c.leased_at > by_operator.at)
    return connection.execute(query).scalar_one()


def lock_sweeps_of(session: Session, attempts: Collection[tuple[int, int]], /) -> dict[int, str]:
    """Lock the sweeps that these attempts belong to, and return their states.

    To be called before partitions are locked. A sweep whose last partition is queued again must not
    be marked as done at the same time.
    """
    ids = {
        each.sweep_id
        for each in _RUNS.rows(session.core, sorted({partition_id for partition_id, _ in attempts}))
        if each.sweep_id and (each.partition_id, each.attempt_no) in attempts
    }
    return {row.id: row.state for row in _LOCK_SWEEPS.rows(session.core, sorted(ids))}


@dataclass(frozen=True)
class Refunds:
    """Rejected attempts that an outage caused, and what is needed to refund them."""

    reasons: Mapping[tuple[int, int], str]
    """Reason by partition and attempt."""
    max_uncharged: int
    """Attempts of one partition that are not charged, in total."""
    sweep_states: Mapping[int, str]
    """As `lock_sweeps_of` returns them."""
    work: Mapping[int, PartitionWork]
    markers: Mapping[int, Markers]
    policy_of: Callable[[PartitionRow], Policy]
    seed: float

    def apply(self, session: Session, changes: Changes, now: datetime, /) -> list[dict[str, Any]]:
        """Refund each attempt once. Return the changes of their runs. The partitions are locked."""
        ended = []
        left: dict[int, int] = {}
        ids = sorted({partition_id for partition_id, _ in self.reasons})
        for each in _RUNS.rows(session.core, ids):
            reason = self.reasons.get((each.partition_id, each.attempt_no))
            if reason is None or each.state != "rejected" or each.note is not None:
                continue
            row = changes.row(each.partition_id)
            stored = self.markers.get(row.id, {}).get("grant")
            if row.id not in left:
                left[row.id] = self.max_uncharged - count_uncharged(session.core, row, stored)
            grant = changes.markers.get((row.id, "grant"), stored)
            refunded = 0 if grant is None else grant.attempts
            if left[row.id] <= 0 or refunded >= row.attempt_count:
                continue  # none left, or an operator has granted new attempts since
            left[row.id] -= 1
            if grant is None:
                grant = Marker("grant", "outage", POLICY, reason, now, 0)
            changes.set_marker(row.id, replace(grant, attempts=refunded + 1))
            changes.sweep_counts[each.sweep_id, "pardoned"] += 1
            changes.sweep_counts[each.sweep_id, "pardoned_rejected"] += 1
            note = storable_text(REFUND_NOTE + reason)
            run_end = {"state": "rejected", "ended_at": each.ended_at, "note": note}
            ended.append({"run_id": each.run_id, **run_end})
            is_last = each.attempt_no == row.dispatch_count and row.id not in self.work
            budget = attempt_budget(self.policy_of(row), row.attempt_count, stored)
            if is_last and each.kind != "revalidate" and budget.is_used_up:
                place = requeued_in(each.lane, each.sweep_id, self.sweep_states.get(each.sweep_id))
                self._requeue(changes, row, place, now)
        return ended

    def _requeue(
        self, changes: Changes, row: PartitionRow, place: tuple[int, int], now: datetime
    ) -> None:
        """Queue a partition whose last attempt was refunded, in a lane and a sweep."""
        markers = self.markers.get(row.id, {})
        terminal = markers.get("terminal")
        if "paused" in markers or (terminal is not None and terminal.cause != "attempts"):
            return
        if terminal is not None:
            changes.delete_marker(row.id, "terminal")
        retry = after_release(
            self.policy_of(row), "systemic", None, self.seed, row.dispatch_count, now
        )
        changes.rows[row.id] = row._replace(updated_at=now).with_display_status(is_terminal=False)
        lane, sweep_id = place
        changes.sweep_counts[sweep_id, "failed"] -= 1  # it was counted as ended
        kind: Kind = "retry" if row.current_run_id is None else "reprocess"
        changes.work_inserted[row.id] = new_work(
            row,
            kind,
            retry.due or now,
            retry.strategy,
            seed=self.seed,
            lane=lane,
            sweep_id=sweep_id,
            queued_at=now,
        )


def requeued_in(lane: int, sweep_id: int, state: str | None, /) -> tuple[int, int]:
    """Return lane and sweep of a partition that is queued again after an outage. Pure.

    An operator's request stays one, so that `max_age` does not end it: in its sweep, or, if that is
    done, in the backfill lane. If it was cancelled, or there was none, the policy alone decides, as
    after any rejection.

    Args:
        lane: Lane of the last run.
        sweep_id: Sweep of the last run, or 0.
        state: State of that sweep. None: there is none.
    """
    if lane == Lane.FRESH or (sweep_id and state in (None, "cancelled")):
        return Lane.RETRY, 0
    if sweep_id and state == "done":
        return Lane.BACKFILL, 0
    return lane, sweep_id
