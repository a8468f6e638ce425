"""tenacity: the one client that has a place for everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.decision import Reason
from ..core.fault import Rules
from ..core.policy import RetryPolicy
from ..engine.nesting import GIVEUPS, Outcome, mark
from ..engine.rules import Judge, judgement
from .mapped import Client, Mapped, as_asked

if TYPE_CHECKING:
    from tenacity import RetryCallState

TENACITY = Client(
    "tenacity",
    words={
        "max_attempts": "stop_after_attempt({max_attempts})",
        "backoff_base": "wait_exponential(multiplier={backoff_base:g}, …)",
        "backoff_max": "wait_exponential(…, max={backoff_max:g})",
        "jitter": "+ wait_random(0, {jitter:g})",
        "timeout": "stop_before_delay({timeout})",
    },
    waits=as_asked,
    notes=(
        "Retry-After is a floor: the wait is the larger of the two.",
        "Retries what the standard rule says, or what on= says; cancellation never.",
        "The last error leaves as it was, and layers of Redrive around it see that its retries are spent.",
    ),
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
    from tenacity import retry_if_exception, stop_after_attempt, stop_before_delay, wait_exponential, wait_random  # noqa: PLC0415  # who maps to it has it  # noqa: PLC0415

    TENACITY.check(policy)
    judge = judgement(on).judge
    stop: Any = stop_after_attempt(policy.max_attempts)
    if policy.timeout is not None:
        stop = stop | stop_before_delay(policy.timeout)
    # `multiplier`, not `min`: that would leave the waits at 1, 2, 4 s, and only lift the first ones.
    wait = wait_exponential(multiplier=policy.backoff_base, max=policy.backoff_max) + wait_random(0, policy.jitter)
    value = {
        "stop": stop,
        "wait": _with_floor(wait, judge),
        "retry": retry_if_exception(_worth(judge)),
        "retry_error_callback": _leaving(policy),
    }
    return TENACITY.mapped(policy, value)


def _worth(judge: Judge) -> Callable[[BaseException], bool]:
    def worth(error: BaseException) -> bool:
        return isinstance(error, Exception) and judge(error).retryable

    return worth


def _with_floor(wait: Callable[[RetryCallState], float], judge: Judge) -> Callable[[RetryCallState], float]:
    def floored(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        after = judge(error).after if isinstance(error, Exception) else None
        return max(wait(state), after or 0.0)

    return floored


def _leaving(policy: RetryPolicy) -> Callable[[RetryCallState], None]:
    """Instead of tenacity's RetryError: the caller's own error, marked as one on which retries were spent."""

    def leave(state: RetryCallState) -> None:
        assert state.outcome is not None
        error = state.outcome.exception()
        assert error is not None  # results are not judged here
        if policy.max_attempts > 1:
            reason: Reason = "attempts" if state.attempt_number >= policy.max_attempts else "timeout"
            elapsed = state.seconds_since_start or 0.0
            note = f"redrive: tenacity gave up after {state.attempt_number} attempts ({reason})"
            mark(error, Outcome(state.attempt_number, elapsed, reason, layer="tenacity", serial=GIVEUPS.next()), note)
        raise error

    return leave
