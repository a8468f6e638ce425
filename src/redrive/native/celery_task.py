"""Celery: options of a task that retries itself. Does not need Celery."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from ..core.policy import RetryPolicy, exponential_wait
from .mapping import ClientMapping, Mapped

ErrorTypes: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
MIN_WAIT_SECONDS = 1
"""Celery waits whole seconds, and takes a smaller first wait as 1."""
MAX_WAIT_SECONDS = 2**31 - 1


def _whole_seconds(seconds: float) -> int:
    return MAX_WAIT_SECONDS if seconds >= MAX_WAIT_SECONDS else math.ceil(seconds)


def _wait_range(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    first = max(MIN_WAIT_SECONDS, _whole_seconds(policy.backoff_base))
    longest = exponential_wait(first, attempt) if policy.backoff_base else 0.0
    longest = min(longest, _whole_seconds(policy.backoff_max))
    return 0.0 if policy.jitter else longest, longest


CELERY = ClientMapping(
    "celery",
    templates={
        "max_attempts": "max_retries={retries}",
        "backoff_base": "retry_backoff={backoff_base:g}, in whole seconds",
        "backoff_max": "retry_backoff_max={backoff_max:g}, in whole seconds",
        "jitter": "retry_jitter, on or off",
    },
    wait_range=_wait_range,
    notes=(
        "Waits are whole seconds, and the first one is at least 1 s.",
        (
            "With any jitter, each wait is drawn from 0 up to the policy's (full jitter). The "
            "policy's jitter is ignored."
        ),
        "Errors are chosen by class (on=). The standard rule and Retry-After are ignored.",
        "A task that is lost with its worker is not retried, unless it has acks_late=True.",
    ),
)


def celery(policy: RetryPolicy, /, *, on: ErrorTypes = Exception) -> Mapped[dict[str, Any]]:
    """Return options for `@app.task(**value)`.

    Args:
        policy: The policy.
        on: Classes of errors to retry. Celery takes no other rules.

    Returns:
        The options, and the fields that they do not carry.

    Raises:
        TypeError: `on` is not a class of errors, or a tuple of them.
    """
    CELERY.check(policy)
    types = on if isinstance(on, tuple) else (on,)
    for each in types:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise TypeError(f"on must be a class of errors or a tuple of them, not {each!r}")
    retries = policy.max_attempts - 1
    if not retries:
        return CELERY.to_mapped(policy, {"autoretry_for": (), "max_retries": 0})
    first, longest = (_whole_seconds(each) for each in (policy.backoff_base, policy.backoff_max))
    value: dict[str, Any] = {
        "autoretry_for": types,
        "max_retries": retries,
        "retry_backoff": first,
        "retry_backoff_max": longest,
        "retry_jitter": policy.jitter > 0,
    }
    if not first:  # without a backoff, Celery would wait for its own default of 3 minutes
        value |= {"retry_backoff": False, "default_retry_delay": 0}
    rounded = {
        "backoff_base": first != policy.backoff_base,
        "backoff_max": longest != policy.backoff_max,
        "jitter": policy.jitter > 0,
    }
    return CELERY.to_mapped(policy, value, *(name for name, is_lost in rounded.items() if is_lost))
