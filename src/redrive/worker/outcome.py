"""Outcome: what the end of an attempt means for its job. Pure."""

from __future__ import annotations

import sysconfig
from asyncio import CancelledError
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import dropwhile
from pathlib import Path
from traceback import walk_tb
from types import CodeType
from typing import NamedTuple, cast

from ..core.classification.classify import classify
from ..core.classification.known.http_responses import seconds_until
from ..core.classification.signature import signature, signature_of
from ..core.fault import MAX_WAIT_SECONDS, PERMANENT, UNKNOWN, Fault
from ..core.job_reasons import DeadReason, JobReason
from ..core.outage import Verdict, verdict_of
from ..core.seconds import seconds
from ..core.text import safe_str
from ..engine.nesting import outcome as inner_outcome
from ..errors import Again, Blocked, BreakerOpen, KeyBusy, LedgerUnavailable, Stop
from ..ledger.jobs.lease_recovery import MAX_CRASHES
from ..ledger.model import Lease, Settlement
from ..ledger.validation import check_settlements
from .job_type import EndedElsewhere, JobType, ProcessCrashed, Undecodable, Unstorable

PLAIN_MODULES = ("builtins", "__main__", Stop.__module__, JobType.__module__)
"""Modules whose errors are named without the module."""
MAX_FRAMES = 6
"""Frames of a traceback that are stored with an error: the innermost ones."""
MAX_USER_FRAMES = 2
"""Frames of the user's own code that are stored at least."""
MAX_CAUSES = 10
"""Causes of an error that are examined."""
CATCH_ALL = (Exception, BaseException)
LEDGER_FIRST_SECONDS, LEDGER_MAX_SECONDS = 1.0, 60.0
"""First and longest wait of a job or partition that could not use the ledger."""
UNREADABLE_SECONDS = 60.0
"""Wait after an error that raises when it is examined."""
PACKAGE_PATH = str(Path(__file__).parents[1] / "_").removesuffix("_")
LIBRARY_PATHS = (PACKAGE_PATH, *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")})
LIBRARY_FOLDERS = ("site-packages", "dist-packages")


class JobOutcome(NamedTuple):
    """What became of an attempt. Immutable.

    Attributes:
        settlement: For the ledger.
        record: Kind of the log record: success, recovered, retry, giveup, blocked, again,
            cancelled or suspended.
        reason: Reason of the settlement.
        fault: What the error means.
        wait: Seconds to the next attempt.
        signature: Set if the failure is evidence of an outage: a transient fault, or one that
            `on=` declares to be.
        is_ledger_fault: The attempt failed because the ledger could not be used.
    """

    settlement: Settlement
    record: str
    reason: JobReason | None = None
    fault: Fault = UNKNOWN
    wait: float | None = None
    signature: str | None = None
    is_ledger_fault: bool = False

    @property
    def verdict(self) -> Verdict:
        """What this outcome says about the service that the job calls."""
        if self.record in ("success", "recovered"):
            return "success"
        return "charged" if self.signature is None else "evidence"

    @property
    def can_be_refunded(self) -> bool:
        """Whether the job may continue if an outage or the ledger caused this failure.

        A call that must not be repeated and a job whose deadline has passed end all the same.
        """
        is_external = self.signature is not None or self.is_ledger_fault
        return is_external and self.reason in (None, "attempts")


def after_success(lease: Lease, result: bytes | None, max_payload: int, /) -> JobOutcome:
    """Return the outcome of an attempt that returned.

    A result that cannot be stored is a dead letter.
    """
    problem = None
    if result is not None and not isinstance(result, bytes):
        problem = f"the result must be bytes, not {type(result).__name__}"
    elif result is not None and len(result) > max_payload:
        problem = (
            f"the result has {len(result)} bytes; the ledger takes at most {max_payload}; "
            f"store it elsewhere, and return its path"
        )
    if problem is None:
        return JobOutcome(lease.done(result), "success" if lease.attempt <= 1 else "recovered")
    error = f"the work was done, but its result cannot be stored: {problem}"
    settlement = lease.dead("result", error=error, signature=signature_of("Unstorable", error))
    return JobOutcome(settlement, "giveup", "result")


def after_failure(
    job_type: JobType, lease: Lease, error: BaseException, /, *, now: datetime, draw: float
) -> JobOutcome:
    """Return the outcome of an attempt that raised: a retry or a dead letter.

    Args:
        job_type: Its job type.
        lease: Its lease.
        error: The raised error.
        now: By the ledger's clock.
        draw: Random number from [0, 1), for jitter.
    """
    if isinstance(error, Unstorable):
        settlement = lease.dead("result", error=safe_str(error), signature=signature(error))
        return JobOutcome(settlement, "giveup", "result")
    if isinstance(error, ProcessCrashed):
        return _after_crash(job_type, lease, error, now, draw)
    if isinstance(error, EndedElsewhere):
        return _after_end_elsewhere(lease, error)
    name = signature(error)
    if isinstance(error, Undecodable):
        name = signature_of("Undecodable", error.problem)
        settlement = lease.dead(error.reason, error=describe_error(error), signature=name)
        return JobOutcome(settlement, "giveup", cast(JobReason, error.reason), PERMANENT)
    if isinstance(error, Stop):
        settlement = lease.dead("stopped", error=describe_error(error), signature=name)
        return JobOutcome(settlement, "giveup", "stopped", PERMANENT)
    if isinstance(error, Blocked):
        settlement = lease.blocked(
            safe_str(error) or "blocked", until=_to_utc(error.until), error=describe_error(error)
        )
        return JobOutcome(settlement._replace(signature=name), "blocked", "blocked", PERMANENT)
    fault = _classify(job_type, error)
    is_ledgers = is_ledger_fault(error)
    if is_ledgers and not fault.retryable:  # `on=` is about the job, not about the ledger
        fault = Fault("transient", sent=getattr(error, "sent", True))
    if isinstance(error, Again) and error.free:
        wait = _wait_after(error, job_type, lease, draw)
        settlement = lease.again(wait, error=safe_str(error) or None, reason="again", free=True)
        return JobOutcome(settlement, "again", "again", fault, wait)
    evidence = name if not is_ledgers and _is_evidence(job_type, error, fault) else None
    wait = max(_wait_after(error, job_type, lease, draw), _min_wait(error, fault, now))
    reason = _give_up_reason(job_type, lease, fault, error, now, wait)
    if reason is None:
        is_again = isinstance(error, Again)
        settlement = lease.again(
            wait, error=describe_error(error), reason="again" if is_again else "failed"
        )
        settlement = settlement._replace(signature=None if is_again else name)
        return JobOutcome(settlement, "retry", None, fault, wait, evidence, is_ledgers)
    if reason == "attempts" and job_type.on_exhausted == "blocked":
        settlement = lease.blocked(reason, error=describe_error(error))._replace(signature=name)
        return JobOutcome(settlement, "blocked", reason, fault, None, evidence, is_ledgers)
    settlement = lease.dead(reason, error=describe_error(error), signature=name)
    return JobOutcome(settlement, "giveup", reason, fault, None, evidence, is_ledgers)


def after_cancel(lease: Lease, error: BaseException, /) -> JobOutcome:
    """Return the outcome of an attempt that ended without a result after its job was cancelled."""
    text = None if isinstance(error, CancelledError) else describe_error(error)
    return JobOutcome(lease.cancelled(error=text), "cancelled", "cancelled", PERMANENT)


def decide_failure(
    job_type: JobType,
    lease: Lease,
    error: BaseException,
    /,
    *,
    now: datetime,
    draw: float,
    max_payload: int,
) -> JobOutcome:
    """Return the outcome of an attempt that raised, with a settlement that the ledger accepts."""
    try:
        outcome = after_failure(job_type, lease, error, now=now, draw=draw)
        # Validate here: a settlement that the ledger rejects would fail its whole batch.
        check_settlements([outcome.settlement], max_payload)
        return outcome
    except Exception as problem:  # an error whose __str__ or attributes raise
        return after_unreadable_error(job_type, lease, error, problem)


def _after_crash(
    job_type: JobType, lease: Lease, error: ProcessCrashed, now: datetime, draw: float
) -> JobOutcome:
    """Return the outcome of an attempt whose process ended. The third one is the last."""
    crash, wait = lease.crashes + 1, _backoff(job_type, lease.attempt, draw)
    text, name = f"{safe_str(error)} (crash {crash})", signature(error)
    is_last = crash >= MAX_CRASHES or lease.attempt >= _max_attempts(job_type, lease)
    if is_last or _is_past_deadline(lease, now, wait):
        settlement = lease.dead("crashed_process", error=text, signature=name)
        return JobOutcome(settlement, "giveup", "crashed_process")
    settlement = lease.again(wait, error=text, reason="crashed_process")
    return JobOutcome(settlement._replace(signature=name), "retry", "crashed_process", wait=wait)


def _after_end_elsewhere(lease: Lease, error: EndedElsewhere) -> JobOutcome:
    """Return the outcome of a job that another engine ended."""
    if error.outcome == "cancelled":
        return JobOutcome(lease.cancelled(error=error.error), "cancelled", "cancelled", PERMANENT)
    if error.outcome == "blocked":
        settlement = lease.blocked(error.reason, until=error.until, error=error.error)
        settlement = settlement._replace(signature=error.signature)
        return JobOutcome(settlement, "blocked", "blocked", PERMANENT)
    settlement = lease.dead(error.reason, error=error.error, signature=error.signature)
    return JobOutcome(settlement, "giveup", cast(JobReason, error.reason), PERMANENT)


def after_deadline(lease: Lease, /) -> JobOutcome:
    """Return the outcome of a job whose deadline passed before this attempt started."""
    error = f"the deadline, {lease.deadline}, had passed"
    settlement = lease.dead("deadline", error=error, signature="deadline")
    return JobOutcome(settlement, "giveup", "deadline", PERMANENT)


def after_unreadable_error(
    job_type: JobType, lease: Lease, error: BaseException, problem: Exception, /
) -> JobOutcome:
    """Return the outcome of an error that raised `problem`: a retry, if one is left."""
    raised = f"{type(problem).__name__}: {safe_str(problem)}"
    says = f"{type(error).__name__}; deciding about it raised {raised}"
    if lease.attempt >= _max_attempts(job_type, lease):
        settlement = lease.dead("attempts", error=says, signature=type(error).__name__)
        return JobOutcome(settlement, "giveup", "attempts")
    settlement = lease.again(UNREADABLE_SECONDS, error=says, reason="failed")
    return JobOutcome(settlement, "retry", wait=UNREADABLE_SECONDS)


def refunded_in_outage(
    job_type: JobType, lease: Lease, failure: JobOutcome, /, *, draw: float
) -> JobOutcome:
    """Return a failure that an outage caused, so that it does not count as an attempt."""
    wait = failure.wait if failure.wait is not None else _backoff(job_type, lease.attempt, draw)
    settlement = lease.again(wait, error=failure.settlement.error, reason="parked", free=True)
    settlement = settlement._replace(signature=failure.signature)
    return failure._replace(settlement=settlement, record="again", reason="parked", wait=wait)


def refunded_after_ledger_fault(lease: Lease, failure: JobOutcome, uncharged: int, /) -> JobOutcome:
    """Return a failure that the ledger caused, so that it does not count as an attempt.

    Args:
        lease: Of the job.
        failure: The outcome if it counted.
        uncharged: Attempts of this job so far that did not count. Each one doubles the wait, from
            1 s to 60 s.
    """
    wait = ledger_backoff(uncharged)
    settlement = lease.again(wait, error=failure.settlement.error, reason="ledger", free=True)
    return failure._replace(settlement=settlement, record="again", reason="ledger", wait=wait)


def ledger_backoff(uncharged: int, /) -> float:
    """Return the seconds to wait after this number of attempts that did not count."""
    return min(LEDGER_MAX_SECONDS, LEDGER_FIRST_SECONDS * 2.0 ** min(uncharged, 30))


def is_ledger_fault(error: BaseException, /, *, depth: int = MAX_CAUSES) -> bool:
    """Return whether the ledger's database is at fault, by itself or as the stated cause.

    An exception group (from `asyncio.TaskGroup`) is the ledger's if all of its errors are.

    Args:
        error: As raised by the job.
        depth: Number of causes and nested groups to examine.
    """
    cause: BaseException | None = error
    for remaining in range(depth, 0, -1):
        if cause is None or isinstance(cause, LedgerUnavailable):
            break
        if isinstance(cause, BaseExceptionGroup) and all(
            is_ledger_fault(member, depth=remaining - 1) for member in cause.exceptions
        ):
            return True
        cause = cause.__cause__
    return isinstance(cause, LedgerUnavailable)


def _classify(job_type: JobType, error: BaseException) -> Fault:
    if not isinstance(error, Exception):
        return UNKNOWN  # SystemExit and the like end this job, not the worker
    try:
        return job_type.settings.classify(error)
    except Exception:  # a bug in a rule of `on=` must not decide about the job
        return UNKNOWN


def _is_evidence(job_type: JobType, error: BaseException, fault: Fault) -> bool:
    """Return whether a failure may be the effect of an outage.

    An open circuit breaker is evidence: it opened because the service failed. `Again` and a busy
    idempotency key are about this job only.
    """
    if isinstance(error, (Again, KeyBusy)) or not isinstance(error, Exception):
        return False
    if isinstance(error, BreakerOpen):
        return True
    return verdict_of(fault) == "evidence" and _is_declared(job_type, error)


def _is_declared(job_type: JobType, error: Exception) -> bool:
    """Return whether `on=` names this error, or leaves it to the standard rule.

    `on=Exception` retries bugs too and says nothing about the service: there the standard rule
    decides.
    """
    rules = job_type.settings.error_rules.rules
    if not any(rule in CATCH_ALL for rule in rules):
        return True
    for rule in rules:
        if isinstance(rule, type):
            if isinstance(error, rule):
                return rule not in CATCH_ALL or classify(error).retryable
        elif rule(error) is not None:
            return True
    return True


def _give_up_reason(
    job_type: JobType, lease: Lease, fault: Fault, error: BaseException, now: datetime, wait: float
) -> DeadReason | None:
    """Return why this was the last attempt, or None.

    Unknown errors are retried unless `on=` chose what to retry: a deploy may fix them.
    """
    is_deferral = isinstance(error, (Again, BreakerOpen))
    is_permanent = fault.kind == "permanent" or (
        fault.kind == "unknown" and _is_selective(job_type)
    )
    if is_permanent and not is_deferral:
        return "not_retryable"
    if fault.sent and not job_type.settings.idempotent and not is_deferral:
        return "not_idempotent"
    if lease.attempt >= _max_attempts(job_type, lease):
        return "attempts"
    return "deadline" if _is_past_deadline(lease, now, wait) else None


def _is_past_deadline(lease: Lease, now: datetime, wait: float) -> bool:
    return lease.deadline is not None and now + timedelta(seconds=wait) >= lease.deadline


def _max_attempts(job_type: JobType, lease: Lease) -> int:
    own = lease.max_attempts
    return job_type.settings.max_attempts if own is None else own


def _is_selective(job_type: JobType) -> bool:
    """Return whether `on=` lists what to retry, without the standard rule among it."""
    rules = job_type.settings.error_rules.rules
    return bool(rules) and classify not in rules


def _wait_after(error: BaseException, job_type: JobType, lease: Lease, draw: float) -> float:
    if isinstance(error, Again) and error.after is not None:
        try:
            return min(MAX_WAIT_SECONDS, seconds("after", error.after))
        except (TypeError, ValueError):
            pass  # an invalid `after` counts as none
    return _backoff(job_type, lease.attempt, draw)


def _backoff(job_type: JobType, attempt: int, draw: float) -> float:
    try:
        wait = float(job_type.settings.backoff(max(1, attempt), draw))
    except Exception:  # a backoff function of the user raised
        wait = job_type.settings.policy.wait(max(1, attempt), draw)
    return min(wait, MAX_WAIT_SECONDS) if wait >= 0 else 0.0  # NaN too


def _min_wait(error: BaseException, fault: Fault, now: datetime) -> float:
    """Return the wait that a server, an inner retry, a busy key or a breaker asks for."""
    inner = inner_outcome(error)
    times = (getattr(error, "retry_at", None), None if inner is None else inner.retry_at)
    waits = [seconds_until(time, now) for time in times if isinstance(time, datetime)]
    return min(MAX_WAIT_SECONDS, max([fault.after or 0.0, *waits]))


def describe_error(error: BaseException, /) -> str:
    """Return the stored text of an error: type, message, notes, cause and innermost frames."""
    name = type(error).__name__
    module = type(error).__module__
    qualified = name if module in PLAIN_MODULES else f"{module}.{name}"
    lines = [f"{qualified}: {safe_str(error)}" if safe_str(error) else qualified]
    if isinstance(error, (SystemExit, KeyboardInterrupt, CancelledError)):
        lines.append(f"raised by the work itself: {name} ends this attempt, not the worker")
    lines += [str(note) for note in getattr(error, "__notes__", ())[:5]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines.append(f"because of {type(cause).__name__}: {safe_str(cause)}")
    # An undecodable payload was rejected before the function ran, so all frames are Redrive's.
    frames = () if isinstance(error, Undecodable) else _frames(error)
    return "\n".join([*lines, *frames])


def _frames(error: BaseException) -> Iterator[str]:
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    user_frames = list(
        dropwhile(lambda place: place[0].co_filename.startswith(PACKAGE_PATH), frames)
    )
    for code, line in _select_frames(user_frames or frames):
        yield f"  {code.co_filename}:{line} in {code.co_name}"


def _select_frames(frames: list[tuple[CodeType, int]]) -> list[tuple[CodeType, int]]:
    """Return the innermost frames, and at least the innermost ones of the user's own code.

    An error of a client has many frames inside the client, which do not say who called it.
    """
    selected = range(max(0, len(frames) - MAX_FRAMES), len(frames))
    own = [place for place, (code, _) in enumerate(frames) if not _is_library(code.co_filename)]
    added = [place for place in own[-MAX_USER_FRAMES:] if place not in selected]
    return [frames[place] for place in (*added, *selected[len(added) :])]


def _is_library(file: str) -> bool:
    return file.startswith(LIBRARY_PATHS) or any(name in file for name in LIBRARY_FOLDERS)


def _to_utc(time: object) -> datetime | None:
    """Return a time in UTC, or None if it is not a time."""
    if not isinstance(time, datetime):
        return None
    try:
        aware = time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time
        return aware.astimezone(timezone.utc)
    except OverflowError:
        return time.replace(tzinfo=timezone.utc)
