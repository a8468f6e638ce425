"""End: what an attempt's end means for its partition: a verdict, a lease that is given back, or nothing. Pure."""

from __future__ import annotations

from asyncio import CancelledError
from datetime import datetime

from ..core.classify import classify
from ..core.known.libraries import VALIDATION
from ..core.outage import Parking, is_charged
from ..core.signature import signature
from ..core.text import safe_str
from ..errors import Damaged, LeaseLost
from ..journal.redaction import redact_text
from ..worker.outcome import describe_error, is_ledger_fault, ledger_backoff
from .extracting import Done
from .extraction import Extraction
from .pace import Meaning, meaning
from .record import DAMAGED, Return, Verdict

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
