"""Channel: the options that make a channel try again by itself. The innermost layer: nearest to the server, and the cheapest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.policy import RetryPolicy
from ..core.seconds import whole
from ..engine.channel import path
from ..native.grpc import grpc_options

__all__ = ["CHANNEL", "CODES", "channel_options", "path"]

CHANNEL = RetryPolicy(max_attempts=5, backoff_base=0.1, backoff_max=10.0, jitter=0.0)
CODES = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
"""What the channel owns by default. Not DEADLINE_EXCEEDED: a deadline that expires at the client is never tried again by it,
and a layer around it could not tell."""
BATCH_BYTES = 4 * 1024 * 1024
"""As large as a message that a server takes by default."""
ROOM = 64 * 1024
"""Bytes beside the message: its headers are kept for another attempt too."""


def channel_options(
    policy: RetryPolicy | None = None,
    /,
    *,
    services: Sequence[str] = ("",),
    codes: Sequence[str] | None = None,
    max_batch_bytes: int = BATCH_BYTES,
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
    bound = whole("max_batch_bytes", max_batch_bytes)
    made = grpc_options(policy or CHANNEL, codes=_codes(codes), methods=[_name(service) for service in _services(services)])
    options = list(made.value)
    if (policy or CHANNEL).max_attempts > 1:
        options.append(("grpc.per_rpc_retry_buffer_size", bound + ROOM))
    return options


def _codes(codes: Sequence[str] | None) -> tuple[str, ...]:
    if codes is None:
        return CODES
    return (codes,) if isinstance(codes, str) else tuple(getattr(code, "name", code) for code in codes)


def _services(services: Sequence[str]) -> tuple[str, ...]:
    given = (services,) if isinstance(services, str) else tuple(services)
    if not given or not all(isinstance(service, str) for service in given):
        raise TypeError(f"services must be names such as 'shop.Orders', or '' for all of them: {services!r}")
    return given


def _name(service: str) -> dict[str, str]:
    if not service:
        return {}
    named, slash, method = service.strip("/").partition("/")
    return {"service": named, "method": method} if slash else {"service": named}
