"""Sources: paused when a fault is everybody's, so that nobody is charged for it; then one probe goes first."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
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
from ...ledger.validation import storable_text
from ..model import Judged, Lease, Run, Source, Verdict
from ..retry_schedule import Policy, after_return, pause_of
from ..store.changes import Among
from ..store.rows import HELD, POLICY, Changes, Held, Mark, Row, Work, hold_sources
from .max_age import BACKFILL, FRESH, RETRY

OPEN = {"paused_at": None, "paused_until": None, "because": None, "actor": None, "signature": None, "probes": 0}


def resting(connection: Connection, ids: Collection[int], /) -> list[str]:
    """Those sources of these partitions that the policy has paused."""
    paused = (
        connection.execute(select(source.c.source).where(source.c.paused_at.is_not(None), source.c.actor == POLICY))
        .scalars()
        .all()
    )
    if not paused:  # nearly always
        return []
    mine = set(connection.execute(select(partition.c.source).where(partition.c.id.in_(ids)).distinct()).scalars())
    return sorted(mine.intersection(paused))


class Answer(NamedTuple):
    """A verdict that was given its effect, and its run."""

    judged: Judged
    said: Verdict
    run: Run
    policy: Policy


def answered(session: Session, held: Mapping[str, Held], answers: Sequence[Answer], now: datetime, /) -> None:
    """What verdicts mean for paused sources. Data ends a pause; a probe that brought none is followed by another."""
    for one in answers:
        name = one.judged.partition.source if one.judged.partition else ""
        was = held.get(name)
        if was is None or was.paused_at is None or was.actor != POLICY:
            continue
        is_probe = one.run.leased_at > was.paused_at
        if one.judged.outcome == "accepted" or (is_probe and one.said.manifest is not None):
            opened_again(session, name, now)
        elif is_probe and one.said.signature is not None and one.said.charged:
            key = str(one.judged.partition)
            rest(session, was, one.policy, now, partition=key, error=one.said.message, after=None, signature=one.said.signature)
        elif is_probe:
            # The partition's own failure says nothing of the source: the next probe goes at once.
            session.core.execute(update(source).where(source.c.source == name).values(paused_until=now, updated_at=now))
        else:
            continue
        held = {other: row for other, row in held.items() if other != name}


def spared(held: Mapping[str, Held], name: str, said: Verdict, run: Run, /) -> bool:
    """Whether a verdict is none: evidence of the outage that its source is paused for, or from its probe.

    A probe that is refused while the source is paused for something else says that the source responds.
    """
    was = held.get(name)
    if said.signature is None or said.charged or was is None or was.paused_at is None or was.actor != POLICY:
        return False
    return said.signature == was.signature or (run.leased_at > was.paused_at and not said.shared)


def is_only_customer(connection: Connection, name: str, customer: str, /) -> bool:
    """Whether a source has no other customer: in its partitions, nor in ranges that have not ended."""
    at = partition.c
    other = select(at.id).where(at.source == name, at.customer_id != customer).limit(1)
    if connection.execute(other).first() is not None:
        return False
    ranges = (
        select(range_.c.datasets, range_.c.customers)
        .join(sweep, sweep.c.id == range_.c.sweep_id)
        .where(sweep.c.state.in_(("running", "paused", "halted")), range_.c.customers.is_not(None))
    )
    return not any(
        set(json.loads(customers)) - {customer}
        for datasets, customers in connection.execute(ranges)
        if any(of == name for of, _ in json.loads(datasets))
    )


def opened_again(session: Session, name: str, now: datetime, /, *, actor: str | None = None) -> None:
    """Start extractions of this source again.

    actor: who unpaused it, which workers log. None: nobody, it responds.
    """
    emit("unparked", {"operation": name} | ({} if actor is None else {"actor_key": actor}))
    values = OPEN | {"actor": actor, "updated_at": now}
    session.core.execute(update(source).where(source.c.source == name).values(values))


def rest(
    session: Session, held: Held, policy: Policy, now: datetime, /, *, partition: str, error: str | None, after: float | None,
    signature: str | None,
) -> None:  # fmt: skip
    """A fault that is everybody's: pause the source, each time for longer. One that a person paused stays as it is."""
    if held.paused_at is not None and held.actor != POLICY:
        return
    if held.paused_until is not None and held.paused_until > now and held.probes == 0:
        return  # it rests already, and this one had begun before
    seconds = pause_of(policy, held.probes, after)
    what = {"source": held.source, "seconds": round(seconds), "signature": signature, "partition": partition}
    because = storable_text(error) or "a fault of the whole source"
    _set(session, held.source, now, now + timedelta(seconds=seconds), because, POLICY, signature)
    audit.write(session, actor=POLICY, action="source.pause", because=because, what=what)
    emit("parked", {"operation": held.source, "reason": because.partition("\n")[0], "wait": seconds})


def lose_probes(session: Session, held: Mapping[str, Held], run_ids: Collection[str], now: datetime, /) -> None:
    """If one of these lost runs was the probe of its source, the next probe goes at once."""
    began = select(partition.c.source, run.c.leased_at).join(partition, partition.c.id == run.c.partition_id)
    for name, leased_at in session.core.execute(began.where(run.c.run_id.in_(list(run_ids)))):
        was = held.get(name)
        if was is not None and was.paused_at is not None and leased_at > was.paused_at:
            session.core.execute(update(source).where(source.c.source == name).values(paused_until=now, updated_at=now))


def probing(session: Session, name: str, until: datetime, now: datetime, /) -> None:
    """A probe goes out: nobody else before it is back, or lost."""
    values = {"paused_until": until, "probes": source.c.probes + 1, "updated_at": now}
    session.core.execute(update(source).where(source.c.source == name).values(values))


def room(held: Held, now: datetime, /) -> int | None:
    """How many may start because of a pause; None: any number."""
    if held.paused_at is None:
        return None
    if held.paused_until is None or held.paused_until > now:
        return 0
    return 1 if held.actor == POLICY else None  # a person said when, and needs no probe


def pause(session: Session, name: str, until: datetime | None, actor: str, because: str, /) -> Source:
    """Start nothing of this source. until: by itself after that, with one probe; None: until somebody says so."""
    audit.check_actor(actor, because)
    now = now_on(session)
    hold_sources(session, [name], now)
    _set(session, name, now, until, because, actor, None)
    what = {"source": name, "until": audit.to_stamp(until)}
    audit.write(session, actor=actor, action="source.pause", because=because, what=what)
    return listed(session.core, name)[0]


def unpause(session: Session, name: str, actor: str, because: str, /) -> Source:
    """Let its work go on."""
    audit.check_actor(actor, because)
    now = now_on(session)
    hold_sources(session, [name], now)
    opened_again(session, name, now, actor=actor)
    audit.write(session, actor=actor, action="source.unpause", because=because, what={"source": name})
    return listed(session.core, name)[0]


def listed(connection: Connection, name: str | None = None, /) -> list[Source]:
    """All that are known, or one."""
    query = select(*HELD).order_by(source.c.source)
    if name is not None:
        query = query.where(source.c.source == name)
    rows = [Held._make(row) for row in connection.execute(query)]
    return [
        Source(
            row.source,
            row.paused_at is not None,
            row.paused_until,
            row.because,
            None if row.paused_at is None else row.actor,
            row.probes,
            row.probes > 0,
        )
        for row in rows
    ]


def _set(
    session: Session, name: str, now: datetime, until: datetime | None, because: str, actor: str, signature: str | None
) -> None:
    values = {"paused_at": now, "paused_until": until, "because": because, "actor": actor, "signature": signature}
    session.core.execute(update(source).where(source.c.source == name).values(**values, updated_at=now))


CUSTOMERS = 200
"""Customers of a source that are remembered."""
ATTEMPTS = 50
"""Failed attempts of one customer that are remembered."""


class Outage(NamedTuple):
    """An outage that was recognised. Immutable."""

    source: str
    signature: str
    attempts: tuple[tuple[int, int], ...]
    """Partition and number of each attempt that failed for it, whether its verdict is written or not."""
    customers: int | None = None
    """How many were refused, where that is the evidence."""

    @property
    def says(self) -> str:
        """In words."""
        if self.customers is None:
            partitions = len({partition_id for partition_id, _ in self.attempts})
            return f"{partitions} partitions failed for one reason: {self.signature}"
        return f"{pluralise(self.customers, 'customer was', 'customers were')} refused: {self.signature}"


@dataclass
class _Customer:
    """The latest end of a customer's extractions, and the attempts that failed since the last success."""

    end: End
    attempts: list[tuple[int, int]] = field(default_factory=list)


class Outages:
    """The recent ends of each source's extractions. Belongs to one thread."""

    def __init__(self, parking: Parking, is_only_customer: Callable[[str, str], bool], /) -> None:
        """Create it.

        Args:
            parking: The figures of the rule.
            is_only_customer: Whether a source (first) has no other customer than this one (second).
        """
        self._parking = parking
        self._is_only_customer = is_only_customer
        self._recent: dict[str, Recent] = {}
        self._customers: dict[str, dict[str, _Customer]] = {}

    def add(self, lease: Lease, verdict: Verdict, now: float, /, *, answered: bool) -> Outage | None:
        """Remember the end of an extraction; the outage, where this failure makes it one.

        Args:
            lease: Of the extraction.
            verdict: On it.
            now: In seconds, on any one clock.
            answered: The source gave data, whatever the checks say of it.
        """
        if not self._parking.enabled:
            return None
        if answered:
            end = End(lease.partition_id, "success", "", lease.partition.customer_id, now)
            self._of(lease).add(end)
            self._answered(lease, now)
            return None
        if verdict.signature is None:
            return None
        found = self._refused(lease, verdict.signature, now) if verdict.shared else self._failed(lease, verdict.signature, now)
        if found is not None:
            self._of(lease).clear()
            self._customers.pop(found.source, None)
        return found

    def _of(self, lease: Lease) -> Recent:
        return self._recent.setdefault(lease.partition.source, Recent(self._parking))

    def _failed(self, lease: Lease, signature: str, now: float) -> Outage | None:
        """A transient fault."""
        source, customer = lease.partition.source, lease.partition.customer_id
        found = self._of(lease).add(End(lease.partition_id, "evidence", signature, customer, now, (lease.attempt_no,)))
        if found is None:
            return None
        if {end.group for end in found.ends} == {customer} and not self._is_only_customer(source, customer):
            return None
        attempts = tuple((int(str(end.key)), number) for end in found.ends for number in end.attempts)
        return Outage(source, found.signature, attempts)

    def _refused(self, lease: Lease, signature: str, now: float) -> Outage | None:
        """A fault that is usually the source's."""
        source, name = lease.partition.source, lease.partition.customer_id
        customers = self._customers.setdefault(source, {})
        failed = [] if (before := customers.pop(name, None)) is None else before.attempts
        failed = [*failed, (lease.partition_id, lease.attempt_no)][-ATTEMPTS:]
        customers[name] = _Customer(End(name, "evidence", signature, name, now), failed)
        self._forget(customers, now)
        if len(customers) == 1:
            if not self._is_only_customer(source, name):
                return None
            least = 1
        else:
            least = max(2, -(-len(customers) // 2))  # so that every customer seen is looked at
        ends = [customer.end for customer in customers.values()]
        found = find_outage(ends, replace(self._parking, least=least), now=now)
        if found is None:
            return None
        attempts = tuple(attempt for end in found.ends for attempt in customers[str(end.key)].attempts)
        return Outage(source, found.signature, attempts, len(found.ends))

    def _answered(self, lease: Lease, now: float) -> None:
        customers = self._customers.setdefault(lease.partition.source, {})
        name = lease.partition.customer_id
        customers.pop(name, None)
        customers[name] = _Customer(End(name, "success", "", name, now))
        self._forget(customers, now)

    @staticmethod
    def _forget(customers: dict[str, _Customer], now: float) -> None:
        while len(customers) > CUSTOMERS or next(iter(customers.values())).end.at < now - WINDOW:
            del customers[next(iter(customers))]


_NAMES = ("partition_id", "attempt_no", "run_id", "state", "ended_at", "note", "sweep_id", "kind", "lane")
_RUNS = Among(run.c.partition_id, lambda these: select(*(run.c[name] for name in _NAMES)).where(these).order_by(run.c.attempt_no))
_STATES = select(sweep.c.id, sweep.c.state).order_by(sweep.c.id).with_for_update()
_SWEEPS = Among(sweep.c.id, _STATES.where)
NOTE = "not charged: "
RETURNED = ("systemic", "rate_limited", "ledger")
"""Causes of a return that do not count as attempts, and whose number is bounded."""
_UNCHARGED = or_(
    and_(run.c.state == "returned", or_(*(run.c.note.like(f"{cause.replace('_', '$_')}%", escape="$") for cause in RETURNED))),
    and_(run.c.state == "rejected", run.c.note.like(f"{NOTE}%")),
)
_COUNTED = select(func.count()).where(_UNCHARGED)


def uncharged(connection: Connection, row: Row, grant: Mark | None, /) -> int:
    """Attempts of a partition that were not charged, since an operator's last grant."""
    is_new_grant = grant is not None and grant.actor != POLICY and grant.attempts >= row.attempt_count
    if row.dispatch_count == row.attempt_count and (grant is None or is_new_grant):
        return 0  # every run has a verdict, and none was given back since the grant
    query = _COUNTED.where(run.c.partition_id == row.id)
    if grant is not None and grant.actor != POLICY:
        query = query.where(run.c.leased_at > grant.at)
    return connection.execute(query).scalar_one()


def hold_sweeps(session: Session, attempts: Collection[tuple[int, int]], /) -> dict[int, str]:
    """Lock the bulk operations that these attempts belong to, and return their states.

    To be called before partitions are locked. A bulk operation whose last partition is queued
    again must not be marked as done at the same time.
    """
    runs = [
        one
        for one in _RUNS.rows(session.core, sorted({id_ for id_, _ in attempts}))
        if (one.partition_id, one.attempt_no) in attempts
    ]
    ids = {one.sweep_id for one in runs if one.sweep_id}
    return {row.id: row.state for row in _SWEEPS.rows(session.core, sorted(ids))}


def pardoned(
    session: Session, changes: Changes, attempts: Mapping[tuple[int, int], str], sweeps: Mapping[int, str],
    waiting: Mapping[int, Work], marked: Mapping[int, Mapping[str, Mark]], policy: Callable[[Row], Policy], seed: float,
    most: int, now: datetime, /,
) -> list[dict[str, Any]]:  # fmt: skip
    """Give these attempts back to their partitions, each once; what to write of their runs. The partitions are locked.

    sweeps: states of the bulk operations, as `hold_sweeps` returns them.
    most: attempts of one partition that are not charged, in all.
    """
    ended = []
    left: dict[int, int] = {}
    for one in _RUNS.rows(session.core, sorted({id_ for id_, _ in attempts})):
        because = attempts.get((one.partition_id, one.attempt_no))
        if because is None or one.state != "rejected" or one.note is not None:
            continue
        row, its = changes.row(one.partition_id), marked.get(one.partition_id, {})
        if left.setdefault(row.id, most - uncharged(session.core, row, its.get("grant"))) <= 0:
            continue
        mark = changes.marked.get((row.id, "grant"), its.get("grant"))
        before = 0 if mark is None else mark.attempts
        if before >= row.attempt_count:
            continue  # somebody has granted new ones since
        left[row.id] -= 1
        limit = policy(row).max_attempts if mark is None or mark.amount is None else mark.amount
        new = Mark(row.id, "grant", "outage", POLICY, because, now, 0, None) if mark is None else mark
        changes.mark(new._replace(attempts=before + 1))
        changes.ranges[one.sweep_id, "pardoned"] += 1
        changes.ranges[one.sweep_id, "pardoned_rejected"] += 1
        ended.append({"run_id": one.run_id, "state": "rejected", "ended_at": one.ended_at, "note": storable_text(NOTE + because)})
        last = one.attempt_no == row.dispatch_count and one.kind != "revalidate" and row.id not in waiting
        first = its["grant"].attempts if "grant" in its else 0
        if last and row.attempt_count - first >= limit:
            place = requeued_in(one.lane, one.sweep_id, sweeps.get(one.sweep_id))
            _again(changes, row, its, policy(row), seed, now, place)
    return ended


def requeued_in(lane: int, sweep_id: int, state: str | None, /) -> tuple[int, int]:
    """Return lane and bulk operation of a partition that is queued again after an outage. Pure.

    An operator's request stays one, so that `max_age` does not end it: in its bulk operation, or,
    if that is done, in the backfill lane. If it was cancelled, or there was none, the policy alone
    decides, as after any rejection.

    Args:
        lane: Lane of the last run.
        sweep_id: Bulk operation of the last run, or 0.
        state: State of that bulk operation. None: there is none.
    """
    if lane == FRESH or (sweep_id and state in (None, "cancelled")):
        return RETRY, 0
    if sweep_id and state == "done":
        return BACKFILL, 0
    return lane, sweep_id


def _again(
    changes: Changes,
    row: Row,
    marked: Mapping[str, Mark],
    policy: Policy,
    seed: float,
    now: datetime,
    place: tuple[int, int],
) -> None:
    """Queue a partition whose last attempt was given back. place: lane and bulk operation."""
    terminal = marked.get("terminal")
    if "paused" in marked or (terminal is not None and terminal.cause != "attempts"):
        return
    if terminal is not None:
        changes.unmark(row.id, "terminal")
    then = after_return(policy, "systemic", None, seed, row.dispatch_count, now)
    kind: Any = "retry" if row.current_run_id is None else "reprocess"
    changes.rows[row.id] = row._replace(updated_at=now).shaded(False)
    lane, sweep_id = place
    changes.ranges[sweep_id, "failed"] -= 1  # it was counted as ended
    changes.new_work[row.id] = Work(
        partition_id=row.id,
        source=row.source,
        query_name=row.query_name,
        lane=lane,
        sweep_id=sweep_id,
        due_at=then.due or now,
        queued_at=now,
        kind=kind,
        raw_run_id=None,
        seed=seed,
        strategy=then.strategy,
        lost=0,
        attempt_no=None,
        run_id=None,
        worker=None,
        lease_until=None,
    )
