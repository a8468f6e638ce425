"""Owner: which layer on a path tries a status code again. Worked out when the layers are built: exactly one for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from .channel import Options, are_options, channel
from .codes import EVERY, Codes
from .retry import Retry

Behind: TypeAlias = Options | Retry
"""What lies between a layer and the server: the options of the channel, or another layer, which knows its own."""
DEFAULT = ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED")
"""What a layer of Redrive tries again on a gRPC path, but for what the channel owns."""


def owner(behind: Behind, codes: Sequence[str] | None, /, *, claims: bool = False) -> Codes:
    """The rule of a layer: its codes, without those that the channel owns. Told to take one of those, it is refused.

    codes: None, the default. claims: whether layers inside leave theirs to this one.
    """
    inside, below = None, frozenset[str]()
    if isinstance(behind, Retry):
        inside = _codes_of(behind)
        below = inside.below
    else:
        below = frozenset(_channel(behind))
    if codes is None:
        left = tuple(code for code in DEFAULT if code not in below)
        if not left:
            raise ValueError(
                f"codes: the channel already retries {_list(below)}, which leaves none for this layer; remove this layer, "
                f"or pass fewer codes to channel_options(codes=...)"
            )
        return Codes(left, below, claims=claims)
    told = _checked(codes)
    if double := [code for code in told if code in below]:
        raise ValueError(
            f"codes: {_list(double)} is already retried by the channel, so attempts would multiply; remove it from codes=, "
            f"or from channel_options(codes=...)"
        )
    if inside is not None and inside.told and (double := [code for code in told if code in inside.codes]):
        raise ValueError(
            f"codes: {_list(double)} is already retried by the layer in behind=, so attempts would multiply; remove it from "
            f"one of the two"
        )
    return Codes(told, below, told=True, claims=claims)


def codes_of(retry: Retry, /) -> Codes | None:
    """The rule by codes that a `Retry` has, if it has one."""
    return next((rule for rule in retry.settings.judgement.rules if isinstance(rule, Codes)), None)


def _codes_of(retry: Retry) -> Codes:
    found = codes_of(retry)
    if found is None:
        raise TypeError(f"behind= takes the options of a channel, or a result of redrive.grpc.retry(...), not {retry!r}")
    return found


def _channel(behind: Options) -> tuple[str, ...]:
    if not isinstance(behind, (list, tuple)) or (behind and not are_options(behind)):
        raise TypeError(f"behind= takes the options of a channel, or a result of redrive.grpc.retry(...), not {behind!r}")
    return channel(behind).codes


def _checked(codes: Sequence[str]) -> tuple[str, ...]:
    given = (codes,) if isinstance(codes, str) else tuple(getattr(code, "name", code) for code in codes)
    unknown = [code for code in given if code not in EVERY]
    if unknown or not given:
        what = (
            f"not {', '.join(map(repr, unknown))}" if unknown else "at least one; to turn retries off, use RetryPolicy.disabled()"
        )
        raise ValueError(f"codes must be names of gRPC status codes, such as 'UNAVAILABLE': {what}")
    return given


def _list(codes: Sequence[str] | frozenset[str]) -> str:
    return ", ".join(sorted(codes))
