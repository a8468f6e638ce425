"""google-api-core: its `Retry` and `AsyncRetry` limit the time. Redrive counts the attempts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from ..core.fault import Rules
from ..core.policy import RetryPolicy, exponential_wait
from ..engine.nesting import GIVE_UPS, Outcome, mark
from ..engine.settings import Classifier, error_rules
from .mapping import ClientMapping, Mapped

LAYER_NAME = "google-api-core"
MIN_WAIT_SECONDS = 0.001
"""The library rejects a first wait of 0."""


def _wait_range(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    longest = exponential_wait(max(policy.backoff_base, MIN_WAIT_SECONDS), attempt)
    return 0.0, min(longest, max(policy.backoff_max, MIN_WAIT_SECONDS))


GOOGLE = ClientMapping(
    "google",
    templates={
        "max_attempts": "a predicate that says no after {max_attempts} attempts",
        "backoff_base": "initial={backoff_base:g}, multiplier=2",
        "backoff_max": "maximum={backoff_max:g}",
        "timeout": "timeout={timeout}",
    },
    wait_range=_wait_range,
    notes=(
        (
            "Each wait is drawn from 0 up to the policy's (full jitter). The policy's "
            "jitter is ignored."
        ),
        "Retries by the standard rule, or by on=. Retry-After is ignored.",
        (
            "A spent timeout raises its RetryError. After the last attempt the error "
            "itself is raised. Redrive sees both as spent."
        ),
    ),
    package="google-api-core",
)


def google(
    policy: RetryPolicy, /, *, on: Rules | None = None, is_async: bool = False
) -> Mapped[Any]:
    """Return a `google.api_core.retry.Retry` for the `retry=` of a Google client's call.

    A copy made by `with_timeout(...)` and similar methods does not count attempts.

    Args:
        policy: The policy.
        on: Errors to retry, as in `redrive.retry`. Default: the standard rule.
        is_async: True for an async client (`AsyncRetry`).

    Returns:
        The object, or None for no retries, and the fields that it does not carry.
    """
    GOOGLE.check(policy)
    if policy.max_attempts == 1:
        return GOOGLE.to_mapped(policy, None)
    options = {
        "initial": max(policy.backoff_base, MIN_WAIT_SECONDS),
        "maximum": max(policy.backoff_max, MIN_WAIT_SECONDS),
        "multiplier": 2.0,
        "timeout": policy.timeout,
    }
    retry = _counting_retry_class(is_async)(**options)
    retry.options = options
    retry.classify = error_rules(on).classify
    retry.max_attempts = policy.max_attempts
    return GOOGLE.to_mapped(policy, retry)


@cache
def _counting_retry_class(is_async: bool) -> Any:
    with GOOGLE.importing(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # From the library, without grpcio-status.
        from google.api_core import retry  # noqa: PLC0415  # optional dependency

    base: Any = retry.AsyncRetry if is_async else retry.Retry

    class CountingRetry(base):  # type: ignore[misc]  # the base is known at run time only
        """A retry object of the library that also counts the attempts of each call."""

        options: dict[str, Any]
        classify: Classifier
        max_attempts: int | None = None

        def __call__(self, func: Callable[..., Any], on_error: Any = None) -> Callable[..., Any]:
            if self.max_attempts is None:
                return super().__call__(func, on_error)  # type: ignore[no-any-return]
            inner = base(**self.options, on_error=on_error)

            @wraps(func)
            def call_counting(*args: Any, **kwargs: Any) -> Any:
                predicate = _attempt_predicate(self.classify, self.max_attempts or 1)
                return inner.with_predicate(predicate)(func)(*args, **kwargs)

            return call_counting

    return CountingRetry


def _attempt_predicate(classify: Classifier, max_attempts: int) -> Callable[[BaseException], bool]:
    """Return the predicate of one call. The library calls it after each failed attempt."""
    attempt = 0

    def should_retry(error: BaseException) -> bool:
        nonlocal attempt
        attempt += 1
        if not isinstance(error, Exception) or not classify(error).retryable:
            return False
        if attempt < max_attempts:
            return True
        note = f"redrive: {LAYER_NAME} gave up after {attempt} attempts (attempts)"
        outcome = Outcome(attempt, 0.0, "attempts", layer=LAYER_NAME, serial=GIVE_UPS.next())
        mark(error, outcome, note)
        return False

    return should_retry
