"""PartitionRunner: the work source of a worker that extracts and validates due partitions.

Its background tasks are here too: the schedules of datasets, and the control plane's maintenance.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from contextvars import copy_context
from datetime import date, datetime, timedelta
from time import monotonic
from typing import Any, Protocol

from ...commands.cron import Cron
from ...core.context import clock_around
from ...core.outage import Parking
from ...core.text import safe_str
from ...journal.bus import emit
from ...ledger.failpoint import crash_point
from ...ledger.jobs.clocks import Jumps
from ...ledger.jobs.pauses import read_pauses
from ...ledger.ledger import Ledger
from ...ledger.stats.activity import ActivityRecorder
from ...worker.work_source import SourceExecutors
from ..control.claim import ExpiredPartition
from ..control.plane import ControlPlane
from ..control.source_health import OutageDetector, only_customer_check
from ..control.verdicts import VerdictWriter
from ..datasets.dataset import Extraction
from ..key import Partition, dataset_label
from ..model import Release, Verdict, VerdictResult
from .attempt import (
    ExtractionAttempt,
    ExtractionResult,
    extract_in_thread,
    extract_on_loop,
    verdict_or_release,
)


def log_verdict(
    result: ExtractionResult, verdict: Verdict, effect: VerdictResult, now: datetime, /
) -> None:
    """Log a verdict that was written. A repeated one is not logged."""
    if effect.outcome == "repeated":
        return
    fields = _fields(result) | {
        "rows": verdict.record_count,
        "validator_version": verdict.version,
        "reason": verdict.reason,
    }
    if verdict.message is not None:
        # An error that was raised is there already. The message would repeat its type.
        fields.setdefault("error", verdict.message.partition("\n")[0])
    if effect.outcome == "accepted":
        emit("success" if result.attempt.lease.attempts == 0 else "recovered", fields)
    elif effect.outcome != "rejected":
        emit("late", fields | {"outcome": effect.outcome})
    elif effect.next_at is not None:
        wait = max(0.0, (effect.next_at - now).total_seconds())
        emit("retry", fields | {"wait": wait, "retry_at": effect.next_at})
    else:
        reason = effect.terminal or verdict.reason
        emit("giveup", fields | {"reason": reason, "rejected": verdict.reason})


def log_release(result: ExtractionResult, release: Release, /) -> None:
    """Log a lease that was released."""
    emit("again", _fields(result) | {"reason": release.cause, "wait": release.after})


def log_late(result: ExtractionResult, /) -> None:
    """Log an attempt that has no effect because another worker has the partition."""
    emit("late", _fields(result) | {"outcome": "lost"})


def log_expired(extraction: Extraction, expired: ExpiredPartition, /) -> None:
    """Log a partition that gave up before an attempt because it is too old."""
    fields = _partition_fields(extraction, expired.partition) | {
        "attempts": expired.attempts,
        "max_attempts": extraction.limits.policy.max_attempts,
        "reason": "age",
        "error": expired.because,
    }
    emit("giveup", fields)


def _partition_fields(extraction: Extraction, key: Partition) -> dict[str, Any]:
    return {
        **extraction.settings.fields,
        "operation": extraction.name,
        "source": key.source,
        "customer_id": key.customer_id,
        "query_name": key.query_name,
        "logical_date": key.logical_date.isoformat(),
    }


def _fields(result: ExtractionResult) -> dict[str, Any]:
    attempt, error = result.attempt, result.error
    fields = _partition_fields(attempt.extraction, attempt.lease.partition) | {
        "run_id": attempt.lease.run_id,
        "lane": attempt.lease.lane,
        "attempt": attempt.attempt,
        "max_attempts": attempt.max_attempts,
        "latency_ms": round(result.seconds * 1000, 3),
    }
    if error is not None:
        fields |= {"error": safe_str(error), "error_class": type(error).__name__}
    return fields


LEASE_SECONDS = 60.0
"""Lease of a partition, renewed four times in that time."""
POLL_SECONDS = 1.0
"""Time between two claims while nothing happens."""
OUTCOMES = ("accepted", "rejected", "terminal", "returned", "late")
"""Outcomes of extractions, as they are counted."""
ACTIVITY_BY_OUTCOME = {"accepted": "done", "rejected": "failed", "terminal": "dead"}
"""How extractions are counted in the charts. Returned and late ones have no verdict."""


class RemoteExecutor(Protocol):
    """Makes attempts on other machines. Threads share it."""

    def open(self) -> None:
        """Connect in the background."""

    def is_ready(self) -> bool:
        """Return whether attempts can be made now. Raise an error that says why not."""

    def extract(self, attempt: ExtractionAttempt, /) -> ExtractionResult:
        """Make an attempt. The thread waits for it, or until the attempt is lost."""

    def close(self) -> None:
        """Cancel attempts that run, and disconnect."""


class PartitionRunner:
    """Extracts due partitions. Used by the ledger thread of a worker.

    Each sync extraction has a thread of its own, and async ones run on the worker's event loop. Any
    number of runners may work on one ledger: a partition has one lease at a time, and a late result
    changes nothing.
    """

    name = "extractions"

    def __init__(
        self,
        extractions: Sequence[Extraction],
        /,
        *,
        max_running: int,
        lease_seconds: float = LEASE_SECONDS,
        parking: Parking | None = None,
        remote: RemoteExecutor | None = None,
    ) -> None:
        """Prepare.

        Args:
            extractions: The datasets to extract.
            max_running: Maximum number of extractions at the same time.
            lease_seconds: How long a partition stays leased without a renewal.
            parking: When failures count as an outage of the source.
            remote: Makes the attempts on other machines. Default: threads of this process.
        """
        self._extractions = {extraction.limits.dataset: extraction for extraction in extractions}
        self._max_running = max_running
        self._lease_seconds = lease_seconds
        self._remote = remote
        self._running: dict[str, ExtractionAttempt] = {}
        """Attempts by run, until their result is written."""
        self._results: deque[ExtractionResult] = deque()
        self._verdicts: list[tuple[ExtractionResult, Verdict]] = []
        """Not written yet."""
        self._releases: list[tuple[ExtractionResult, Release]] = []
        """Not written yet."""
        self._parking = Parking() if parking is None else parking
        self._refunds: dict[tuple[int, int], str] = {}
        """Rejected attempts that an outage caused, with its reason."""
        self._counts: Counter[str] = Counter()
        self._next_retry: datetime | None = None
        """When a partition that was rejected here is due again."""
        self._renewed_at = monotonic()
        self._context = copy_context()

    # ---- for the dispatcher ----

    def attach(
        self,
        worker: str,
        ledger: Ledger,
        executors: SourceExecutors,
        /,
        *,
        activity: ActivityRecorder | None = None,
        lock_seconds: float | None = None,
    ) -> None:
        """Set the name of the worker, its ledger and its executors, before the first turn.

        Args:
            worker: Name of the worker.
            ledger: For the ledger thread only.
            executors: Run the extractions.
            activity: Counts ended extractions for the charts.
            lock_seconds: How long a transaction may wait for the row of a source or partition.
        """
        self._worker = worker
        self._executors = executors
        self._activity = ActivityRecorder(clock_around().now) if activity is None else activity
        datasets = [extraction.limits for extraction in self._extractions.values()]
        self._control = ControlPlane(ledger, datasets, lock_seconds=lock_seconds)
        self._verdict_writer = VerdictWriter(ledger, datasets, lock_seconds=lock_seconds)
        self._outages = OutageDetector(self._parking, only_customer_check(ledger))
        if self._remote is not None:
            self._remote.open()

    @property
    def running(self) -> int:
        """Number of extractions that run, or are not settled yet."""
        return len(self._running)

    @property
    def running_async(self) -> int:
        """How many of them can be cancelled."""
        if self._remote is not None:
            return 0
        return sum(attempt.extraction.execution == "async" for attempt in self._running.values())

    @property
    def has_results(self) -> bool:
        """Whether an extraction has ended that is not settled yet."""
        return bool(self._results)

    @property
    def counts(self) -> dict[str, int]:
        """Running extractions, and ended ones by outcome. Any thread may read it."""
        return {"running": len(self._running)} | {name: self._counts[name] for name in OUTCOMES}

    def turn(self, now: datetime, /, *, is_stopping: bool = False) -> float:
        """Renew leases, settle ended extractions, and claim as many partitions as fit.

        Returns:
            Seconds until the next turn if nothing happens before.
        """
        # Leases first: to renew them needs no row of a source, which another process may lock.
        self._renew()
        self._settle(now, is_stopping=is_stopping)
        free = self._max_running - len(self._running)
        can_claim = (
            not is_stopping and free > 0 and (self._remote is None or self._remote.is_ready())
        )
        if can_claim and self._claim(free) == free:
            return 0.0
        return self._seconds_until_next_turn()

    def release(self, now: datetime, /) -> None:
        """Release the leases of extractions that have not ended. They do not count as attempts."""
        for attempt in self._running.values():
            attempt.is_lost = True
        settled = {result.attempt.lease.run_id for result, _ in (*self._releases, *self._verdicts)}
        self._releases += [
            (attempt.result(), Release(attempt.lease, "stopped"))
            for attempt in self._running.values()
            if attempt.lease.run_id not in settled
        ]
        if self._remote is not None:
            self._remote.close()
        self._settle(now, is_stopping=True)

    def _seconds_until_next_turn(self) -> float:
        waits = [POLL_SECONDS, self._lease_seconds / 8]
        if self._next_retry is not None:
            waits.append(max(0.0, (self._next_retry - clock_around().now()).total_seconds()))
            self._next_retry = None
        if self._control.seconds_until_room is not None:
            waits.append(self._control.seconds_until_room)
        return min(waits)

    # ---- leases ----

    def _claim(self, free: int) -> int:
        leases = self._control.claim(free, worker=self._worker, lease=self._lease_seconds)
        for expired in self._control.expired:
            self._counts["terminal"] += 1
            key = expired.partition
            log_expired(self._extractions[key.source, key.query_name], expired)
        if leases:
            crash_point("extract.claimed")
        for place, lease in enumerate(leases):
            key = lease.partition
            attempt = ExtractionAttempt(self._extractions[key.source, key.query_name], lease)
            try:
                self._start(attempt)
            except Exception:  # no thread can be started now: release this lease and the rest
                for unstarted in leases[place:]:
                    result = ExtractionAttempt(attempt.extraction, unstarted).result()
                    self._releases.append((result, Release(unstarted, "stopped")))
                raise
        return len(leases)

    def _start(self, attempt: ExtractionAttempt) -> None:
        run_id = attempt.lease.run_id
        context = self._context.copy()
        if self._remote is None and attempt.extraction.execution == "async":
            self._executors.run_on_loop(run_id, lambda: self._extract_async(attempt), context)
        else:
            name = f"{self._worker}-{run_id}"
            extract = extract_in_thread if self._remote is None else self._remote.extract
            self._executors.run_in_thread(
                name, lambda: self._on_finished(extract(attempt)), context
            )
        self._running[run_id] = attempt

    async def _extract_async(self, attempt: ExtractionAttempt) -> None:
        self._on_finished(await extract_on_loop(attempt))

    def _on_finished(self, result: ExtractionResult) -> None:
        self._results.append(result)
        self._executors.wake()

    def _renew(self) -> None:
        """Renew the leases of running extractions. A sync function far beyond its timeout cannot be
        stopped, and its lease expires.
        """
        now = monotonic()
        if now - self._renewed_at < self._lease_seconds / 4 or not self._running:
            return
        live = [
            attempt.lease
            for attempt in self._running.values()
            if not attempt.is_lost and now < attempt.end + self._lease_seconds
        ]
        lost = self._control.renew(live, lease=self._lease_seconds) if live else []
        self._renewed_at = now
        for lease in lost:
            if attempt := self._running.get(lease.run_id):
                attempt.is_lost = True
                self._executors.cancel(lease.run_id)

    # ---- results ----

    def _settle(self, now: datetime, *, is_stopping: bool) -> None:
        """Write the results of ended extractions. Results that cannot be written now are kept."""
        while self._results:
            result = self._results.popleft()
            decision = verdict_or_release(result, now, self._parking, is_stopping=is_stopping)
            if isinstance(decision, Verdict):
                self._verdicts.append((result, decision))
                self._detect_outage(result, decision)
            elif decision is not None:
                self._releases.append((result, decision))
            else:
                self._count(result, "late")
                log_late(result)
        # Releases first: if they pause the source, rejections for the same fault do not count.
        self._write_releases()
        if self._verdicts:
            self._write_verdicts(now)
        self._write_releases()

    def _count(self, result: ExtractionResult, outcome: str) -> None:
        self._running.pop(result.attempt.lease.run_id, None)
        self._counts[outcome] += 1
        if counted := ACTIVITY_BY_OUTCOME.get(outcome):
            lease = result.attempt.lease
            name = dataset_label(lease.partition.source, lease.partition.query_name)
            self._activity.add(name, counted, run=result.seconds, wait=lease.waited)

    def _write_verdicts(self, now: datetime) -> None:
        effects = self._verdict_writer.apply([verdict for _, verdict in self._verdicts])
        for (result, verdict), effect in zip(self._verdicts, effects, strict=True):
            if effect.outcome == "spared":
                release = _systemic_release(result, verdict, verdict.message)
                self._releases.append((result, release))
                continue
            self._count(result, "terminal" if effect.terminal is not None else effect.outcome)
            log_verdict(result, verdict, effect, now)
            if effect.next_at is not None:
                known = self._next_retry
                self._next_retry = effect.next_at if known is None else min(known, effect.next_at)
        self._verdicts = []

    def _detect_outage(self, result: ExtractionResult, verdict: Verdict) -> None:
        """If a verdict completes an outage, neither it nor the ones before count as attempts."""
        has_data = result.verdict is not None
        outage = self._outages.add(result.attempt.lease, verdict, monotonic(), has_data=has_data)
        if outage is None:
            return
        unwritten = {_attempt_key(each) for each, _ in self._verdicts}
        attempts = set(outage.attempts)
        kept = []
        for each, own in self._verdicts:
            if _attempt_key(each) in attempts and not own.charged:
                self._releases.append((each, _systemic_release(each, own, outage.reason)))
            else:
                kept.append((each, own))
        self._verdicts = kept
        self._refunds |= {key: outage.reason for key in outage.attempts if key not in unwritten}

    def _write_releases(self) -> None:
        if not self._releases and not self._refunds:
            return
        self._control.release_uncharged(
            [release for _, release in self._releases],
            refunds=self._refunds,
            max_uncharged=self._parking.uncharged,
        )
        for result, release in self._releases:
            self._count(result, "returned")
            log_release(result, release)
        self._releases, self._refunds = [], {}


def _attempt_key(result: ExtractionResult) -> tuple[int, int]:
    return result.attempt.lease.partition_id, result.attempt.lease.attempt_no


def _systemic_release(result: ExtractionResult, verdict: Verdict, error: str | None) -> Release:
    """Return the release of an extraction that failed because the source is down."""
    return Release(
        result.attempt.lease,
        "systemic",
        error=error,
        after=verdict.after,
        signature=verdict.signature,
    )


# --- Background tasks

MAX_CATCH_UP = 366
"""Missed times of a schedule that are handled at once."""


class ScheduleTask:
    """Enqueues fresh partitions when the schedule of a dataset is due. Used by one thread.

    A time of the schedule is for the day before it, in the schedule's time zone. Each time is
    handled once, by any of the workers. Missed times are caught up.
    """

    name = "datasets"
    every = 2.0

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /) -> None:
        self._ledger = ledger
        self._scheduled = [each for each in extractions if each.cron is not None]
        self._control = ControlPlane(ledger, [each.limits for each in extractions])

    def do(self, now: datetime, /) -> None:
        """Enqueue due partitions. A dataset that fails does not delay the others."""
        first_error: Exception | None = None
        for extraction in self._scheduled:
            try:
                self._enqueue_due(extraction, now)
            except Exception as error:
                error.add_note(f"the schedule of {extraction.name}")
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _enqueue_due(self, extraction: Extraction, now: datetime) -> None:
        cron = extraction.cron
        assert cron is not None
        dataset = extraction.limits.dataset
        last = self._control.last_fired_at(*dataset)
        if last is None:
            last = self._control.start_schedule_at(*dataset, now, cron=str(cron))
        times = due_times(cron, last, now)
        if times and not self._is_paused(extraction.name, now):
            customers = extraction.current_customers()
            for run_at in times:
                days = [day_before(cron, run_at)]
                self._control.enqueue_scheduled(*dataset, run_at, customers, days, cron=str(cron))

    def _is_paused(self, name: str, now: datetime) -> bool:
        """Return whether an operator has paused the schedule, or the app.

        The times that are missed meanwhile are caught up when it is resumed.
        """
        with self._ledger.reading() as connection:
            return read_pauses(connection, now).get("schedule", name) is not None


def due_times(
    cron: Cron, last: datetime | None, now: datetime, /, *, most: int = MAX_CATCH_UP
) -> list[datetime]:
    """Return the times of a schedule after the last handled one, up to now. A new one has none."""
    times: list[datetime] = []
    if last is not None:
        run_at = cron.after(last)
        while run_at <= now and len(times) < most:
            times.append(run_at)
            run_at = cron.after(run_at)
    return times


def day_before(cron: Cron, run_at: datetime, /) -> date:
    """Return the day that a time of a schedule is for, in the schedule's time zone."""
    return run_at.astimezone(cron.zone).date() - timedelta(days=1)


class ControlPlaneTask:
    """Recovers expired leases and advances sweeps. Any number of workers may do it at once."""

    name = "partitions"
    every = 1.0

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /) -> None:
        self._control = ControlPlane(ledger, [each.limits for each in extractions])
        self._jumps = Jumps()

    def do(self, _now: datetime, /) -> None:
        """Run one round of maintenance."""
        self._control.maintain(self._jumps)
