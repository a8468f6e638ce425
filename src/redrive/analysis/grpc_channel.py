"""The retries of a gRPC channel, read from its options. It does not import grpcio."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

ChannelOptions: TypeAlias = Sequence[tuple[str, Any]]
"""The `options=` of a channel: pairs of a name and a value."""
SERVICE_CONFIG, ENABLE_RETRIES = "grpc.service_config", "grpc.enable_retries"
MAX_CHANNEL_ATTEMPTS = 5
"""grpcio reduces more attempts to 5 without a warning."""
JITTER_SHARE = 0.2
"""Part of the wait by which grpcio varies it."""


@dataclass(frozen=True, slots=True)
class ChannelRetries:
    """The retries that a channel makes. Immutable: threads may share one."""

    max_attempts: int = 1
    backoff_base: float = 0.0
    backoff_max: float = 0.0
    multiplier: float = 2.0
    codes: tuple[str, ...] = ()

    def wait(self, attempt: int, draw: float, /) -> float:
        """Return the seconds to wait after a failed attempt, from 1."""
        try:
            wait = self.backoff_base * self.multiplier ** (attempt - 1)
        except OverflowError:
            wait = self.backoff_max
        return min(wait, self.backoff_max) * (1 - JITTER_SHARE + 2 * JITTER_SHARE * draw)


NO_RETRIES = ChannelRetries()


def channel_retries(options: ChannelOptions, /) -> ChannelRetries:
    """Return the retries of a channel with these options.

    If they differ by method, the result has the maximum of each number.
    """
    policies = [_retries_of(config) for config in _method_configs(options)]
    retrying = [policy for policy in policies if policy.max_attempts > 1]
    if not retrying:
        return NO_RETRIES
    return ChannelRetries(
        max(policy.max_attempts for policy in retrying),
        max(policy.backoff_base for policy in retrying),
        max(policy.backoff_max for policy in retrying),
        max(policy.multiplier for policy in retrying),
        tuple({code: None for policy in retrying for code in policy.codes}),
    )


def path(options: ChannelOptions, method: str, /) -> list[tuple[str, Any]]:
    """Return the channel options that apply to one method.

    Args:
        options: Options of the channel.
        method: The method, such as `"/shop.Orders/Get"`.

    Returns:
        The options with the part of the service config that applies.
    """
    service, _, name = method.strip("/").partition("/")
    if not service or not name:
        raise ValueError(f"a method must be written /package.Service/Method, not {method!r}")
    # The most specific config applies: of the method, of its service, or of all services.
    for scope in ({"service": service, "method": name}, {"service": service}, {}):
        for config in _method_configs(options):
            if any(_name_fields(entry) == scope for entry in config.get("name", ())):
                only = json.dumps({"methodConfig": [{**config, "name": [{}]}]})
                return [(key, only if key == SERVICE_CONFIG else value) for key, value in options]
    return [(key, value) for key, value in options if key != SERVICE_CONFIG]


def is_channel_options(value: object, /) -> TypeGuard[ChannelOptions]:
    """Return whether a value looks like the options of a channel."""
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(_is_pair(pair) and isinstance(pair[0], str) for pair in value)
        and any(pair[0].startswith("grpc.") for pair in value)
    )


def _is_pair(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2


def _method_configs(options: ChannelOptions) -> list[dict[str, Any]]:
    is_sequence = not isinstance(options, (str, bytes, Mapping))
    if not is_sequence or not all(_is_pair(pair) for pair in options):
        raise TypeError(
            f"the options of a channel must be pairs of a name and a value, not {options!r}"
        )
    by_name = dict(options)
    text = by_name.get(SERVICE_CONFIG)
    if text is None or by_name.get(ENABLE_RETRIES, 1) == 0:
        return []
    try:
        configs = json.loads(text).get("methodConfig", ())
        return [config for config in configs if isinstance(config, dict)]
    except (AttributeError, TypeError, ValueError) as problem:
        raise ValueError(
            f"{SERVICE_CONFIG} of the channel is not the JSON of a service config, so every call "
            f"would fail: {problem}"
        ) from None


def _retries_of(config: dict[str, Any]) -> ChannelRetries:
    policy = config.get("retryPolicy")
    if not isinstance(policy, dict):
        return NO_RETRIES
    try:
        return ChannelRetries(
            min(MAX_CHANNEL_ATTEMPTS, int(policy["maxAttempts"])),
            _seconds(policy["initialBackoff"]),
            _seconds(policy["maxBackoff"]),
            float(policy["backoffMultiplier"]),
            tuple(policy["retryableStatusCodes"]),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(
            f"a retryPolicy of the channel lacks {problem}, so every call would fail: {policy}"
        ) from None


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def _name_fields(name: object) -> dict[str, Any]:
    """Return the fields of a `name` in a method config that are not empty."""
    if not isinstance(name, dict):
        return {"": name}
    return {key: value for key, value in name.items() if value}
