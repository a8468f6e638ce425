"""Completer: turns finished attempts into settlements, counts and log records."""

from __future__ import annotations

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from ..core.text import safe_str
from ..journal.bus import emit, is_success_wanted, is_wanted
from ..journal.sinks.logging import level_of
from ..ledger.ledger import Ledger
from ..ledger.model import Lease, Settlement
from ..ledger.queries import dead_letters
from ..ledger.validation import check_settlements
from .attempt import AttemptResult
from .outcome import (
    JobOutcome,
    after_deadline,
    after_failure,
    after_success,
    after_unreadable_error,
    uncharged_by_ledger,
    uncharged_by_outage,
)
from .parking import ParkedTypes

COUNT_BY_RECORD = {
    "success": "done",
    "recovered": "done",
    "retry": "again",
    "again": "again",
    "giveup": "dead",
    "blocked": "dead",
}
RELEASED: Final = "released"
"""Reason of an attempt that was released because its worker ended."""
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
    ) -> None:
        self._ledger = ledger
        self._parked = parked
        self._now, self._draw = now, draw
        self.counts: Counter[str] = Counter()
        self._dead_records: list[tuple[Lease, str, dict[str, Any]]] = []
        """Records of dead letters that are not in the ledger yet."""

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
        if needs_no_records and not probes and self._is_all_plain_success(results):
            return self._complete_plain_successes(results)
        outcomes = [(result, self._outcome_of(result, is_draining)) for result in results]
        for result, outcome in outcomes:
            # A released attempt says nothing about the service. The worker's end returns its probe.
            if outcome.reason != RELEASED:
                is_probe = probes.pop(result.lease.job_id, None) is not None
                self._parked.record(result, outcome, is_probe=is_probe)
        uncharged = self._uncharged_attempts(outcomes)
        completed = []
        for result, charged_outcome in outcomes:
            count = uncharged.get(result.lease.job_id, 0)
            outcome = self._uncharge_if_external(result, charged_outcome, count)
            self.counts["late" if result.is_late else COUNT_BY_RECORD[outcome.record]] += 1
            if not needs_no_records or outcome.record != "success" or result.is_late:
                self._record(result, outcome)
            if not result.is_settled and not result.is_late:
                completed.append(outcome.settlement)
        return completed

    # ---- the fast path ----

    def _is_all_plain_success(self, results: list[AttemptResult]) -> bool:
        """Return whether all attempts succeeded the first time, without a result, and none is of a
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
        leases = [result.lease for result in results]
        self._parked.record_successes(leases)
        return [lease.done() for lease in leases]

    # ---- the full path ----

    def _outcome_of(self, result: AttemptResult, is_draining: bool) -> JobOutcome:
        if result.is_expired:
            return after_deadline(result.lease)
        if result.error is None or result.is_late:
            return after_success(result.lease, result.result, self._ledger.max_payload)
        if is_draining and isinstance(result.error, CancelledError):
            return JobOutcome(result.lease.release(), "again", RELEASED)
        try:
            outcome = after_failure(
                result.job_type, result.lease, result.error, now=self._now(), draw=self._draw()
            )
            # Validate here: a settlement that the ledger rejects would fail its whole batch.
            check_settlements([outcome.settlement], self._ledger.max_payload)
            return outcome
        except Exception as problem:  # an error whose __str__ or attributes raise
            return after_unreadable_error(result.job_type, result.lease, result.error, problem)

    def _uncharged_attempts(
        self, outcomes: Iterable[tuple[AttemptResult, JobOutcome]]
    ) -> dict[int, int]:
        """Return how many attempts did not count so far, of the jobs that an outage or the ledger
        failed now.
        """
        job_ids = {
            result.lease.job_id
            for result, outcome in outcomes
            if outcome.can_be_uncharged
            and (outcome.is_ledger_fault or result.job_type.name in self._parked.parked)
        }
        return self._parked.uncharged_attempts(job_ids)

    def _uncharge_if_external(
        self, result: AttemptResult, outcome: JobOutcome, uncharged: int
    ) -> JobOutcome:
        """Return the outcome, or an uncharged one if an outage or the ledger caused the failure."""
        if outcome.is_ledger_fault:
            if outcome.can_be_uncharged and uncharged < self._parked.max_uncharged:
                return uncharged_by_ledger(result.lease, outcome, uncharged)
            return outcome
        if self._parked.is_uncharged(outcome, result.job_type.name, uncharged):
            return uncharged_by_outage(result.job_type, result.lease, outcome, draw=self._draw())
        return outcome

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

    def _record(self, result: AttemptResult, outcome: JobOutcome) -> None:
        if outcome.record != "success" and not is_wanted(level_of(outcome.record, outcome.reason)):
            return
        fields = _fields_of(result, outcome)
        if outcome.record in DEAD_RECORDS and not result.is_late and not result.is_settled:
            self._dead_records.append((result.lease, outcome.record, fields))
        else:
            emit("late" if result.is_late else outcome.record, fields)

    def record_recovered(self, job_ids: Sequence[int], /) -> None:
        """Count and log the jobs that became dead letters because their leases expired."""
        letters: Sequence[Any] = ()
        with suppress(Exception):  # they are in the ledger, and a log record is not worth a turn
            if job_ids:
                with self._ledger.reading() as connection:
                    letters = dead_letters.of_jobs(connection, job_ids)
        for letter in letters:
            self.counts["dead"] += 1
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

    def emit_dead_records(self) -> None:
        """Emit the records of dead letters, with their ids. Call it when the ledger has them."""
        if not self._dead_records:
            return
        records, self._dead_records = self._dead_records, []
        ids = {lease.job_id: lease.dead_id for lease, _, _ in records if lease.dead_id is not None}
        new = [lease.job_id for lease, _, _ in records if lease.job_id not in ids]
        with suppress(Exception):  # a record without the id is better than no record
            if new:
                with self._ledger.reading() as connection:
                    ids |= dead_letters.ids_by_job(connection, new)
        for lease, record, fields in records:
            dead_id = ids.get(lease.job_id)
            emit(record, fields | {"dlq_id": None if dead_id is None else str(dead_id)})


def _fields_of(result: AttemptResult, outcome: JobOutcome) -> dict[str, Any]:
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
    if error is not None:
        fault: Mapping[str, Any] = {
            "error": safe_str(error),
            "error_class": type(error).__name__,
            "http_status": outcome.fault.status,
            "retryable": outcome.fault.retryable,
        }
        fields |= fault
    return fields
