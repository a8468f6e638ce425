"""Completer: turns finished attempts into settlements, counts and log records."""

from __future__ import annotations

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from ..core.fault import PERMANENT
from ..core.text import safe_str
from ..journal.bus import emit, is_success_wanted, is_wanted
from ..journal.sinks.logging import level_of
from ..ledger.ledger import Ledger
from ..ledger.model import Settlement, lease_key
from ..ledger.queries import dead_letters
from ..ledger.stats.activity import ActivityRecorder, wait_seconds
from .attempt import AttemptResult, CancelRequests
from .job_type import EndedElsewhere
from .outcome import (
    JobOutcome,
    after_cancel,
    after_deadline,
    after_success,
    decide_failure,
    refunded_after_ledger_fault,
    refunded_in_outage,
)
from .parking import ParkedTypes

COUNT_BY_RECORD = {
    "success": "done",
    "recovered": "done",
    "retry": "again",
    "again": "again",
    "suspended": "again",
    "giveup": "dead",
    "blocked": "dead",
    "cancelled": "cancelled",
}
ACTIVITY_BY_RECORD = {
    "retry": "failed",
    "giveup": "dead",
    "blocked": "dead",
    "cancelled": "cancelled",
}
"""How failed attempts are counted in the charts."""
RELEASED: Final = "released"
"""Reason of an attempt that was released because its worker ended."""
SUCCESS_RECORDS = ("success", "recovered")
DEAD_RECORDS = ("giveup", "blocked")
"""Records of attempts that made a dead letter."""


class Completer:
    """Settles finished attempts. Used by the ledger thread only."""

    def __init__(
        self,
        ledger: Ledger,
        parked: ParkedTypes,
        *,
        now: Callable[[], datetime],
        draw: Callable[[], float],
        cancels: CancelRequests | None = None,
        activity: ActivityRecorder | None = None,
    ) -> None:
        self._ledger = ledger
        self._parked = parked
        self._cancels = CancelRequests() if cancels is None else cancels
        self._activity = ActivityRecorder(now) if activity is None else activity
        self._now, self._draw = now, draw
        self.counts: Counter[str] = Counter()
        self._failures: list[tuple[AttemptResult, JobOutcome]] = []
        """Failed attempts whose settlements are not in the ledger yet."""

    def complete(
        self, results: list[AttemptResult], probes: dict[int, str], /, *, is_draining: bool
    ) -> list[Settlement]:
        """Return the settlements of finished attempts.

        Args:
            results: The attempts.
            probes: Job types by the job that probes them. Probes that have ended are removed.
            is_draining: Whether the worker is ending.
        """
        needs_no_records = not is_success_wanted()
        if (
            needs_no_records
            and not probes
            and not self._cancels
            and self._is_all_plain_success(results)
        ):
            return self._complete_plain_successes(results)
        outcomes = [(result, self._outcome_of(result, is_draining)) for result in results]
        self._cancels.remove([result.lease for result in results])
        for result, outcome in outcomes:
            # A released attempt says nothing about the service. The worker's end returns its probe.
            if outcome.record == "cancelled":
                if probe := probes.pop(result.lease.job_id, None):
                    self._parked.return_probes([probe])
            elif outcome.reason != RELEASED:
                is_probe = probes.pop(result.lease.job_id, None) is not None
                self._parked.record(result, outcome, is_probe=is_probe)
        uncharged = self._uncharged_attempts(outcomes)
        completed = []
        for result, charged_outcome in outcomes:
            count = uncharged.get(result.lease.job_id, 0)
            outcome = self._refund_if_external(result, charged_outcome, count)
            self.counts["late" if result.is_late else COUNT_BY_RECORD[outcome.record]] += 1
            is_open = not result.is_settled and not result.is_late
            if is_open:
                completed.append(outcome.settlement)
            if is_open and outcome.record not in SUCCESS_RECORDS:
                self._failures.append((result, outcome))
                continue
            if not result.is_late:
                self._record_activity(result, outcome)
            if not needs_no_records or outcome.record != "success" or result.is_late:
                self._record(result, outcome)
        return completed

    # ---- the fast path ----

    def _is_all_plain_success(self, results: list[AttemptResult]) -> bool:
        """Return whether all succeeded at the first attempt, without a result, and none is of a
        parked type.
        """
        parked = self._parked.parked
        return all(
            result.error is None
            and result.result is None
            and result.lease.attempt <= 1
            and not (result.is_settled or result.is_late or result.is_expired)
            and result.lease.kind not in parked
            for result in results
        )

    def _complete_plain_successes(self, results: list[AttemptResult]) -> list[Settlement]:
        self.counts["done"] += len(results)
        self._activity.add_successes(results)
        leases = [result.lease for result in results]
        self._parked.record_successes(leases)
        return [lease.done() for lease in leases]

    # ---- the full path ----

    def _outcome_of(self, result: AttemptResult, is_draining: bool) -> JobOutcome:
        if result.suspension is not None:
            if result.suspension.outcome == "cancelled":
                return JobOutcome(result.suspension, "cancelled", "cancelled", PERMANENT)
            return JobOutcome(result.suspension, "suspended", wait=result.suspension.after)
        if result.is_expired:
            return after_deadline(result.lease)
        if result.error is None or result.is_late:
            return after_success(result.lease, result.result, self._ledger.max_payload)
        if result.lease in self._cancels:
            return after_cancel(result.lease, result.error)
        if is_draining and isinstance(result.error, CancelledError):
            return JobOutcome(result.lease.release(), "again", RELEASED)
        if result.outcome is not None:
            return result.outcome
        return decide_failure(
            result.job_type,
            result.lease,
            result.error,
            now=self._now(),
            draw=self._draw(),
            max_payload=self._ledger.max_payload,
        )

    def _uncharged_attempts(
        self, outcomes: Iterable[tuple[AttemptResult, JobOutcome]]
    ) -> dict[int, int]:
        """Return the number of uncharged attempts of jobs that an outage or the ledger failed."""
        job_ids = {
            result.lease.job_id
            for result, outcome in outcomes
            if outcome.can_be_refunded
            and (outcome.is_ledger_fault or result.job_type.name in self._parked.parked)
        }
        return self._parked.uncharged_attempts(job_ids)

    def _refund_if_external(
        self, result: AttemptResult, outcome: JobOutcome, uncharged: int
    ) -> JobOutcome:
        """Return the outcome. It is refunded if an outage or the ledger caused the failure."""
        if outcome.is_ledger_fault:
            if outcome.can_be_refunded and uncharged < self._parked.max_uncharged:
                return refunded_after_ledger_fault(result.lease, outcome, uncharged)
            return outcome
        if self._parked.is_refunded(outcome, result.job_type.name, uncharged):
            return refunded_in_outage(result.job_type, result.lease, outcome, draw=self._draw())
        return outcome

    def _record_activity(self, result: AttemptResult, outcome: JobOutcome) -> None:
        if outcome.record in SUCCESS_RECORDS:
            self._activity.add_successes((result,))
            return
        counted = ACTIVITY_BY_RECORD.get(outcome.record)
        # A job that asked for another attempt, or was released, has not failed.
        if outcome.record == "again" and outcome.settlement.signature is not None:
            counted = "failed"
        if counted is not None:
            run = None if result.is_expired else result.seconds
            wait = None if result.is_expired else wait_seconds(result.lease)
            self._activity.add(result.job_type.name, counted, run=run, wait=wait)

    # ---- log records ----

    def record_late(self, late: Iterable[Settlement], /) -> None:
        """Count and log settlements that came too late and changed nothing."""
        for settlement in late:
            self.counts["late"] += 1
            emit(
                "late",
                {
                    "operation": settlement.kind,
                    "job_id": str(settlement.job_id),
                    "fence": settlement.fence,
                    "outcome": settlement.outcome,
                },
            )

    def _record(self, result: AttemptResult, outcome: JobOutcome, **fields: Any) -> None:
        if outcome.record == "success" or is_wanted(level_of(outcome.record, outcome.reason)):
            record = "late" if result.is_late else outcome.record
            emit(record, attempt_fields(result, outcome) | fields)

    def record_failures(
        self, cancelled: Sequence[Settlement], late: Iterable[Settlement] = (), /
    ) -> None:
        """Count and log failed attempts. Call it when the ledger has their settlements.

        Args:
            cancelled: Settlements whose jobs are cancelled. The worker may not have known it.
            late: Settlements that changed nothing. `record_late` has logged them, and their
                failures say nothing about the jobs, which other workers have now.
        """
        if not self._failures:
            return
        failures, self._failures = self._remove_late(late), []
        stopped = set(map(lease_key, cancelled))
        outcomes = [
            (result, self._after_unread_cancel(result, outcome))
            if lease_key(result.lease) in stopped
            else (result, outcome)
            for result, outcome in failures
        ]
        letters = self._letters_of([each for each in outcomes if each[1].record in DEAD_RECORDS])
        for result, outcome in outcomes:
            self._record_activity(result, outcome)
            if outcome.record in DEAD_RECORDS:
                letter = letters.get(result.lease.job_id)
                self._record(result, outcome, dlq_id=None if letter is None else str(letter))
            else:
                self._record(result, outcome)

    def _remove_late(self, late: Iterable[Settlement]) -> list[tuple[AttemptResult, JobOutcome]]:
        """Return the failures whose settlements the ledger took."""
        stale = set(map(lease_key, late))
        failures = []
        for result, outcome in self._failures:
            if lease_key(result.lease) in stale:
                self.counts[COUNT_BY_RECORD[outcome.record]] -= 1
            else:
                failures.append((result, outcome))
        return failures

    def _after_unread_cancel(self, result: AttemptResult, outcome: JobOutcome) -> JobOutcome:
        """Return the outcome of a job that was cancelled before the worker read the request."""
        if outcome.record == "cancelled":
            return outcome
        self.counts[COUNT_BY_RECORD[outcome.record]] -= 1
        self.counts["cancelled"] += 1
        settlement = result.lease.cancelled(error=outcome.settlement.error)
        return JobOutcome(settlement, "cancelled", "cancelled", outcome.fault)

    def _letters_of(self, dead: Sequence[tuple[AttemptResult, JobOutcome]]) -> dict[int, int]:
        """Return the ids of dead letters by their jobs."""
        leases = [result.lease for result, _ in dead]
        ids = {lease.job_id: lease.dead_id for lease in leases if lease.dead_id is not None}
        new = [lease.job_id for lease in leases if lease.job_id not in ids]
        with suppress(Exception):  # a record without the id is better than no record
            if new:
                with self._ledger.reading() as connection:
                    ids |= dead_letters.ids_by_job(connection, new)
        return ids

    def record_recovered(self, job_ids: Sequence[int], /) -> None:
        """Count and log the jobs that became dead letters because their leases expired."""
        letters: Sequence[Any] = ()
        with suppress(Exception):  # they are in the ledger, and a log record is not worth a turn
            if job_ids:
                with self._ledger.reading() as connection:
                    letters = dead_letters.of_jobs(connection, job_ids)
        for letter in letters:
            self.counts["dead"] += 1
            self._activity.add(letter.kind, "dead")
            emit(
                "giveup",
                {
                    "operation": letter.kind,
                    "job_id": str(letter.job_id),
                    "attempt": letter.attempts,
                    "idempotency_key": letter.key,
                    "reason": letter.reason,
                    "error": letter.error,
                    "dlq_id": str(letter.id),
                },
            )


def attempt_fields(result: AttemptResult, outcome: JobOutcome) -> dict[str, Any]:
    """Return the fields of the log record of an attempt."""
    lease, error, settings = result.lease, result.error, result.job_type.settings
    fields: dict[str, Any] = {
        **lease.ids,
        **settings.fields,
        "operation": result.job_type.name,
        "job_id": str(lease.job_id),
        "attempt": lease.attempt,
        "max_attempts": settings.max_attempts if lease.max_attempts is None else lease.max_attempts,
        "latency_ms": round(result.seconds * 1000, 3),
        "idempotency_key": lease.key,
        "reason": outcome.reason,
        "wait": outcome.wait,
    }
    if result.suspension is not None:
        fields["signal"] = result.suspension.waits_for or None
    if error is not None:
        fault: Mapping[str, Any] = {
            "error": safe_str(error),
            "error_class": type(error).__name__,
            "http_status": outcome.fault.status,
            "retryable": outcome.fault.retryable,
        }
        fields |= fault
    if isinstance(error, EndedElsewhere):  # the attempts are those of the other engine
        fields |= {"error_class": None, "attempt": error.attempts or lease.attempt}
    return fields
