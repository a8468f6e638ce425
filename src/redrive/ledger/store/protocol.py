"""Hot: the verbs whose statements differ between the databases, behind one small interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ..db.compiled import Many
from ..db.session import Session
from ..events import Arriving, Grant, Received
from ..record import Lease, NewJob, Settlement, Submitted, Turn


class Demand(NamedTuple):
    """What a worker can take now."""

    kinds: Mapping[str, int]
    """The most of each kind."""
    worker: str
    seconds: float
    """How long it holds what it gets."""
    total: int
    """The most of all kinds together."""
    start: bool = True
    """Write that the attempts begin. False: they are only claimed, and `start` follows for each."""
    alone: bool = False
    """Of the jobs that were running when their worker died: one, to be run with nothing beside it."""
    token: int = 0
    """Of the leases, see `new_token`."""
    start_last: bool = True
    """False: an attempt that may be its job's last one is only claimed, so that a lost response never uses it up."""
    starts: Sequence[Lease] = ()
    """Leases of earlier claims whose attempts start with this turn. Not for `claim_in`."""


class Hot(Protocol):
    """The verbs on one kind of database. Threads and forked children may share one."""

    def submit(self, session: Session, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Jobs of different keys, sorted, in a transaction of ours."""

    def submit_in(self, run: Many, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """The same in the caller's transaction."""

    def turn(self, session: Session, settlements: Sequence[Settlement], demand: Demand, /) -> Turn:
        """Settle, start and claim: one write, where no settlement needs one of its own."""

    def receive(
        self, session: Session, settlements: Sequence[Settlement], events: Sequence[Arriving], grant: Grant, /
    ) -> Received:
        """Settle, then store events with their handlers' jobs, and begin as many of these as were granted."""

    def receive_in(self, run: Many, events: Sequence[Arriving], /) -> list[bool]:
        """Store events in the caller's transaction, their jobs ready; which were new."""

    def claim_in(self, session: Session, demand: Demand, /) -> list[Lease]:
        """Claim in the transaction that is open."""

    def settle(self, session: Session, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """Settle; those that came too late."""

    def settle_in(self, run: Many, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """The same in the caller's transaction."""

    def start(self, session: Session, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts begin; those that may."""

    def renew(self, session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
        """Hold leases longer; those that are lost."""


def plain(settlements: Sequence[Settlement], /) -> bool:
    """All done, none the replay of a dead letter, no job twice: the short way."""
    ids = {one.job_id for one in settlements if one.outcome == "done" and not one.replay}
    return len(ids) == len(settlements)
