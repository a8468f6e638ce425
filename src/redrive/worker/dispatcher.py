"""Dispatcher: the ledger thread of a worker. It settles, starts and claims jobs in one write, and
renews their leases.

The loop is `run`: a turn, maintenance, a wait. `turn.py` plans a turn and the time of the next
one, `claimer.py` claims jobs, `capacity.py` limits their number, `executors.py` runs them, and
`completer.py` turns their results into settlements.
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
from ..ledger.db.connections import POSTGRES_POOL_SIZE
from ..ledger.events import StartQuota
from ..ledger.failpoint import crash_point
from ..ledger.jobs.pauses import NO_PAUSES, WorkControls
from ..ledger.ledger import Ledger
from ..ledger.model import Lease, Settlement
from .arrivals import ArrivalQueue
from .attempt import AttemptContext, AttemptResult, CancelRequests
from .capacity import Capacity, InFlight
from .claimer import Claimer, TurnWriter
from .completer import Completer
from .executors import Executors
from .job_type import JobType
from .maintenance import ROUND_TRIPS_BETWEEN_RUNS, Maintenance, MaintenanceEvents
from .parking import ParkedTypes
from .quarantine import LOOK_SECONDS, Quarantine
from .status import WorkerOptions, describe_problem
from .turn import POLL_SECONDS, NextDuePoll, SubmissionSignal, TurnState, next_turn_at, plan_turn
from .work_source import (
    MAX_LOCK_SECONDS,
    FailingTasks,
    SourceExecutors,
    WorkSource,
    WorkSources,
)

WAITING_JOB_SECONDS = 0.05
"""Time until another thread is woken for a short job that waits for a thread."""
WAITING_LAST_SECONDS = 0.001
"""The same for a started last attempt."""
CANCEL_SECONDS = 1.0
"""Time for cancelled async work to end."""
RELEASE_SECONDS, RELEASE_PAUSE_SECONDS = 2.0, 0.2
"""Time to release leases in the ledger after the drain."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 2.0
"""First and longest pause while the ledger cannot be reached."""


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
        self.failing = FailingTasks()
        self._results: deque[AttemptResult] = deque()
        self._wake_up = threading.Event()
        self._uncounted_late: list[Settlement] = []
        """Rejected inside a job's own transaction: its rollback discarded the counter too."""
        signal = SubmissionSignal(hears_own_writes=ledger.connections.on_sqlite)
        self._state = TurnState(signal, NextDuePoll(self._seconds_until_due))
        self.stopped = threading.Event()
        """Set when no more jobs are claimed."""
        self.outage = LedgerOutage(options.name, self.failing)
        self.phase = "starting"
        """`starting`, `working`, `alone` (runs a quarantined job), `draining` or `ended`."""
        self.last_turn_at = monotonic()
        """When the last turn was completed, on the monotonic clock."""
        self.is_everything_released = False
        """At the end, all leases of this worker were released in the ledger."""
        self.removed: LedgerRemoved | None = None
        """Set if the worker ended because its SQLite file was removed."""
        self.pauses = NO_PAUSES
        """Pauses by hand, as of the last refresh."""
        self.in_flight = InFlight()
        events = MaintenanceEvents(
            heartbeat_info=self._heartbeat_info,
            on_leases_lost=self._on_leases_lost,
            on_jobs_recovered=self._on_jobs_recovered,
            on_controls=self._on_controls,
            on_cancelled=self._on_cancelled,
        )
        self._cancels = CancelRequests()
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
        self.completer = Completer(
            ledger,
            self.parked,
            now=self.maintenance.now,
            draw=random,
            cancels=self._cancels,
            activity=self.maintenance.activity,
        )
        transactions = 1 if ledger.connections.on_sqlite else POSTGRES_POOL_SIZE
        self._capacity = Capacity(
            job_types.values(),
            options.threads,
            options.tasks,
            transactions=transactions,
            processes=options.processes,
        )
        self._quarantine = Quarantine()
        self.arrivals = ArrivalQueue(
            self._wake_up.set,
            # Opens the store of jobs with the first event. Workers of partitions have none.
            lambda events: ledger.connections.store.encode_events(events),  # noqa: PLW0108
            lambda: self.parked.parked,
        )
        self._executors = Executors(
            job_types,
            self.in_flight,
            self._capacity,
            AttemptContext(
                context,
                self.maintenance.now,
                job_ledger,
                self._cancels,
                self.maintenance.board,
                options.name,
            ),
            job_ledger=job_ledger,
            options=options,
            on_finished=self.on_finished,
        )
        self._writer = TurnWriter(
            ledger, options, self._state, self._executors, self.completer, self.maintenance
        )
        self._claimer = Claimer(
            self._writer,
            job_types,
            self._capacity,
            self._quarantine,
            self.parked,
            now=self.maintenance.now,
        )
        source_executors = SourceExecutors(lambda: self._executors.loop, self._wake_up.set)
        lock_seconds = min(MAX_LOCK_SECONDS, options.lease_seconds / 4)
        for source in work_sources:
            source.attach(
                options.name,
                ledger,
                source_executors,
                activity=self.maintenance.activity,
                lock_seconds=lock_seconds,
            )
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
        round_trip = self._capacity.round_trip = self.maintenance.round_trip
        self._quarantine.look_seconds = max(LOOK_SECONDS, ROUND_TRIPS_BETWEEN_RUNS * round_trip)

    def _wait_for_work(self) -> None:
        now = monotonic()
        if self._has_work(now):
            return
        times = [self.maintenance.timers.next, self._sources.next_turn]
        if self._executors.has_waiting:
            is_last = self._executors.has_waiting_last
            times.append(now + (WAITING_LAST_SECONDS if is_last else WAITING_JOB_SECONDS))
        if not self._state.is_stopping:
            times += [self._quarantine.next_look, self.arrivals.next_look]
            times += self.parked.next_probes(now)
        turn_at = next_turn_at(self._state, is_busy=self.arrivals.expects_more, times=times)
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
        return handle_at <= now or self._claimer.can_claim_more()

    def _turn(self) -> None:
        """Settle finished jobs, store arrived events, and claim jobs within the capacity."""
        if self._writer.lost_claims.release():
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
        if plan.claims and self._claimer.claim_jobs(
            is_busy=self.arrivals.expects_more, defers_settlements=plan.defers_settlements
        ):
            self.phase = "alone"
        if plan.releases_unstarted:
            unstarted = self._executors.drop_unstarted()
            self._writer.settlements += [lease.release() for lease in unstarted]
        if not plan.store_arrivals_first:
            self._store_arrivals()
        is_deferred = plan.defers_settlements and self.arrivals.expects_more
        if not self._state.are_arrivals_deferred and not is_deferred:
            self._writer.settle()
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
                if self._capacity.has_concurrency_limit(result.job_type.name)
            }
            self._state.reopen(f"limited:{execution}" for execution in limited_executions)
            waits = [each.suspension.after for each in results if each.suspension is not None]
            if waits:
                self._state.on_retries_settled(monotonic() + min(waits) + 0.001)
            self._uncounted_late += [result.lease.done() for result in results if result.is_late]
            self._writer.settlements += self.completer.complete(
                results, self._claimer.probes, is_draining=self._state.is_stopping
            )
        if self._uncounted_late:
            self._ledger.maintenance.count_late(self._uncounted_late)
            self._uncounted_late = []

    def _store_arrivals(self) -> None:
        """Store arrived events, settle finished jobs with them, and start the jobs that fit.

        Storing is deferred if capacity is expected within milliseconds: then completions share the
        transaction.
        """
        arrivals = self.arrivals.next_batch()
        if not arrivals:
            return
        arriving = sum((arrival.jobs_by_type for arrival in arrivals), Counter[str]())
        claimable = () if self._quarantine.blocks_other_claims else self._claimer.claimable_types()
        admitted, more_soon = self._capacity.admit(arriving, claimable)
        if more_soon and monotonic() < self.arrivals.store_by:
            self._state.are_arrivals_deferred = True
            return
        with self._writer.lost_claims.new_claim() as token:
            grant = StartQuota(self._options.name, self._options.lease_seconds, admitted, token)
            stored = self.arrivals.store(
                arrivals, lambda events: self._writer.receive(events, grant)
            )
            self._writer.on_settled(stored)
        self._executors.accept(stored.leases)
        self._state.reopen(
            self._capacity.group_of(name)
            for name, count in arriving.items()
            if name in self._job_types and count > admitted.get(name, 0)
        )

    def _seconds_until_due(self) -> float | None:
        return self._claimer.seconds_until_due()

    def _heartbeat_info(self) -> dict[str, Any]:
        info = {**self._info, "running": len(self.in_flight), "state": self.phase}
        if engine := self._sources.engine_report:
            info["engine"] = dict(engine)
        problems = self.failing.problems(is_ledger_away=self.outage.error is not None)
        return info | {"failing": problems} if problems else info

    def _on_controls(self, controls: WorkControls) -> None:
        """Take over parked job types, pauses by hand and limits at run time."""
        pauses, has_new_limit = controls.pauses, self._capacity.set_run_time_limits(controls.limits)
        is_unparked = bool(self.parked.parked.keys() - controls.parked.keys())
        if is_unparked or has_new_limit or pauses != self.pauses:
            self._state.signal.set()
        self.pauses = self._claimer.pauses = self.arrivals.pauses = pauses
        self._sources.set_pauses(pauses)
        self.parked.refresh(controls.parked)

    def _on_jobs_recovered(self, job_ids: Sequence[int]) -> None:
        self.completer.record_recovered(job_ids)
        self._state.signal.set()
        self._quarantine.look_soon()

    def _on_leases_lost(self, leases: list[Lease]) -> None:
        for lease in leases:
            ids = {"job_id": str(lease.job_id), "fence": lease.fence}
            emit("lost_lease", {"operation": lease.kind, **ids, **lease.ids})
        self._cancels.remove(leases)
        self._executors.cancel(leases)

    def _on_cancelled(self, leases: list[Lease]) -> None:
        # Once for each lease: a task that cleans up is not interrupted a second time.
        if new := self._cancels.add(leases):
            self._executors.cancel(new)

    def _shut_down(self) -> None:
        """Cancel async work, release the leases of unfinished work, and deregister the worker."""
        self.phase = "draining"
        self._executors.cancel_all()
        self._settle_cancelled()
        while self.removed is None:
            self._attempt(self._release_all)
            if self.is_everything_released or monotonic() >= self._release_by():
                break
            self._wake_up.clear()
            self._wake_up.wait(RELEASE_PAUSE_SECONDS)
        self.phase = "ended"
        self._executors.close()

    def _settle_cancelled(self) -> None:
        """Wait briefly for cancelled work to end, and take its results."""
        until = monotonic() + CANCEL_SECONDS
        while (
            self.in_flight.has_cancellable or self._sources.running_async
        ) and monotonic() < until:
            self._wake_up.wait(0.02)
            self._wake_up.clear()
            self._attempt(self._collect_results)
            self._sources.run_due(self.now(), is_stopping=True)

    def _release_by(self) -> float:
        """Return until when to try to release leases. After that they expire by themselves."""
        stop_at = self._state.stop_at
        return (monotonic() if stop_at is None else stop_at) + RELEASE_SECONDS

    def _release_all(self) -> None:
        self._writer.lost_claims.release()
        self._collect_results()
        held = self.in_flight.all()
        settlements = [*self._writer.settlements, *(each.lease.release() for each in held)]
        if settlements:
            name, lease_seconds = self._options.name, self._options.lease_seconds
            turn = self._ledger.turn(settlements, {}, worker=name, lease=lease_seconds)
            self._writer.on_settled(turn)
        self.in_flight.remove([each.lease for each in held])
        self.parked.return_probes(set(self._claimer.probes.values()))
        for each in held:
            ids = {"job_id": str(each.lease.job_id), "attempt": each.lease.attempt}
            emit("released", {"operation": each.job_type.name, **ids})
        are_sources_released = self._sources.release(self.now())
        self.maintenance.write_activity()
        crash_point("worker.drained")
        self._ledger.maintenance.deregister_worker(self._options.name)
        self.is_everything_released = are_sources_released


class LedgerOutage:
    """A ledger that cannot be reached: logged once, retried with a growing pause, and logged again
    when it is over.

    Used by the ledger thread; other threads may read `error`.
    """

    def __init__(self, worker: str, failing: FailingTasks) -> None:
        self._worker = worker
        self._failing = failing
        self._since = 0.0
        """When it began, on the monotonic clock."""
        self._pause = FIRST_PAUSE_SECONDS
        self.error: str | None = None
        """The last error; None if the ledger responds."""

    def on_error(self, error: Exception, /) -> float:
        """Note a failure. Return the seconds to wait."""
        if self.error is None:
            fields = {"error": str(error), "error_class": type(error).__name__}
            emit("ledger_trouble", {"worker": self._worker, **fields})
            self._since = monotonic()
        self.error = describe_problem(error)
        pause, self._pause = self._pause, min(self._pause * 2, MAX_PAUSE_SECONDS)
        return pause

    def on_success(self) -> None:
        """Note that the ledger responds."""
        if self.error is not None:
            self._failing.on_ledger_back()
            seconds = round(monotonic() - self._since, 3)
            emit("ledger_back", {"worker": self._worker, "seconds": seconds})
        self.error, self._pause = None, FIRST_PAUSE_SECONDS
