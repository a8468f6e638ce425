"""ProcessPool: runs sync jobs in processes of their own, which it kills and replaces.

Each thread of the pool has one process and waits for it. A process runs one job at a time, so a
crash costs one job. Its thread enforces the time limit, and cancels the job by killing the process.
"""

from __future__ import annotations

import os
import threading
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from queue import SimpleQueue
from time import monotonic

from ...errors import AttemptTimeout
from ...ledger.failpoint import crash_point
from ...ledger.model import Lease, lease_key
from ...ledger.store.steps import ProgressReport
from ..attempt import AttemptContext, AttemptResult, RemoteFailure, run_in_process
from ..job_type import JobType, ProcessCrashed
from ..progress import ProgressBoard
from .process import CallUnread, ChildExited, ChildProcess, Interrupted, OutOfTime
from .protocol import Call, Ready, Reply, Startup, reference_to

START_SECONDS = 120.0
"""Time in which a process must have imported the commands."""
MAX_JOBS = 1000
"""Jobs of one process. Then another one takes its place, because functions may leak memory."""
JOIN_SECONDS = 2.0
"""Time for idle processes to end when the pool is closed."""

OnFinished = Callable[[list[AttemptResult]], None]


class ProcessPool:
    """Processes that run sync jobs. Threads may share it.

    Threads and processes are started when they are needed.
    """

    def __init__(
        self,
        job_types: Mapping[str, JobType],
        attempts: AttemptContext,
        processes: int,
        on_finished: OnFinished,
        *,
        name: str,
    ) -> None:
        """Configure the pool.

        Args:
            job_types: All job types of the worker by name.
            attempts: What the attempts share.
            processes: Maximum number of processes.
            on_finished: Called with the results, from the threads.
            name: Prefix of the thread names.
        """
        references = {
            job_type.name: reference_to(job_type)
            for job_type in job_types.values()
            if job_type.execution == "process"
        }
        ledger = attempts.ledger
        self._startup = Startup(references, ledger.connections.address, ledger.max_payload)
        self._attempts, self._on_finished = attempts, on_finished
        self._size, self._name = processes, name
        self._jobs: SimpleQueue[tuple[JobType, Lease] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._running: dict[tuple[int, ...], ProcessSlot] = {}

    def submit(self, jobs: Sequence[tuple[JobType, Lease]], /) -> None:
        """Run these jobs."""
        for job in jobs:
            self._jobs.put(job)
        with self._lock:
            missing = min(len(jobs) - self._idle, self._size - len(self._threads))
            for _ in range(missing):
                number = len(self._threads) + 1
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-process-{number}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def cancel(self, leases: Iterable[Lease], /) -> None:
        """Kill the processes that run these jobs. Returns at once."""
        keys = [lease_key(lease) for lease in leases]
        with self._lock:
            for key in keys:
                slot = self._running.get(key)
                if slot is not None:
                    slot.interrupt()

    def cancel_all(self) -> None:
        """Kill all processes that run a job, and discard jobs that wait for one."""
        with suppress(Exception):
            while True:
                self._jobs.get_nowait()
        with self._lock:
            for slot in self._running.values():
                slot.interrupt()

    def close(self) -> None:
        """End the threads after their current jobs, and their processes."""
        with self._lock:
            threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        until = monotonic() + JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - monotonic()))

    def _work(self) -> None:
        slot = ProcessSlot(self._startup, self._attempts.board)
        try:
            while (job := self._next_job()) is not None:
                result = self._run(slot, *job)
                crash_point("worker.ran")
                self._on_finished([result])
                del result
        finally:
            slot.close()

    def _next_job(self) -> tuple[JobType, Lease] | None:
        with self._lock:
            self._idle += 1
        job = self._jobs.get()
        with self._lock:
            self._idle -= 1
        return job

    def _run(self, slot: ProcessSlot, job_type: JobType, lease: Lease) -> AttemptResult:
        key = lease_key(lease)
        with self._lock:
            slot.clear_interrupt()
            self._running[key] = slot
        try:
            return run_in_process(self._attempts, slot, job_type, lease)
        finally:
            with self._lock:
                del self._running[key]


class ProcessSlot:
    """The place of one process in the pool. Belongs to one thread, except for `interrupt`."""

    def __init__(self, startup: Startup, board: ProgressBoard | None) -> None:
        self._startup, self._board = startup, board
        self._is_interrupted = False
        self._process: ChildProcess | None = None
        self._jobs = 0
        self._first_bytes = 0
        """Memory of the process before its first job."""
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def interrupt(self) -> None:
        """Kill the process and end its job as cancelled. Any thread may call it."""
        self._is_interrupted = True
        with suppress(BlockingIOError):
            os.write(self._wake_writer, b"!")

    def clear_interrupt(self) -> None:
        """Forget an interrupt of an earlier job."""
        self._is_interrupted = False
        with suppress(BlockingIOError):
            while os.read(self._wake_reader, 64):
                pass

    def run(self, job_type: JobType, lease: Lease, limit: float, now: datetime) -> bytes | None:
        """Make an attempt in the process, and return its result.

        Args:
            job_type: Its job type.
            lease: Its lease.
            limit: Seconds that it may take. Then the process is killed.
            now: By the ledger's clock.

        Raises:
            RemoteFailure: The function raised an error.
            AttemptTimeout: It took too long.
            ProcessCrashed: The process ended.
            CancelledError: The job was cancelled.
        """
        call = Call(lease, limit, now, job_type.memory_limit)
        try:
            reply = self._exchange(call)
        except ChildExited as exited:
            self._discard(terminate=False)
            raise ProcessCrashed(f"the process of the job {exited}") from None
        except OutOfTime:
            self._discard(terminate=True)
            raise AttemptTimeout(
                f"{job_type.name}: attempt {lease.attempt} took longer than {limit:.6g} s; "
                "its process was killed"
            ) from None
        except Interrupted:
            self._discard(terminate=True)
            raise CancelledError from None
        except BaseException:  # the next job must not get the reply of this one
            self._discard(terminate=True)
            raise
        self._jobs += 1
        if self._should_replace(reply, job_type.memory_limit):
            self._retire()
        if reply.has_returned:
            return reply.result
        failure = RemoteFailure.of(reply.error_class, reply.error)
        failure.outcome, failure.is_late = reply.outcome, reply.is_late
        failure.suspension = reply.suspension
        raise failure

    def _exchange(self, call: Call) -> Reply:
        try:
            return self._receive(self._send(call), call)
        except CallUnread:  # it was killed while idle: the job has not started
            self._discard(terminate=False)
            return self._receive(self._send(call), call)

    def _receive(self, process: ChildProcess, call: Call) -> Reply:
        """Wait for the reply. Pass on the progress that the job reports until then."""
        until = monotonic() + call.seconds
        while isinstance(message := process.receive(until, self._wake_reader), ProgressReport):
            if self._board is not None:
                self._board.put(message)
            # A job may report without a pause, so that it is never waited for.
            if self._is_interrupted:
                raise Interrupted
            if monotonic() >= until:
                raise OutOfTime
        reply: Reply = message
        return reply

    def _send(self, call: Call) -> ChildProcess:
        """Send a call to the process. An idle process that was killed is replaced."""
        process = self._process
        if process is not None and not process.has_exited:
            try:
                process.send(call)
                return process
            except ChildExited:
                pass
        self._discard(terminate=False)
        process = self._process = self._start()
        process.send(call)
        return process

    def _start(self) -> ChildProcess:
        process = ChildProcess()
        try:
            process.send(self._startup)
            ready: Ready = process.receive(monotonic() + START_SECONDS, self._wake_reader)
        except Interrupted:
            process.end(terminate=False)
            raise CancelledError from None
        except (ChildExited, OutOfTime) as problem:
            process.end(terminate=False)
            says = str(problem) or f"has not imported its commands after {START_SECONDS:g} s"
            raise RuntimeError(f"the process did not start: it {says}") from None
        self._first_bytes, self._jobs = ready.data_bytes, 0
        return process

    def _should_replace(self, reply: Reply, memory_limit: int | None) -> bool:
        """Return whether the process has run `MAX_JOBS` jobs, or still holds too much memory.

        After a job it may hold at most half of the memory that the limit leaves to a job.
        """
        if self._jobs >= MAX_JOBS:
            return True
        if memory_limit is None:
            return False
        free_bytes = memory_limit - self._first_bytes
        return reply.data_bytes > self._first_bytes + free_bytes / 2

    def _discard(self, *, terminate: bool) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(terminate=terminate)

    def _retire(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.retire()

    def close(self) -> None:
        """End the process."""
        self._retire()
        os.close(self._wake_reader)
        os.close(self._wake_writer)
