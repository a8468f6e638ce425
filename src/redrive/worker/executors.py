"""Executors: run leased jobs in threads, on an event loop or in processes, within the capacity."""

from __future__ import annotations

import math
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import SimpleQueue

from ..core.event_loop_thread import EventLoopThread
from ..ledger.failpoint import crash_point
from ..ledger.ledger import Ledger
from ..ledger.model import Lease, lease_key
from .attempt import AttemptContext, AttemptResult, run_async, run_sync
from .capacity import CANCELLABLE, Capacity, InFlight
from .job_type import JobType
from .processes.pool import ProcessPool
from .status import WorkerOptions

CLOSE_SECONDS = 2.0
"""Time for cancelled tasks to end when the loop is closed."""
MAX_REPORTED = 32
"""Results of short jobs that a thread collects before it reports them."""
REPORT_SECONDS = 0.001
"""A job that took longer is reported at once."""

OnFinished = Callable[[list[AttemptResult]], None]


class Executors:
    """The threads, the event loop and the processes of a worker. Used by the ledger thread only.

    A last attempt starts in two steps: it is claimed without being started, waits for a free
    thread, and is started in the ledger just before it runs. A worker that is killed in between
    does not use it up.
    """

    def __init__(
        self,
        job_types: Mapping[str, JobType],
        in_flight: InFlight,
        capacity: Capacity,
        attempts: AttemptContext,
        *,
        job_ledger: Ledger,
        options: WorkerOptions,
        on_finished: OnFinished,
    ) -> None:
        """Start the threads.

        Args:
            job_types: Job types by name.
            in_flight: Tracks the leases that are passed in.
            capacity: Counts them.
            attempts: What the attempts share.
            job_ledger: For the transactions of jobs, which may use all of its connections.
            options: Number of threads and processes, and the prefix of their names.
            on_finished: Called with the results, from the threads.
        """
        self._job_types, self.in_flight, self._capacity = job_types, in_flight, capacity
        self._waiting_for_thread: deque[Lease] = deque()
        """Unstarted last attempts that share threads."""
        self._ready_to_start: list[Lease] = []
        """Unstarted last attempts that have a thread or a process, or run on the event loop."""
        self._pool = ThreadPool(job_ledger, attempts, options.threads, on_finished, options.name)
        self._attempts, self._on_finished, self._name = attempts, on_finished, options.name
        self._loop: EventLoopThread | None = None
        self._async_jobs: EventLoopExecutor | None = None
        self._processes: ProcessPool | None = None
        if any(job_type.execution == "process" for job_type in job_types.values()):
            self._processes = ProcessPool(
                job_types,
                attempts,
                options.processes,
                on_finished,
                name=options.name,
            )

    @property
    def loop(self) -> EventLoopThread:
        """The event loop of the worker, started at first use."""
        if self._loop is None:
            self._loop = EventLoopThread(f"{self._name}-loop")
        return self._loop

    # ---- starting jobs ----

    def accept(self, leases: Sequence[Lease], /) -> None:
        """Run the started leases. The others wait for `take_startable`."""
        if not leases:
            return
        crash_point("worker.claimed")
        jobs = [(self._job_types[lease.kind], lease) for lease in leases]
        self.in_flight.add(jobs)
        threads = self._capacity.acquire(jobs)
        if not all(lease.started for lease in leases):
            for lease in leases:
                if not lease.started:
                    is_shared = self._capacity.is_shared(lease)
                    (self._waiting_for_thread if is_shared else self._ready_to_start).append(lease)
            jobs = [job for job in jobs if job[1].started]
        self._submit(jobs, max(1, math.ceil(threads - 1e-9)), first=False)

    @property
    def has_startable(self) -> bool:
        """Whether an unstarted last attempt can run at once."""
        if self._ready_to_start:
            return True
        return bool(self._waiting_for_thread) and self._capacity.free_for_last_attempts > 0

    def take_startable(self) -> list[Lease]:
        """Take the last attempts that can run at once.

        Start them in the ledger, then pass them to `run_started` or `drop`.
        """
        leases, self._ready_to_start = self._ready_to_start, []
        if self._waiting_for_thread:
            free = min(len(self._waiting_for_thread), self._capacity.free_for_last_attempts)
            shared = [self._waiting_for_thread.popleft() for _ in range(free)]
            self._capacity.start_last(shared)
            leases += shared
        return leases

    def run_started(self, leases: Sequence[Lease], /) -> None:
        """Run these last attempts before all other jobs."""
        jobs = [(self._job_types[lease.kind], lease) for lease in leases]
        self.in_flight.add(jobs)
        in_threads = [
            job_type.name for job_type, _ in jobs if job_type.execution not in CANCELLABLE
        ]
        self._submit(jobs, self._capacity.threads_for(in_threads), first=True)

    def _submit(self, jobs: list[tuple[JobType, Lease]], threads: int, *, first: bool) -> None:
        elsewhere = [job for job in jobs if job[0].execution in CANCELLABLE]
        in_threads = jobs
        if elsewhere:
            in_threads = [job for job in jobs if job[0].execution not in CANCELLABLE]
        on_loop = [job for job in elsewhere if job[0].execution == "async"]
        if self._processes is not None and len(on_loop) < len(elsewhere):
            self._processes.submit([job for job in elsewhere if job[0].execution == "process"])
        if in_threads:
            self._pool.submit(in_threads, threads, first=first)
        if on_loop:
            if self._async_jobs is None:
                self._async_jobs = EventLoopExecutor(self.loop, self._attempts, self._on_finished)
            self._async_jobs.submit(on_loop)

    # ---- ending jobs ----

    def drop(self, leases: Sequence[Lease], /) -> None:
        """Forget leases that are not run."""
        self._capacity.release(leases)
        self.in_flight.remove(leases)

    def drop_unstarted(self) -> list[Lease]:
        """Forget all leases that are not started, and return them."""
        leases = [*self._ready_to_start, *self._waiting_for_thread]
        self._ready_to_start.clear()
        self._waiting_for_thread.clear()
        self.drop(leases)
        return leases

    def release(self, results: Sequence[AttemptResult], /) -> None:
        """Release the capacity of attempts that have ended."""
        self._capacity.record_durations(
            [(result.job_type.name, result.seconds) for result in results]
        )
        self.drop([result.lease for result in results])

    def cancel(self, leases: Sequence[Lease], /) -> None:
        """Stop jobs whose lease was lost or that were cancelled, as far as possible.

        Jobs on the event loop are cancelled, and processes are killed. Threads cannot be cancelled:
        their functions read `current().cancelled`.
        """
        if self._async_jobs is not None:
            self._async_jobs.cancel(leases)
        if self._processes is not None:
            self._processes.cancel(leases)

    # ---- idle threads ----

    @property
    def has_waiting(self) -> bool:
        """Whether a job waits for a thread."""
        return self._pool.has_waiting

    @property
    def has_waiting_last(self) -> bool:
        """Whether a started last attempt waits for a thread."""
        return self._pool.has_waiting_last

    def wake_thread(self, *, is_late: bool) -> None:
        """Wake one more thread if a job waits. The thread that was to run it may be in a long job.

        Args:
            is_late: Wake all threads if a started last attempt waits.
        """
        if self._pool.has_waiting:
            self._pool.wake(self._pool.size if is_late and self._pool.has_waiting_last else 1)

    # ---- the end ----

    def cancel_all(self) -> None:
        """Cancel work on the event loop, kill all processes, and discard jobs without a thread."""
        if self._loop is not None:
            self._loop.cancel()
        if self._processes is not None:
            self._processes.cancel_all()
        self._pool.discard_waiting()

    def close(self) -> None:
        """Let the threads end after their current jobs, and end idle processes."""
        self._pool.close()
        if self._processes is not None:
            self._processes.close()
        if self._loop is not None:
            self._loop.close(cancel_seconds=CLOSE_SECONDS)


class ThreadPool:
    """Threads that run sync jobs. Threads may share it.

    They are daemons: a function that never returns does not keep the process alive.
    """

    def __init__(
        self,
        ledger: Ledger,
        attempts: AttemptContext,
        threads: int,
        on_finished: OnFinished,
        name: str,
    ) -> None:
        self._ledger = ledger
        self._attempts = attempts
        self._on_finished = on_finished
        self._waiting: deque[tuple[JobType, Lease]] = deque()
        self._wake_ups: SimpleQueue[bool] = SimpleQueue()
        self._idle = threads
        self._lock = allocate_lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number + 1}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, jobs: Sequence[tuple[JobType, Lease]], threads: int, /, *, first: bool = False
    ) -> None:
        """Run these jobs.

        Args:
            jobs: The jobs.
            threads: Idle threads to wake.
            first: Run them before the jobs that wait already.
        """
        if first:
            self._waiting.extendleft(reversed(jobs))
        else:
            self._waiting.extend(jobs)
        self.wake(threads)

    def wake(self, threads: int = 1, /) -> None:
        """Wake idle threads for waiting jobs."""
        if self._waiting:
            with self._lock:
                woken = min(threads, self._idle)
                self._idle -= woken
            for _ in range(woken):
                self._wake_ups.put(True)

    @property
    def has_waiting(self) -> bool:
        """Whether a job waits for a thread."""
        return bool(self._waiting)

    @property
    def has_waiting_last(self) -> bool:
        """Whether a started last attempt waits for a thread. These are first in the queue."""
        try:
            lease = self._waiting[0][1]
        except IndexError:
            return False
        return lease.max_attempts is not None and lease.attempt >= lease.max_attempts

    @property
    def size(self) -> int:
        """Number of threads."""
        return len(self._threads)

    def discard_waiting(self) -> list[tuple[JobType, Lease]]:
        """Remove and return the jobs that wait for a thread."""
        discarded = []
        while self._waiting:
            try:
                discarded.append(self._waiting.popleft())
            except IndexError:
                break
        return discarded

    def close(self) -> None:
        """Let idle threads end, and the others after their current jobs."""
        for _ in self._threads:
            self._wake_ups.put(False)

    def _work(self) -> None:
        run, attempts, ledger, waiting = run_sync, self._attempts, self._ledger, self._waiting
        while self._wake_ups.get():
            results: list[AttemptResult] = []
            while True:
                try:
                    job_type, lease = waiting.popleft()
                except IndexError:
                    break
                result = run(attempts, ledger, job_type, lease)
                results.append(result)
                if result.seconds > REPORT_SECONDS or len(results) >= MAX_REPORTED or not waiting:
                    self._report(results)
                    results = []
                # An error would keep its frames, and all they refer to, alive until the next job.
                del result
            if results:  # another thread took the last waiting job
                self._report(results)
                del results
            with self._lock:
                self._idle += 1
            if waiting:
                self.wake()

    def _report(self, results: list[AttemptResult]) -> None:
        crash_point("worker.ran")
        self._on_finished(results)


class EventLoopExecutor:
    """Runs async jobs on an event loop. Threads may share it."""

    def __init__(
        self,
        loop: EventLoopThread,
        attempts: AttemptContext,
        on_finished: Callable[[list[AttemptResult]], None],
    ) -> None:
        self._loop = loop
        self._attempts = attempts
        self._on_finished = on_finished

    def submit(self, jobs: Iterable[tuple[JobType, Lease]], /) -> None:
        """Run these jobs."""
        self._loop.call(self._start, list(jobs))

    def cancel(self, leases: Iterable[Lease], /) -> None:
        """Cancel these jobs."""
        self._loop.cancel([lease_key(lease) for lease in leases])

    def _start(self, jobs: Sequence[tuple[JobType, Lease]]) -> None:
        for job_type, lease in jobs:
            context = self._attempts.context.copy()
            self._loop.start_task(lease_key(lease), self._attempt(job_type, lease), context)

    async def _attempt(self, job_type: JobType, lease: Lease) -> None:
        result = await run_async(self._attempts, job_type, lease)
        if not result.is_expired:
            crash_point("worker.ran")
        self._on_finished([result])
