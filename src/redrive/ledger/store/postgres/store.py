"""PostgresJobStore: each operation is one statement, which is a transaction by itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from ...db.compiled import BatchRunner
from ...db.session import Session
from ...events import NO_QUOTA, IncomingEvent, StartQuota, StoreResult
from ...failpoint import crash_point
from ...model import Lease, NewJob, Settlement, SettleResult, Submitted, Turn
from ..protocol import ClaimOptions, DueTenants, TenantCursors, all_plain_successes
from . import claim, fair, receive, settle, submit
from .claim import TurnRows

WATERMARK_SECONDS = 1.0
FROM_START = "-infinity"


class ClaimWatermarks:
    """From where on to read the queue of each job type.

    The index entry of a claimed job stays at the front until a vacuum, so without watermarks claims
    get slower with each done job. A watermark is only a hint, valid for a second. A claim that
    comes back short is repeated without it.

    Threads may share one. A forked child may continue with what it inherits.
    """

    def __init__(self) -> None:
        self._marks: dict[str, tuple[str, float]] = {}
        """Due time to start at, and the monotonic time until which it is valid."""

    def since(self, kinds: Iterable[str], /) -> list[str]:
        """Return the due time to start at, for each job type."""
        now = time.monotonic()
        marks = (self._marks.get(kind) for kind in kinds)
        return [mark[0] if mark is not None and mark[1] > now else FROM_START for mark in marks]

    def update(
        self, kinds: Mapping[str, int], leases: Iterable[Lease], used: Iterable[str], /
    ) -> None:
        """Set the watermark of each job type of which the claim got as many jobs as it wanted.

        Args:
            kinds: Maximum number of each job type in the claim.
            leases: The result of the claim.
            used: The watermarks that the claim used.
        """
        counts: dict[str, int] = {}
        oldest: dict[str, datetime] = {}
        for lease in leases:
            due = lease.due_stored
            assert isinstance(due, datetime)
            counts[lease.kind] = counts.get(lease.kind, 0) + 1
            if lease.kind not in oldest or due < oldest[lease.kind]:
                oldest[lease.kind] = due
        for (kind, limit), mark in zip(kinds.items(), used, strict=True):
            if counts.get(kind) != limit:
                self._marks.pop(kind, None)
            elif mark == FROM_START:
                until = time.monotonic() + WATERMARK_SECONDS
                self._marks[kind] = (oldest[kind].isoformat(), until)
            else:  # valid since the last claim that read from the start
                until = self._marks.get(kind, ("", 0.0))[1]
                self._marks[kind] = (oldest[kind].isoformat(), until)


class PostgresJobStore:
    """The statements on Postgres. Threads and forked children may share one."""

    def __init__(self) -> None:
        self._watermarks = ClaimWatermarks()
        self._tenants = TenantCursors()

    def submit(self, session: Session, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Submit jobs with different keys, sorted."""
        if submit.has_sequence(jobs):
            with session.transaction("submit"):
                return submit.submit(session.run, jobs)
        crash_point("submit.before_commit")
        submitted = submit.submit(session.run, jobs)
        crash_point("submit.after_commit")
        return submitted

    def submit_in(self, run: BatchRunner, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Submit jobs with different keys, sorted, in the caller's transaction."""
        return submit.submit(run, jobs)

    def turn(
        self, session: Session, settlements: Sequence[Settlement], options: ClaimOptions, /
    ) -> Turn:
        """Settle, start and claim in one statement.

        Settlements that are not all plain successes have their own statement before it.
        """
        is_plain = all_plain_successes(settlements)
        late, cancelled = SettleResult([]) if is_plain else self.settle(session, settlements)
        crash_point("turn.before_commit")
        leases, settled, started = self._claim(session, settlements if is_plain else (), options)
        crash_point("turn.after_commit")
        if is_plain and len(settled) != len(settlements):
            late = [each for each in settlements if each.job_id not in settled]
            settle.count_late(session.run, late)
        return Turn(leases, late, started, cancelled)

    def _claim(
        self, session: Session, done: Sequence[Settlement], options: ClaimOptions
    ) -> TurnRows:
        if options.fair and not options.alone:
            return self._claim_fairly(session, done, options)
        from_start = [FROM_START] * len(options.kinds)
        if options.alone:
            return claim.turn(session.run, done, options, from_start)
        since = self._watermarks.since(options.kinds)
        turn = claim.turn(session.run, done, options, since)
        leases = turn.leases
        self._watermarks.update(options.kinds, leases, since)
        left = options.total - len(leases)
        if left > 0 and since != from_start:
            counts = Counter(lease.kind for lease in leases)
            kinds = {
                kind: limit - counts[kind]
                for kind, limit in options.kinds.items()
                if limit > counts[kind]
            }
            if kinds:
                rest = options._replace(kinds=kinds, total=left, starts=())
                leases += claim.turn(session.run, (), rest, [FROM_START] * len(kinds)).leases
        return turn

    def _claim_fairly(
        self, session: Session, done: Sequence[Settlement], options: ClaimOptions
    ) -> TurnRows:
        """Claim jobs of the next tenants, and fill up in the order of the due times."""
        ((kind, limit),) = options.kinds.items()
        if self._tenants.count_claim(kind):
            return claim.turn(session.run, done, options, [FROM_START])
        fair_turn = fair.turn(session.run, done, options, self._tenants.next(kind))
        if fair_turn.cursor is not None:
            self._tenants.move(kind, fair_turn.cursor)
        leases = fair_turn.rows.leases
        left = min(limit, options.total) - len(leases)
        if left > 0 and fair_turn.has_due:
            rest = options._replace(kinds={kind: left}, total=left, starts=())
            leases += claim.turn(session.run, (), rest, [FROM_START]).leases
        return fair_turn.rows

    def encode_events(self, events: Sequence[IncomingEvent], /) -> receive.EncodedEvents:
        """Return events as `receive` takes them."""
        return receive.encode(events)

    def receive(
        self,
        session: Session,
        settlements: Sequence[Settlement],
        events: receive.EncodedEvents,
        quota: StartQuota,
        /,
    ) -> StoreResult:
        """Settle, then store events with their handlers' jobs, and start jobs within the quota."""
        is_plain = all_plain_successes(settlements)
        late, cancelled = SettleResult([]) if is_plain else self.settle(session, settlements)
        crash_point("receive.between")
        crash_point("receive.before_commit")
        result, settled = receive.receive(
            session.run, settlements if is_plain else (), events, quota
        )
        crash_point("receive.after_commit")
        if is_plain and len(settled) != len(settlements):
            late = [each for each in settlements if each.job_id not in settled]
            settle.count_late(session.run, late)
        return result._replace(late=late, cancelled=cancelled)

    def receive_in(self, run: BatchRunner, events: Sequence[IncomingEvent], /) -> list[bool]:
        """Store events with their handlers' jobs in the caller's transaction."""
        return receive.receive(run, (), receive.encode(events), NO_QUOTA)[0].are_new

    def claim_in(self, session: Session, options: ClaimOptions, /) -> list[Lease]:
        """Claim jobs in the open transaction."""
        if options.in_sequence:
            return fair.claim_in_sequence(session.run, options)
        return claim.turn(session.run, (), options, [FROM_START] * len(options.kinds)).leases

    def due_tenants(
        self, session: Session, kind: str, beyond: int, excluded: Collection[str], most: int, /
    ) -> DueTenants:
        """Return the next tenants with due jobs of the most urgent priority beyond a number."""
        cursor = self._tenants.next(kind, beyond)
        return fair.due_tenants(session.run, kind, beyond, cursor, excluded, most)

    def end_turns(self, kind: str, beyond: int, tenant: str, /) -> None:
        """Begin the next scan of tenants after this one."""
        self._tenants.move(kind, tenant, beyond)

    def claim_shares_in(
        self, session: Session, options: ClaimOptions, priority: int, shares: Mapping[str, int], /
    ) -> list[Lease]:
        """Claim at most this many jobs of each tenant, of one job type and priority."""
        return fair.claim_shares(session.run, options, priority, shares)

    def settle(self, session: Session, settlements: Sequence[Settlement], /) -> SettleResult:
        """Settle. Returns what became of the settlements."""
        if any(each.sequence is not None for each in settlements):
            with session.transaction("settle"):
                return settle.settle(session.run, settlements)
        crash_point("settle.before_commit")
        result = settle.settle(session.run, settlements)
        crash_point("settle.after_commit")
        return result

    def settle_in(self, run: BatchRunner, settlements: Sequence[Settlement], /) -> SettleResult:
        """Settle in the caller's transaction. Returns what became of the settlements."""
        return settle.settle(run, settlements, in_caller=True)

    def start(self, session: Session, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts start. Returns the leases that are not lost."""
        crash_point("start.before_commit")
        started = claim.start(session.run, leases)
        crash_point("start.after_commit")
        return started

    def renew(self, session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
        """Extend leases. Returns the leases that are lost."""
        crash_point("renew.before_commit")
        lost = claim.renew(session.run, leases, seconds)
        crash_point("renew.after_commit")
        return lost
