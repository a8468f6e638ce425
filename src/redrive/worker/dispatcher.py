"""Dispatcher: the ledger thread of a worker. It settles, starts and claims jobs in one write, and
renews their leases.

The loop is `run`: a turn, maintenance, a wait. `turn.py` decides what a turn does and when the next
one starts, `capacity.py` how much to claim, `executors.py` runs the jobs, and `completer.py` turns
their results into settlements.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from datetime import datetime
from random import random
from time import monotonic
from typing import Any

from ..errors import LedgerError, LedgerRemoved
from ..journal.bus import emit
from ..ledger.db.connections import MOST
from ..ledger.events import Arriving, Grant, Received
from ..ledger.failpoint import crash_point
from ..ledger.jobs import limits as limited
from ..ledger.jobs.parking import Parked
from ..ledger.ledger import Ledger
from ..ledger.record import Lease, Settlement, Turn, lease_name
from ..ledger.store.protocol import Demand
from .arrivals import ArrivalQueue
from .attempt import AttemptContext, AttemptResult
from .capacity import Capacity, ClaimRequest, InFlight
from .completer import Completer
from .executors import Executors
from .job_type import JobType
from .ledger_faults import LedgerOutage, LostClaims
from .maintenance import Maintenance, MaintenanceEvents
from .options import WorkerOptions
from .parking import ParkedTypes
from .quarantine import Quarantine
from .turn import POLL_SECONDS, NextDuePoll, SubmissionSignal, TurnState, next_turn_at, plan_turn
from .work_source import SourceExecutors, WorkSource, WorkSources

LIMIT_RETRY_SECONDS = 0.2
"""Time between two claims of a job type whose concurrency limit is reached."""
MIN_LIMIT_RETRY_SECONDS = 0.01
WAITING_JOB_SECONDS = 0.05
"""Time until another thread is woken for a short job that waits for a thread."""
WAITING_LAST_SECONDS = 0.001
"""The same for a started last attempt."""
CANCEL_SECONDS = 1.0
"""Time for cancelled async work to end."""
RELEASE_SECONDS = 2.0
"""Time to release leases in the ledger after the drain."""
NO_CLAIM = ClaimRequest("", {}, 0)


class Dispatcher:
    """Runs in one thread.

    Other threads may call `on_finished`, `wake` and `stop`, and read attributes.
    """

    def __init__(
        self,
        ledger: Ledger,
        job_ledger: Ledger,
        job_types: Mapping[str, JobType],
        options: WorkerOptions,
        *,
        work_sources: Sequence[WorkSource] = (),
        info: Mapping[str, Any],
        context: Context,
    ) -> None:
        """Prepare the executors.

        Args:
            ledger: For this thread only.
            job_ledger: For the transactions of jobs, which may use all of its connections.
            job_types: Job types by name.
            options: How to work.
            work_sources: Work beside jobs.
            info: Description of the worker, stored with its heartbeat.
            context: Each attempt gets a copy of it.
        """
        self._ledger, self._job_types, self._options = ledger, job_types, options
        self._info = info
        self.failing: dict[str, str] = {}
        """Work sources and background tasks that fail, with their errors."""
        self._results: deque[AttemptResult] = deque()
        self._wake_up = threading.Event()
        self._settlements: list[Settlement] = []
        """Not written yet."""
        self._uncounted_late: list[Settlement] = []
        """Rejected inside a job's own transaction: its rollback discarded the counter too."""
        self._probes: dict[int, str] = {}
        """Job types by the job that probes them."""
        signal = SubmissionSignal(hears_own_writes=ledger.connections.on_sqlite)
        self._state = TurnState(signal, NextDuePoll(self._seconds_until_due))
        self.stopped = threading.Event()
        """Set when no more jobs are claimed."""
        self.outage = LedgerOutage(options.name)
        self.phase = "starting"
        """`starting`, `working`, `alone` (runs a quarantined job), `draining` or `ended`."""
        self.last_turn_at = monotonic()
        """When the last turn was completed, on the monotonic clock."""
        self.is_everything_released = False
        """At the end, all leases of this worker were released in the ledger."""
        self.removed: LedgerRemoved | None = None
        """Set if the worker ended because its SQLite file was removed."""
        self.in_flight = InFlight()
        events = MaintenanceEvents(
            heartbeat_info=self._heartbeat_info,
            on_leases_lost=self._on_leases_lost,
            on_jobs_recovered=self._on_jobs_recovered,
            on_parked=self._on_parked,
        )
        self.maintenance = Maintenance(
            ledger,
            self.in_flight,
            events,
            name=options.name,
            lease_seconds=options.lease_seconds,
            retention_seconds=options.retention_seconds,
        )
        self.parked = ParkedTypes(
            ledger, job_types.values(), options.parking, now=self.maintenance.now
        )
        self.completer = Completer(ledger, self.parked, now=self.maintenance.now, draw=random)
        transactions = 1 if ledger.connections.on_sqlite else MOST
        self._capacity = Capacity(
            job_types.values(), options.threads, options.tasks, transactions=transactions
        )
        self._quarantine = Quarantine()
        self._lost_claims = LostClaims(ledger, options.name, lease_seconds=options.lease_seconds)
        self.arrivals = ArrivalQueue(self._wake_up.set)
        self._executors = Executors(
            job_types,
            self.in_flight,
            self._capacity,
            AttemptContext(context, self.maintenance.now),
            job_ledger=job_ledger,
            threads=options.threads,
            on_finished=self.on_finished,
            name=options.name,
        )
        source_executors = SourceExecutors(lambda: self._executors.loop, self._wake_up.set)
        for source in work_sources:
            source.attach(options.name, ledger, source_executors)
        self._sources = WorkSources(work_sources, self.failing)

    # ---- for other threads ----

    def on_finished(self, results: list[AttemptResult], /) -> None:
        """Take the results of attempts."""
        self._results.extend(results)
        if not self._wake_up.is_set():
            self._wake_up.set()

    def wake(self) -> None:
        """Look for submitted jobs."""
        self._state.signal.set()
        self._wake_up.set()

    def stop(self, *, now: bool = False) -> None:
        """Claim no more jobs, and end.

        Args:
            now: Do not wait for running jobs.
        """
        self._state.stop_by(monotonic() + (0.0 if now else self._options.drain_seconds))
        self.stopped.set()
        self.arrivals.close()
        self._wake_up.set()

    def now(self) -> datetime:
        """Return the time by the ledger's clock."""
        return self.maintenance.now()

    # ---- the loop ----

    def run(self) -> None:
        """Work until `stop`, drain, and release all leases."""
        self._attempt(self._maintain)
        self.phase = "working"
        while not self._is_drained():
            if self._state.is_stopping:
                self.phase = "draining"
            self._attempt(self._turn)
            self._sources.run_due(self.now(), is_stopping=self._state.is_stopping)
            self._attempt(self._maintain)
            self._wait_for_work()
        self._shut_down()

    def _is_drained(self) -> bool:
        stop_at = self._state.stop_at
        return stop_at is not None and (
            monotonic() >= stop_at or not (len(self.in_flight) or self._sources.running)
        )

    def _attempt(self, act: Callable[[], object]) -> None:
        """Do something that needs the ledger.

        If the ledger is away, wait; running jobs continue.
        """
        try:
            act()
        except LedgerRemoved as error:
            self.outage.on_error(error)
            self.removed = error
            self.stop(now=True)
        except Exception as error:
            self._wake_up.clear()
            pause = self.outage.on_error(error)
            if self._state.is_stopping:
                pause = max(0.0, min(pause, self._release_by() - monotonic()))
            self._wake_up.wait(pause)
        else:
            if act == self._turn:
                self.last_turn_at = monotonic()
                self.outage.on_success()

    def _maintain(self) -> None:
        self.maintenance.run()
        self._capacity.round_trip = self.maintenance.round_trip

    def _wait_for_work(self) -> None:
        now = monotonic()
        if self._has_work(now):
            return
        others = [self.maintenance.timers.next, self._sources.next_turn]
        if self._executors.has_waiting:
            is_last = self._executors.has_waiting_last
            others.append(now + (WAITING_LAST_SECONDS if is_last else WAITING_JOB_SECONDS))
        if not self._state.is_stopping:
            others += [self._quarantine.next_look, self.arrivals.next_look]
            others += self.parked.next_probes(now)
        turn_at = next_turn_at(self._state, is_busy=self.arrivals.expects_more, others=others)
        was_woken = self._wake_up.wait(max(0.0, min(turn_at - now, POLL_SECONDS)))
        self._wake_up.clear()
        self._executors.wake_thread(is_late=not was_woken)

    def _has_work(self, now: float) -> bool:
        """Return whether the next turn has something to do at once."""
        if self._results or self._sources.is_due(now):
            return True
        if self._state.is_stopping:
            return False
        if self.arrivals and not self._state.are_arrivals_deferred:
            return True
        handle_at = self._state.signal.handle_at(is_busy=self.arrivals.expects_more)
        return handle_at <= now or self._can_claim_more()

    def _can_claim_more(self) -> bool:
        """Return whether there may be more jobs, and capacity for them."""
        if self._quarantine.blocks_other_claims:
            return False
        groups = self._capacity.groups(self._claimable_types())
        empty_until = self._state.empty_until
        return any(
            group not in empty_until and self._capacity.free(group) > 0 for group, _ in groups
        )

    def _claimable_types(self) -> list[str]:
        return [name for name in self._job_types if name not in self.parked.parked]

    def _turn(self) -> None:
        """Settle finished jobs, store arrived events, and claim as many jobs as there is capacity
        for.
        """
        if self._lost_claims.release():
            self._state.signal.set()
        self._collect_results()
        clocks = self.maintenance.clocks
        plan = plan_turn(
            self._state,
            expects_arrivals=self.arrivals.expects_more,
            is_clock_trusted=clocks.problem is None,
        )
        self._state.is_backlogged = self._state.are_arrivals_deferred = False
        if plan.store_arrivals_first:
            self._store_arrivals()
        if plan.claims:
            self._claim_jobs(defers_settlements=plan.defers_settlements)
        if plan.releases_unstarted:
            unstarted = self._executors.drop_unstarted()
            self._settlements += [lease.release() for lease in unstarted]
        if not plan.store_arrivals_first:
            self._store_arrivals()
        is_deferred = plan.defers_settlements and self.arrivals.expects_more
        if not self._state.are_arrivals_deferred and not is_deferred:
            self._settle()
        if self.phase == "alone" and not self._quarantine.blocks_other_claims:
            self.phase = "working"
        if clocks.problem is not None:
            raise LedgerError(clocks.problem)

    def _collect_results(self) -> None:
        results = [self._results.popleft() for _ in range(len(self._results))]
        if results:
            self._executors.release(results)
            limited_executions = {
                result.job_type.execution
                for result in results
                if result.job_type.concurrency is not None
            }
            self._state.reopen(f"limited:{execution}" for execution in limited_executions)
            self._uncounted_late += [result.lease.done() for result in results if result.is_late]
            self._settlements += self.completer.complete(
                results, self._probes, is_draining=self._state.is_stopping
            )
        if self._uncounted_late:
            self._ledger.count_late(self._uncounted_late)
            self._uncounted_late = []

    def _claim_jobs(self, *, defers_settlements: bool) -> None:
        """Claim jobs of every group that may have some, probe parked types, and run quarantined
        jobs.
        """
        self._state.expire_empty(monotonic(), is_busy=self.arrivals.expects_more)
        if not self._quarantine.blocks_other_claims:
            self._capacity.rotate()
            for group, members in self._capacity.groups(self._claimable_types()):
                has_settlements = bool(self._settlements) and not defers_settlements
                if self._state.can_claim(group, has_settlements=has_settlements):
                    request = self._capacity.claim_request(group, members)
                    if request.total > 0:
                        self._claim(request, defers_settlements=defers_settlements)
            self._claim_probes()
        if self._executors.has_startable:
            self._settle()
        if self._quarantine.should_claim(
            monotonic(),
            is_idle=not len(self.in_flight),
            has_quarantined=self._has_quarantined,
            has_others=self._has_due_jobs,
        ):
            self._claim_quarantined()

    def _settle(self) -> None:
        """Settle finished jobs and start last attempts, in one write."""
        if self._settlements or (self._executors.has_startable and self._may_start()):
            self._on_settled(self._write(self._settlements, NO_CLAIM).late)

    def _write(
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
        starts = (
            self._executors.take_startable() if self._may_start() and not is_quarantined else []
        )
        try:
            turn = self._ledger.turn(
                settlements,
                request.max_by_type,
                worker=self._options.name,
                lease=self._options.lease_seconds,
                total=request.total,
                start=not is_quarantined,
                alone=is_quarantined,
                token=token,
                start_last=False,
                starts=starts,
            )
        except BaseException:
            # The ledger may have written it: releasing the jobs is right in both cases.
            self._executors.drop(starts)
            self._settlements += [lease.release() for lease in starts]
            raise
        if starts:
            if len(turn.started) < len(starts):
                names = set(map(lease_name, turn.started))
                self._executors.drop([lease for lease in starts if lease_name(lease) not in names])
            self._executors.run_started(turn.started)
        return turn

    def _may_start(self) -> bool:
        """Return whether jobs may start: the worker is not stopping, and its clock is trusted."""
        return not self._state.is_stopping and self.maintenance.clocks.problem is None

    def _on_settled(self, late: Sequence[Settlement]) -> None:
        """Note that the ledger has the settlements, and which of them came too late."""
        waits = [
            settlement.after for settlement in self._settlements if settlement.outcome == "again"
        ]
        self._settlements = []
        if waits:
            self._state.on_retries_settled(monotonic() + min(waits) + 0.001)
        if late:
            self.completer.record_late(late)
            self.maintenance.revoke_crashes(list(late))
        self.completer.emit_dead_records()

    def _store_arrivals(self) -> None:
        """Store arrived events, settle finished jobs with them, and start the jobs that fit.

        Storing is deferred if capacity is expected in a moment: then completions share the
        transaction.
        """
        arrivals = self.arrivals.next_batch()
        if not arrivals:
            return
        arriving = sum((arrival.jobs_by_type for arrival in arrivals), Counter[str]())
        claimable = () if self._quarantine.blocks_other_claims else self._claimable_types()
        admitted, more_soon = self._capacity.admit(arriving, claimable)
        if more_soon and monotonic() < self.arrivals.store_by:
            self._state.are_arrivals_deferred = True
            return
        with self._lost_claims.new_claim() as token:
            grant = Grant(self._options.name, self._options.lease_seconds, admitted, token)
            stored = self.arrivals.store(arrivals, lambda events: self._receive(events, grant))
            self._on_settled(stored.late)
        self._executors.accept(stored.leases)
        self._state.reopen(
            self._capacity.group_of(name)
            for name, count in arriving.items()
            if name in self._job_types and count > admitted.get(name, 0)
        )

    def _receive(self, events: Sequence[Arriving], grant: Grant) -> Received:
        with self._ledger.connections.write.use() as session:
            return self._ledger.connections.hot.receive(session, self._settlements, events, grant)

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
        settlements = () if defers_settlements else self._settlements
        with self._lost_claims.new_claim() as token:
            turn = self._write(settlements, request, token=token, is_quarantined=is_quarantined)
            if not defers_settlements:
                self._on_settled(turn.late)
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
        """Claim jobs of types with a limit over all workers."""
        self._settle()  # finished jobs free their places
        with self._lost_claims.new_claim() as token:
            demand = Demand(
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
                claim = limited.claim(session, self._ledger.connections.hot, demand, limits)
            leases = self._ledger.start(claim.leases) if is_quarantined else claim.leases
        self._executors.accept(leases)
        if not is_quarantined and len(claim.leases) < request.total:
            job_types = map(self._job_types.__getitem__, request.max_by_type)
            waits = [
                LIMIT_RETRY_SECONDS if each.concurrency else POLL_SECONDS for each in job_types
            ]
            waits += [max(wait, MIN_LIMIT_RETRY_SECONDS) for wait in claim.after.values()]
            self._state.on_limited_claim(request.group, min(waits), monotonic())
        return leases

    def _claim_probes(self) -> None:
        """Claim one job of each parked type whose probe is due."""
        for name in self.parked.due_probes():
            job_type = self._job_types.get(name)
            if job_type is None or self._capacity.free(job_type.execution) <= 0:
                continue
            due = self._ledger.next_due([name])
            if due is None or due > self.now() or not self.parked.reserve_probe(name):
                continue
            request = ClaimRequest("probe", {name: 1}, 1, self._capacity.limits(name))
            self._probes.update((lease.job_id, name) for lease in self._claim(request))

    def _claim_quarantined(self) -> None:
        """Claim one job that was running when its worker died, and run it alone."""
        names = self._claimable_types() if self._has_quarantined() else []
        unlimited = {name: 1 for name in names if self._capacity.limits(name) is None}
        requests = [ClaimRequest("quarantine", unlimited, 1)] if unlimited else []
        requests += [
            ClaimRequest("quarantine", {name: 1}, 1, self._capacity.limits(name))
            for name in names
            if name not in unlimited
        ]
        if any(self._claim(request, is_quarantined=True) for request in requests):
            self._quarantine.on_claimed(monotonic())
            self.phase = "alone"
        else:
            self._quarantine.on_empty(monotonic())

    def _seconds_until_due(self) -> float | None:
        due = self._ledger.next_due(self._claimable_types())
        return None if due is None else (due - self.now()).total_seconds()

    def _has_quarantined(self) -> bool:
        due = self._ledger.next_due(self._claimable_types(), alone=True)
        return due is not None and due <= self.now()

    def _has_due_jobs(self) -> bool:
        """Return whether jobs are due that are not quarantined, and that limits allow to claim."""
        names = self._claimable_types()
        limits = {
            name: own[name] for name in names if (own := self._capacity.limits(name)) is not None
        }
        if limits:
            with self._ledger.connections.read.use() as session:
                claimable = limited.claimable(session, limits)
            names = [name for name in names if name not in limits or name in claimable]
        due = self._ledger.next_due(names) if names else None
        return due is not None and due <= self.now()

    def _heartbeat_info(self) -> dict[str, Any]:
        info = {**self._info, "running": len(self.in_flight), "state": self.phase}
        return info | {"failing": dict(self.failing)} if self.failing else info

    def _on_parked(self, parked: dict[str, Parked]) -> None:
        if self.parked.parked.keys() - parked.keys():
            self._state.signal.set()
        self.parked.refresh(parked)

    def _on_jobs_recovered(self) -> None:
        self._state.signal.set()
        self._quarantine.look_soon()

    def _on_leases_lost(self, leases: list[Lease]) -> None:
        for lease in leases:
            ids = {"job_id": str(lease.job_id), "fence": lease.fence}
            emit("lost_lease", {"operation": lease.kind, **ids, **lease.ids})
        self._executors.cancel(leases)

    def _shut_down(self) -> None:
        """Cancel async work, release the leases of work that has not ended, and deregister the
        worker.
        """
        self.phase = "draining"
        self._executors.cancel_all()
        self._settle_cancelled()
        while self.removed is None:
            self._attempt(self._release_all)
            if self.is_everything_released or monotonic() >= self._release_by():
                break
        self.phase = "ended"
        self._executors.close()

    def _settle_cancelled(self) -> None:
        """Give cancelled work a moment to end, and take its results."""
        until = monotonic() + CANCEL_SECONDS
        while (self.in_flight.has_async or self._sources.running_async) and monotonic() < until:
            self._wake_up.wait(0.02)
            self._wake_up.clear()
            self._attempt(self._collect_results)
            self._sources.run_due(self.now(), is_stopping=True)

    def _release_by(self) -> float:
        """Return until when to try to release leases. After that they expire by themselves."""
        stop_at = self._state.stop_at
        return (monotonic() if stop_at is None else stop_at) + RELEASE_SECONDS

    def _release_all(self) -> None:
        self._lost_claims.release()
        self._collect_results()
        held = self.in_flight.all()
        settlements = [*self._settlements, *(each.lease.release() for each in held)]
        if settlements:
            name, lease_seconds = self._options.name, self._options.lease_seconds
            turn = self._ledger.turn(settlements, {}, worker=name, lease=lease_seconds)
            self._on_settled(turn.late)
        self.in_flight.remove([each.lease for each in held])
        self.parked.return_probes(set(self._probes.values()))
        for each in held:
            ids = {"job_id": str(each.lease.job_id), "attempt": each.lease.attempt}
            emit("released", {"operation": each.job_type.name, **ids})
        are_sources_released = self._sources.release(self.now())
        crash_point("worker.drained")
        self._ledger.leave(self._options.name)
        self.is_everything_released = are_sources_released
