"""JobStore: the statements of workers and submitters, which differ between the databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ..db.compiled import BatchRunner
from ..db.session import Session
from ..events import IncomingEvent, StartQuota, StoreResult
from ..model import Lease, NewJob, Settlement, Submitted, Turn


class ClaimOptions(NamedTuple):
    """Which jobs a worker claims, and how."""

    kinds: Mapping[str, int]
    """Maximum number of each job type."""
    worker: str
    seconds: float
    """Duration of the leases."""
    total: int
    """Maximum number over all job types."""
    start: bool = True
    """Write that the attempts start. If False, the jobs are only claimed, and `start` follows."""
    alone: bool = False
    """Claim one job in quarantine, to run with nothing beside it."""
    token: int = 0
    """Token of the leases, see `new_token`."""
    start_last: bool = True
    """If False, a job's last attempt is only claimed, so that a lost response never uses it up."""
    starts: Sequence[Lease] = ()
    """Leases of earlier claims whose attempts start in this turn. Not for `claim_in`."""


class JobStore(Protocol):
    """The statements on one database. Threads and forked children may share one.

    Methods that end in `_in` run in a transaction that the caller has opened.
    """

    def submit(self, session: Session, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Submit jobs with different keys, sorted."""

    def submit_in(self, run: BatchRunner, jobs: Sequence[NewJob], /) -> list[Submitted]:
        """Submit jobs with different keys, sorted."""

    def turn(
        self, session: Session, settlements: Sequence[Settlement], options: ClaimOptions, /
    ) -> Turn:
        """Settle, start and claim, in one write if all settlements are plain successes."""

    def receive(
        self,
        session: Session,
        settlements: Sequence[Settlement],
        events: Sequence[IncomingEvent],
        quota: StartQuota,
        /,
    ) -> StoreResult:
        """Settle, then store events with their handlers' jobs, and start jobs within the quota."""

    def receive_in(self, run: BatchRunner, events: Sequence[IncomingEvent], /) -> list[bool]:
        """Store events with their handlers' jobs. Returns which are new."""

    def claim_in(self, session: Session, options: ClaimOptions, /) -> list[Lease]:
        """Claim jobs."""

    def settle(self, session: Session, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """Settle. Returns the settlements that were too late."""

    def settle_in(self, run: BatchRunner, settlements: Sequence[Settlement], /) -> list[Settlement]:
        """Settle. Returns the settlements that were too late."""

    def start(self, session: Session, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts start. Returns the leases that are not lost."""

    def renew(self, session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
        """Extend leases. Returns the leases that are lost."""


def all_plain_successes(settlements: Sequence[Settlement], /) -> bool:
    """Return whether all jobs are done, none is a replay, and none appears twice."""
    ids = {each.job_id for each in settlements if each.outcome == "done" and not each.replay}
    return len(ids) == len(settlements)
