"""Channel: what the options of a gRPC channel make it try again by itself, read from them. Needs no grpcio."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

Options: TypeAlias = Sequence[tuple[str, Any]]
"""What `options=` of a channel takes: pairs of a name and a value."""
CONFIG, RETRIES = "grpc.service_config", "grpc.enable_retries"
MOST = 5
"""Attempts: grpcio cuts more than these down to 5, in silence."""
SPREAD = 0.2
"""Waits are spread by so much, up and down."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The channel's own retries. Immutable: anything may share one."""

    max_attempts: int = 1
    backoff_base: float = 0.0
    backoff_max: float = 0.0
    multiplier: float = 2.0
    codes: tuple[str, ...] = ()

    def wait(self, attempt: int, draw: float, /) -> float:
        """Seconds after failed attempt n, from 1."""
        try:
            wait = self.backoff_base * self.multiplier ** (attempt - 1)
        except OverflowError:
            wait = self.backoff_max
        return min(wait, self.backoff_max) * (1 - SPREAD + 2 * SPREAD * draw)


OFF = Channel()


def channel(options: Options, /) -> Channel:
    """What a channel with these options does by itself. For several methods: the most of each, since any may be called."""
    found = [_retries(config) for config in _methods(options)]
    some = [one for one in found if one.max_attempts > 1]
    if not some:
        return OFF
    return Channel(
        max(one.max_attempts for one in some),
        max(one.backoff_base for one in some),
        max(one.backoff_max for one in some),
        max(one.multiplier for one in some),
        tuple({code: None for one in some for code in one.codes}),
    )


def path(options: Options, method: str, /) -> list[tuple[str, Any]]:
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
    # The nearest one is in force: the method's own, its service's, everybody's. One of everybody's has no service.
    for wanted in ({"service": service, "method": name}, {"service": service}, {}):
        for config in _methods(options):
            if any(_named(one) == wanted for one in config.get("name", ())):
                alone = json.dumps({"methodConfig": [{**config, "name": [{}]}]})
                return [(key, alone if key == CONFIG else value) for key, value in options]
    return [(key, value) for key, value in options if key != CONFIG]


def are_options(given: object, /) -> TypeGuard[Options]:
    """Whether this is what a channel takes as its options."""
    return (
        isinstance(given, (list, tuple))
        and bool(given)
        and all(isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in given)
        and any(pair[0].startswith("grpc.") for pair in given)
    )


def _methods(options: Options) -> list[dict[str, Any]]:
    if isinstance(options, (str, bytes, Mapping)) or not all(isinstance(one, (list, tuple)) and len(one) == 2 for one in options):
        raise TypeError(f"the options of a channel must be pairs of a name and a value, not {options!r}")
    given = dict(options)
    text = given.get(CONFIG)
    if text is None or given.get(RETRIES, 1) == 0:
        return []
    try:
        config = json.loads(text)
        return [one for one in config.get("methodConfig", ()) if isinstance(one, dict)]
    except (AttributeError, TypeError, ValueError) as wrong:
        raise ValueError(
            f"{CONFIG} of the channel is not the JSON of a service config, so every call would fail: {wrong}"
        ) from None


def _retries(config: dict[str, Any]) -> Channel:
    policy = config.get("retryPolicy")
    if not isinstance(policy, dict):
        return OFF
    try:
        return Channel(
            min(MOST, int(policy["maxAttempts"])),
            _seconds(policy["initialBackoff"]),
            _seconds(policy["maxBackoff"]),
            float(policy["backoffMultiplier"]),
            tuple(policy["retryableStatusCodes"]),
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise ValueError(f"a retryPolicy of the channel lacks {wrong}, so every call would fail: {policy}") from None


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def _named(name: object) -> dict[str, Any]:
    return {key: value for key, value in name.items() if value} if isinstance(name, dict) else {"": name}
