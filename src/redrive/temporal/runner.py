"""TemporalRunner: the part of a worker that runs the activities of a Temporal server.

It is a work source of the worker's dispatcher, which starts and drains it. The SDK's own workers
poll the server on the event loop of the connection. Functions run in threads and on the event loop
of the worker, so that a function that blocks cannot hold up heartbeats.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime, timedelta, timezone
from typing import Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.worker import Worker as SdkWorker

from ..core.seconds import Seconds, seconds
from ..ledger.failpoint import crash_point
from ..ledger.jobs.pauses import NO_PAUSES, Pauses
from ..ledger.ledger import Ledger
from ..ledger.stats.activity import ActivityRecorder
from ..worker.attempt import AttemptResult
from ..worker.completer import ACTIVITY_BY_RECORD
from ..worker.job_type import JobType
from ..worker.work_source import SourceExecutors
from ..worker.worker import with_wrappers
from .activity import ActivityEnvelope, ActivityRef
from .attempt import ActivityAttempt, AttemptName, Notes, run_async, run_sync, time_limit
from .completion import ActivityCompleter, is_cancel_requested, return_to_queue
from .connection import TemporalConnection

UTC = timezone.utc
ASYNC_TASKS = 100
"""Async activities of a worker at the same time."""
TURN_SECONDS = 1.0
MAX_BEAT_SECONDS = 1.0
"""Longest time between two heartbeats: progress and cancel requests travel with them."""
BEATS_PER_TIMEOUT = 4
PAUSED_SECONDS = 15.0
"""Delay of an activity whose job type is paused."""
RETURN_SECONDS = 5.0
"""Delay of an activity whose command this worker does not have."""
CLOSE_SECONDS = 2.0


class TemporalRunner:
    """Runs activities for a worker. Its methods belong to the ledger thread.

    Args:
        connection: To the server.
        ledger: Gets the dead letters. Threads share it.
        job_types: The commands that Temporal runs.
        threads: Maximum number of sync functions at the same time.
        drain: Seconds that running functions get when the worker stops.
    """

    name = "temporal"
    running_async = 0

    def __init__(
        self,
        connection: TemporalConnection,
        ledger: Ledger,
        job_types: Sequence[JobType],
        /,
        *,
        threads: int,
        drain: Seconds,
    ) -> None:
        self._connection = connection
        self._completer = ActivityCompleter(connection, ledger)
        self._job_types = {job_type.name: job_type for job_type in job_types}
        self._threads, self._drain = threads, seconds("drain", drain)
        self._worker = ""
        self._pauses = NO_PAUSES
        self._executors: SourceExecutors | None = None
        self._recorder: ActivityRecorder | None = None
        self._context = copy_context()
        self._serving: Future[None] | None = None
        self._stop: asyncio.Event | None = None
        self._running: dict[AttemptName, Callable[[], None]] = {}
        """Releases an attempt. Changed on the event loop of the connection only. Two attempts of a
        run overlap if the server has given up the first one, and its function still runs."""
        self.counts: Mapping[str, int] = {}
        self.engine_report: Mapping[str, Any] | None = None
        """Set by the reconciliation."""

    # --- The work source

    @property
    def running(self) -> int:
        """Number of attempts that run."""
        return len(self._running)

    @property
    def job_counts(self) -> Counter[str]:
        """Ended attempts by outcome, as `Status` has them."""
        return self._completer.counts

    @property
    def has_results(self) -> bool:
        """Whether an attempt has ended that is not counted yet."""
        return bool(self._completer.ended)

    def set_pauses(self, pauses: Pauses, /) -> None:
        """Set the pauses by hand: activities of a paused job type are returned to the server."""
        self._pauses = pauses

    def set_engine_report(self, report: Mapping[str, Any], /) -> None:
        """Set the state of the server, for the heartbeat of the worker."""
        self.engine_report = report

    def attach(
        self,
        worker: str,
        ledger: Ledger,
        executors: SourceExecutors,
        /,
        *,
        activity: ActivityRecorder,
        lock_seconds: float,
    ) -> None:
        """Set what the worker provides, before the first turn."""
        self._worker = self._completer.worker = worker
        self._executors, self._recorder = executors, activity
        self._job_types = with_wrappers(self._job_types)

    def turn(self, now: datetime, /, *, is_stopping: bool = False) -> float:
        """Start or stop the SDK's workers, and count ended attempts."""
        self._count_ended()
        serving = self._serving
        if serving is not None and serving.done() and not is_stopping:
            self._serving = None
            serving.result()  # raises: the dispatcher shows the error, and calls again
        if is_stopping:
            self._ask_to_stop()
        elif self._serving is None:
            self._serving = self._connection.loop.submit(self._serve)
        return TURN_SECONDS

    def release(self, now: datetime, /) -> None:
        """Return the running activities to the server, and stop."""
        self._ask_to_stop()
        if self._serving is not None:
            self._connection.loop.call(self._release_all)
            with suppress(Exception):  # the server takes back what was not returned
                self._serving.result(CLOSE_SECONDS)
            self._serving.cancel()
        self._count_ended()

    def _ask_to_stop(self) -> None:
        if self._stop is not None:
            self._connection.loop.call(self._stop.set)

    def _release_all(self) -> None:
        for release in list(self._running.values()):
            release()

    def _count_ended(self) -> None:
        recorder = self._recorder
        while self._completer.ended and recorder is not None:
            result, outcome = self._completer.ended.popleft()
            if outcome.record in ("success", "recovered"):
                recorder.add_successes((result,))
            elif counted := ACTIVITY_BY_RECORD.get(outcome.record):
                recorder.add(result.job_type.name, counted, run=result.seconds, wait=None)

    # --- On the event loop of the connection

    async def _serve(self) -> None:
        client = await self._connection.connect()  # the SDK has one worker for each client
        await self._connection.check_namespace(client)
        self._stop = asyncio.Event()
        engine = self._connection.engine
        queues = {engine.queue_of("thread"): self._threads, engine.queue_of("async"): ASYNC_TASKS}
        interval = timedelta(seconds=self._beat_seconds)
        workers = [
            SdkWorker(
                client,
                task_queue=queue,
                activities=[self._activity()],
                identity=self._worker,
                max_concurrent_activities=limit,
                graceful_shutdown_timeout=timedelta(seconds=self._drain),
                max_heartbeat_throttle_interval=interval,
                default_heartbeat_throttle_interval=interval,
            )
            for queue, limit in queues.items()
        ]
        polling = [asyncio.create_task(each.run()) for each in workers]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([*polling, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await asyncio.gather(*(each.shutdown() for each in workers), return_exceptions=True)
            ends = await asyncio.gather(*polling, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    @property
    def _beat_seconds(self) -> float:
        return min(MAX_BEAT_SECONDS, self._connection.engine.heartbeat_seconds / BEATS_PER_TIMEOUT)

    def _activity(self) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def run(args: Sequence[RawValue]) -> RawValue | None:
            return await self._run(args)

        return activity.defn(dynamic=True)(run)

    async def _run(self, args: Sequence[RawValue]) -> RawValue | None:
        """Make one attempt at an activity."""
        info = activity.info()
        notes = Notes.of(info.heartbeat_details)
        notes.lost += info.attempt - 1 - notes.ended
        notes.ended = info.attempt - 1
        job_type = self._job_types.get(info.activity_type)
        if job_type is None or len(args) != 2:
            problem = f"{info.activity_type} is not registered in this worker"
            raise return_to_queue(notes, problem, RETURN_SECONDS)
        if self._pauses and self._pauses.get("job type", job_type.name) is not None:
            raise return_to_queue(notes, f"{job_type.name} is paused", PAUSED_SECONDS)
        payload, envelope = (
            bytes(args[0].payload.data),
            ActivityEnvelope.decode(args[1].payload.data),
        )
        attempt = ActivityAttempt(
            job_type,
            envelope.lease(
                info.activity_type,
                payload,
                info.attempt - notes.uncharged,
                info.attempt,
                info.current_attempt_scheduled_time,
            ),
            ActivityRef(info.activity_id, info.activity_run_id or ""),
            envelope,
            notes,
            _heartbeat_from_any_thread(notes),
        )
        result = await self._completer.result_of_lost(attempt) if notes.lost else None
        if result is None:
            result = await self._attempt(attempt)
        if result is None:
            raise return_to_queue(notes, "the worker has stopped")
        return await self._completer.end(attempt, result)

    async def _attempt(self, attempt: ActivityAttempt) -> AttemptResult | None:
        """Call the function and wait for its end. None: it was released."""
        name, limit = attempt.name, time_limit(attempt)
        if limit <= 0:
            return AttemptResult(attempt.job_type, attempt.lease, None, None, 0.0, is_expired=True)
        ended: asyncio.Future[AttemptResult | None] = asyncio.get_running_loop().create_future()
        self._call(attempt, limit, ended)
        self._running[name] = lambda: None if ended.done() else ended.set_result(None)
        beating = asyncio.create_task(self._beat(attempt.notes))
        try:
            while not ended.done():
                try:
                    await asyncio.wait([ended])
                except asyncio.CancelledError:
                    if is_cancel_requested():
                        attempt.cancelled = True
                    elif not ended.done():  # the worker stops, or the server took it back
                        ended.set_result(None)
                    self._cancel_function(name)
        finally:
            beating.cancel()
            del self._running[name]
        return ended.result()

    def _call(
        self, attempt: ActivityAttempt, limit: float, ended: asyncio.Future[AttemptResult | None]
    ) -> None:
        """Start the function in a thread, or on the event loop of the worker."""
        loop, executors = asyncio.get_running_loop(), self._executors
        assert executors is not None

        def finish(result: AttemptResult) -> None:
            if not ended.done():
                ended.set_result(result)

        def report(result: AttemptResult) -> None:
            crash_point("worker.ran")
            loop.call_soon_threadsafe(finish, result)

        def work() -> None:
            report(run_sync(self._context, attempt, limit))

        async def awork() -> None:
            report(await run_async(attempt, limit))

        if attempt.job_type.execution == "async":
            executors.run_on_loop(attempt.name, awork, self._context.copy())
        else:
            executors.run_in_thread(f"{self._worker}-activity", work, self._context.copy())

    def _cancel_function(self, name: AttemptName) -> None:
        assert self._executors is not None
        self._executors.cancel(name)

    async def _beat(self, notes: Notes) -> None:
        while True:
            activity.heartbeat(notes.as_details())
            await asyncio.sleep(self._beat_seconds)


def _heartbeat_from_any_thread(notes: Notes) -> Callable[[], None]:
    """Return a function that sends a heartbeat of this activity."""
    loop, context = asyncio.get_running_loop(), copy_context()

    def beat() -> None:
        loop.call_soon_threadsafe(lambda: context.run(activity.heartbeat, notes.as_details()))

    return beat
