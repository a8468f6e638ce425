"""The verbs on Postgres: each is one statement, which is a transaction by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...db.compiled import Many
from ...db.session import Session
from ...events import NOTHING, Arriving, Grant, Received
from ...failpoint import crash_point
from ...record import Lease, NewJob, Settlement, Submitted, Turn
from ..protocol import Demand, plain
from . import claim, receive, settle, submit
from .claim import Turned
from .watermarks import EVERYTHING, Marks


class OnPostgres:
    """Threads and forked children may share it."""

    def __init__(self) -> None:
        self._marks = Marks()

    def submit(self, session: Session, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Jobs of different keys, sorted, in a transaction of ours."""
        crash_point("submit.before_commit")
        found = submit.submit(session.run, jobs)
        crash_point("submit.after_commit")
        return found

    def submit_in(self, run: Many, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """The same in the caller's transaction."""
        return submit.submit(run, jobs)

    def turn(self, session: Session, settlements: Sequence[Settlement], demand: Demand, /) -> Turn:
        """Settle, start and claim in one statement; settlements that did not succeed have one of their own before it."""
        late: list[Settlement] = []
        short = plain(settlements)
        if not short:
            late = self.settle(session, settlements)
        crash_point("turn.before_commit")
        leases, settled, started = self._claim(session, settlements if short else (), demand)
        crash_point("turn.after_commit")
        if short and len(settled) != len(settlements):
            late = settle.counted_late(session.run, [one for one in settlements if one.job_id not in settled])
        return Turn(leases, late, started)

    def _claim(self, session: Session, done: Sequence[Settlement], demand: Demand) -> Turned:
        everything = [EVERYTHING] * len(demand.kinds)
        if demand.alone:
            return claim.turn(session.run, done, demand, everything)
        since = self._marks.since(demand.kinds)
        turned = claim.turn(session.run, done, demand, since)
        leases = turned.leases
        self._marks.seen(demand.kinds, leases, since)
        left = demand.total - len(leases)
        if left > 0 and since != everything:
            taken = Counter(lease.kind for lease in leases)
            kinds = {kind: most - taken[kind] for kind, most in demand.kinds.items() if most > taken[kind]}
            if kinds:
                rest = demand._replace(kinds=kinds, total=left, starts=())
                leases += claim.turn(session.run, (), rest, [EVERYTHING] * len(kinds)).leases
        return turned

    def receive(
        self, session: Session, settlements: Sequence[Settlement], events: Sequence[Arriving], grant: Grant, /
    ) -> Received:
        """Settle, then store events with their handlers' jobs, and begin as many of these as were granted."""
        short = plain(settlements)
        late = [] if short else self.settle(session, settlements)
        crash_point("receive.between")
        crash_point("receive.before_commit")
        found, settled = receive.receive(session.run, settlements if short else (), events, grant)
        crash_point("receive.after_commit")
        if short and len(settled) != len(settlements):
            late = settle.counted_late(session.run, [one for one in settlements if one.job_id not in settled])
        return found._replace(late=late)

    def receive_in(self, run: Many, events: Sequence[Arriving], /) -> list[bool]:
        """Store events in the caller's transaction, their jobs ready; which were new."""
        return receive.receive(run, (), events, NOTHING)[0].fresh

    def claim_in(self, session: Session, demand: Demand, /) -> list[Lease]:
        """Claim in the transaction that is open."""
        return claim.turn(session.run, (), demand, [EVERYTHING] * len(demand.kinds)).leases

    def settle(self, session: Session, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """Settle; those that came too late."""
        crash_point("settle.before_commit")
        late = settle.settle(session.run, settlements)
        crash_point("settle.after_commit")
        return late

    def settle_in(self, run: Many, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """The same in the caller's transaction."""
        return settle.settle(run, settlements)

    def start(self, session: Session, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts begin; those that may."""
        crash_point("start.before_commit")
        begun = claim.start(session.run, leases)
        crash_point("start.after_commit")
        return begun

    def renew(self, session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
        """Hold leases longer; those that are lost."""
        crash_point("renew.before_commit")
        lost = claim.renew(session.run, leases, seconds)
        crash_point("renew.after_commit")
        return lost
