"""Claimer: claims jobs of every group that may have some, together with other writes of a turn.

`TurnWriter` settles, starts and claims jobs in one write. `Claimer` decides what to claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import monotonic
from typing import Any

from ..ledger.events import StartQuota, StoreResult
from ..ledger.jobs import lease_recovery
from ..ledger.jobs import limits as limited
from ..ledger.jobs.pauses import NO_PAUSES
from ..ledger.ledger import Ledger
from ..ledger.model import Lease, Settlement, Turn, lease_key, new_token
from ..ledger.store.protocol import ClaimOptions
from .capacity import Capacity, ClaimRequest
from .completer import Completer
from .executors import Executors
from .job_type import JobType
from .maintenance import Maintenance
from .parking import ParkedTypes
from .quarantine import Quarantine
from .status import WorkerOptions
from .turn import POLL_SECONDS, TurnState

LIMIT_RETRY_SECONDS = 0.2
"""Time between two claims of a job type whose concurrency limit is reached."""
MIN_LIMIT_RETRY_SECONDS = 0.01
NO_CLAIM = ClaimRequest("", {}, 0)


class TurnWriter:
    """Writes turns of a worker to the ledger. Used by the ledger thread only.

    Attributes:
        ledger: The ledger of the ledger thread.
        options: The options of the worker.
        state: The state between two turns.
        executors: Run the jobs.
        settlements: Settlements that are not written yet.
        lost_claims: Claims whose response was lost.
    """

    def __init__(
        self,
        ledger: Ledger,
        options: WorkerOptions,
        state: TurnState,
        executors: Executors,
        completer: Completer,
        maintenance: Maintenance,
    ) -> None:
        self.ledger, self.options, self.state = ledger, options, state
        self.executors, self._completer, self._maintenance = executors, completer, maintenance
        self.settlements: list[Settlement] = []
        self.lost_claims = LostClaims(ledger, options.name, lease_seconds=options.lease_seconds)

    def settle(self) -> None:
        """Settle finished jobs and start last attempts, in one write."""
        if self.settlements or (self.executors.has_startable and self._may_start()):
            self.on_settled(self.write(self.settlements, NO_CLAIM))

    def write(
        self,
        settlements: Sequence[Settlement],
        request: ClaimRequest,
        *,
        token: int | None = None,
        is_quarantined: bool = False,
    ) -> Turn:
        """Settle, start the last attempts that can run at once, and claim, in one write. Run the
        started ones.

        A last attempt that was only claimed, or waits for a thread, must not be used up if the
        worker is killed or the response is lost. Other attempts start with their claim: a lost one
        counts, and does not end its job.
        """
        starts = self.executors.take_startable() if self._may_start() and not is_quarantined else []
        try:
            turn = self.ledger.turn(
                settlements,
                request.max_by_type,
                worker=self.options.name,
                lease=self.options.lease_seconds,
                total=request.total,
                start=not is_quarantined,
                alone=is_quarantined,
                token=token,
                start_last=False,
                starts=starts,
                fair=request.fair,
            )
        except BaseException:
            # The ledger may have written it: releasing the jobs is right in both cases.
            self.executors.drop(starts)
            self.settlements += [lease.release() for lease in starts]
            raise
        if starts:
            if len(turn.started) < len(starts):
                names = set(map(lease_key, turn.started))
                self.executors.drop([lease for lease in starts if lease_key(lease) not in names])
            self.executors.run_started(turn.started)
        return turn

    def _may_start(self) -> bool:
        """Return whether jobs may start: the worker is not stopping, and its clock is trusted."""
        return not self.state.is_stopping and self._maintenance.clocks.problem is None

    def on_settled(self, result: Turn | StoreResult) -> None:
        """Note that the ledger has the settlements, and what became of them."""
        waits = [
            settlement.after for settlement in self.settlements if settlement.outcome == "again"
        ]
        self.settlements = []
        if waits:
            self.state.on_retries_settled(monotonic() + min(waits) + 0.001)
        if late := result.late:
            self._completer.record_late(late)
            self._maintenance.revoke_crashes(list(late))
        self._completer.record_failures(result.cancelled, late)

    def receive(self, events: Any, grant: StartQuota) -> StoreResult:
        """Store encoded events, and settle finished jobs in the same transaction."""
        with self.ledger.connections.write.use() as session:
            return self.ledger.connections.store.receive(session, self.settlements, events, grant)


class Claimer:
    """Decides what a worker claims, and claims it. Used by the ledger thread only."""

    def __init__(
        self,
        writer: TurnWriter,
        job_types: Mapping[str, JobType],
        capacity: Capacity,
        quarantine: Quarantine,
        parked: ParkedTypes,
        *,
        now: Callable[[], datetime],
    ) -> None:
        """Prepare.

        Args:
            writer: Writes to the ledger.
            job_types: Job types by name.
            capacity: How many jobs fit.
            quarantine: When quarantined jobs run.
            parked: Job types that are paused after an outage.
            now: Returns the time by the ledger's clock.
        """
        self._writer, self._ledger, self._options = writer, writer.ledger, writer.options
        self._state, self._executors = writer.state, writer.executors
        self._job_types, self._capacity = job_types, capacity
        self._quarantine, self._parked, self._now = quarantine, parked, now
        self.probes: dict[int, str] = {}
        """Job types by the job that probes them."""
        self.pauses = NO_PAUSES
        """Pauses by hand, as of the last refresh."""
        self._vain_groups: set[str] = set()
        """Groups with limits whose last claim got no job."""

    def claimable_types(self) -> list[str]:
        """Return the job types that are neither parked nor paused by hand."""
        names = [name for name in self._job_types if name not in self._parked.parked]
        return [name for name in names if not self._is_paused(name)] if self.pauses else names

    def _is_paused(self, name: str) -> bool:
        """Return whether a job type, or the app, is paused by hand."""
        return self.pauses.get("job type", name) is not None

    def can_claim_more(self) -> bool:
        """Return whether there may be more jobs, and capacity for them."""
        if self._quarantine.blocks_other_claims:
            return False
        groups = self._capacity.groups(self.claimable_types())
        empty_until = self._state.empty_until
        return any(
            group not in empty_until and self._capacity.free(group) > 0 for group, _ in groups
        )

    def claim_jobs(self, *, is_busy: bool, defers_settlements: bool) -> bool:
        """Claim jobs of every group that may have some, probe parked types, and run quarantined
        jobs.

        Args:
            is_busy: Whether sources keep the worker busy.
            defers_settlements: Leave settlements for a later write.

        Returns:
            Whether a quarantined job was claimed.
        """
        self._state.expire_empty(monotonic(), is_busy=is_busy)
        if not self._quarantine.blocks_other_claims:
            self._capacity.rotate()
            for group, members in self._capacity.groups(self.claimable_types()):
                has_settlements = bool(self._writer.settlements) and not defers_settlements
                if self._state.can_claim(group, has_settlements=has_settlements):
                    request = self._capacity.claim_request(group, members)
                    if request.total > 0:
                        self._claim(request, defers_settlements=defers_settlements)
            self._claim_probes()
        if self._executors.has_startable:
            self._writer.settle()
        return (
            self._quarantine.should_claim(
                monotonic(),
                is_idle=not len(self._executors.in_flight),
                has_quarantined=self._has_quarantined,
                has_others=self._has_due_jobs,
            )
            and self._claim_quarantined()
        )

    def _claim(
        self,
        request: ClaimRequest,
        *,
        is_quarantined: bool = False,
        defers_settlements: bool = False,
    ) -> list[Lease]:
        """Claim jobs, and run them."""
        if request.limits is not None:
            return self._claim_limited(request, request.limits, is_quarantined)
        settlements = () if defers_settlements else self._writer.settlements
        with self._writer.lost_claims.new_claim() as token:
            turn = self._writer.write(
                settlements, request, token=token, is_quarantined=is_quarantined
            )
            if not defers_settlements:
                self._writer.on_settled(turn)
            leases = self._ledger.start(turn.leases) if is_quarantined else turn.leases
        self._executors.accept(leases)
        if is_quarantined:
            self._state.is_backlogged |= len(turn.leases) == request.total
        else:
            self._state.on_claimed(request.group, request.total, len(turn.leases), monotonic())
        return leases

    def _claim_limited(
        self, request: ClaimRequest, limits: Mapping[str, limited.Limit], is_quarantined: bool
    ) -> list[Lease]:
        """Claim jobs of types with a limit over all workers.

        A claim locks a row for each type, in several round trips. After a claim in vain, the next
        one first queries whether a job is due.
        """
        is_vain = not is_quarantined and request.group in self._vain_groups
        if is_vain and not self._is_due(list(request.max_by_type)):
            self._state.on_claimed(request.group, request.total, 0, monotonic())
            return []
        self._writer.settle()  # finished jobs free their places
        with self._writer.lost_claims.new_claim() as token:
            demand = ClaimOptions(
                request.max_by_type,
                self._options.name,
                self._options.lease_seconds,
                request.total,
                not is_quarantined,
                is_quarantined,
                token,
                False,
            )
            with self._ledger.connections.write.use() as session:
                claim = limited.claim(session, self._ledger.connections.store, demand, limits)
            leases = self._ledger.start(claim.leases) if is_quarantined else claim.leases
        self._executors.accept(leases)
        (self._vain_groups.discard if leases else self._vain_groups.add)(request.group)
        if not is_quarantined and len(claim.leases) < request.total:
            has_limit = self._capacity.has_concurrency_limit
            waits = [
                LIMIT_RETRY_SECONDS if has_limit(name) else POLL_SECONDS
                for name in request.max_by_type
            ]
            waits += [max(wait, MIN_LIMIT_RETRY_SECONDS) for wait in claim.after.values()]
            self._state.on_limited_claim(request.group, min(waits), monotonic())
        return leases

    def _claim_probes(self) -> None:
        """Claim one job of each parked type whose probe is due."""
        for name in self._parked.due_probes():
            job_type = self._job_types.get(name)
            if job_type is None or self._capacity.free(job_type.execution) <= 0:
                continue
            if self._is_paused(name):
                continue
            if not self._is_due([name]) or not self._parked.reserve_probe(name):
                continue
            request = ClaimRequest("probe", {name: 1}, 1, self._capacity.limits(name))
            self.probes.update((lease.job_id, name) for lease in self._claim(request))

    def _claim_quarantined(self) -> bool:
        """Claim a job in quarantine, and run it alone. Return whether there was one."""
        names = self.claimable_types() if self._has_quarantined() else []
        unlimited = {name: 1 for name in names if self._capacity.limits(name) is None}
        requests = [ClaimRequest("quarantine", unlimited, 1)] if unlimited else []
        requests += [
            ClaimRequest("quarantine", {name: 1}, 1, self._capacity.limits(name))
            for name in names
            if name not in unlimited
        ]
        if any(self._claim(request, is_quarantined=True) for request in requests):
            self._quarantine.on_claimed(monotonic())
            return True
        self._quarantine.on_empty(monotonic())
        return False

    def seconds_until_due(self) -> float | None:
        """Return the seconds until the next job is due, or None without jobs."""
        names = self.claimable_types()
        due = self._ledger.next_due(names) if names else None
        return None if due is None else (due - self._now()).total_seconds()

    def _has_quarantined(self) -> bool:
        return self._is_due(self.claimable_types(), alone=True)

    def _has_due_jobs(self) -> bool:
        """Return whether jobs are due that are not quarantined, and that limits allow to claim."""
        names = self.claimable_types()
        limits = {
            name: own[name] for name in names if (own := self._capacity.limits(name)) is not None
        }
        if limits:
            with self._ledger.connections.read.use() as session:
                claimable = limited.claimable(session, limits)
            names = [name for name in names if name not in limits or name in claimable]
        return self._is_due(names)

    def _is_due(self, names: Sequence[str], *, alone: bool = False) -> bool:
        """Return whether a job of these types is due."""
        due = self._ledger.next_due(names, alone=alone) if names else None
        return due is not None and due <= self._now()


class LostClaims:
    """Releases the jobs of claims whose response was lost. Used by the ledger thread only.

    They are leased to a worker that does not know of them.
    """

    RETRY_SECONDS = 1.0
    """Time between two releases. The server may still execute a claim whose connection was cut."""

    def __init__(self, ledger: Ledger, worker: str, *, lease_seconds: float) -> None:
        self._ledger, self._worker, self._lease_seconds = ledger, worker, lease_seconds
        self._until_by_token: dict[int, float] = {}
        """For each token of a lost claim, the time until which its leases can exist."""
        self._next_release = 0.0

    @contextmanager
    def new_claim(self) -> Iterator[int]:
        """Yield the token for a claim. If the block raises, the claimed jobs are released later."""
        token = new_token()
        try:
            yield token
        except BaseException:
            self._until_by_token[token] = monotonic() + 2 * self._lease_seconds
            self._next_release = 0.0
            raise

    def release(self) -> bool:
        """Release the leases of lost claims. Return whether there were any."""
        now = monotonic()
        if not self._until_by_token or now < self._next_release:
            return False
        with self._ledger.connections.write.use() as session:
            released = lease_recovery.release_undelivered(
                session, self._worker, self._until_by_token.keys()
            )
        self._until_by_token = {
            token: until for token, until in self._until_by_token.items() if until > now
        }
        self._next_release = now + self.RETRY_SECONDS
        return released > 0
