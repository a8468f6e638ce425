"""Outcome: what an attempt's end means for its job. Pure."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import dropwhile
from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

from ..core.classify import classify
from ..core.decision import MAX_WAIT_SECONDS
from ..core.fault import PERMANENT, UNKNOWN, Fault
from ..core.outage import Verdict, verdict_of
from ..core.retry_after import seconds_until
from ..core.seconds import seconds
from ..core.signature import signature, signature_of
from ..core.text import safe_str
from ..engine.nesting import outcome as outcome_inside
from ..errors import Again, Blocked, BreakerOpen, KeyBusy, LedgerUnavailable, Stop
from ..ledger.record import Lease, Settlement
from .kind import Kind, Undecodable, Unstorable

FRAMES = 6
"""Of a traceback, kept with the error: the innermost ones, without ours around the work."""
CATCH_ALL = (Exception, BaseException)
CAUSES = 10
"""Causes of an error that are looked at."""
LEDGER_FIRST, LEDGER_LONGEST = 1.0, 60.0
"""Seconds to the next attempt of a job or partition that could not use the ledger: at first, and at most."""
UNREADABLE = 60.0
"""Seconds until the next attempt after an error that cannot be looked at."""
OURS = str(Path(__file__).parents[1] / "_").removesuffix("_")


class Outcome(NamedTuple):
    """What became of an attempt: for the ledger, and for whoever watches."""

    settlement: Settlement
    record: str
    """The kind of its record: success, recovered, retry, giveup, blocked, again."""
    reason: str | None = None
    fault: Fault = UNKNOWN
    wait: float | None = None
    signature: str | None = None
    """Set where the failure is evidence of an outage: a transient fault, or one declared so by `on=`."""

    of_ledger: bool = False
    """The work failed because the ledger could not be used."""

    @property
    def verdict(self) -> Verdict:
        """What this end says of the service that the work calls."""
        if self.record in ("success", "recovered"):
            return "success"
        return "charged" if self.signature is None else "evidence"

    @property
    def may_be_spared(self) -> bool:
        """Whether the job may go on if an outage, or the ledger itself, caused this failure.

        A call that must not be repeated, and a job whose deadline has passed, end all the same.
        """
        return (self.signature is not None or self.of_ledger) and self.reason in (None, "attempts")


def succeeded(lease: Lease, result: bytes | None, max_payload: int, /) -> Outcome:
    """It is done. A result that cannot be stored is a dead letter: the work is done, and to do it again would not help."""
    problem = None
    if result is not None and not isinstance(result, bytes):
        problem = f"the result must be bytes, not {type(result).__name__}"
    elif result is not None and len(result) > max_payload:
        problem = (
            f"the result has {len(result)} bytes; the ledger takes at most {max_payload}; store it elsewhere, and return its path"
        )
    if problem is None:
        return Outcome(lease.done(result), "success" if lease.attempt <= 1 else "recovered")
    found = f"the work was done, but its result cannot be stored: {problem}"
    return Outcome(lease.dead("result", error=found, signature=signature_of("Unstorable", found)), "giveup", "result")


def failed(kind: Kind, lease: Lease, error: BaseException, /, *, now: datetime, draw: float) -> Outcome:
    """It raised: again, later; or a dead letter. now: by the ledger's clock. draw: a throw of the dice, for jitter."""
    if isinstance(error, Unstorable):
        return Outcome(lease.dead("result", error=safe_str(error), signature=signature(error)), "giveup", "result")
    name = signature(error)
    if isinstance(error, Undecodable):
        name = signature_of("Undecodable", error.because)
        end = lease.dead(error.reason, error=told(error), signature=name)
        return Outcome(end, "giveup", error.reason, PERMANENT)
    if isinstance(error, Stop):
        return Outcome(lease.dead("stopped", error=told(error), signature=name), "giveup", "stopped", PERMANENT)
    if isinstance(error, Blocked):
        end = lease.blocked(safe_str(error) or "blocked", until=_aware(error.until), error=told(error))
        return Outcome(end._replace(signature=name), "blocked", "blocked", PERMANENT)
    fault = _judged(kind, error)
    of_ledger = is_of_ledger(error)
    if of_ledger and not fault.retryable:  # whatever `on=` says: it is not about the work
        fault = Fault("transient", sent=getattr(error, "sent", True))
    if isinstance(error, Again) and error.free:
        wait = _after(error, kind, lease, draw)
        return Outcome(lease.again(wait, error=safe_str(error) or None, reason="again", free=True), "again", "again", fault, wait)
    known_by = None if isinstance(error, Again) else name
    evidence = name if not of_ledger and _is_evidence(kind, error, fault) else None
    wait = max(_after(error, kind, lease, draw), _floor(error, fault, now))
    reason = _final(kind, lease, fault, error, now, wait)
    if reason is None:
        again = lease.again(wait, error=told(error), reason="again" if isinstance(error, Again) else "failed")
        return Outcome(again._replace(signature=known_by), "retry", None, fault, wait, evidence, of_ledger)
    if reason == "attempts" and kind.spent == "blocked":
        end = lease.blocked(reason, error=told(error))._replace(signature=name)
        return Outcome(end, "blocked", reason, fault, None, evidence, of_ledger)
    return Outcome(lease.dead(reason, error=told(error), signature=name), "giveup", reason, fault, None, evidence, of_ledger)


def given_back(lease: Lease, found: Outcome, uncharged: int, /) -> Outcome:
    """The same failure, caused by the ledger: it does not count as an attempt, and the job goes on.

    Args:
        lease: Of the job.
        found: What the failure would be if it was charged.
        uncharged: Attempts of this job that were not charged so far. Each one doubles the wait, from 1 s to 60 s.
    """
    wait = ledger_wait(uncharged)
    free = lease.again(wait, error=found.settlement.error, reason="ledger", free=True)
    return found._replace(settlement=free, record="again", reason="ledger", wait=wait)


def ledger_wait(uncharged: int, /) -> float:
    """Seconds to the next attempt, after this number of attempts that were not charged."""
    return min(LEDGER_LONGEST, LEDGER_FIRST * 2.0 ** min(uncharged, 30))


def is_of_ledger(error: BaseException, /, *, depth: int = CAUSES) -> bool:
    """Whether the ledger's database is at fault, by itself or as the stated cause.

    An exception group (from `asyncio.TaskGroup`) is the ledger's if all of its errors are.

    Args:
        error: As raised by the work.
        depth: Number of causes and nested groups to look into.
    """
    cause: BaseException | None = error
    for left in range(depth, 0, -1):
        if cause is None or isinstance(cause, LedgerUnavailable):
            break
        if isinstance(cause, BaseExceptionGroup) and all(is_of_ledger(each, depth=left - 1) for each in cause.exceptions):
            return True
        cause = cause.__cause__
    return isinstance(cause, LedgerUnavailable)


def unreadable(kind: Kind, lease: Lease, error: BaseException, problem: Exception, /) -> Outcome:
    """An error of the user's that cannot even be looked at: tried again, as often as any other."""
    says = f"{type(error).__name__}; deciding about it raised {type(problem).__name__}: {safe_str(problem)}"
    if lease.attempt >= _most(kind, lease):
        return Outcome(lease.dead("attempts", error=says, signature=type(error).__name__), "giveup", "attempts")
    return Outcome(lease.again(UNREADABLE, error=says, reason="failed"), "retry", wait=UNREADABLE)


def expired(lease: Lease, /) -> Outcome:
    """Its deadline had passed before this attempt began: it was not run."""
    end = lease.dead("deadline", error=f"the deadline, {lease.deadline}, had passed", signature="deadline")
    return Outcome(end, "giveup", "deadline", PERMANENT)


def forgiven(kind: Kind, lease: Lease, found: Outcome, /, *, draw: float) -> Outcome:
    """The same failure, caused by an outage: it does not count as an attempt, and the job goes on."""
    wait = found.wait if found.wait is not None else _backoff(kind, lease.attempt, draw)
    free = lease.again(wait, error=found.settlement.error, reason="parked", free=True)
    free = free._replace(signature=found.signature)
    return found._replace(settlement=free, record="again", reason="parked", wait=wait)


def _judged(kind: Kind, error: BaseException) -> Fault:
    if not isinstance(error, Exception):
        return UNKNOWN  # SystemExit and the like: of this job, not of the worker
    try:
        return kind.settings.classify(error)
    except Exception:  # a rule of the user's raised: its bug must not decide about this job
        return UNKNOWN


def _is_evidence(kind: Kind, error: BaseException, fault: Fault) -> bool:
    """Whether a failure may be an outage's.

    An open circuit breaker is: it opened for the service's failures. `Again` and a busy idempotency key
    are about this job alone.
    """
    if isinstance(error, (Again, KeyBusy)) or not isinstance(error, Exception):
        return False
    if isinstance(error, BreakerOpen):
        return True
    return verdict_of(fault) == "evidence" and _is_declared(kind, error)


def _is_declared(kind: Kind, error: Exception) -> bool:
    """Whether `on=` leaves this error's meaning to the standard rule or names it.

    `on=Exception` retries bugs too, and says nothing of the service: there the standard rule decides.
    """
    rules = kind.settings.error_rules.rules
    if not any(rule in CATCH_ALL for rule in rules):
        return True
    for rule in rules:
        if isinstance(rule, type):
            if isinstance(error, rule):
                return rule not in CATCH_ALL or classify(error).retryable
        elif rule(error) is not None:
            return True
    return True


def _final(kind: Kind, lease: Lease, fault: Fault, error: BaseException, now: datetime, wait: float) -> str | None:
    """Why this was the last attempt. Where nobody knows what an error means, it was not: a deploy may mend it."""
    comes_back = isinstance(error, (Again, BreakerOpen))
    if not comes_back and (fault.kind == "permanent" or (fault.kind == "unknown" and _chosen(kind))):
        return "not_retryable"
    if fault.sent and not kind.settings.idempotent and not comes_back:
        return "not_idempotent"
    if lease.attempt >= _most(kind, lease):
        return "attempts"
    if lease.deadline is not None and now + timedelta(seconds=wait) >= lease.deadline:
        return "deadline"
    return None


def _most(kind: Kind, lease: Lease) -> int:
    return kind.settings.max_attempts if lease.max_attempts is None else lease.max_attempts


def _chosen(kind: Kind) -> bool:
    """Whether `on=` said what to try again, and so that all else is not; with the standard rule in it, it has not."""
    rules = kind.settings.error_rules.rules
    return bool(rules) and classify not in rules


def _after(error: BaseException, kind: Kind, lease: Lease, draw: float) -> float:
    if isinstance(error, Again) and error.after is not None:
        try:
            return min(MAX_WAIT_SECONDS, seconds("after", error.after))
        except (TypeError, ValueError):
            pass  # as if it had said nothing
    return _backoff(kind, lease.attempt, draw)


def _backoff(kind: Kind, attempt: int, draw: float) -> float:
    try:
        wait = float(kind.settings.backoff(max(1, attempt), draw))
    except Exception:  # a backoff of the user's raised
        wait = kind.settings.policy.wait(max(1, attempt), draw)
    return min(wait, MAX_WAIT_SECONDS) if wait >= 0 else 0.0  # NaN too


def _floor(error: BaseException, fault: Fault, now: datetime) -> float:
    """Not before: what the server asked for, or what an inner layer, a key or a breaker knows."""
    inside = outcome_inside(error)
    moments = (getattr(error, "retry_at", None), None if inside is None else inside.retry_at)
    waits = [seconds_until(moment, now) for moment in moments if isinstance(moment, datetime)]
    return min(MAX_WAIT_SECONDS, max([fault.after or 0.0, *waits]))


def told(error: BaseException, /) -> str:
    """An error for a person: what it is, what it says, its notes, and where it was raised."""
    name = type(error).__name__
    kind = name if type(error).__module__ in ("builtins", "__main__") else f"{type(error).__module__}.{name}"
    lines = [f"{kind}: {safe_str(error)}" if safe_str(error) else kind]
    if isinstance(error, (SystemExit, KeyboardInterrupt, CancelledError)):
        lines.append(f"raised by the work itself: {name} ends this attempt, not the worker")
    lines += [str(note) for note in getattr(error, "__notes__", ())[:5]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines.append(f"because of {type(cause).__name__}: {safe_str(cause)}")
    return "\n".join([*lines, *_places(error)])


def _places(error: BaseException) -> Iterator[str]:
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    theirs = list(dropwhile(lambda place: place[0].co_filename.startswith(OURS), frames)) or frames
    for code, line in theirs[-FRAMES:]:
        yield f"  {code.co_filename}:{line} in {code.co_name}"


def _aware(moment: object) -> datetime | None:
    """In UTC, as far as a calendar goes; what is no moment says nothing, and a person has to."""
    if not isinstance(moment, datetime):
        return None
    try:
        return (moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment).astimezone(timezone.utc)
    except OverflowError:
        return moment.replace(tzinfo=timezone.utc)
