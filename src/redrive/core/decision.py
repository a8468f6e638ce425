"""The decision after a failed attempt: retry after a wait, or give up for a reason. Pure."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from .fault import Fault

Reason: TypeAlias = Literal[
    "attempts",
    "timeout",
    "retry_after",
    "budget",
    "not_retryable",
    "not_idempotent",
    "nested",
    "breaker_open",
    "stopped",
]
"""Why a call gave up. `Outcome.reason` documents them for users."""

SPENT: frozenset[Reason] = frozenset(
    ("attempts", "timeout", "retry_after", "budget", "breaker_open")
)
"""Reasons after which outer layers must not retry: the retries of this call are used up."""

MAX_WAIT_SECONDS = 1e8
"""About three years. No clock can sleep forever."""
MAX_RETRY_AFTER_SECONDS = 600.0
"""Longest Retry-After to wait for without a time limit. Beyond, the error has `retry_at`. With a
time limit, that limit decides."""
MAX_RETRY_AFTER_IN_JOB_SECONDS = 60.0
"""The same if a job can continue the work: inside of a job, and in a call with `spill=`."""


def decide(
    fault: Fault,
    attempt: int,
    max_attempts: int,
    idempotent: bool,
    wait: float,
    remaining: float,
    max_retry_after: float = MAX_RETRY_AFTER_SECONDS,
) -> tuple[Reason | None, float]:
    """Decide what follows a failed attempt.

    Args:
        fault: The meaning of its error.
        attempt: Its number, from 1.
        max_attempts: Maximum number of attempts.
        idempotent: Whether the call may be repeated after it was sent.
        wait: Seconds that the backoff wants to wait.
        remaining: Seconds until the nearest deadline. Infinite: there is none.
        max_retry_after: Longest Retry-After to wait for without a deadline.

    Returns:
        None and the seconds to wait, or the reason to give up and the wait that did not fit (NaN:
        none).
    """
    if not fault.retryable:
        return "not_retryable", math.nan
    if fault.sent and not idempotent:
        return "not_idempotent", math.nan
    after = fault.after
    if attempt >= max_attempts:
        return "attempts", math.nan if after is None else after
    if not 0 <= wait <= MAX_WAIT_SECONDS:  # also NaN, which a backoff of the user may return
        wait = MAX_WAIT_SECONDS if wait > MAX_WAIT_SECONDS else 0.0
    if after is not None and after > wait:
        is_too_long = after >= remaining or (remaining == math.inf and after > max_retry_after)
        return ("retry_after" if is_too_long else None), after
    return ("timeout" if wait >= remaining else None), wait
