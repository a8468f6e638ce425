"""Temporal: the retry policy of an activity, a child workflow or a workflow."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ..core.lazy import deferred
from ..core.policy import RetryPolicy, exponential_wait
from .mapping import ClientMapping, Mapped

if TYPE_CHECKING:
    from temporalio import common
else:  # it may be missing
    (common,) = deferred("temporalio", "common")

MIN_WAIT_SECONDS = 0.001
"""The server takes a first wait of 0 as its default of 1 s."""
SERVER_DELAY_SECONDS = 1.0
"""The server fires no timer earlier, unless `history.timerProcessorMaxTimeShift` is less."""
MAX_WAIT_SECONDS = 10 * 365 * 86_400.0
MAX_ATTEMPTS = 2**31 - 1


def _bounds(policy: RetryPolicy) -> tuple[float, float]:
    """Return the first wait and the longest one."""
    longest = min(max(policy.backoff_max, MIN_WAIT_SECONDS), MAX_WAIT_SECONDS)
    if not policy.backoff_base:
        return MIN_WAIT_SECONDS, MIN_WAIT_SECONDS
    return min(max(policy.backoff_base, MIN_WAIT_SECONDS), longest), longest


def _wait_range(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    first, longest = _bounds(policy)
    wait = min(exponential_wait(first, attempt), longest)
    return wait, max(wait, SERVER_DELAY_SECONDS)


TEMPORAL = ClientMapping(
    "temporal",
    templates={
        "max_attempts": "maximum_attempts={max_attempts}",
        "backoff_base": "initial_interval={backoff_base:g} s, backoff_coefficient=2",
        "backoff_max": "maximum_interval={backoff_max:g} s",
    },
    wait_range=_wait_range,
    notes=(
        "Waits have no jitter. The server makes waits below 1 s longer, up to about 1 s.",
        "For the policy's timeout, pass schedule_to_close_timeout= to the activity.",
        (
            "Every error is retried, except ApplicationError(non_retryable=True) and class names "
            "in non_retryable_error_types."
        ),
        (
            "Retry-After is ignored. An activity can raise ApplicationError(next_retry_delay=...) "
            "instead."
        ),
        "Attempts that time out or are lost with their worker count.",
    ),
    package="temporalio",
)


def temporal(policy: RetryPolicy, /) -> Mapped[common.RetryPolicy]:
    """Return a `temporalio.common.RetryPolicy` for `execute_activity(..., retry_policy=value)`.

    Options of workflows and child workflows take the same.

    Args:
        policy: The policy.

    Returns:
        The object, and the fields that it does not carry.

    Raises:
        ImportError: temporalio is not installed.
    """
    TEMPORAL.check(policy)
    value = retry_policy(policy)
    if policy.max_attempts == 1:
        return TEMPORAL.to_mapped(policy, value)
    changed = [
        field
        for field in ("backoff_base", "backoff_max")
        if not MIN_WAIT_SECONDS <= getattr(policy, field) <= MAX_WAIT_SECONDS
    ]
    return TEMPORAL.to_mapped(policy, value, *changed)


def retry_policy(policy: RetryPolicy, /) -> common.RetryPolicy:
    """Return the value of `retry_policy=`."""
    first, longest = _bounds(policy)
    with TEMPORAL.importing():
        return common.RetryPolicy(
            initial_interval=timedelta(seconds=first),
            backoff_coefficient=2.0,
            maximum_interval=timedelta(seconds=longest),
            maximum_attempts=min(policy.max_attempts, MAX_ATTEMPTS),
        )
