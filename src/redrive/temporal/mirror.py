"""Mirror: runs a job of the ledger as an activity, and settles it as the activity ends.

Jobs of the ledger are submissions in a transaction, bulk submissions, scheduled runs and replays.
The ledger is their outbox: a job stays in it until its activity has ended. The id of the activity
is made from the job key, so a job that is handed over twice is one activity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone

from temporalio.client import ActivityExecutionDescription, ActivityFailureError, Client

from ..engine.attempt import current
from ..errors import Again, EngineError
from ..ledger import mirrors
from ..ledger.failpoint import crash_point
from ..ledger.ledger import Ledger
from ..ledger.model import PRIORITIES, Lease, NewJob
from ..worker.job_type import EndedElsewhere, JobType, durable_settings
from .activity import ActivityRef
from .client import FAILED, RUNNING, STOPPED, TemporalCommands, envelope_of, view_of
from .connection import RPC_TIMEOUT
from .failure import FailureDetails

UTC = timezone.utc
INLINE_SECONDS = 1.0
"""How long a job waits for the end of its activity, before it is released."""
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 30.0
"""Time between two looks at a running activity: half of its age. A worker that ends an activity
wakes its job, but may miss it."""
BUSY_SECONDS = 2.0
"""Wait of a replay whose earlier run has not ended."""
AWAY_SECONDS = 5.0
"""Wait of a job that could not be handed over."""
IN_OUTBOX = "the job stays in the ledger and is handed over later"


class Mirror:
    """Runs jobs of the ledger on Temporal. Event loops may share it.

    Args:
        commands: Starts activities.
        ledger: Has the jobs.
    """

    def __init__(self, commands: TemporalCommands, ledger: Ledger, /) -> None:
        self._commands = commands
        self._ledger = ledger

    def job_type(self, job_type: JobType, /) -> JobType:
        """Return how a worker runs the jobs of a command that are in the ledger."""
        return replace(
            job_type,
            run=self._runner(job_type),
            execution="async",
            settings=durable_settings(job_type.name, None),
            parks_on_outage=False,
            tenants=None,
            is_mirror=True,
        )

    def _runner(self, job_type: JobType) -> Callable[[Lease], Awaitable[bytes | None]]:
        async def run(lease: Lease) -> bytes | None:
            connection = self._commands.connection
            try:
                return await connection.acall(
                    lambda client: self._follow(client, job_type, lease), IN_OUTBOX
                )
            except EngineError as error:
                # Without a text, which would be stored as a failed attempt. The worker shows it.
                raise Again(after=AWAY_SECONDS, free=True) from error
            except asyncio.CancelledError:
                if current().cancelled:  # otherwise the worker stops
                    await self._forward_cancel(lease)
                raise

        return run

    async def _forward_cancel(self, lease: Lease) -> None:
        """Ask the activity of a cancelled job to stop."""
        ref = self._commands.latest(lease.kind, lease.key)
        with suppress(EngineError):  # the reconciliation does it later
            await asyncio.to_thread(
                self._commands.cancel_run_of, ref, lease.job_id, "its job was cancelled"
            )

    async def _follow(self, client: Client, job_type: JobType, lease: Lease) -> bytes | None:
        """Start the activity of a job, or read its end."""
        ref = self._commands.latest(lease.kind, lease.key)
        described = await self._describe(client, ref)
        if described is None or not await self._is_followed(described, lease):
            if described is not None and described.status == RUNNING:
                raise Again(after=BUSY_SECONDS, free=True)  # an earlier run has not ended
            job = await asyncio.to_thread(self._job_of, lease)
            await self._commands.start(
                client, job_type, job, ledger_job=lease.job_id, dead_id=lease.dead_id
            )
            crash_point("temporal.started")
            described = None
        if described is None or described.status == RUNNING:
            await _wait_for_end(client, ref)
            described = await self._describe(client, ref)
        if described is None or described.status == RUNNING:
            raise Again(after=_poll_seconds(described), free=True)
        return await self._end(described, lease)

    async def _describe(
        self, client: Client, ref: ActivityRef
    ) -> ActivityExecutionDescription | None:
        return await self._commands.describe(client, ref, whole=True)

    async def _is_followed(self, described: ActivityExecutionDescription, lease: Lease) -> bool:
        """Return whether the end of this run is the end of the job.

        A replay needs a run of its own. Another job takes the run that its key has, unless that
        was cancelled.
        """
        envelope = await envelope_of(described)
        if envelope is not None and envelope.ledger_job == lease.job_id:
            return True
        return lease.dead_id is None and described.status not in STOPPED

    def _job_of(self, lease: Lease) -> NewJob:
        row = self._ledger.get(lease.job_id)
        priority = 0 if row is None or row.priority not in PRIORITIES else row.priority
        return NewJob(
            kind=lease.kind,
            key=lease.key,
            payload=lease.payload,
            priority=priority,
            max_attempts=lease.max_attempts,
            deadline=lease.deadline,
            ids=lease.ids,
            headers=lease.headers,
            version=lease.version,
            tenant=None if row is None else row.tenant,
        )

    async def _end(self, described: ActivityExecutionDescription, lease: Lease) -> bytes | None:
        view = await view_of(described, "")
        if view.state == "cancelled":
            raise EndedElsewhere("cancelled", "cancelled")
        await asyncio.to_thread(
            mirrors.set_attempts, self._ledger.connections, lease, view.attempts
        )
        if described.status in FAILED:
            details = FailureDetails.of(await described.outcome_failure())
            raise EndedElsewhere(
                "blocked" if details.is_blocked else "dead",
                details.reason,
                details.error,
                details.signature,
                details.until_at,
                view.attempts,
            )
        return view.result


def _poll_seconds(described: ActivityExecutionDescription | None) -> float:
    if described is None:
        return MIN_POLL_SECONDS
    age = (
        datetime.now(UTC) - (described.execution_time or described.schedule_time)
    ).total_seconds()
    return min(MAX_POLL_SECONDS, max(MIN_POLL_SECONDS, age / 2))


async def _wait_for_end(client: Client, ref: ActivityRef) -> None:
    """Wait a little for the end of an activity."""
    handle = client.get_activity_handle(ref.activity_id)
    try:
        async with asyncio.timeout(INLINE_SECONDS):
            await handle.result(rpc_timeout=RPC_TIMEOUT)
    except (TimeoutError, ActivityFailureError):
        pass
