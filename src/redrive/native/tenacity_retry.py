"""tenacity: the only client that supports all fields of a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.fault import Reason, Rules
from ..core.policy import RetryPolicy
from ..engine.nesting import GIVE_UPS, Outcome, mark
from ..engine.settings import Classifier, error_rules
from .mapping import ClientMapping, Mapped, policy_wait_range

if TYPE_CHECKING:
    from tenacity import RetryCallState

TENACITY = ClientMapping(
    "tenacity",
    templates={
        "max_attempts": "stop_after_attempt({max_attempts})",
        "backoff_base": "wait_exponential(multiplier={backoff_base:g}, …)",
        "backoff_max": "wait_exponential(…, max={backoff_max:g})",
        "jitter": "+ wait_random(0, {jitter:g})",
        "timeout": "stop_before_delay({timeout})",
    },
    wait_range=policy_wait_range,
    notes=(
        "Retry-After is a floor: the wait is the larger of the two.",
        "Retries what the standard rule says, or what on= says; cancellation never.",
        (
            "The last error leaves as it was, and layers of Redrive around it see that "
            "its retries are spent."
        ),
    ),
    package="tenacity",
)


def tenacity(policy: RetryPolicy, /, *, on: Rules | None = None) -> Mapped[dict[str, Any]]:
    """Return arguments for `tenacity.retry(**value)`.

    They also fit `Retrying(**value)` and `AsyncRetrying(**value)`.

    Args:
        policy: The policy.
        on: Errors to retry, as in `redrive.retry`. Default: the standard rule.

    Returns:
        The arguments, and the fields that they do not carry.
    """
    with TENACITY.importing():
        import tenacity as library  # noqa: PLC0415  # optional dependency

    TENACITY.check(policy)
    classify = error_rules(on).classify
    stop: Any = library.stop_after_attempt(policy.max_attempts)
    if policy.timeout is not None:
        stop = stop | library.stop_before_delay(policy.timeout)
    # `multiplier`, not `min`, which would only raise the first of the waits 1, 2, 4 s.
    backoff = library.wait_exponential(multiplier=policy.backoff_base, max=policy.backoff_max)
    wait = backoff + library.wait_random(0, policy.jitter)
    value = {
        "stop": stop,
        "wait": _at_least_retry_after(wait, classify),
        "retry": library.retry_if_exception(_retryable_predicate(classify)),
        "retry_error_callback": _raise_last_error(policy),
    }
    return TENACITY.to_mapped(policy, value)


def _retryable_predicate(classify: Classifier) -> Callable[[BaseException], bool]:
    def is_retryable(error: BaseException) -> bool:
        return isinstance(error, Exception) and classify(error).retryable

    return is_retryable


def _at_least_retry_after(
    wait: Callable[[RetryCallState], float], classify: Classifier
) -> Callable[[RetryCallState], float]:
    def wait_seconds(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        retry_after = classify(error).after if isinstance(error, Exception) else None
        return max(wait(state), retry_after or 0.0)

    return wait_seconds


def _raise_last_error(policy: RetryPolicy) -> Callable[[RetryCallState], None]:
    """Return a callback that raises the last error in place of tenacity's RetryError.

    The error is marked, so that layers of Redrive around it see that its retries are spent.
    """

    def raise_last_error(state: RetryCallState) -> None:
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None  # Results are never retried here.
        if policy.max_attempts > 1:
            attempts = state.attempt_number
            reason: Reason = "attempts" if attempts >= policy.max_attempts else "timeout"
            elapsed = state.seconds_since_start or 0.0
            note = f"redrive: tenacity gave up after {attempts} attempts ({reason})"
            serial = GIVE_UPS.next()
            mark(error, Outcome(attempts, elapsed, reason, layer="tenacity", serial=serial), note)
        raise error

    return raise_last_error
