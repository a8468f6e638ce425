"""The decision after a failed attempt: again after so long, or stop because. Pure."""

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
"""Why it stopped. A spent budget, a server's wish that does not fit and an inner layer that gave up are reasons of their own."""

SPENT: frozenset[Reason] = frozenset(("attempts", "timeout", "retry_after", "budget", "breaker_open"))
"""Reasons after which trying again in this process is not for an outer layer to begin anew."""

LONGEST = 1e8
"""Seconds, about three years: no clock can be asked to sleep for ever."""
PATIENCE = 600.0
"""Seconds of a Retry-After that are waited for where there is no time limit; beyond, the error leaves with `retry_at`. With a
limit, the limit decides."""
HANDOVER = 60.0
"""The same where a job takes the work over: inside of a job, which returns to the queue, and in a call that spills."""


def decide(
    fault: Fault,
    attempt: int,
    max_attempts: int,
    idempotent: bool,
    wait: float,
    left: float,
    patience: float = PATIENCE,
) -> tuple[Reason | None, float]:
    """What failed attempt n (from 1) leads to: (None, seconds to wait), or (reason, seconds that would have been waited).

    wait: what the backoff says. left: seconds until the nearest deadline; infinite where there is none. patience: the longest
    Retry-After that is waited for without a deadline.
    """
    if not fault.retryable:
        return "not_retryable", math.nan
    if fault.sent and not idempotent:
        return "not_idempotent", math.nan
    after = fault.after
    if attempt >= max_attempts:
        return "attempts", math.nan if after is None else after
    if not 0 <= wait <= LONGEST:  # NaN too, which a backoff of the user's own may give
        wait = LONGEST if wait > LONGEST else 0.0
    if after is not None and after > wait:
        return ("retry_after" if after >= left or (left == math.inf and after > patience) else None), after
    return ("timeout" if wait >= left else None), wait
