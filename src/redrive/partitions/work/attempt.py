"""Extracting: one attempt at a partition: extracted, written, judged; in both colours. Touches the store, never the ledger."""

from __future__ import annotations

import asyncio
import inspect
import math
from asyncio import CancelledError
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from ...core.classify import classify
from ...core.context import IDS, ActiveScope, Scope, clock_around
from ...core.key import Key
from ...core.known.libraries import VALIDATION
from ...core.outage import Parking, is_charged
from ...core.signature import signature
from ...core.text import safe_str
from ...errors import AttemptTimeout, Damaged, LeaseLost
from ...journal.redaction import redact_text
from ...ledger.failpoint import crash_point
from ...worker.outcome import describe_error, is_ledger_fault, ledger_backoff
from ..datasets.definition import Extraction
from ..model import DAMAGED, Lease, Return, Verdict
from ..raw.files import Raw, raw
from ..raw.writer import Writing
from ..retry_schedule import Meaning, meaning


class Held:
    """A lease in hand. Made by the runner's thread, looked at by the attempt's."""

    def __init__(self, extraction: Extraction, lease: Lease) -> None:
        self.extraction, self.lease = extraction, lease
        self.began = monotonic()
        limit = extraction.settings.attempt_timeout
        self.end = math.inf if limit is None else self.began + limit
        self.lost = False
        """Somebody else has the partition now, or the worker is going: nothing more is written."""

    def alive(self) -> None:
        """Raises where the attempt is over, whatever its function thinks of it."""
        if self.lost:
            raise LeaseLost(
                f"{self.lease.partition}: run {self.lease.run_id} lost its lease; another worker has the partition now"
            )
        if monotonic() >= self.end:
            seconds = self.end - self.began
            raise AttemptTimeout(f"{self.lease.partition}: run {self.lease.run_id} took longer than {seconds:.6g} s")

    # What code inside the attempt sees of it.

    @property
    def operation(self) -> str:
        """The dataset."""
        return self.extraction.name

    @property
    def max_attempts(self) -> int:
        """As the policy says; an operator may have granted more."""
        return self.extraction.terms.policy.max_attempts

    @property
    def job_id(self) -> None:
        """A partition is no job."""
        return

    @property
    def attempt(self) -> int:
        """From 1."""
        return self.lease.attempts + 1

    def enter(self) -> None:
        """Be inside the attempt, from now on: in a context of its own, which ends with it."""
        scope: Scope = (self.end, max(1, self.attempt), self, _key(self.lease), None)
        ActiveScope(scope)
        partition = self.lease.partition
        IDS.set({"run_id": self.lease.run_id, "source": partition.source})


class Done(NamedTuple):
    """An attempt that was made: a verdict, or what was raised."""

    held: Held
    verdict: Verdict | None
    error: BaseException | None
    seconds: float


def plain(held: Held, /) -> Done:
    """Make the attempt; in a thread and a context of its own."""
    held.enter()
    try:
        if held.lease.raw_run_id is not None:
            return _done(held, _again(held))
        writing = _writing(held)
        try:
            _nothing(held, held.extraction.fn(held.lease.partition, writing.sink))
            return _done(held, _judged(held, writing))
        finally:
            writing.abandon()
    except BaseException as error:  # SystemExit too: it ends this attempt, not the worker
        return Done(held, None, error, monotonic() - held.began)


async def coroutine(held: Held, /) -> Done:
    """The same on an event loop: only the function itself runs there, and is cancelled when its time is over."""
    held.enter()
    try:
        if held.lease.raw_run_id is not None:
            return _done(held, await asyncio.to_thread(_again, held))
        writing = _writing(held)
        try:
            await _within(held, writing)
            return _done(held, await asyncio.to_thread(_judged, held, writing))
        finally:
            writing.abandon()
    except BaseException as error:
        return Done(held, None, error, monotonic() - held.began)


async def _within(held: Held, writing: Writing) -> None:
    timer = asyncio.timeout(None if held.end == math.inf else held.end - monotonic())
    try:
        async with timer:
            await held.extraction.fn(held.lease.partition, writing.sink)
    except TimeoutError as error:
        if timer.expired():
            seconds = held.end - held.began
            raise AttemptTimeout(f"{held.lease.partition}: run {held.lease.run_id} took longer than {seconds:.6g} s") from error
        raise


def _writing(held: Held) -> Writing:
    return Writing(held.extraction.store(), held.lease.partition, held.lease.run_id, alive=held.alive)


def _judged(held: Held, writing: Writing) -> Verdict:
    """The extraction has returned: the run is ended, and looked at as anybody would find it."""
    manifest = writing.end(clock_around().now())
    found = Raw(writing.store, manifest, previous=lambda: _previous(held))
    found.looked()
    verdict = held.extraction.validator.validate(found)
    crash_point("extract.judged")
    return verdict


def _again(held: Held) -> Verdict:
    """What an earlier run wrote is judged once more, every byte of it; nothing is extracted."""
    lease = held.lease
    assert lease.raw_run_id is not None
    store = held.extraction.store()
    found = raw(store, lease.partition, lease.raw_run_id, previous=lambda: _previous(held))
    found.verified()
    verdict = held.extraction.validator.validate(found, run_id=lease.run_id)
    crash_point("extract.judged")
    return verdict


def _previous(held: Held) -> Raw | None:
    run_id = held.lease.current_raw_id
    return None if run_id is None else raw(held.extraction.store(), held.lease.partition, run_id)


def _done(held: Held, verdict: Verdict) -> Done:
    return Done(held, verdict, None, monotonic() - held.began)


def _nothing(held: Held, result: Any) -> None:
    if result is None:
        return
    close = getattr(result, "close", None)
    if inspect.isawaitable(result):
        if close is not None:
            close()
        raise TypeError(f"{held.extraction.place} returned {type(result).__name__}, which is not awaited; use `async def`")
    if hasattr(result, "__next__") or isinstance(result, (list, tuple)):
        if close is not None:
            close()
        raise TypeError(f"{held.extraction.place} returned {type(result).__name__}, which is not written; use out.rows(...)")


def _key(lease: Lease) -> Key | None:
    """For calls that the extraction makes: of this run, since the next one wants the data as it is then."""
    partition = lease.partition
    try:
        return Key(
            partition.source, partition.customer_id, partition.logical_date.isoformat(), partition.query_name, lease.run_id
        )
    except ValueError:
        return None


LONGEST = 4000
"""Characters of an error that are kept."""
FITTING = frozenset(
    name for name in VALIDATION if any(word in name for word in ("Validation", "Schema", "Arrow", "voluptuous", "attrs"))
)
"""Errors of libraries that hold data against a schema: the same data will not fit the next time either. (Broken JSON is none of
these: what came may have been cut off.)"""


def ended(done: Done, now: datetime, parking: Parking, /, *, stopping: bool) -> Verdict | Return | None:
    """A verdict on the run; or its lease, given back uncharged; or nothing, where somebody else has the partition now.

    Rate limits, declared outages and faults of the ledger count as attempts once the partition has had `parking.uncharged` of
    them. A fault of the ledger is never evidence against the source.
    """
    lease, error = done.held.lease, done.error
    if done.verdict is not None:
        return done.verdict
    assert error is not None
    if stopping and isinstance(error, CancelledError):
        return Return(lease, "stopped")
    if done.held.lost and isinstance(error, (LeaseLost, CancelledError)):
        return None
    found = meant(done.held.extraction, error, now)
    charged = is_charged("evidence", parking, outage=True, uncharged=lease.uncharged)
    if found.kind == "not_ready" or (found.kind in ("rate_limited", "systemic") and not charged):
        name = signature(error) if found.kind == "systemic" else None
        return Return(lease, found.kind, error=_shown(error), after=found.after, signature=name)
    if found.kind == "ledger" and not charged:
        return Return(lease, "ledger", error=_shown(error), after=ledger_backoff(lease.uncharged))
    is_evidence = found.kind in ("shared", "rate_limited", "systemic") or (found.kind == "ordinary" and found.passing)
    validator = done.held.extraction.validator
    return Verdict(
        run_id=lease.run_id, decision="rejected", validator=validator.name, version=validator.version, reason=found.reason,
        message=_shown(error), after=found.after, final=found.kind == "final",
        signature=signature(error) if is_evidence else None, shared=found.kind == "shared", charged=charged,
    )  # fmt: skip


def meant(extraction: Extraction, error: BaseException, now: datetime, /) -> Meaning:
    """What an error means. The dataset's own rules (`retry(on=...)`) come first, where they have a word for it."""
    if not isinstance(error, Exception):
        if is_ledger_fault(error):
            return Meaning("ledger", "ledger", safe_str(error))
        return Meaning("ordinary", type(error).__name__, str(error))
    try:
        found = meaning(error, now)
    except Exception:  # an error of the user's that cannot even be looked at
        return Meaning("ordinary", type(error).__name__, safe_str(error))
    if isinstance(error, Damaged):
        return Meaning("ordinary", DAMAGED, found.message)
    if found.kind != "ordinary":
        return found
    if any(f"{kind.__module__.partition('.')[0]}.{kind.__name__}" in FITTING for kind in type(error).__mro__):
        return found._replace(kind="final", reason="schema")
    rules = extraction.settings.error_rules.rules
    if not rules or classify in rules:
        return found
    try:
        fault = extraction.settings.classify(error)
    except Exception:  # a rule of the user's raised: its bug must not decide about this partition
        return found
    if fault.kind == "throttled":
        return found._replace(kind="rate_limited", after=fault.after)
    if fault.kind == "permanent":
        return found._replace(kind="final")
    # `on=Exception` retries bugs too and says nothing of the source: there the standard rule decides.
    declared = not any(rule in (Exception, BaseException) for rule in rules)
    return found._replace(passing=fault.retryable and (declared or found.passing))


def _shown(error: BaseException) -> str:
    text = redact_text(describe_error(error))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
