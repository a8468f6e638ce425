"""One attempt at a partition: extract, write, validate, then decide. It does not use the ledger.

Sync and async extractions share everything but the call of the function.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from asyncio import CancelledError
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from ...core.classification.classify import classify
from ...core.classification.known.libraries import VALIDATION
from ...core.classification.signature import signature
from ...core.context import IDS, ActiveScope, Scope, clock_around
from ...core.key import Key
from ...core.outage import Parking, is_charged
from ...core.text import safe_str
from ...errors import AttemptTimeout, Damaged, LeaseLost
from ...journal.redaction import redact_text
from ...ledger.failpoint import crash_point
from ...worker.outcome import describe_error, is_ledger_fault, ledger_backoff
from ..datasets.dataset import Extraction
from ..model import DAMAGED, PartitionLease, Release, Verdict
from ..raw.files import Raw, load_raw
from ..raw.writer import RunWriter
from ..retry_schedule import ErrorMeaning, meaning_of

# ---- extract ----


class ExtractionAttempt:
    """A leased partition that is being extracted.

    Created by the ledger thread, and read by the thread of the attempt. Its properties are visible
    to code inside the attempt.
    """

    def __init__(self, extraction: Extraction, lease: PartitionLease) -> None:
        self.extraction = extraction
        self.lease = lease
        self.started_at = monotonic()
        timeout = extraction.settings.attempt_timeout
        self.end = math.inf if timeout is None else self.started_at + timeout
        self.is_lost = False
        """Another worker has the partition, or this one stops: nothing more is written."""

    @property
    def operation(self) -> str:
        """The dataset."""
        return self.extraction.name

    @property
    def max_attempts(self) -> int:
        """Attempts by the policy. An operator may have granted more."""
        return self.extraction.limits.policy.max_attempts

    @property
    def job_id(self) -> None:
        """A partition is not a job."""
        return

    @property
    def attempt(self) -> int:
        """From 1."""
        return self.lease.attempts + 1

    def check(self) -> None:
        """Raise if the attempt is over.

        Raises:
            LeaseLost: Another worker has the partition.
            AttemptTimeout: It took too long.
        """
        if self.is_lost:
            raise LeaseLost(
                f"{self.lease.partition}: run {self.lease.run_id} lost its lease; "
                "another worker has the partition now"
            )
        if monotonic() >= self.end:
            raise self.timeout()

    def timeout(self) -> AttemptTimeout:
        """Return the error of an attempt that took too long."""
        seconds = self.end - self.started_at
        run = f"{self.lease.partition}: run {self.lease.run_id}"
        return AttemptTimeout(f"{run} took longer than {seconds:.6g} s")

    def enter(self) -> None:
        """Enter the scope of the attempt, in a context of its own."""
        scope: Scope = (self.end, max(1, self.attempt), self, _call_key(self.lease), None)
        ActiveScope(scope)
        IDS.set({"run_id": self.lease.run_id, "source": self.lease.partition.source})

    def new_writer(self) -> RunWriter:
        """Return a writer for the files of this run."""
        lease = self.lease
        return RunWriter(
            self.extraction.store(), lease.partition, lease.run_id, check_alive=self.check
        )

    def result(
        self, verdict: Verdict | None = None, error: BaseException | None = None, /
    ) -> ExtractionResult:
        """Return the result of the attempt, which ends now."""
        return ExtractionResult(self, verdict, error, monotonic() - self.started_at)

    def current_raw(self) -> Raw | None:
        """Return the raw data of the current run."""
        run_id = self.lease.current_raw_id
        if run_id is None:
            return None
        return load_raw(self.extraction.store(), self.lease.partition, run_id)


class ExtractionResult(NamedTuple):
    """The end of an attempt: a verdict, or the error that was raised."""

    attempt: ExtractionAttempt
    verdict: Verdict | None
    error: BaseException | None
    seconds: float


class RemoteExtractionFailure(Exception):
    """An attempt on another machine that failed, or that could not be made.

    Attributes:
        decision: What follows from it. It was decided there.
    """

    decision: Verdict | Release

    @classmethod
    def of(
        cls, error_class: str, text: str, decision: Verdict | Release, /
    ) -> RemoteExtractionFailure:
        """Return a failure whose class has the name of the error's class, for log records."""
        failure: RemoteExtractionFailure = type(error_class, (cls,), {"__module__": "builtins"})(
            text
        )
        failure.decision = decision
        return failure


def extract_in_thread(attempt: ExtractionAttempt, /) -> ExtractionResult:
    """Run an attempt in this thread, in a context of its own."""
    attempt.enter()
    try:
        if attempt.lease.raw_run_id is not None:
            return attempt.result(_revalidate(attempt))
        writer = attempt.new_writer()
        try:
            _check_returned(attempt, attempt.extraction.fn(attempt.lease.partition, writer.sink))
            return attempt.result(_validate(attempt, writer))
        finally:
            writer.abandon()
    except BaseException as error:  # SystemExit too: it ends this attempt, not the worker
        return attempt.result(None, error)


async def extract_on_loop(attempt: ExtractionAttempt, /) -> ExtractionResult:
    """Run an async attempt. Only its function runs on the loop, and is cancelled on a timeout."""
    attempt.enter()
    try:
        if attempt.lease.raw_run_id is not None:
            return attempt.result(await asyncio.to_thread(_revalidate, attempt))
        writer = attempt.new_writer()
        try:
            await _call_async(attempt, writer)
            return attempt.result(await asyncio.to_thread(_validate, attempt, writer))
        finally:
            writer.abandon()
    except BaseException as error:
        return attempt.result(None, error)


async def _call_async(attempt: ExtractionAttempt, writer: RunWriter) -> None:
    timer = asyncio.timeout(None if attempt.end == math.inf else attempt.end - monotonic())
    try:
        async with timer:
            await attempt.extraction.fn(attempt.lease.partition, writer.sink)
    except TimeoutError as error:
        if timer.expired():
            raise attempt.timeout() from error
        raise


def _validate(attempt: ExtractionAttempt, writer: RunWriter) -> Verdict:
    """Finish the run, and validate its data as a reader would find it."""
    raw = Raw(writer.store, writer.finish(clock_around().now()), previous=attempt.current_raw)
    raw.check_sizes()
    verdict = attempt.extraction.validator.validate(raw)
    crash_point("extract.judged")
    return verdict


def _revalidate(attempt: ExtractionAttempt) -> Verdict:
    """Validate every byte that an earlier run wrote. Nothing is extracted."""
    lease = attempt.lease
    store = attempt.extraction.store()
    assert lease.raw_run_id is not None
    raw = load_raw(store, lease.partition, lease.raw_run_id, previous=attempt.current_raw)
    raw.check_digests()
    verdict = attempt.extraction.validator.validate(raw, run_id=lease.run_id)
    crash_point("extract.judged")
    return verdict


def _check_returned(attempt: ExtractionAttempt, value: Any) -> None:
    """Refuse an extraction that returned its data instead of writing it."""
    if value is None:
        return
    place, name = attempt.extraction.place, type(value).__name__
    if inspect.isawaitable(value):
        problem = f"{place} returned {name}, which is not awaited; use `async def`"
    elif hasattr(value, "__next__") or isinstance(value, (list, tuple)):
        problem = f"{place} returned {name}, which is not written; use out.rows(...)"
    else:
        return
    close = getattr(value, "close", None)
    if close is not None:
        close()
    raise TypeError(problem)


def _call_key(lease: PartitionLease) -> Key | None:
    """Return the key of calls inside the attempt: of this run, since the next wants newer data."""
    key = lease.partition
    day = key.logical_date.isoformat()
    try:
        return Key(key.source, key.customer_id, day, key.query_name, lease.run_id)
    except ValueError:
        return None


# ---- decide ----

MAX_ERROR_CHARS = 4000
_SCHEMA_WORDS = ("Validation", "Schema", "Arrow", "voluptuous", "attrs")
SCHEMA_ERRORS = frozenset(
    name for name in VALIDATION if any(word in name for word in _SCHEMA_WORDS)
)
"""Errors of libraries that compare data with a schema. The same data will not fit the next time
either. Broken JSON is not one of them: the response may have been cut off.
"""


def verdict_or_release(
    result: ExtractionResult, now: datetime, parking: Parking, /, *, is_stopping: bool
) -> Verdict | Release | None:
    """Decide what becomes of a run.

    Rate limits, declared outages and faults of the ledger count as attempts once the partition has
    had `parking.uncharged` of them. A fault of the ledger is never evidence against the source.

    Returns:
        A verdict, the release of its lease, or None if another worker has the partition.
    """
    attempt, error = result.attempt, result.error
    lease = attempt.lease
    if result.verdict is not None:
        return result.verdict
    assert error is not None
    if is_stopping and isinstance(error, CancelledError):
        return Release(lease, "stopped")
    if attempt.is_lost and isinstance(error, (LeaseLost, CancelledError)):
        return None
    if isinstance(error, RemoteExtractionFailure):
        return error.decision
    meaning = classify_extraction_error(attempt.extraction, error, now)
    kind = meaning.kind
    message = _describe(error)
    charged = is_charged("evidence", parking, outage=True, uncharged=lease.uncharged)
    if kind == "not_ready" or (kind in ("rate_limited", "systemic") and not charged):
        fault = signature(error) if kind == "systemic" else None
        return Release(lease, kind, error=message, after=meaning.after, signature=fault)
    if kind == "ledger" and not charged:
        return Release(lease, kind, error=message, after=ledger_backoff(lease.uncharged))
    is_evidence = kind in ("shared", "rate_limited", "systemic") or (
        kind == "ordinary" and meaning.passing
    )
    validator = attempt.extraction.validator
    return Verdict(
        run_id=lease.run_id,
        decision="rejected",
        validator=validator.name,
        version=validator.version,
        reason=meaning.reason,
        message=message,
        after=meaning.after,
        final=kind == "final",
        signature=signature(error) if is_evidence else None,
        shared=kind == "shared",
        charged=charged,
    )


def classify_extraction_error(
    extraction: Extraction, error: BaseException, now: datetime, /
) -> ErrorMeaning:
    """Return what an error means. The rules of the dataset (`retry(on=...)`) come first."""
    name = type(error).__name__
    if not isinstance(error, Exception):
        if is_ledger_fault(error):
            return ErrorMeaning("ledger", "ledger", safe_str(error))
        return ErrorMeaning("ordinary", name, str(error))
    try:
        meaning = meaning_of(error, now)
    except Exception:  # an error of the user's that raises when it is examined
        return ErrorMeaning("ordinary", name, safe_str(error))
    if isinstance(error, Damaged):
        return ErrorMeaning("ordinary", DAMAGED, meaning.message)
    if meaning.kind != "ordinary":
        return meaning
    names = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(error).__mro__}
    if names & SCHEMA_ERRORS:
        return meaning._replace(kind="final", reason="schema")
    rules = extraction.settings.error_rules.rules
    if not rules or classify in rules:
        return meaning
    try:
        fault = extraction.settings.classify(error)
    except Exception:  # a rule of the user's raised: its bug must not decide about this partition
        return meaning
    if fault.kind == "throttled":
        return meaning._replace(kind="rate_limited", after=fault.after)
    if fault.kind == "permanent":
        return meaning._replace(kind="final")
    # `on=Exception` retries bugs too and says nothing about the source: the standard rule decides.
    is_declared = not any(rule in (Exception, BaseException) for rule in rules)
    return meaning._replace(passing=fault.retryable and (is_declared or meaning.passing))


def _describe(error: BaseException) -> str:
    text = redact_text(describe_error(error))
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[: MAX_ERROR_CHARS - 1]}…"
