"""SqliteJobStore: each operation is one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...db.clock import now_micros
from ...db.compiled import BatchRunner
from ...db.session import Session
from ...events import NO_QUOTA, IncomingEvent, StartQuota, StoreResult
from ...failpoint import crash_point
from ...model import Lease, NewJob, Settlement, SettleResult, Submitted, Turn
from ..protocol import ClaimOptions, DueTenants, TenantCursors, all_plain_successes
from . import claim, fair, receive, settle, submit
from .counters import add

BEGIN = "BEGIN IMMEDIATE"


class SqliteJobStore:
    """The statements on SQLite. Threads and forked children may share one."""

    def __init__(self) -> None:
        self._tenants = TenantCursors()

    def submit(self, session: Session, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Submit jobs with different keys, sorted."""
        raw = session.raw
        now = now_micros()
        raw.execute(BEGIN)
        try:
            is_batch = len(jobs) > 1 and all(new.sequence is None for new in jobs)
            submitted = submit.submit_new(raw, jobs, now) if is_batch else None
            if submitted is None:
                if is_batch:
                    raw.execute("ROLLBACK")
                    raw.execute(BEGIN)
                submitted = submit.submit(raw, jobs, now)
            crash_point("submit.before_commit")
            raw.execute("COMMIT")
        except BaseException:
            session.undo()
            raise
        crash_point("submit.after_commit")
        return submitted

    def submit_in(self, run: BatchRunner, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Submit jobs with different keys, sorted, in the caller's transaction."""
        return submit.submit(run, jobs, now_micros())

    def turn(
        self, session: Session, settlements: Sequence[Settlement], options: ClaimOptions, /
    ) -> Turn:
        """Settle, start and claim in one transaction."""
        raw = session.raw
        now = now_micros()
        raw.execute(BEGIN)
        try:
            is_plain = all_plain_successes(settlements)
            result = SettleResult([]) if is_plain else settle.settle(raw, settlements, now)
            if is_plain and not settle.settle_successes(raw, settlements, now):
                raw.execute("ROLLBACK")
                raw.execute(BEGIN)
                is_plain, result = False, settle.settle(raw, settlements, now)
            started = claim.start(raw, options.starts, now)
            leases = self._claim(raw, options, now)
            _count(raw, settlements if is_plain else (), leases)
            crash_point("turn.before_commit")
            raw.execute("COMMIT")
        except BaseException:
            session.undo()
            raise
        crash_point("turn.after_commit")
        return Turn(leases, result.late, started, result.cancelled)

    def encode_events(self, events: Sequence[IncomingEvent], /) -> Sequence[IncomingEvent]:
        """Return events as `receive` takes them."""
        return events

    def receive(
        self,
        session: Session,
        settlements: Sequence[Settlement],
        events: Sequence[IncomingEvent],
        quota: StartQuota,
        /,
    ) -> StoreResult:
        """Settle, then store events with their handlers' jobs, and start jobs within the quota."""
        raw = session.raw
        now = now_micros()
        raw.execute(BEGIN)
        try:
            is_plain = all_plain_successes(settlements)
            settled = SettleResult([]) if is_plain else settle.settle(raw, settlements, now)
            result = None
            if not is_plain or settle.settle_successes(raw, settlements, now):
                result = receive.receive_new(
                    raw, events, quota, settlements if is_plain else (), now
                )
            if result is None:
                raw.execute("ROLLBACK")
                raw.execute(BEGIN)
                settled = settle.settle(raw, settlements, now)
                result = receive.receive(raw, events, quota, now)
            crash_point("receive.before_commit")
            raw.execute("COMMIT")
        except BaseException:
            session.undo()
            raise
        crash_point("receive.after_commit")
        return result._replace(late=settled.late, cancelled=settled.cancelled)

    def receive_in(self, run: BatchRunner, events: Sequence[IncomingEvent], /) -> list[bool]:
        """Store events with their handlers' jobs in the caller's transaction."""
        return receive.receive(run, events, NO_QUOTA, now_micros()).are_new

    def claim_in(self, session: Session, options: ClaimOptions, /) -> list[Lease]:
        """Claim jobs in the open transaction."""
        leases = self._claim(session.raw, options, now_micros())
        _count(session.raw, (), leases)
        return leases

    def _claim(self, run: BatchRunner, options: ClaimOptions, now: int) -> list[Lease]:
        is_fair = options.fair and not options.alone
        if is_fair and not all(map(self._tenants.count_claim, options.kinds)):
            return fair.claim(run, options, self._tenants, now)
        return claim.claim(run, options, now)

    def due_tenants(
        self, session: Session, kind: str, beyond: int, excluded: Collection[str], most: int, /
    ) -> DueTenants:
        """Return the next tenants with due jobs of the most urgent priority beyond a number."""
        cursor = self._tenants.next(kind, beyond)
        now = now_micros()
        return fair.due_tenants(session.raw, kind, beyond, cursor, excluded, most, now)

    def end_turns(self, kind: str, beyond: int, tenant: str, /) -> None:
        """Begin the next scan of tenants after this one."""
        self._tenants.move(kind, tenant, beyond)

    def claim_shares_in(
        self, session: Session, options: ClaimOptions, priority: int, shares: Mapping[str, int], /
    ) -> list[Lease]:
        """Claim at most this many jobs of each tenant, of one job type and priority."""
        leases = fair.claim_shares(session.raw, options, priority, shares, now_micros())
        _count(session.raw, (), leases)
        return leases

    def settle(self, session: Session, settlements: Sequence[Settlement], /) -> SettleResult:
        """Settle. Returns what became of the settlements."""
        with session.transaction("settle"):
            return settle.settle(session.raw, settlements, now_micros())

    def settle_in(self, run: BatchRunner, settlements: Sequence[Settlement], /) -> SettleResult:
        """Settle in the caller's transaction. Returns what became of the settlements."""
        return settle.settle(run, settlements, now_micros())

    def start(self, session: Session, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts start. Returns the leases that are not lost."""
        with session.transaction("start"):
            return claim.start(session.raw, leases, now_micros())

    def renew(self, session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
        """Extend leases. Returns the leases that are lost."""
        with session.transaction("renew"):
            return claim.renew(session.raw, leases, seconds, now_micros())


def _count(run: BatchRunner, done: Sequence[Settlement], leases: Sequence[Lease]) -> None:
    """Update the counters of a turn, with one statement for each job type."""
    done_kinds, leased_kinds = [each.kind for each in done], [lease.kind for lease in leases]
    for kind in {*done_kinds, *leased_kinds}:
        ends, starts = done_kinds.count(kind), leased_kinds.count(kind)
        add(run, kind, ready=-starts, leased=starts - ends, done=ends)
