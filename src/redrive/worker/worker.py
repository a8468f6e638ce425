"""Worker: claims jobs from the ledger, runs them, and settles their results."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime
from time import monotonic
from types import TracebackType
from typing import Any, Self

from ..core.clock import SYSTEM
from ..core.outage import Parking
from ..core.seconds import Seconds, dated_duration, seconds, whole_number
from ..core.version import VERSION
from ..journal.bus import ATTEMPT_WRAPPERS, emit
from ..ledger.ledger import DAY, Ledger
from .attempt import call_process
from .dispatcher import Dispatcher
from .job_type import JobType
from .maintenance import KEEP_FOREVER, BackgroundTask, HoldsConnection, ProducesEvents
from .processes.identity import process_identity
from .processes.protocol import check_processes
from .status import Status, WorkerOptions
from .work_source import RunsJobs, WorkSource

LEASE_SECONDS = 7.0
"""Lease of a job, renewed four times in that time. It outlasts a pause of the whole process, and
keeps the wait after a crash short."""
DRAIN_SECONDS = 30.0
RETENTION_SECONDS = 30 * DAY
GRACE_SECONDS = 3.0
"""Time after the drain in which leases are released."""
SILENT_SECONDS = 2.0
"""A worker that stops gives up on a statement that was not answered for this long."""
UNHEALTHY_SECONDS = 15.0
"""Time without a completed turn; an idle worker has one every 5 s."""
FIRST_TASK_PAUSE_SECONDS, MAX_TASK_PAUSE_SECONDS = 0.2, 5.0
"""First and longest pause of a background task that fails. Short, so that a stream is read soon
after its server is back.
"""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Claims jobs from the ledger and runs them, until it is stopped. Creating one opens nothing.

    Use it as a context manager, or call `start` and `close`, or `run` in your own thread.

    Threads may share it. A forked child makes its own.
    """

    def __init__(
        self,
        ledger: Ledger,
        job_types: Iterable[JobType] | Mapping[str, JobType],
        /,
        *,
        threads: int = 8,
        tasks: int = 100,
        drain: Seconds = DRAIN_SECONDS,
        work_sources: Sequence[WorkSource] = (),
        background_tasks: Sequence[BackgroundTask] = (),
        name: str | None = None,
        lease: Seconds = LEASE_SECONDS,
        parking: Parking | None = None,
        keep: Seconds | None = None,
        processes: int | None = None,
        sources: Iterable[str] = (),
    ) -> None:
        """Configure the worker.

        Args:
            ledger: The ledger.
            job_types: The job types that it runs.
            threads: Maximum number of sync jobs at the same time.
            tasks: Maximum number of async jobs at the same time.
            drain: Seconds that running jobs get when the worker stops. A job that has not ended by
                then is released. That does not count as an attempt.
            work_sources: Work beside jobs that it claims and runs, such as partitions.
            background_tasks: Periodic tasks, such as schedules.
            name: Prefix of its name. Default: the host name.
            lease: Seconds for which a job stays leased without a renewal.
            parking: When failures count as an outage. Default: 10 jobs, 90 %.
            keep: How long done jobs are kept. Default: 30 days. For ever: `math.inf`.
            processes: Maximum number of jobs in processes of their own at the same time. Default:
                the number of cores.
            sources: Names of the sources of events and datasets that it reads, for operators.

        Raises:
            TypeError: A new process cannot import the function of a job type.
        """
        self._ledger = ledger
        if isinstance(job_types, Mapping):
            job_types = job_types.values()
        self._job_types = {job_type.name: job_type for job_type in job_types}
        if self._process_types:
            check_processes(self._process_types, ledger.connections.address)
        self._work_sources = tuple(work_sources)
        self._background_tasks = tuple(background_tasks)
        self._sources = sorted(set(sources))
        # Unique for each process: the leases of an earlier process must not seem to be held by a
        # live worker.
        prefix = socket.gethostname() if name is None else name
        self.name = f"{prefix}-{os.getpid()}-{secrets.token_hex(3)}"
        self._options = WorkerOptions(
            name=self.name,
            threads=whole_number("threads", threads),
            tasks=whole_number("tasks", tasks),
            lease_seconds=dated_duration("lease", lease),
            drain_seconds=seconds("drain", drain),
            parking=Parking() if parking is None else parking,
            retention_seconds=retention_seconds(keep),
            processes=core_count() if processes is None else whole_number("processes", processes),
        )
        self._dispatcher_ledger = ledger
        """For the ledger thread only, where it can have its own connections."""
        self._dispatcher: Dispatcher | None = None
        self._thread: threading.Thread | None = None
        self._since: datetime = SYSTEM.now()
        self._has_ended = threading.Event()
        self._is_stopping = False
        """`stop` was called, perhaps before `start`."""
        self._stop_at: float | None = None
        """When running jobs must have ended, on the monotonic clock."""

    def run(self, stop: threading.Event | None = None, /) -> None:
        """Work until `stop` is set or `stop()` is called, then drain.

        It returns at most 3 s after the drain, even if a thread is blocked.

        Args:
            stop: Event that stops the worker.
        """
        self.start()
        try:
            while self._is_running():
                if stop is not None and stop.is_set():
                    self.stop()
        except BaseException:  # KeyboardInterrupt, unless a signal handler is installed
            self.stop(now=True)
            self._join()
            raise

    def _is_running(self) -> bool:
        """Wait shortly, so that signals are handled. Return whether the worker is running."""
        thread = self._thread
        if thread is None:
            return False
        if self._stop_at is not None and monotonic() > self._stop_at + GRACE_SECONDS:
            return False  # blocked: its leases expire by themselves
        thread.join(0.1)
        return thread.is_alive()

    def _join(self) -> None:
        while self._is_running():
            pass

    def start(self) -> Self:
        """Work in the background. Returns when the worker is ready to claim jobs.

        Returns:
            The worker.

        Raises:
            RuntimeError: It was started before.
        """
        if self._thread is not None:
            raise RuntimeError("this worker was already started; create a new one")
        self._since = SYSTEM.now()
        self._dispatcher_ledger = self._ledger.with_own_connections()
        dispatcher = Dispatcher(
            self._dispatcher_ledger,
            self._ledger,
            with_wrappers(self._job_types),
            self._options,
            work_sources=self._work_sources,
            info=self._info(),
            context=copy_context(),
        )
        self._dispatcher = dispatcher
        if self._is_stopping:
            dispatcher.stop()
        self._thread = threading.Thread(
            target=self._work, args=(dispatcher,), name=self.name, daemon=True
        )
        self._thread.start()
        return self

    @property
    def processes(self) -> int:
        """Maximum number of processes. 0 if no job type runs in processes."""
        return self._options.processes if self._process_types else 0

    @property
    def _process_types(self) -> list[JobType]:
        """The job types that run in processes of their own."""
        return [
            job_type for job_type in self._job_types.values() if job_type.execution == "process"
        ]

    def _info(self) -> dict[str, Any]:
        """Return the data to store with the heartbeat."""
        limits = self._code_limits()
        return {
            "process": process_identity(),
            "kinds": sorted(self._job_types),
            "threads": self._options.threads,
            "tasks": self._options.tasks,
            "processes": self.processes,
            "lease": self._options.lease_seconds,
            "version": VERSION,
            **({"limits": limits} if limits else {}),
            **({"sources": self._sources} if self._sources else {}),
        }

    def _code_limits(self) -> dict[str, dict[str, float]]:
        """Return the limits in the code by job type, which operators compare with their own."""
        limits: dict[str, dict[str, float]] = {}
        for name, job_type in self._job_types.items():
            pairs = (("concurrency", job_type.concurrency), ("rate", job_type.rate))
            if own := {key: value for key, value in pairs if value is not None}:
                limits[name] = own
        return limits

    def _work(self, dispatcher: Dispatcher) -> None:
        threads = [self._new_thread("wake", self._listen, dispatcher)]
        threads += [
            self._new_thread(task.name, self._run_task, task, dispatcher)
            for task in self._background_tasks
        ]
        for thread in threads:
            thread.start()
        try:
            dispatcher.run()
        finally:
            dispatcher.arrivals.close()
            self._has_ended.set()
            stop_at = self._stop_at or 0.0
            for thread in threads:  # a source may still run handlers
                thread.join(max(1.0, stop_at - monotonic()))
            if self._dispatcher_ledger is not self._ledger:
                self._dispatcher_ledger.close()

    def _new_thread(self, name: str, target: Any, *args: Any) -> threading.Thread:
        return threading.Thread(target=target, args=args, name=f"{self.name}-{name}", daemon=True)

    def stop(self, *, now: bool = False) -> None:
        """Claim no more jobs, and let running jobs end within `drain`. Returns at once.

        It is safe in a signal handler.

        Args:
            now: Do not wait for running jobs.
        """
        self._is_stopping = True
        stop_at = monotonic() + (0.0 if now else self._options.drain_seconds)
        self._stop_at = stop_at if self._stop_at is None else min(stop_at, self._stop_at)
        if self._dispatcher is not None:
            self._dispatcher.stop(now=now)
        if self._dispatcher_ledger is not self._ledger:
            self._dispatcher_ledger.connections.limit_silence(SILENT_SECONDS)

    def hurry(self) -> None:
        """Give up on statements without a response for 2 s, because the process ends."""
        self._ledger.connections.limit_silence(SILENT_SECONDS)

    def close(self) -> None:
        """Stop the worker, and wait until it has ended, at most 3 s longer than `drain`."""
        self.stop()
        self._join()

    # ---- status ----

    @property
    def is_healthy(self) -> bool:
        """True if the ledger responds and the last turn was completed less than 15 s ago."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            return True
        is_recent = monotonic() - dispatcher.last_turn_at < UNHEALTHY_SECONDS
        return dispatcher.outage.error is None and is_recent

    @property
    def problem(self) -> str | None:
        """Why some results could not be stored, after the end. None if all were stored."""
        dispatcher = self._dispatcher
        if dispatcher is None or dispatcher.is_everything_released:
            return None
        if dispatcher.removed:
            return str(dispatcher.removed)
        return dispatcher.outage.error or "the ledger did not respond in time"

    @property
    def is_ledger_removed(self) -> bool:
        """True if the worker ended because its SQLite file was removed or replaced."""
        return self._dispatcher is not None and self._dispatcher.removed is not None

    @property
    def status(self) -> Status:
        """The status of the worker now."""
        dispatcher = self._dispatcher
        counts = Counter() if dispatcher is None else Counter(dispatcher.completer.counts)
        running = 0 if dispatcher is None else len(dispatcher.in_flight)
        for source in self._work_sources:
            if isinstance(source, RunsJobs):
                counts.update(source.job_counts)
                running += source.running
        parked = {} if dispatcher is None else dispatcher.parked.parked
        return Status(
            name=self.name,
            state="starting" if dispatcher is None else dispatcher.phase,
            since=self._since,
            running=running,
            done=counts["done"],
            again=counts["again"],
            dead=counts["dead"],
            late=counts["late"],
            cancelled=counts["cancelled"],
            overdue=0 if dispatcher is None else dispatcher.in_flight.overdue,
            parked={name: each.reason for name, each in parked.items()},
            trouble=None if dispatcher is None else dispatcher.outage.error,
            failing={}
            if dispatcher is None
            else dispatcher.failing.problems(is_ledger_away=dispatcher.outage.error is not None),
            partitions={
                outcome: count
                for source in self._work_sources
                for outcome, count in source.counts.items()
            },
        )

    # ---- threads beside the dispatcher ----

    def _listen(self, dispatcher: Dispatcher) -> None:
        """Wake the dispatcher when jobs are submitted."""
        while not self._has_ended.is_set():
            try:
                notifications = self._dispatcher_ledger.listen()
                try:
                    dispatcher.wake()  # jobs that were submitted while nothing listened
                    while not self._has_ended.is_set():
                        if notifications.wait(0.5):
                            dispatcher.wake()
                finally:
                    notifications.close()
            except Exception:  # the ledger is away; the dispatcher logs it
                self._has_ended.wait(0.5)

    def _run_task(self, task: BackgroundTask, dispatcher: Dispatcher) -> None:
        """Run a background task until the worker stops, with a growing pause while it fails."""
        if isinstance(task, ProducesEvents):
            task.attach(dispatcher.arrivals)
        failing_pause = FIRST_TASK_PAUSE_SECONDS
        while not dispatcher.stopped.is_set():
            try:
                task.do(dispatcher.now())
                pause, failing_pause = task.every, FIRST_TASK_PAUSE_SECONDS
                dispatcher.failing.on_success(task.name)
            except Exception as error:
                if dispatcher.failing.on_error(task.name, error):
                    _log_failure(task, error)
                # An hourly task must not wait for an hour after an outage of seconds.
                pause = failing_pause
                failing_pause = min(pause * 2, max(MAX_TASK_PAUSE_SECONDS, task.every))
            dispatcher.stopped.wait(pause)
        if isinstance(task, HoldsConnection):
            try:
                task.end()
            except Exception as error:  # its server is away too: another consumer gets the events
                _log_failure(task, error)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self.close()


def run_until_signal(worker: Worker, /) -> int | None:
    """Run a worker until SIGTERM or SIGINT, then drain it. A second signal stops it at once.

    Outside the main thread there are no signals: it runs until `worker.stop()`.

    Returns:
        The number of the second signal, if there was one.
    """
    if threading.current_thread() is not threading.main_thread():
        worker.run()
        return None
    received: list[int] = []

    def on_signal(number: int, _frame: Any) -> None:
        received.append(number)
        worker.stop(now=len(received) > 1)

    handlers = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS}
    try:
        worker.run()
    finally:
        worker.hurry()  # a thread that waits for a silent database must not hold up the exit
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return received[1] if len(received) > 1 else None


def retention_seconds(keep: Seconds | None, /) -> float:
    """Return how long done jobs are kept, in seconds or `KEEP_FOREVER`."""
    if keep is None:
        return RETENTION_SECONDS
    return KEEP_FOREVER if keep == KEEP_FOREVER else dated_duration("keep", keep)


def core_count() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def _log_failure(task: BackgroundTask, error: Exception) -> None:
    fields = {"error": str(error), "error_class": type(error).__name__}
    emit("chore_failed", {"operation": task.name, **fields})


def with_wrappers(job_types: dict[str, JobType]) -> dict[str, JobType]:
    """Return the job types with what the journal wraps around attempts, such as spans.

    A function in another process is called from this one, so it is wrapped here.
    """
    job_types = {
        name: replace(job_type, run=call_process) if job_type.execution == "process" else job_type
        for name, job_type in job_types.items()
    }
    for wrap in list(ATTEMPT_WRAPPERS):
        job_types = {
            name: replace(
                job_type, run=wrap(name, job_type.execution, job_type.run, job_type.describe)
            )
            for name, job_type in job_types.items()
        }
    return job_types
