"""Fault: what an error means. Rules turn an error into one."""

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
    """What an error means. Immutable: anything may share one."""

    kind: Kind
    after: float | None = None
    """Not before so many seconds: the server's own words (Retry-After, pushback)."""
    sent: bool = True
    """False: it certainly never reached the other side, so trying again is safe even without idempotency."""
    spent: str | None = None
    """The foreign layer that has already used up its retries on this error; None: nobody has."""
    status: int | None = None
    """The HTTP status, where there was one."""
    retryable: bool = field(init=False, repr=False, compare=False)
    """Whether trying again may help."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault is one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.after is not None:
            object.__setattr__(self, "after", max(0.0, real("after", self.after)))
        object.__setattr__(self, "retryable", self.kind in RETRYABLE)


TRANSIENT = Fault("transient")
PERMANENT = Fault("permanent")
UNKNOWN = Fault("unknown")

Rule: TypeAlias = type[Exception] | Callable[[Exception], "Fault | bool | None"]
"""An exception type (retry it), or a function: Fault or True/False decides, None leaves it to the next rule."""
Rules: TypeAlias = Rule | tuple[Rule, ...]
