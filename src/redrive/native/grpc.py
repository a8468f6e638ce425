"""gRPC: the retry policy of a channel's service config. Does not need grpcio."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..core.policy import RetryPolicy, exponential_wait
from ..errors import AttemptTimeout
from .mapping import ClientMapping, Mapped

MIN_WAIT_SECONDS = 0.010
"""grpcio 1.72 to 1.85 hangs on waits below 1 ms, which may result from its jitter of ±20 %."""
MAX_ATTEMPTS = 5
"""grpcio silently reduces larger values."""
DEFAULT_CODES = ("UNAVAILABLE",)
ALL_METHODS: tuple[dict[str, str], ...] = ({},)
"""In a service config, an empty name selects every method of every service."""
STATUS_CODES = frozenset(
    """ABORTED ALREADY_EXISTS CANCELLED DATA_LOSS DEADLINE_EXCEEDED FAILED_PRECONDITION INTERNAL
    INVALID_ARGUMENT NOT_FOUND OUT_OF_RANGE PERMISSION_DENIED RESOURCE_EXHAUSTED UNAUTHENTICATED
    UNAVAILABLE UNIMPLEMENTED UNKNOWN""".split()
)


def _wait_range(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    longest = max(policy.backoff_max, MIN_WAIT_SECONDS)
    wait = min(exponential_wait(max(policy.backoff_base, MIN_WAIT_SECONDS), attempt), longest)
    return 0.8 * wait, 1.2 * wait


GRPC = ClientMapping(
    "grpc",
    templates={
        "max_attempts": "retryPolicy.maxAttempts = {max_attempts}",
        "backoff_base": "initialBackoff = {backoff_base:g} s, backoffMultiplier = 2",
        "backoff_max": "maxBackoff = {backoff_max:g} s",
    },
    wait_range=_wait_range,
    notes=(
        (
            "Waits vary by ±20 %. The policy's jitter is ignored. No wait is below 10 ms, "
            "because grpcio would hang."
        ),
        (
            "A deadline that expires at the client is never retried, even where "
            "DEADLINE_EXCEEDED is listed."
        ),
        "Pass timeout= to every call. The timeout of the service config fires early.",
        (
            "One attempt is set by grpc.enable_retries = 0. A retryPolicy of one makes "
            "every call fail."
        ),
        "A request above 256 KiB is retried only with a larger grpc.per_rpc_retry_buffer_size.",
        "grpc-retry-pushback-ms is obeyed.",
    ),
    max_attempts=MAX_ATTEMPTS,
)


def retry_policy(policy: RetryPolicy, /, *, codes: Sequence[str] = DEFAULT_CODES) -> dict[str, Any]:
    """Return the `retryPolicy` of a `methodConfig`. Reject values that grpcio cannot use."""
    GRPC.check(policy)
    if policy.max_attempts < 2:
        fix = "for one, switch retries off: ('grpc.enable_retries', 0)"
        raise ValueError(f"a retryPolicy has 2 attempts or more; {fix}")
    unknown = sorted(set(codes) - STATUS_CODES)
    if unknown or not codes:
        problem = f"unknown: {', '.join(unknown) or 'none given'}"
        raise ValueError(f"codes are names of gRPC's status codes, at least one; {problem}")
    return {
        "maxAttempts": policy.max_attempts,
        "initialBackoff": _duration(max(policy.backoff_base, MIN_WAIT_SECONDS)),
        "maxBackoff": _duration(max(policy.backoff_max, MIN_WAIT_SECONDS)),
        "backoffMultiplier": 2,
        "retryableStatusCodes": list(codes),
    }


def grpc_options(
    policy: RetryPolicy,
    /,
    *,
    codes: Sequence[str] = DEFAULT_CODES,
    methods: Sequence[dict[str, str]] = ALL_METHODS,
) -> Mapped[tuple[tuple[str, Any], ...]]:
    """Return options for `grpc.insecure_channel(target, options=value)`, sync and aio.

    Args:
        policy: The policy.
        codes: Status codes to retry.
        methods: Idempotent methods as in a service config: `{"service": "a.B", "method": "C"}`.

    Returns:
        The options, and the fields that they do not carry.
    """
    GRPC.check(policy)
    if policy.max_attempts == 1:
        return GRPC.to_mapped(policy, (("grpc.enable_retries", 0),))
    retries = retry_policy(policy, codes=codes)
    config = {"methodConfig": [{"name": list(methods), "retryPolicy": retries}]}
    options = (("grpc.enable_retries", 1), ("grpc.service_config", json.dumps(config)))
    raised = [
        field
        for field in ("backoff_base", "backoff_max")
        if getattr(policy, field) < MIN_WAIT_SECONDS
    ]
    return GRPC.to_mapped(policy, options, *raised)


def deadline_exceeded(message: str, /) -> Exception:
    """Create the error of an attempt that timed out.

    It is an `AttemptTimeout`, and also the error of grpc.aio if that is imported.
    """
    return _aio_deadline(message) if "grpc.aio" in sys.modules else AttemptTimeout(message)


def _aio_deadline(message: str) -> Exception:
    return _deadline_class()(message)


@cache
def _deadline_class() -> type[Exception]:
    """Define the error at its first use, because its base class needs grpcio."""
    from grpc import StatusCode, aio  # noqa: PLC0415

    class DeadlineExceeded(AttemptTimeout, aio.AioRpcError):
        """`AttemptTimeout` and `grpc.aio.AioRpcError` in one: `code()` is DEADLINE_EXCEEDED."""

        __qualname__ = "DeadlineExceeded"

        def __init__(self, message: str, /) -> None:
            self.args = (message,)
            self._code = StatusCode.DEADLINE_EXCEEDED
            self._details = message
            self._initial_metadata = aio.Metadata()
            self._trailing_metadata = aio.Metadata()
            self._debug_error_string = message

        def __str__(self) -> str:
            return str(self._details)

        def __repr__(self) -> str:
            return f"{type(self).__name__}({self._details!r})"

        def __reduce__(self) -> tuple[Any, ...]:
            # Attributes that Redrive or the user added, for example notes. Not those set above.
            added = {
                name: value
                for name, value in self.__dict__.items()
                if not name.startswith("_") or name.startswith("__")
            }
            return _aio_deadline, self.args, added

    return DeadlineExceeded


def _duration(seconds: float) -> str:
    """Format a Duration as the JSON of protobuf does: nine digits, at most 10,000 years."""
    return f"{min(seconds, 315_576_000_000.0):.9f}".rstrip("0").rstrip(".") + "s"
