"""Codes: which gRPC status codes a layer tries again, and which it leaves to others on the path. Needs no grpcio."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace

from ..core.fault import PERMANENT, Fault
from ..core.known.grpc import CODES, code_of, of_call, worth_it
from ..core.known.look import TIMEOUT
from ..errors import AttemptTimeout

EVERY = frozenset(
    """CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED
    FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED""".split()
)
LATE = "DEADLINE_EXCEEDED"
CHANNEL = "the channel"


class Claim:
    """The codes of a layer that tries its batches again as a whole, for as long as it is at one of them."""

    __slots__ = ("codes", "over")

    def __init__(self, codes: frozenset[str]) -> None:
        self.codes = codes
        self.over = False
        """A task that was begun meanwhile, and goes on, is on its own then."""

    def __contains__(self, code: str) -> bool:
        return code in self.codes and not self.over


CLAIMED: ContextVar[Claim] = ContextVar("redrive_claimed", default=Claim(frozenset()))  # noqa: B039  # nothing in it, ever
"""What the layer around this code has claimed: one inside leaves these codes to it."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A rule for `on=`: these codes and no others, and no error that is not gRPC's. Immutable: anything may share one."""

    codes: tuple[str, ...]
    below: frozenset[str] = frozenset()
    """Codes that the channel itself tries again: an error with one of them has been tried as often as it should be."""
    told: bool = False
    """Whether somebody has asked for these very codes; else they are the place's default."""
    claims: bool = False
    """Whether layers inside leave these codes to this one."""

    def __call__(self, error: Exception, /) -> Fault | None:
        if isinstance(error, AttemptTimeout):
            code, fault = LATE, TIMEOUT
        else:
            found = code_of(error)
            if found is None:
                return None
            code, fault = found, of_call(error)
        if code in self.below:
            return replace(fault, spent=CHANNEL) if fault.retryable else fault
        if code not in self.codes or (not self.claims and code in CLAIMED.get()):
            return PERMANENT
        if fault.retryable or CODES.get(code, PERMANENT).retryable:
            return fault
        return worth_it(error)
