"""Policies of the two gRPC retry layers: the channel's own retries, and a `Retry` around a call.

The channel is the inner layer. Each status code is retried by one layer only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..analysis.grpc import Behind, code_rule, path
from ..core.policy import RetryPolicy
from ..core.seconds import Seconds, whole_number
from ..engine.retry import DEFAULT, Retry
from ..native.grpc import deadline_exceeded, grpc_options

__all__ = ["CALL_POLICY", "CHANNEL_CODES", "CHANNEL_POLICY", "channel_options", "path", "retry"]

CHANNEL_POLICY = RetryPolicy(max_attempts=5, backoff_base=0.1, backoff_max=10.0, jitter=0.0)
CHANNEL_CODES = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
"""Codes that the channel retries by default.

DEADLINE_EXCEEDED is not one of them. A channel never retries a deadline that expires at the client,
and the layer around it could not tell who set the deadline.
"""
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""The largest message that a server accepts by default."""
HEADER_BYTES = 64 * 1024
"""Room for headers in the retry buffer, which holds them beside the message."""
CALL_POLICY = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=1.0, jitter=0.0)
CALL_TIMEOUT_SECONDS = 30.0


def channel_options(
    policy: RetryPolicy | None = None,
    /,
    *,
    services: Sequence[str] = ("",),
    codes: Sequence[str] | None = None,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> list[tuple[str, Any]]:
    """Return channel options for gRPC's own retries. Default: 5 attempts, 0.1 s to 10 s apart.

    Args:
        policy: Its attempts and waits. The channel varies waits by ±20 % and has no jitter or time
            limit. One attempt switches the channel's retries off.
        services: Methods to configure: `""` for all, `"shop.Orders"`, or `"shop.Orders/Get"`.
        codes: Status codes that the channel retries. Default: UNAVAILABLE and RESOURCE_EXHAUSTED.
        max_batch_bytes: Largest request that is retried. grpcio's default is 256 KiB, and it does
            not retry larger ones.

    Returns:
        Options for `grpc.insecure_channel(target, options=...)`, sync and aio.

    Raises:
        ValueError: More than 5 attempts. grpcio does not make more.
    """
    buffer_bytes = whole_number("max_batch_bytes", max_batch_bytes) + HEADER_BYTES
    policy = policy or CHANNEL_POLICY
    methods = [_method_name(service) for service in _check_services(services)]
    options = list(grpc_options(policy, codes=_code_names(codes), methods=methods).value)
    if policy.max_attempts > 1:
        options.append(("grpc.per_rpc_retry_buffer_size", buffer_bytes))
    return options


def retry(
    policy: RetryPolicy | None = None,
    /,
    *,
    behind: Behind = (),
    codes: Sequence[str] | None = None,
    attempt_timeout: Seconds | None = CALL_TIMEOUT_SECONDS,
) -> Retry:
    """Return retries around a call, for the codes that the channel does not retry.

    Use `await rpc.acall(stub.Get, request, timeout=30)`, or `rpc.call(...)` on a sync channel. Pass
    a request stream as a list, or as a function that returns a new iterator. Of a response stream,
    only the opening is retried, up to the first message.

    Args:
        policy: Default: 3 attempts, 50 ms and 100 ms apart.
        behind: Options of the channel. Their codes are left to the channel.
        codes: Status codes to retry. Default: UNAVAILABLE, INTERNAL and DEADLINE_EXCEEDED, without
            those of the channel.
        attempt_timeout: Seconds for one attempt. Async attempts are cancelled. Sync calls need
            their own `timeout=`.

    Returns:
        A `Retry`.

    Raises:
        ValueError: A code is retried by the channel too.
    """
    rules = code_rule(behind, codes)
    configured = DEFAULT.using(policy or CALL_POLICY, on=rules, attempt_timeout=attempt_timeout)
    return Retry(replace(configured.settings, timeout_error=deadline_exceeded))


def _code_names(codes: Sequence[str] | None) -> tuple[str, ...]:
    if codes is None:
        return CHANNEL_CODES
    return (
        (codes,) if isinstance(codes, str) else tuple(getattr(code, "name", code) for code in codes)
    )


def _check_services(services: Sequence[str]) -> tuple[str, ...]:
    names = (services,) if isinstance(services, str) else tuple(services)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"services must be names such as 'shop.Orders', or '' for all of them: {services!r}"
        )
    return names


def _method_name(service: str) -> dict[str, str]:
    """Return a name of gRPC's service config. Empty for all methods."""
    if not service:
        return {}
    name, slash, method = service.strip("/").partition("/")
    return {"service": name, "method": method} if slash else {"service": name}
