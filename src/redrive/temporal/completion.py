"""ActivityCompleter: what the end of an attempt means for its activity and for the ledger."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from random import random
from typing import Any, TypeVar

from temporalio import activity
from temporalio.client import PendingActivityState
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from ..errors import EngineError
from ..journal.bus import emit, is_success_wanted, is_wanted
from ..journal.sinks.logging import level_of
from ..ledger import mirrors
from ..ledger.failpoint import crash_point
from ..ledger.jobs.lease_recovery import MAX_CRASHES
from ..ledger.ledger import Ledger
from ..worker.attempt import AttemptResult
from ..worker.completer import COUNT_BY_RECORD, DEAD_RECORDS, attempt_fields
from ..worker.job_type import EndedElsewhere
from ..worker.outcome import JobOutcome, after_cancel, after_deadline, after_success, decide_failure
from .activity import ActivityEnvelope, ActivityRef, raw_json
from .attempt import ActivityAttempt, Notes
from .client import TemporalCommands
from .connection import TemporalConnection
from .failure import FAILURE_TYPE, FailureDetails

T = TypeVar("T")
UTC = timezone.utc
MIN_DELAY_SECONDS = 0.001
UNREAD_SECONDS = 5.0
"""How long an attempt waits for a cancel request that the server has, at most. Also the delay of
an activity that needs the ledger, which is away."""


class ActivityCompleter:
    """Ends attempts at activities. Belongs to the event loop of the connection.

    Args:
        connection: To the server.
        ledger: Gets the dead letters.
    """

    def __init__(self, connection: TemporalConnection, ledger: Ledger, /) -> None:
        self._connection = connection
        self._ledger = ledger
        self.worker = ""
        """Name of the worker."""
        self.counts: Counter[str] = Counter()
        """Ended attempts by outcome. Any thread may read it."""
        self.ended: deque[tuple[AttemptResult, JobOutcome]] = deque()
        """Ended attempts that are not in the charts yet. Any thread may take them."""

    async def result_of_lost(self, attempt: ActivityAttempt, /) -> AttemptResult | None:
        """Return the end of a job whose attempts were lost, or None if it has one more.

        Raises:
            ApplicationError: The ledger is away. The activity goes back to the queue.
        """
        job_type, lease, lost = attempt.job_type, attempt.lease, attempt.notes.lost
        if attempt.envelope.ledger_job is None and await self._is_recorded(attempt):
            # The worker died between the dead letter and its report.
            error = EndedElsewhere("dead", "attempts", "it is a dead letter already")
            return AttemptResult(job_type, lease, None, error, 0.0, is_settled=True)
        most = lease.max_attempts or job_type.settings.max_attempts
        reason = "crashed_worker" if lost >= MAX_CRASHES else "attempts"
        if lost < MAX_CRASHES and lease.attempt <= most:
            return None
        text = f"its worker died or lost the server in {lost} of {lease.attempt - 1} attempts"
        attempt.lease = lease._replace(attempt=lease.attempt - 1)
        error = EndedElsewhere("dead", reason, text, reason)
        return AttemptResult(job_type, attempt.lease, None, error, 0.0)

    async def _is_recorded(self, attempt: ActivityAttempt) -> bool:
        job = (attempt.lease.kind, attempt.lease.key)
        try:
            runs = await asyncio.to_thread(mirrors.recorded_runs, self._ledger.connections, [job])
        except Exception as error:  # else it would count as one more lost attempt
            problem = f"the ledger cannot be read ({type(error).__name__})"
            raise return_to_queue(attempt.notes, problem, UNREAD_SECONDS) from error
        return attempt.ref.run_id in runs

    async def end(self, attempt: ActivityAttempt, result: AttemptResult, /) -> RawValue | None:
        """Return the result of an activity, or raise what the server is told.

        A dead letter is durable before the server knows of the failure.
        """
        ledger_job = attempt.envelope.ledger_job
        is_unread = False
        if result.error is not None and not attempt.cancelled:
            is_asked = await _until_done(self._is_asked_to_stop(attempt.ref))
            is_unread = is_asked and not is_cancel_requested()
            attempt.cancelled = is_asked or is_cancel_requested()
        outcome = self._outcome_of(attempt, result)
        details = FailureDetails.of_outcome(outcome, attempt.lease.attempt, self.worker)
        if outcome.record in DEAD_RECORDS and not result.is_settled and ledger_job is None:
            await _until_done(self._record_failed(attempt, details))
        if ledger_job is not None and outcome.settlement.outcome != "again":
            await _until_done(self._wake_mirror(attempt.lease.kind, attempt.lease.key))
        else:  # the end of a job in the ledger is counted and logged there
            self._count(attempt, result, outcome)
        if outcome.record in ("success", "recovered"):
            return None if result.result is None else raw_json(result.result)
        if outcome.record == "cancelled":
            if is_unread:  # the server takes it as cancelled when the SDK has read the request
                activity.heartbeat(attempt.notes.as_details())
                await asyncio.sleep(UNREAD_SECONDS)  # ended by the request
            raise asyncio.CancelledError
        is_final = outcome.record in DEAD_RECORDS
        notes = attempt.notes
        notes.ended = attempt.lease.fence
        if not is_final and not outcome.settlement.charged:
            notes.uncharged += 1
        activity.heartbeat(notes.as_details())
        raise ApplicationError(
            (details.error or details.reason).partition("\n")[0],
            details.as_details(),
            type=FAILURE_TYPE,
            non_retryable=is_final,
            next_retry_delay=None if is_final else _delay(outcome.wait),
            category=ApplicationErrorCategory.BENIGN,  # Redrive has its own log records
        )

    async def _is_asked_to_stop(self, ref: ActivityRef) -> bool:
        """Return whether the job was cancelled, and no heartbeat has brought the request yet."""
        try:
            client = await self._connection.client()
            described = await TemporalCommands.describe(client, ref)
        except (EngineError, RPCError):
            return False  # the server is away, and gets the failure later
        return (
            described is not None and described.run_state == PendingActivityState.CANCEL_REQUESTED
        )

    def _outcome_of(self, attempt: ActivityAttempt, result: AttemptResult) -> JobOutcome:
        max_payload = self._ledger.max_payload
        if result.is_expired:
            return after_deadline(result.lease)
        if result.error is None:
            return after_success(result.lease, result.result, max_payload)
        if attempt.cancelled:
            return after_cancel(result.lease, result.error)
        return decide_failure(
            result.job_type,
            result.lease,
            result.error,
            now=datetime.now(UTC),
            draw=random(),
            max_payload=max_payload,
        )

    async def _record_failed(self, attempt: ActivityAttempt, details: FailureDetails) -> None:
        """Make a dead letter, before the server knows of the failure.

        If the ledger is away, the reconciliation makes it later.
        """
        ledger = self._ledger
        lease = attempt.lease
        run = failed_run(lease.kind, lease.payload, attempt.envelope, attempt.ref, details)
        try:
            await asyncio.to_thread(
                mirrors.record_failed, ledger.connections, run, ledger.max_payload
            )
        except Exception as error:
            fields = {"error": str(error), "error_class": type(error).__name__}
            emit("chore_failed", {"operation": "temporal.record", **fields})
        else:
            crash_point("temporal.recorded")

    async def _wake_mirror(self, kind: str, key: str) -> None:
        """Let the job in the ledger read the end of its activity now. Otherwise it polls."""
        ledger = self._ledger
        try:
            if await asyncio.to_thread(mirrors.make_due, ledger.connections, kind, key):
                ledger.notify()
        except Exception as error:
            fields = {"error": str(error), "error_class": type(error).__name__}
            emit("chore_failed", {"operation": "temporal.wake", **fields})

    def _count(self, attempt: ActivityAttempt, result: AttemptResult, outcome: JobOutcome) -> None:
        """Count and log the end of an attempt."""
        self.counts[COUNT_BY_RECORD[outcome.record]] += 1
        self.ended.append((result, outcome))
        if outcome.record == "success" and not is_success_wanted():
            return
        if outcome.record == "success" or is_wanted(level_of(outcome.record, outcome.reason)):
            emit(outcome.record, attempt_fields(result, outcome) | {"job_id": attempt.job_id})


def is_cancel_requested() -> bool:
    """Return whether the SDK has read a request to cancel this activity."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


async def _until_done(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end, also if the SDK cancels the activity meanwhile: attempts are counted."""
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


def failed_run(
    kind: str,
    payload: bytes,
    envelope: ActivityEnvelope,
    ref: ActivityRef,
    details: FailureDetails,
    closed_at: datetime | None = None,
    /,
) -> mirrors.FailedRun:
    """Return the dead letter of an activity."""
    return mirrors.FailedRun(
        envelope.new_job(kind, payload, ref.run_id),
        attempts=details.attempts,
        closed_at=closed_at,
        worker=details.worker,
        outcome="blocked" if details.is_blocked else "dead",
        reason=details.reason,
        error=details.error,
        signature=details.signature,
        until=details.until_at,
    )


def return_to_queue(notes: Notes, because: str, delay: float = 0.0, /) -> ApplicationError:
    """Return the error of an activity that goes back to the queue, without an attempt."""
    notes.ended = activity.info().attempt
    notes.uncharged += 1
    activity.heartbeat(notes.as_details())
    return ApplicationError(
        because,
        FailureDetails("released").as_details(),
        type=FAILURE_TYPE,
        next_retry_delay=_delay(delay),
        category=ApplicationErrorCategory.BENIGN,
    )


def _delay(wait: float | None) -> timedelta:
    return timedelta(seconds=max(MIN_DELAY_SECONDS, wait or 0.0))
