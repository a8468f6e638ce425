"""Retries of gRPC on a path: those of a channel, read from its options, and the status codes.

Exactly one layer retries each code. `code_rule` decides when the layers are built. `CodeRule`
applies the decision to errors. This module does not import grpcio.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard

from ..core.classification.known.grpc import (
    CODES,
    code_name_of,
    fault_of_call,
    retryable_fault_of_call,
)
from ..core.classification.known.inspect import TIMEOUT
from ..core.fault import PERMANENT, Fault
from ..engine.retry import Retry
from ..errors import AttemptTimeout

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


# --- Status codes

ALL_CODES = frozenset(
    """CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS
    PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED
    INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED""".split()
)
DEFAULT_CODES = ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED")
"""Codes that a layer of Redrive retries by default, except those that the channel retries."""
TIMEOUT_CODE = "DEADLINE_EXCEEDED"
CHANNEL_LAYER = "the channel"

Behind: TypeAlias = ChannelOptions | Retry
"""What is between a layer and the server: the options of the channel, or another layer."""


class CodeClaim:
    """The codes of a layer that retries a batch as a whole, while it sends the batch."""

    __slots__ = ("codes", "has_ended")

    def __init__(self, codes: frozenset[str]) -> None:
        self.codes = codes
        self.has_ended = False
        """Set at the end: a task that was started meanwhile may still run."""

    def __contains__(self, code: str) -> bool:
        return code in self.codes and not self.has_ended


CLAIMED_CODES: ContextVar[CodeClaim] = ContextVar(
    "redrive_claimed",
    default=CodeClaim(frozenset()),  # noqa: B039  # it is never changed
)
"""The codes that a layer around this code claims. Layers inside do not retry them."""


@dataclass(frozen=True, slots=True)
class CodeRule:
    """A rule for `on=` that retries these gRPC codes and no other errors.

    Immutable: threads may share one.
    """

    codes: tuple[str, ...]
    channel_codes: frozenset[str] = frozenset()
    """Codes that the channel retries. Their errors have used up their retries."""
    is_explicit: bool = False
    """Whether the user chose the codes. If not, they are the default of the layer."""
    claims: bool = False
    """Whether layers inside leave these codes to this one."""

    def __call__(self, error: Exception, /) -> Fault | None:
        if isinstance(error, AttemptTimeout):
            code, fault = TIMEOUT_CODE, TIMEOUT
        else:
            name = code_name_of(error)
            if name is None:
                return None
            code, fault = name, fault_of_call(error)
        if code in self.channel_codes:
            return replace(fault, spent=CHANNEL_LAYER) if fault.retryable else fault
        if code not in self.codes or (not self.claims and code in CLAIMED_CODES.get()):
            return PERMANENT
        if fault.retryable or CODES.get(code, PERMANENT).retryable:
            return fault
        return retryable_fault_of_call(error)


def code_rule(behind: Behind, codes: Sequence[str] | None, /, *, claims: bool = False) -> CodeRule:
    """Return the rule of a layer: its codes, without those that the channel retries.

    Args:
        behind: What is between the layer and the server.
        codes: The codes. None: the default.
        claims: Whether layers inside leave their codes to this one.

    Raises:
        ValueError: A code is already retried behind this layer, or none is left.
    """
    inner_rule = None
    if isinstance(behind, Retry):
        inner_rule = _require_code_rule(behind)
        channel_codes = inner_rule.channel_codes
    else:
        channel_codes = frozenset(_channel_codes(behind))
    if codes is None:
        remaining = tuple(code for code in DEFAULT_CODES if code not in channel_codes)
        if not remaining:
            raise ValueError(
                f"codes: the channel already retries {_list(channel_codes)}, which leaves none "
                "for this layer; remove this layer, "
                "or pass fewer codes to channel_options(codes=...)"
            )
        return CodeRule(remaining, channel_codes, claims=claims)
    explicit = _check_codes(codes)
    if repeated := [code for code in explicit if code in channel_codes]:
        raise ValueError(
            f"codes: {_list(repeated)} is already retried by the channel, "
            "so attempts would multiply; remove it from codes=, "
            "or from channel_options(codes=...)"
        )
    inner_codes = inner_rule.codes if inner_rule is not None and inner_rule.is_explicit else ()
    if repeated := [code for code in explicit if code in inner_codes]:
        raise ValueError(
            f"codes: {_list(repeated)} is already retried by the layer in behind=, "
            "so attempts would multiply; remove it from one of the two"
        )
    return CodeRule(explicit, channel_codes, is_explicit=True, claims=claims)


def code_rule_of(retry: Retry, /) -> CodeRule | None:
    """Return the code rule of a `Retry`, if it has one."""
    rules = retry.settings.error_rules.rules
    return next((rule for rule in rules if isinstance(rule, CodeRule)), None)


def _require_code_rule(retry: Retry) -> CodeRule:
    rule = code_rule_of(retry)
    if rule is None:
        raise _not_behind(retry)
    return rule


def _channel_codes(behind: ChannelOptions) -> tuple[str, ...]:
    if not isinstance(behind, (list, tuple)) or (behind and not is_channel_options(behind)):
        raise _not_behind(behind)
    return channel_retries(behind).codes


def _not_behind(value: object) -> TypeError:
    return TypeError(
        "behind= takes the options of a channel, or a result of redrive.grpc.retry(...), not "
        f"{value!r}"
    )


def _check_codes(codes: Sequence[str]) -> tuple[str, ...]:
    if isinstance(codes, str):
        names: tuple[str, ...] = (codes,)
    else:
        names = tuple(getattr(code, "name", code) for code in codes)
    unknown = [name for name in names if name not in ALL_CODES]
    if names and not unknown:
        return names
    problem = "at least one; to turn retries off, use RetryPolicy.disabled()"
    if unknown:
        problem = f"not {', '.join(map(repr, unknown))}"
    raise ValueError(f"codes must be names of gRPC status codes, such as 'UNAVAILABLE': {problem}")


def _list(codes: Sequence[str] | frozenset[str]) -> str:
    return ", ".join(sorted(codes))
