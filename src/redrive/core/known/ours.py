"""Redrive's own errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ..clock import SYSTEM
from ..fault import PERMANENT, TRANSIENT, Fault
from ..retry_after import until
from ..seconds import seconds
from .look import TIMEOUT, Entry, Look, beneath, read, wrapping


def _busy(error: Exception, look: Look) -> Fault:
    """Refused before anything ran, so that coming back is safe."""
    moment = read(error, "retry_at")
    after = until(moment, look.now or SYSTEM.now()) if isinstance(moment, datetime) else None
    return Fault("throttled", after, sent=False)


def _unavailable(error: Exception, look: Look) -> Fault:
    """The ledger's database. What the driver's own error means, which is its cause; transient where that is not known."""
    inner = look.at(beneath(error, "__cause__"))
    fault = TRANSIENT if inner.kind == "unknown" else inner
    return replace(fault, sent=read(error, "sent") is not False)


def _again(error: Exception, look: Look) -> Fault:
    after = read(error, "after")
    return TRANSIENT if after is None else Fault("transient", seconds("after", after))


KNOWN: dict[str, Entry] = {
    "redrive.AttemptTimeout": TIMEOUT,
    "redrive.Rejected": TRANSIENT,
    "redrive.KeyBusy": _busy,
    "redrive.Again": _again,
    "redrive.LedgerUnavailable": _unavailable,
    **dict.fromkeys(
        (
            "redrive.BreakerOpen",
            "redrive.KeyRefused",
            "redrive.Dead",
            "redrive.Incomplete",
            "redrive.NotReady",
            "redrive.LeaseLost",
            "redrive.NotAllowed",
        ),
        PERMANENT,
    ),
    **dict.fromkeys(
        (
            "redrive.LedgerError",
            "redrive.Final",
            "redrive.Refused",
            "redrive.BufferClosed",
            "redrive.BadReport",
            "redrive.PollerClosed",
        ),
        PERMANENT,
    ),
    # Of a storage backend: what its client's own error means, which is its cause.
    "redrive.Unavailable": wrapping(TRANSIENT, "__cause__"),
    "redrive.StorageError": wrapping(PERMANENT, "__cause__"),
    **dict.fromkeys(
        ("redrive.NotFound", "redrive.AlreadyExists", "redrive.Denied", "redrive.Damaged", "redrive.PathInvalid"),
        PERMANENT,
    ),
}
