"""google-api-core: its `Retry` and `AsyncRetry`, which count seconds; a policy's attempts are counted beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from ..core.fault import Rules
from ..core.policy import RetryPolicy, doubled
from ..engine.nesting import GIVEUPS, Outcome, mark
from ..engine.rules import Judge, judgement
from .mapped import Client, Mapped

LAYER = "google-api-core"
LEAST = 0.001
"""Seconds: its first wait must be above 0."""


def _waits(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    return 0.0, min(doubled(max(policy.backoff_base, LEAST), attempt), max(policy.backoff_max, LEAST))


GOOGLE = Client(
    "google",
    words={
        "max_attempts": "a predicate that says no after {max_attempts} attempts",
        "backoff_base": "initial={backoff_base:g}, multiplier=2",
        "backoff_max": "maximum={backoff_max:g}",
        "timeout": "timeout={timeout}",
    },
    waits=_waits,
    notes=(
        "Each wait is drawn from 0 up to the policy's (full jitter). The policy's jitter is ignored.",
        "Retries by the standard rule, or by on=. Retry-After is ignored.",
        "A spent timeout raises its RetryError. After the last attempt the error itself is raised. Redrive sees both as spent.",
    ),
)


def google(policy: RetryPolicy, /, *, on: Rules | None = None, is_async: bool = False) -> Mapped[Any]:
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
        return GOOGLE.mapped(policy, None)
    options = {
        "initial": max(policy.backoff_base, LEAST),
        "maximum": max(policy.backoff_max, LEAST),
        "multiplier": 2.0,
        "timeout": policy.timeout,
    }
    made = _kind(is_async)(**options)
    made.options, made.judge, made.max_attempts = options, judgement(on).judge, policy.max_attempts
    return GOOGLE.mapped(policy, made)


@cache
def _kind(is_async: bool) -> Any:
    import warnings  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # of google-api-core, where grpcio-status is missing
        from google.api_core import retry  # noqa: PLC0415  # who maps to it has it

    base: Any = retry.AsyncRetry if is_async else retry.Retry

    class Counted(base):  # type: ignore[misc]  # which of the two is known only here
        """The library's own, with a count of attempts for each call. Immutable once made: anything may share one."""

        options: dict[str, Any]
        judge: Judge
        max_attempts: int | None = None

        def __call__(self, func: Callable[..., Any], on_error: Any = None) -> Callable[..., Any]:
            if self.max_attempts is None:
                return super().__call__(func, on_error)  # type: ignore[no-any-return]
            inner = base(**self.options, on_error=on_error)

            @wraps(func)
            def counted(*args: Any, **kwargs: Any) -> Any:
                once = inner.with_predicate(_worth(self.judge, self.max_attempts or 1))
                return once(func)(*args, **kwargs)

            return counted

    return Counted


def _worth(judge: Judge, max_attempts: int) -> Callable[[BaseException], bool]:
    """The predicate of one call: asked once after each failed attempt."""
    attempt = 0

    def worth(error: BaseException) -> bool:
        nonlocal attempt
        attempt += 1
        if not isinstance(error, Exception) or not judge(error).retryable:
            return False
        if attempt < max_attempts:
            return True
        note = f"redrive: {LAYER} gave up after {attempt} attempts (attempts)"
        mark(error, Outcome(attempt, 0.0, "attempts", layer=LAYER, serial=GIVEUPS.next()), note)
        return False

    return worth
