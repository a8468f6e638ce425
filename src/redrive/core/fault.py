"""Fault: the meaning of an error, as rules return it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .seconds import real

Kind: TypeAlias = Literal["transient", "throttled", "timeout", "permanent", "unknown"]
KINDS: tuple[Kind, ...] = ("transient", "throttled", "timeout", "permanent", "unknown")
RETRYABLE: frozenset[Kind] = frozenset(("transient", "throttled", "timeout"))


@dataclass(frozen=True, slots=True)
class Fault:
    """The meaning of an error, as a rule returns it.

    `retryable` is True for the kinds `transient`, `throttled` and `timeout`.

    Immutable: threads, event loops and forked children may share one.

    Args:
        kind: `"transient"`, `"throttled"`, `"timeout"`, `"permanent"` or `"unknown"`.
        after: Minimum number of seconds until the next attempt, as the server asked (Retry-After,
            pushback).
        sent: False if the request certainly never reached the server. A retry is then safe without
            idempotency.
        spent: Name of another library's retry layer that has used up its retries on this error.
        status: HTTP status, if there was one.

    Raises:
        ValueError: The kind is unknown.
    """

    kind: Kind
    after: float | None = None
    sent: bool = True
    spent: str | None = None
    status: int | None = None
    retryable: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.after is not None:
            object.__setattr__(self, "after", max(0.0, real("after", self.after)))
        object.__setattr__(self, "retryable", self.kind in RETRYABLE)


TRANSIENT = Fault("transient")
PERMANENT = Fault("permanent")
UNKNOWN = Fault("unknown")

Rule: TypeAlias = type[Exception] | Callable[[Exception], "Fault | bool | None"]
"""An exception type to retry, or a function of the error. The function returns a Fault, True or
False, or None to leave the decision to the next rule."""
Rules: TypeAlias = Rule | tuple[Rule, ...]
