"""TemporalCommands: submits commands as standalone activities, and reads and cancels them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from temporalio.client import (
    ActivityExecutionDescription,
    ActivityExecutionStatus,
    ActivityHandle,
    Client,
    PendingActivityState,
)
from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy, RawValue
from temporalio.exceptions import ActivityAlreadyStartedError, CancelledError
from temporalio.service import RPCError, RPCStatusCode

from ..commands.engine import EngineJob, EngineSubmitted
from ..ledger.jobs.tenants import TenantLimit
from ..ledger.ledger import Ledger
from ..ledger.model import DisplayState, NewJob
from ..ledger.model import Job as Row
from ..ledger.validation import MAX_PAYLOAD_BYTES, check_job
from .activity import ActivityEnvelope, ActivityRef, raw_json, start_options
from .attempt import Notes
from .connection import NOTHING_CHANGED, RPC_TIMEOUT, TemporalConnection
from .failure import FailureDetails

if TYPE_CHECKING:
    from ..commands.spec import CommandSpec
    from ..worker.job_type import JobType

UTC = timezone.utc
NOTHING_SUBMITTED = "nothing was submitted"
RUNNING = ActivityExecutionStatus.RUNNING
DONE = ActivityExecutionStatus.COMPLETED
STOPPED = (ActivityExecutionStatus.CANCELED, ActivityExecutionStatus.TERMINATED)
FAILED = (ActivityExecutionStatus.FAILED, ActivityExecutionStatus.TIMED_OUT)
ENDED_ROWS = ("done", "dead", "dropped", "pruned", "cancelled")


class TemporalCommands:
    """Submits commands to a Temporal server. Threads, event loops and forked children may share it.

    Args:
        connection: To the server.
        ledger: Returns the ledger, which has the dead letters.
        job_type: Returns how a worker runs a command.
    """

    def __init__(
        self,
        connection: TemporalConnection,
        ledger: Callable[[], Ledger],
        job_type: Callable[[str], JobType],
        /,
    ) -> None:
        self.connection = connection
        self._ledger = ledger
        self._job_type = job_type
        self._max_payload = MAX_PAYLOAD_BYTES

    def is_used_by(self, spec: CommandSpec, /) -> bool:
        """Return whether Temporal runs a command.

        A command whose options Temporal cannot keep over all workers stays on the ledger.
        """
        return (
            spec.execution in ("thread", "async")
            and spec.concurrency is None
            and spec.rate is None
            and spec.sequence is None
            and spec.tenant_limit in (None, TenantLimit())
            and spec.name not in self.connection.engine.on_ledger
        )

    def submit(self, spec: CommandSpec, job: NewJob, /) -> EngineSubmitted:
        """Submit a job, once for its job key.

        Raises:
            EngineUnavailable: The server cannot be reached. Nothing was submitted.
        """
        job, job_type = check_job(job, self._max_payload), self._job_type(spec.name)
        return self.connection.call(
            lambda client: self.start(client, job_type, job), NOTHING_SUBMITTED
        )

    async def asubmit(self, spec: CommandSpec, job: NewJob, /) -> EngineSubmitted:
        """Submit a job, from async code."""
        job, job_type = check_job(job, self._max_payload), self._job_type(spec.name)
        return await self.connection.acall(
            lambda client: self.start(client, job_type, job), NOTHING_SUBMITTED
        )

    async def start(
        self,
        client: Client,
        job_type: JobType,
        job: NewJob,
        /,
        *,
        ledger_job: int | None = None,
        dead_id: int | None = None,
    ) -> EngineSubmitted:
        """Start the activity of a job, once for its id. A cancelled one frees it.

        Args:
            client: The client.
            job_type: The command.
            job: The job.
            ledger_job: Job in the ledger that waits for the activity.
            dead_id: Dead letter that it replays. It may start again after a failure.
        """
        policy = ActivityIDReusePolicy.REJECT_DUPLICATE
        if dead_id is not None:
            policy = ActivityIDReusePolicy.ALLOW_DUPLICATE
        activity_id = self.connection.engine.activity_id(job.kind, job.key)
        envelope = ActivityEnvelope.of(job, ledger_job, dead_id)
        options = start_options(self.connection.engine, job_type, job, datetime.now(UTC))
        arguments = [raw_json(job.payload), raw_json(envelope.encode())]

        async def start(policy: ActivityIDReusePolicy) -> ActivityHandle[Any]:
            return await client.start_activity(
                job.kind,
                args=arguments,
                id=activity_id,
                id_reuse_policy=policy,
                id_conflict_policy=ActivityIDConflictPolicy.FAIL,
                rpc_timeout=RPC_TIMEOUT,
                **options,
            )

        def make(run_id: str | None, created: bool, stopping: bool = False) -> EngineSubmitted:
            ref = ActivityRef(activity_id, run_id or "")
            return EngineSubmitted(str(ref), job.kind, job.key, created, stopping)

        try:
            return make((await start(policy)).run_id, True)
        except ActivityAlreadyStartedError as known:
            run_id = known.run_id
        described = await self.describe(client, ActivityRef(activity_id, run_id or ""))
        if described is not None and described.status in STOPPED:
            try:
                handle = await start(ActivityIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
                return make(handle.run_id, True)
            except ActivityAlreadyStartedError as raced:
                return make(raced.run_id, False)
        is_stopping = (
            described is not None and described.run_state == PendingActivityState.CANCEL_REQUESTED
        )
        return make(run_id, False, is_stopping)

    def latest(self, kind: str, key: str, /) -> ActivityRef:
        """Return the last run of the activity of a job."""
        return ActivityRef(self.connection.engine.activity_id(kind, key), "")

    @staticmethod
    async def describe(
        client: Client, ref: ActivityRef, /, *, whole: bool = False
    ) -> ActivityExecutionDescription | None:
        """Return an activity, or None if the server does not have it (any more).

        Args:
            client: The client.
            ref: The activity and its run.
            whole: Also read its input, its outcome and its heartbeat details.
        """
        handle = client.get_activity_handle(ref.activity_id, run_id=ref.run_id or None)
        try:
            return await handle.describe(
                include_input=whole,
                include_outcome=whole,
                include_heartbeat_details=whole,
                rpc_timeout=RPC_TIMEOUT,
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND and "amespace" not in error.message:
                return None
            raise

    # --- Read

    def find(self, kind: str, job_id: str, /) -> EngineSubmitted | None:
        """Return a submitted job by its id, or None."""
        ref = ActivityRef.parse(job_id)
        prefix = f"{self.connection.engine.task_queue}/{kind}/"
        if ref is None or not ref.activity_id.startswith(prefix):
            return None

        async def read(client: Client) -> EngineSubmitted | None:
            described = await self.describe(client, ref, whole=True)
            envelope = None if described is None else await envelope_of(described)
            if envelope is None:
                return None
            return EngineSubmitted(job_id, kind, envelope.key, False)

        return self.connection.call(read, NOTHING_CHANGED)

    def read(self, job_id: str, kind: str, key: str, /) -> EngineJob | Row | None:
        """Return a job: an ended one from the ledger, if it is there.

        A job that was submitted through the ledger is `idle` until its transaction is committed,
        and queued until its activity has started.
        """
        ledger = self._ledger()
        ref = ActivityRef.parse(job_id)
        if ref is None:
            row = ledger.get(int(job_id))
            if row is not None and (row.kind, row.key) not in (
                (kind, key),
                (kind, f"erased:{row.id}"),
            ):
                row = ledger.find(kind, key)  # a failover has lost the job, and its id is another's
            elif row is not None and not row.current and row.state != "cancelled":
                row = ledger.find(kind, key) or row
            if row is None or row.state in ENDED_ROWS:
                return row
            ref, waiting = self.latest(kind, key), row
        else:
            waiting = None
        view = self.connection.call(lambda client: self._view(client, ref, job_id), NOTHING_CHANGED)
        if waiting is not None:
            is_own = view is not None and view.state in ("ready", "leased")
            return view if is_own else waiting
        if view is None or view.state == "dead":
            return ledger.find(kind, key) or view
        return view

    async def _view(self, client: Client, ref: ActivityRef, job_id: str) -> EngineJob | None:
        described = await self.describe(client, ref, whole=True)
        return None if described is None else await view_of(described, job_id)

    # --- Cancel

    def cancel(self, job_id: str, kind: str, key: str, /, *, actor: str, because: str) -> bool:
        """Cancel a job: its activity, and its row in the ledger if it has one."""
        view = self.read(job_id, kind, key)
        if view is not None and isinstance(view.id, int):
            result = self._ledger().control.cancel([view.id], actor=actor, because=because)
            has_row = bool(result.done)
            return self._cancel(self.latest(kind, key), because) or has_row
        ref = ActivityRef.parse(job_id) or self.latest(kind, key)
        is_done = self._cancel(ref, because)
        if is_done and ActivityRef.parse(job_id) is None:
            self._ledger().control.cancel([int(job_id)], actor=actor, because=because)
        elif is_done:
            self._ledger().record(
                actor=actor, action="job.cancel", because=because, what={"job": job_id}
            )
        return is_done

    def _cancel(self, ref: ActivityRef, because: str) -> bool:
        async def cancel(client: Client) -> bool:
            described = await self.describe(client, ref)
            if described is None or described.status != RUNNING:
                return False
            if described.run_state == PendingActivityState.CANCEL_REQUESTED:
                return False
            handle = client.get_activity_handle(ref.activity_id, run_id=ref.run_id or None)
            await handle.cancel(reason=because, rpc_timeout=RPC_TIMEOUT)
            return True

        return self.connection.call(cancel, NOTHING_CHANGED)

    def cancel_run_of(self, ref: ActivityRef, ledger_job: int, because: str, /) -> bool:
        """Ask an activity to stop, if it runs for this job of the ledger."""

        async def cancel(client: Client) -> bool:
            described = await self.describe(client, ref, whole=True)
            if described is None or described.status != RUNNING:
                return False
            envelope = await envelope_of(described)
            if envelope is None or envelope.ledger_job != ledger_job:
                return False
            handle = client.get_activity_handle(ref.activity_id, run_id=described.activity_run_id)
            await handle.cancel(reason=because, rpc_timeout=RPC_TIMEOUT)
            return True

        return self.connection.call(cancel, NOTHING_CHANGED)

    def close(self) -> None:
        """Disconnect. The next use connects again."""
        self.connection.close()


async def envelope_of(described: ActivityExecutionDescription, /) -> ActivityEnvelope | None:
    """Return the envelope of an activity, described with its input. None: not one of ours."""
    try:
        _, envelope = await described.input([RawValue, RawValue]) or [None, None]
        return ActivityEnvelope.decode(envelope.payload.data)
    except (AttributeError, TypeError, ValueError):  # the input of another program
        return None


async def arguments_of(described: ActivityExecutionDescription, /) -> bytes:
    """Return the arguments of an activity that was described with its input."""
    parts = await described.input([RawValue, RawValue])
    return b"" if not parts else bytes(parts[0].payload.data)


async def view_of(described: ActivityExecutionDescription, job_id: str, /) -> EngineJob:
    """Return an activity as a job. Describe it with its outcome and its heartbeat details."""
    due = described.next_attempt_schedule_time or described.execution_time
    due = due or described.schedule_time
    # Attempts that do not count are in the notes of the activity.
    attempts = described.attempt - Notes.of(await described.heartbeat_details()).uncharged
    status = described.status
    if status == DONE:
        result = await described.result(RawValue)
        data = None if result is None else bytes(result.payload.data) or None  # b"": None
        return EngineJob(job_id, "done", "done", due, attempts, result=data)
    if status in STOPPED:
        return EngineJob(job_id, "cancelled", "cancelled", due, attempts)
    if status in FAILED:
        failure = await described.outcome_failure()
        if isinstance(failure, CancelledError):
            return EngineJob(job_id, "cancelled", "cancelled", due, attempts)
        details = FailureDetails.of(failure)
        shown: DisplayState = "blocked" if details.is_blocked else "dlq"
        return EngineJob(
            *(job_id, "dead", shown, due, details.attempts or attempts),
            reason=details.reason,
            error=details.error,
        )
    if described.run_state in (PendingActivityState.STARTED, PendingActivityState.CANCEL_REQUESTED):
        return EngineJob(job_id, "leased", "running", due, attempts)
    # The server counts the next attempt when it schedules it.
    attempts = max(0, attempts - 1)
    return EngineJob(job_id, "ready", "retry_wait" if attempts else "queued", due, attempts)
