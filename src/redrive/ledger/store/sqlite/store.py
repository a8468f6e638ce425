"""The verbs on SQLite: each is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ...db.clock import micros_now
from ...db.compiled import Many
from ...db.session import Session
from ...events import NOTHING, Arriving, Grant, Received
from ...failpoint import crash_point
from ...record import Lease, NewJob, Settlement, Submitted, Turn
from ..protocol import Demand, plain
from . import claim, receive, settle, submit
from .counters import add

BEGIN = "BEGIN IMMEDIATE"


class OnSQLite:
    """Stateless: anything may share it."""

    def submit(self, session: Session, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Jobs of different keys, sorted, in a transaction of ours."""
        raw = session.raw
        now = micros_now()
        raw.execute(BEGIN)
        try:
            found = submit.submit_fresh(raw, jobs, now) if len(jobs) > 1 else None
            if found is None:
                if len(jobs) > 1:
                    raw.execute("ROLLBACK")
                    raw.execute(BEGIN)
                found = submit.submit(raw, jobs, now)
            crash_point("submit.before_commit")
            raw.execute("COMMIT")
        except BaseException:
            session.undo()
            raise
        crash_point("submit.after_commit")
        return found

    def submit_in(self, run: Many, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """The same in the caller's transaction."""
        return submit.submit(run, jobs, micros_now())

    def turn(self, session: Session, settlements: Sequence[Settlement], demand: Demand, /) -> Turn:
        """Settle, start and claim in one transaction."""
        raw = session.raw
        now = micros_now()
        raw.execute(BEGIN)
        try:
            short = plain(settlements)
            late = [] if short else settle.settle(raw, settlements, now)
            if short and not settle.done_rows(raw, settlements, now):
                raw.execute("ROLLBACK")
                raw.execute(BEGIN)
                short, late = False, settle.settle(raw, settlements, now)
            started = claim.start(raw, demand.starts, now)
            leases = claim.claim(raw, demand, now)
            _count(raw, settlements if short else (), leases)
            crash_point("turn.before_commit")
            raw.execute("COMMIT")
        except BaseException:
            session.undo()
            raise
        crash_point("turn.after_commit")
        return Turn(leases, late, started)

    def receive(
        self, session: Session, settlements: Sequence[Settlement], events: Sequence[Arriving], grant: Grant, /
    ) -> Received:
        """Settle, then store events with their handlers' jobs, and begin as many of these as were granted."""
        raw = session.raw
        now = micros_now()
        raw.execute(BEGIN)
        try:
            short = plain(settlements)
            late = [] if short else settle.settle(raw, settlements, now)
            found = None
            if not short or settle.done_rows(raw, settlements, now):
                found = receive.receive_fresh(raw, events, grant, settlements if short else (), now)
            if found is None:
                raw.execute("ROLLBACK")
                raw.execute(BEGIN)
                late = settle.settle(raw, settlements, now)
                found = receive.receive(raw, events, grant, now)
            crash_point("receive.before_commit")
            raw.execute("COMMIT")
        except BaseException:
            session.undo()
            raise
        crash_point("receive.after_commit")
        return found._replace(late=late)

    def receive_in(self, run: Many, events: Sequence[Arriving], /) -> list[bool]:
        """Store events in the caller's transaction, their jobs ready; which were new."""
        return receive.receive(run, events, NOTHING, micros_now()).fresh

    def claim_in(self, session: Session, demand: Demand, /) -> list[Lease]:
        """Claim in the transaction that is open."""
        leases = claim.claim(session.raw, demand, micros_now())
        _count(session.raw, (), leases)
        return leases

    def settle(self, session: Session, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """Settle; those that came too late."""
        with session.transaction("settle"):
            return settle.settle(session.raw, settlements, micros_now())

    def settle_in(self, run: Many, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """The same in the caller's transaction."""
        return settle.settle(run, settlements, micros_now())

    def start(self, session: Session, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts begin; those that may."""
        with session.transaction("start"):
            return claim.start(session.raw, leases, micros_now())

    def renew(self, session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
        """Hold leases longer; those that are lost."""
        with session.transaction("renew"):
            return claim.renew(session.raw, leases, seconds, micros_now())


def _count(run: Many, done: Sequence[Settlement], leases: Sequence[Lease]) -> None:
    """What a turn ends and what it begins: each kind by one statement."""
    ended, begun = [one.kind for one in done], [lease.kind for lease in leases]
    for kind in {*ended, *begun}:
        ends, begins = ended.count(kind), begun.count(kind)
        add(run, kind, ready=-begins, leased=begins - ends, done=ends)
