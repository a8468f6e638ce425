"""Libraries that retry and then raise an error of their own."""

from __future__ import annotations

from ..fault import TRANSIENT, Fault
from .look import Entry, Look, read, spent, whole


def _tenacity(error: Exception, look: Look) -> Fault:
    """As its last attempt's error; spent only where there was more than one: `stop_after_attempt(1)` has no retry."""
    last = read(error, "last_attempt")
    failed = read(last, "failed") is True
    # It may have given up on a result that it did not like: then there is no error to judge by.
    fault = look.at(last.exception()) if failed else TRANSIENT
    return spent(fault, "tenacity") if (whole(read(last, "attempt_number")) or 0) > 1 else fault


KNOWN: dict[str, Entry] = {"tenacity.RetryError": _tenacity, "tenacity.TryAgain": TRANSIENT}
