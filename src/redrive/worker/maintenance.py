"""Maintenance: what a worker does for the ledger and for all workers beside its jobs.

It sends heartbeats, renews leases, recovers jobs of dead workers, refreshes what may start (parked
job types, pauses, limits), and prunes old rows. Each task has a timer of its own. Background
tasks, such as schedules and readers of streams, run in threads of their own.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..core.clock import SYSTEM
from ..journal.bus import emit
from ..ledger import audit
from ..ledger.db.clock import now_on
from ..ledger.jobs import job_changes, lease_recovery, pauses, retention, tenants, workers
from ..ledger.jobs.clocks import (
    CLOCK_TOLERANCE_SECONDS,
    JOB_LEASE_SECONDS,
    MIN_SETBACK_SECONDS,
    ClockReading,
    Clocks,
    correct_setback,
    step,
)
from ..ledger.jobs.lease_recovery import expire_leases_of_dead_workers
from ..ledger.jobs.pauses import WorkControls, read_controls
from ..ledger.ledger import Ledger
from ..ledger.model import Lease, Settlement
from ..ledger.stats import activity, failures
from ..ledger.stats.activity import ActivityRecorder
from ..ledger.store.steps import write_progress
from ..ledger.sweep import ITEM_ACTS
from .arrivals import ArrivalQueue
from .capacity import InFlight
from .processes.identity import is_gone
from .progress import ProgressBoard

SWEEP_IDLE_SECONDS = 1.0
"""Time between two looks for running sweeps."""
MAX_SWEEP_STEPS = 20
"""Steps of one sweep before the next one has its turn."""
ANCHOR_SECONDS = 300.0
"""Time between two looks at the audit log."""
ANCHOR_FILE_MODE = 0o600


class BackgroundTask(Protocol):
    """A periodic task. Each has a thread of its own in the worker.

    Several workers run the same task at once, so it must be safe then.
    """

    @property
    def name(self) -> str:
        """For log records and thread names."""

    @property
    def every(self) -> float:
        """Seconds from the end of one run to the start of the next."""

    def do(self, now: datetime, /) -> None:
        """Run once. An error is logged, and the task runs again after a growing pause.

        Args:
            now: By the ledger's clock.
        """


@runtime_checkable
class ProducesEvents(Protocol):
    """A task that reads events for the worker to store."""

    def attach(self, arrivals: ArrivalQueue, /) -> None:
        """Set the queue for the events, before the first run."""


@runtime_checkable
class HoldsConnection(Protocol):
    """A task with a connection to a broker."""

    def end(self) -> None:
        """Handle events that were queued and not stored, and disconnect. No run follows."""


class SweepTask:
    """Executes the steps of running sweeps over dead letters and jobs.

    Any number of workers may do it at once.
    """

    name = "sweeps"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.every = SWEEP_IDLE_SECONDS
        """Seconds until the next run: short enough to keep the rate of the fastest sweep."""

    def do(self, _now: datetime, /) -> None:
        """Execute the next steps of each sweep."""
        sweeps = self._ledger.sweeps.list(state="running", acts=ITEM_ACTS)
        self.every = min([SWEEP_IDLE_SECONDS, *(self._execute_steps(sweep.id) for sweep in sweeps)])

    def _execute_steps(self, sweep_id: int) -> float:
        """Execute steps of one sweep. Return the seconds until its next step."""
        for _ in range(MAX_SWEEP_STEPS):
            step = self._ledger.sweeps.step(sweep_id)
            if step.sweep.state != "running":
                return SWEEP_IDLE_SECONDS
            if step.wait:
                return step.wait
        return 0.0


class AuditAnchorTask:
    """Emits the head of the audit log whenever it has changed.

    Any number of workers may do it at once.

    A hash chain shows that an entry was changed. A chain that was rewritten, cut or emptied as a
    whole is noticed only by comparing it with an anchor kept elsewhere, such as in the logs, in a
    metric or in a file.
    """

    name = "audit anchors"
    every = ANCHOR_SECONDS

    def __init__(self, ledger: Ledger, file: str | None = None) -> None:
        self._ledger = ledger
        self._file = file
        self._last_head: tuple[int, str] | None = None

    def do(self, now: datetime, /) -> None:
        """Emit an anchor if the audit log has changed."""
        with self._ledger.reading() as connection:
            head = audit.head(connection)
        if head == self._last_head or (self._last_head is None and head[0] == 0):
            return
        anchor = f"{head[0]}:{head[1]}"
        emit("audit_anchor", {"entries": head[0], "anchor": anchor})
        if self._file is not None:
            _append_line(self._file, f"{anchor} {now.isoformat(timespec='seconds')}\n")
        self._last_head = head


def _append_line(file: str, line: str) -> None:
    """Append a line in one write, so that several workers may share a file."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, ANCHOR_FILE_MODE)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


RECOVER_SECONDS = 1.0
REFRESH_CONTROLS_SECONDS = 1.0
PROGRESS_SECONDS = 1.0
DEAD_WORKERS_SECONDS = 5.0
DEAD_WORKERS_RECHECK_SECONDS = 0.5
"""Time until the next check if a process has ended, but its heartbeat is still recent."""
UNBLOCK_SECONDS = 5.0
FOLD_COUNTERS_SECONDS = 5.0
PRUNE_SECONDS = 60.0
PRUNE_SOON_SECONDS = 1.0
PRUNE_BATCH = 1000
"""Jobs that are pruned at a time.

If there are more, the next batch follows after PRUNE_SOON_SECONDS.
"""
DELETE_OLD_RECORDS_SECONDS = 3600.0
"""Time between two deletions of old workers, tenants and failures."""
WRITE_ACTIVITY_SECONDS = 5.0
"""A worker that is killed loses the counts of this time for the charts."""
ACTIVITY_SUM_SECONDS = 300.0
ACTIVITY_SUM_SOON_SECONDS = 5.0
"""Time until the next run if more counts for the charts are left to sum up."""
KEEP_FOREVER = math.inf
"""Retention of done jobs that are never pruned."""
ROUND_TRIPS_BETWEEN_RUNS = 20
"""A task that can wait runs at most once in this many round trips to the ledger.

So it uses about 5 % of the worker's time at most, also if the ledger is far away.
"""


class MaintenanceEvents(NamedTuple):
    """Callbacks from maintenance to the dispatcher.

    Attributes:
        heartbeat_info: Returns the data to store with a heartbeat.
        on_leases_lost: Called with leases that could not be renewed.
        on_jobs_recovered: Called with the ids of jobs whose leases expired. They are claimable
            again, or dead letters. Without ids if jobs may be claimable for another reason.
        on_controls: Called with the parked job types, pauses by hand and limits at run time.
        on_cancelled: Called with leases in flight whose jobs were cancelled.
    """

    heartbeat_info: Callable[[], Mapping[str, Any]]
    on_leases_lost: Callable[[list[Lease]], None]
    on_jobs_recovered: Callable[[Sequence[int]], None]
    on_controls: Callable[[WorkControls], None]
    on_cancelled: Callable[[list[Lease]], None]


class Timer:
    """A periodic task. Used by one thread only."""

    def __init__(
        self,
        seconds: float,
        task: Callable[[], object],
        *,
        first: float = 0.0,
        can_wait: bool = True,
    ) -> None:
        """Schedule the task.

        Args:
            seconds: Time between two runs.
            task: The task.
            first: Seconds until the first run.
            can_wait: Run it less often if the ledger is far away.
        """
        self.seconds = seconds
        self.task = task
        self.can_wait = can_wait
        self.due = monotonic() + first


class Timers:
    """Runs periodic tasks in the order in which they were passed. Used by one thread only."""

    def __init__(self, *timers: Timer) -> None:
        self._timers = timers

    def run(self, *, round_trip: float = 0.0) -> None:
        """Run the tasks that are due. A task that raises is due again after its time.

        Args:
            round_trip: Seconds of a round trip to the ledger.
        """
        for timer in self._timers:
            now = monotonic()
            if timer.due <= now:
                least = ROUND_TRIPS_BETWEEN_RUNS * round_trip if timer.can_wait else 0.0
                timer.due = now + max(timer.seconds, least)
                timer.task()

    @property
    def next(self) -> float:
        """When a task is due, on the monotonic clock."""
        return min(timer.due for timer in self._timers)


class Maintenance:
    """The periodic tasks of a worker. Used by the ledger thread only."""

    def __init__(
        self,
        ledger: Ledger,
        in_flight: InFlight,
        events: MaintenanceEvents,
        *,
        name: str,
        lease_seconds: float,
        retention_seconds: float,
    ) -> None:
        self._ledger, self._name, self._in_flight, self._events = ledger, name, in_flight, events
        self._lease_seconds, self._retention_seconds = lease_seconds, retention_seconds
        self.board = ProgressBoard()
        """The progress of running jobs, which is written here."""
        self._clock_offset = timedelta(0)
        """How far the ledger's clock is ahead of this machine's."""
        compares_clocks = ledger.connections.on_sqlite and not ledger.connections.address.in_memory
        self.activity = ActivityRecorder(self.now)
        self.clocks = Clocks(enabled=compares_clocks)
        self._last_reading: ClockReading | None = None
        """The ledger's clock at the last prompt heartbeat."""
        self._may_be_set_back = True
        """The clock may have been set back, also before the start. `set_back` has not run since."""
        self._recover_from = -math.inf
        """Start of lease recovery after the ledger's clock jumped ahead (monotonic clock)."""
        self._round_trips: deque[float] = deque(maxlen=4)
        self.round_trip = 0.0
        """Seconds of a round trip to the ledger; 0 for a file."""
        # The order matters for a worker that was suspended: it sends a heartbeat and renews its
        # leases before it recovers expired leases, which may be its own.
        self._prune_timer = Timer(PRUNE_SECONDS, self._prune, first=PRUNE_SECONDS)
        self._sum_up_timer = Timer(ACTIVITY_SUM_SECONDS, self._sum_up_activity, first=PRUNE_SECONDS)
        self._dead_workers_timer = Timer(DEAD_WORKERS_SECONDS, self._expire_leases_of_dead_workers)
        self.timers = Timers(
            Timer(lease_seconds / 4, self._heartbeat, can_wait=False),
            Timer(lease_seconds / 4, self._renew_leases, can_wait=False),
            self._dead_workers_timer,
            Timer(RECOVER_SECONDS, self._recover_expired_leases),
            Timer(REFRESH_CONTROLS_SECONDS, self._refresh_controls),
            Timer(PROGRESS_SECONDS, self._write_progress),
            Timer(UNBLOCK_SECONDS, ledger.maintenance.unblock),
            Timer(
                FOLD_COUNTERS_SECONDS, ledger.maintenance.fold_counters, first=FOLD_COUNTERS_SECONDS
            ),
            self._prune_timer,
            Timer(WRITE_ACTIVITY_SECONDS, self.write_activity, first=WRITE_ACTIVITY_SECONDS),
            self._sum_up_timer,
            Timer(DELETE_OLD_RECORDS_SECONDS, self._delete_old_records, first=PRUNE_SECONDS),
        )

    def run(self) -> None:
        """Run the tasks that are due."""
        self.timers.run(round_trip=self.round_trip)

    def now(self) -> datetime:
        """Return the time by the ledger's clock."""
        return SYSTEM.now() + self._clock_offset

    # ---- heartbeat and clocks ----

    def _heartbeat(self) -> None:
        if not self.clocks.checked:
            self._compare_clocks()
        if self.clocks.problem is not None:
            return
        before, started_at = SYSTEM.now(), monotonic()
        ledger_now = self._ledger.maintenance.heartbeat(self._name, self._events.heartbeat_info())
        reading = ClockReading(ledger_now, started_at, monotonic())
        self._clock_offset = (
            ledger_now - before - timedelta(seconds=(reading.ended - started_at) / 2)
        )
        if reading.is_prompt:
            self._detect_clock_step(reading)
        if self._may_be_set_back and self.clocks.checked:
            self._repair_after_setback()

    def _compare_clocks(self) -> None:
        with self._ledger.connections.read.use() as session:
            present = workers.active_workers(session.core)
            heartbeats = {
                worker.name: worker.seen_at for worker in present if worker.name != self._name
            }
            now = now_on(session)
        self.clocks.look(heartbeats, now, monotonic())

    def _detect_clock_step(self, reading: ClockReading) -> None:
        before, self._last_reading = self._last_reading, reading
        stepped = 0.0 if before is None else step(before, reading)
        if stepped < -MIN_SETBACK_SECONDS:
            self._may_be_set_back = True
        elif stepped > MIN_SETBACK_SECONDS:
            self._recover_from = reading.ended + JOB_LEASE_SECONDS
        if abs(stepped) > CLOCK_TOLERANCE_SECONDS:
            self.clocks.doubt()

    def _repair_after_setback(self) -> None:
        with self._ledger.connections.write.use() as session:
            seconds = correct_setback(session)
        self._may_be_set_back = False
        if seconds:
            emit("clock_set_back", {"worker": self._name, "seconds": round(seconds, 3)})
            self._events.on_jobs_recovered(())

    # ---- leases ----

    def _renew_leases(self) -> None:
        leases = self._in_flight.held_longer_than(self._lease_seconds / 8)
        if not leases:
            return
        lost = self._in_flight.remove(self._ledger.renew(leases, lease=self._lease_seconds))
        if lost:
            self.revoke_crashes(lost)
            self._events.on_leases_lost(lost)

    def revoke_crashes(self, leases: list[Lease] | list[Settlement], /) -> None:
        """Correct lost leases that count as crashes of this worker, which is alive."""
        with self._ledger.connections.write.use() as session:
            lease_recovery.revoke_crashes(session, self._name, leases)

    def _expire_leases_of_dead_workers(self) -> None:
        """Recover the jobs of dead workers of this machine before their leases expire."""
        with self._ledger.connections.read.use() as session:
            present = workers.active_workers(session.core)
        gone = [
            worker
            for worker in present
            if worker.name != self._name and is_gone(worker.info.get("process"))
        ]
        names = [worker.name for worker in gone if not workers.is_fresh(worker, self.now())]
        if len(names) < len(gone):  # killed just now, or alive on a clone of this machine
            self._dead_workers_timer.due = monotonic() + DEAD_WORKERS_RECHECK_SECONDS
        if names:
            with self._ledger.connections.write.use() as session:
                leases = expire_leases_of_dead_workers(session, names)
            for name in names:
                count = leases if len(names) == 1 else None
                emit("worker_gone", {"worker": name, "leases": count})

    def _recover_expired_leases(self) -> None:
        # With a clock that is ahead, leases of live workers would seem expired.
        if not self.clocks.checked or monotonic() < self._recover_from:
            return
        if job_ids := self._ledger.reap(trusts=self._is_clock_plausible):
            self._events.on_jobs_recovered(job_ids)

    def _is_clock_plausible(self, now: datetime) -> bool:
        """Return whether the ledger's clock is where it should be.

        After a jump ahead, live workers get time to renew their leases first.
        """
        at = monotonic()
        if (
            self._last_reading is None
            or step(self._last_reading, ClockReading(now, at, at)) <= MIN_SETBACK_SECONDS
        ):
            return True
        self._recover_from = at + JOB_LEASE_SECONDS
        return False

    # ---- other tasks ----

    def _refresh_controls(self) -> None:
        with self._ledger.connections.read.use() as session:
            started_at = monotonic()
            controls = read_controls(session, self.now())
            seconds = monotonic() - started_at
            requests = job_changes.cancel_requests(session, self._name) if self._in_flight else []
        self._events.on_controls(controls)
        if cancelled := self._in_flight.get(requests):
            self._events.on_cancelled(cancelled)
        if controls.has_expired:
            with self._ledger.connections.write.use() as session:
                pauses.delete_expired(session)
        if not self._ledger.connections.on_sqlite:
            # A read waits for no disk. The shortest of the last ones, since a slow one waited for
            # something else.
            self._round_trips.append(seconds)
            self.round_trip = min(self._round_trips) if len(self._round_trips) > 1 else 0.0

    def _write_progress(self) -> None:
        """Write the progress of running jobs, if one has reported any."""
        if reports := self.board.take():
            with self._ledger.connections.write.use() as session:
                write_progress(session, reports)

    def _prune(self) -> None:
        if self._retention_seconds == KEEP_FOREVER:
            return
        started_at = monotonic()
        with self._ledger.connections.write.use() as session:
            pruned = retention.prune(session, self._retention_seconds, PRUNE_BATCH)
        if max(pruned) >= PRUNE_BATCH:
            # There are more. Pruning uses at most a twentieth of this thread's time.
            ended_at = monotonic()
            pause = max(PRUNE_SOON_SECONDS, ROUND_TRIPS_BETWEEN_RUNS * (ended_at - started_at))
            self._prune_timer.due = ended_at + pause

    def write_activity(self) -> None:
        """Write the counts of ended attempts for the charts. An idle worker writes nothing."""
        self.activity.forget_old()
        rows = self.activity.unwritten()
        if rows:
            with self._ledger.connections.write.use() as session:
                activity.write(session, self._name, rows)
            self.activity.on_written()

    def _sum_up_activity(self) -> None:
        with self._ledger.connections.write.use() as session:
            if activity.sum_up(session) >= activity.MAX_ROWS:
                self._sum_up_timer.due = monotonic() + ACTIVITY_SUM_SOON_SECONDS

    def _delete_old_records(self) -> None:
        with self._ledger.connections.write.use() as session:
            workers.delete_old(session)
            tenants.delete_old(session)
            failures.delete_old(session)
