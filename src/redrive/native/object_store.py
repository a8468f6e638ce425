"""obstore: the Rust crate object_store, for S3, Azure and Google Cloud Storage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..core.policy import RetryPolicy, exponential_wait
from .mapping import ClientMapping, Mapped

MIN_WAIT_SECONDS = 0.001
"""The crate draws waits from a range, and fails if the range is empty."""
MAX_RETRY_SECONDS = 600.0
"""Time for retries. Requests are signed once, and S3 rejects signatures older than 15 minutes."""


def _first_wait(policy: RetryPolicy) -> float:
    return max(MIN_WAIT_SECONDS, min(policy.backoff_base, policy.backoff_max))


def _wait_range(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    """Return the first wait, up to the wait of the policy without jitter."""
    first = _first_wait(policy)
    return first, max(first, min(policy.backoff_max, exponential_wait(first, attempt)))


OBSTORE = ClientMapping(
    "obstore",
    templates={
        "max_attempts": "max_retries: {retries}",
        "backoff_base": "init_backoff: {backoff_base:g} s, base: 2",
        "backoff_max": "max_backoff: {backoff_max:g} s",
        "timeout": "retry_timeout: {timeout} s",
    },
    wait_range=_wait_range,
    notes=(
        "The first wait is backoff_base. Later ones are drawn from there up to the policy's.",
        "408, 429 and 5xx are retried. Retry-After is ignored.",
        (
            "After a lost connection or a timeout, it resends reads and replacing writes. It does "
            "not resend deletes and conditional writes; the backends of Redrive do."
        ),
        "No retry starts after 10 minutes, because requests are signed only once.",
        "A body that breaks is fetched again from that byte, with the same attempts.",
    ),
)


def obstore(policy: RetryPolicy, /) -> Mapped[dict[str, Any]]:
    """Return a `RetryConfig` for `obstore.store.S3Store(bucket, retry_config=value)`.

    `AzureStore`, `GCSStore` and `HTTPStore` take the same.

    Args:
        policy: The policy.

    Returns:
        The configuration, and the fields that it does not carry.
    """
    OBSTORE.check(policy)
    limit = MAX_RETRY_SECONDS if policy.timeout is None else policy.timeout
    config = {
        "max_retries": policy.max_attempts - 1,
        "backoff": {
            "init_backoff": timedelta(seconds=_first_wait(policy)),
            "max_backoff": timedelta(seconds=max(_first_wait(policy), policy.backoff_max)),
            "base": 2,
        },
        "retry_timeout": timedelta(seconds=min(limit, MAX_RETRY_SECONDS)),
    }
    return OBSTORE.to_mapped(policy, config)
