"""JobStore: the statements of workers and submitters, which differ between the databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..db.compiled import BatchRunner
from ..db.session import Session
from ..events import IncomingEvent, StartQuota, StoreResult
from ..model import Lease, NewJob, Settlement, SettleResult, Submitted, Turn

BELOW_ALL_PRIORITIES = -100
CLAIMS_BETWEEN_ORDERED = 8
MIN_SHARED_CLAIM = 8
"""Number of jobs up to which each job of a claim may be of another tenant."""


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
    fair: bool = False
    """The tenants of the job type take turns. For one job type."""
    in_sequence: bool = False
    """Claim jobs of a sequence one after another. For one job type, and for `claim_in` under the
    lock of the job type."""


class DueTenants(NamedTuple):
    """The next tenants of a job type that have due jobs."""

    tenants: list[str]
    last: str
    """The last tenant that was scanned. It is the cursor of the next scan."""
    priority: int | None
    """Priority of the jobs. None: no job is due."""


def max_scanned_tenants(claim_size: int, /) -> int:
    """Return how many tenants a claim of this size scans, with and without due jobs."""
    return 2 * claim_size + 100


def max_tenants(claim_size: int, /) -> int:
    """Return how many tenants share a claim of this size.

    A large claim takes four jobs of each, because finding a tenant costs as much as a job.
    """
    if claim_size <= MIN_SHARED_CLAIM:
        return claim_size
    return max(MIN_SHARED_CLAIM, claim_size // 4)


class TenantCursors:
    """Where the next fair claim of each job type begins. Threads and forked children may share it.

    Only a hint: a lost update repeats or skips a turn.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], str] = {}
        self._claims: Counter[str] = Counter()

    def next(self, kind: str, level: int = BELOW_ALL_PRIORITIES, /) -> str:
        """Return the tenant after which the next claim begins.

        Args:
            kind: Job type.
            level: Priority from which the scan starts. Each has its own cursor. With a shared one,
                frequent scans of a few urgent jobs would always restart the others at the same
                tenants.
        """
        return self._last.get((kind, level), "")

    def move(self, kind: str, tenant: str, level: int = BELOW_ALL_PRIORITIES, /) -> None:
        """Note the last tenant of a claim."""
        self._last[kind, level] = tenant

    def count_claim(self, kind: str, /) -> bool:
        """Count a claim. Return whether it ignores tenants.

        Every 8th claim does, so that jobs without a tenant also get a turn.
        """
        self._claims[kind] += 1
        return self._claims[kind] % CLAIMS_BETWEEN_ORDERED == 0


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

    def encode_events(self, events: Sequence[IncomingEvent], /) -> Any:
        """Return events as `receive` takes them. Other threads do it during a transaction."""

    def receive(
        self,
        session: Session,
        settlements: Sequence[Settlement],
        events: Any,
        quota: StartQuota,
        /,
    ) -> StoreResult:
        """Settle, then store events with their handlers' jobs, and start jobs within the quota."""

    def receive_in(self, run: BatchRunner, events: Sequence[IncomingEvent], /) -> list[bool]:
        """Store events with their handlers' jobs. Returns which are new."""

    def claim_in(self, session: Session, options: ClaimOptions, /) -> list[Lease]:
        """Claim jobs."""

    def due_tenants(
        self, session: Session, kind: str, beyond: int, excluded: Collection[str], most: int, /
    ) -> DueTenants:
        """Return the next tenants with due jobs of the most urgent priority beyond a number.

        Args:
            session: A session with a transaction.
            kind: Job type.
            beyond: Only jobs that are less urgent than this priority.
            excluded: Tenants to leave out.
            most: Size of the claim.
        """

    def end_turns(self, kind: str, beyond: int, tenant: str, /) -> None:
        """Begin the next scan of tenants after this one."""

    def claim_shares_in(
        self, session: Session, options: ClaimOptions, priority: int, shares: Mapping[str, int], /
    ) -> list[Lease]:
        """Claim at most this many jobs of each tenant, of one job type and priority."""

    def settle(self, session: Session, settlements: Sequence[Settlement], /) -> SettleResult:
        """Settle. Returns what became of the settlements."""

    def settle_in(self, run: BatchRunner, settlements: Sequence[Settlement], /) -> SettleResult:
        """Settle in the caller's transaction. Returns what became of the settlements."""

    def start(self, session: Session, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts start. Returns the leases that are not lost."""

    def renew(self, session: Session, leases: Sequence[Lease], seconds: float, /) -> list[Lease]:
        """Extend leases. Returns the leases that are lost."""


def all_plain_successes(settlements: Sequence[Settlement], /) -> bool:
    """Return whether all are done, none is a replay or in a sequence, and none appears twice."""
    ids = {
        each.job_id
        for each in settlements
        if each.outcome == "done" and not each.replay and each.sequence is None
    }
    return len(ids) == len(settlements)
