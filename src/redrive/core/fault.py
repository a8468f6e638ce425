"""Fault: the meaning of an error, as rules return it. And `decide`: what follows from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .seconds import real

Kind: TypeAlias = Literal["transient", "throttled", "timeout", "permanent", "unknown"]
KINDS: tuple[Kind, ...] = ("transient", "throttled", "timeout", "permanent", "unknown")
RETRYABLE: frozenset[Kind] = frozenset(("transient", "throttled", "timeout"))


@dataclass(frozen=True, slots=True)
class Fault:
    """The meaning of an error, as a rule returns it.

    `retryable` is True for the kinds `transient`, `throttled` and `timeout`.

    Immutable: threads, event loops and forked children may share one.

    Args:
        kind: `"transient"`, `"throttled"`, `"timeout"`, `"permanent"` or `"unknown"`.
        after: Minimum number of seconds until the next attempt, as the server asked (Retry-After,
            pushback).
        sent: False if the request certainly never reached the server. A retry is then safe without
            idempotency.
        spent: Name of another library's retry layer that has used up its retries on this error.
        status: HTTP status, if there was one.

    Raises:
        ValueError: The kind is unknown.
    """

    kind: Kind
    after: float | None = None
    sent: bool = True
    spent: str | None = None
    status: int | None = None
    retryable: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.after is not None:
            object.__setattr__(self, "after", max(0.0, real("after", self.after)))
        object.__setattr__(self, "retryable", self.kind in RETRYABLE)


TRANSIENT = Fault("transient")
PERMANENT = Fault("permanent")
UNKNOWN = Fault("unknown")

Rule: TypeAlias = type[Exception] | Callable[[Exception], "Fault | bool | None"]
"""An exception type to retry, or a function of the error. The function returns a Fault, True or
False, or None to leave the decision to the next rule."""
Rules: TypeAlias = Rule | tuple[Rule, ...]

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
