"""Redrive's own errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ...clock import SYSTEM
from ...fault import PERMANENT, TRANSIENT, Fault
from ...seconds import seconds
from .http_responses import seconds_until
from .inspect import TIMEOUT, Entry, Inspector, fault_of_inner, inner_error, read


def _key_busy(error: Exception, inspector: Inspector) -> Fault:
    """Classify a key that is in use. Nothing was executed, so a retry is safe."""
    retry_at, after = read(error, "retry_at"), None
    if isinstance(retry_at, datetime):
        after = seconds_until(retry_at, inspector.now or SYSTEM.now())
    return Fault("throttled", after, sent=False)


def _ledger_unavailable(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the error of the database driver, which is the cause. Default: transient."""
    inner = inspector.classify(inner_error(error, "__cause__"))
    fault = TRANSIENT if inner.kind == "unknown" else inner
    return replace(fault, sent=read(error, "sent") is not False)


def _again(error: Exception, inspector: Inspector) -> Fault:
    after = read(error, "after")
    return TRANSIENT if after is None else Fault("transient", seconds("after", after))


_OURS: dict[str, Entry] = {
    "redrive.AttemptTimeout": TIMEOUT,
    "redrive.MemoryLimitExceeded": TRANSIENT,
    "redrive.Rejected": TRANSIENT,
    "redrive.KeyBusy": _key_busy,
    "redrive.Again": _again,
    "redrive.LedgerUnavailable": _ledger_unavailable,
    "redrive.EngineUnavailable": TRANSIENT,
    **dict.fromkeys(
        (
            "redrive.BreakerOpen",
            "redrive.KeyRefused",
            "redrive.Dead",
            "redrive.Cancelled",
            "redrive.Incomplete",
            "redrive.NotReady",
            "redrive.LeaseLost",
            "redrive.NotAllowed",
            "redrive.MissingRight",
        ),
        PERMANENT,
    ),
    **dict.fromkeys(
        (
            "redrive.LedgerError",
            "redrive.EngineError",
            "redrive.Final",
            "redrive.Refused",
            "redrive.BufferClosed",
            "redrive.BadReport",
            "redrive.PollerClosed",
        ),
        PERMANENT,
    ),
    # Of storage backends. The error of the client library is the cause.
    "redrive.Unavailable": fault_of_inner(TRANSIENT, "__cause__"),
    "redrive.StorageError": fault_of_inner(PERMANENT, "__cause__"),
    **dict.fromkeys(
        (
            "redrive.NotFound",
            "redrive.AlreadyExists",
            "redrive.Denied",
            "redrive.Damaged",
            "redrive.PathInvalid",
        ),
        PERMANENT,
    ),
}
FAMILIES: dict[str, dict[str, Entry]] = {"ours": _OURS}
