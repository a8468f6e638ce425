"""Token bucket: how many jobs a rate allows to start now."""

from __future__ import annotations

BURST_SECONDS = 0.1
"""Starts of this much time may happen at once after a pause, and at least one."""
MIN_SETBACK_SECONDS = 1.0
"""A timestamp this far in the future was written by another clock."""


def refill_tokens(tokens: float | None, seconds: float, rate: float, /) -> float:
    """Return the tokens of the bucket, `seconds` after it had `tokens`.

    If the stored time is in the future, the clock was set back, and the bucket is full.
    """
    capacity = max(1.0, rate * BURST_SECONDS)
    if tokens is None or seconds < -MIN_SETBACK_SECONDS:
        return capacity
    return min(capacity, tokens + max(0.0, seconds) * rate)
