"""gRPC: the retry policy of a channel's service config. Needs no grpcio to be written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..core.policy import RetryPolicy, doubled
from ..errors import AttemptTimeout
from .mapped import Client, Mapped

SHORTEST = 0.010
"""Seconds. grpcio 1.72 to 1.85 hangs on waits below a millisecond, its own ±20 % included."""
MOST = 5
"""More attempts are cut down to 5 by grpcio, in silence."""
CODES = ("UNAVAILABLE",)
EVERYWHERE: tuple[dict[str, str], ...] = ({},)
"""Every method of every service."""
KNOWN = frozenset(
    """CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED
    FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED""".split()
)


def _waits(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    wait = min(doubled(max(policy.backoff_base, SHORTEST), attempt), max(policy.backoff_max, SHORTEST))
    return 0.8 * wait, 1.2 * wait


GRPC = Client(
    "grpc",
    words={
        "max_attempts": "retryPolicy.maxAttempts = {max_attempts}",
        "backoff_base": "initialBackoff = {backoff_base:g} s, backoffMultiplier = 2",
        "backoff_max": "maxBackoff = {backoff_max:g} s",
    },
    waits=_waits,
    notes=(
        "Waits vary by ±20 %. The policy's jitter is ignored. No wait is below 10 ms, because grpcio would hang.",
        "A deadline that expires at the client is never retried, even where DEADLINE_EXCEEDED is listed.",
        "Pass timeout= to every call. The timeout of the service config fires early.",
        "One attempt is set by grpc.enable_retries = 0. A retryPolicy of one makes every call fail.",
        "A request above 256 KiB is retried only with a larger grpc.per_rpc_retry_buffer_size.",
        "grpc-retry-pushback-ms is obeyed.",
    ),
    most_attempts=MOST,
)


def retry_policy(policy: RetryPolicy, /, *, codes: Sequence[str] = CODES) -> dict[str, Any]:
    """The `retryPolicy` of a `methodConfig`. ValueError where grpcio would fail every call, or change it in silence."""
    GRPC.check(policy)
    if policy.max_attempts < 2:
        raise ValueError("a retryPolicy has 2 attempts or more; for one, switch retries off: ('grpc.enable_retries', 0)")
    unknown = sorted(set(codes) - KNOWN)
    if unknown or not codes:
        raise ValueError(f"codes are names of gRPC's status codes, at least one; unknown: {', '.join(unknown) or 'none given'}")
    first = max(policy.backoff_base, SHORTEST)
    return {
        "maxAttempts": policy.max_attempts,
        "initialBackoff": _duration(first),
        "maxBackoff": _duration(max(policy.backoff_max, SHORTEST)),
        "backoffMultiplier": 2,
        "retryableStatusCodes": list(codes),
    }


def grpc_options(
    policy: RetryPolicy, /, *, codes: Sequence[str] = CODES, methods: Sequence[dict[str, str]] = EVERYWHERE
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
        return GRPC.mapped(policy, (("grpc.enable_retries", 0),))
    config = {"methodConfig": [{"name": list(methods), "retryPolicy": retry_policy(policy, codes=codes)}]}
    options = (("grpc.enable_retries", 1), ("grpc.service_config", json.dumps(config)))
    lifted = [field for field in ("backoff_base", "backoff_max") if getattr(policy, field) < SHORTEST]
    return GRPC.mapped(policy, options, *lifted)


def deadline_exceeded(message: str, /) -> Exception:
    """Make the error of an attempt that ran out of time: `AttemptTimeout`, and gRPC's own error too where grpc.aio is loaded."""
    if "grpc.aio" not in sys.modules:
        return AttemptTimeout(message)
    from .rpc_timeout import DeadlineExceeded  # noqa: PLC0415  # needs grpcio

    return DeadlineExceeded(message)


def _duration(seconds: float) -> str:
    """As protobuf's JSON writes a Duration: up to nine digits, at most 10,000 years."""
    return f"{min(seconds, 315_576_000_000.0):.9f}".rstrip("0").rstrip(".") + "s"
