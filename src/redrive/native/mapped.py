"""Mapped: a policy in the words of a client, and what of it the client has no place for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Generic, NamedTuple, TypeVar

from ..core.policy import RetryPolicy

T = TypeVar("T")

LOG = logging.getLogger("redrive.native")
FIELDS = tuple(field.name for field in fields(RetryPolicy))


class Mapped(NamedTuple, Generic[T]):
    """A client's own retry object, and the fields of the policy that it does not support. Immutable.

    Attributes:
        value: The client's retry object or arguments.
        dropped: Names of the fields that could not be carried over.
    """

    value: T
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Client:
    """How one client takes a policy. Immutable: anything may share one."""

    name: str
    words: Mapping[str, str]
    """What a field becomes there, by its name; a field that is missing has no place."""
    waits: Callable[[RetryPolicy, int], tuple[float, float]]
    """The shortest and the longest wait after failed attempt n (from 1), in seconds."""
    notes: tuple[str, ...] = ()
    """What else to know: what it retries, what it does in secret, whether it obeys Retry-After."""
    most_attempts: int | None = None
    """More are refused."""

    def says(self, field: str, policy: RetryPolicy) -> str | None:
        """What a field of this policy becomes; None: it has no place."""
        word = self.words.get(field)
        if word is not None and getattr(policy, field) is None:
            return "nothing"  # there is no limit to say
        return None if word is None else word.format(retries=policy.max_attempts - 1, **asdict(policy))

    def dropped(self, policy: RetryPolicy) -> tuple[str, ...]:
        """The fields that have no place, and would have meant something: a single attempt neither waits nor runs late."""
        if policy.max_attempts == 1:
            return ()
        return tuple(field for field in FIELDS if field not in self.words and getattr(policy, field) is not None)

    def check(self, policy: RetryPolicy) -> None:
        """Refuse what the client would change in silence."""
        if not isinstance(policy, RetryPolicy):
            raise TypeError(f"a mapping takes a RetryPolicy, not {type(policy).__name__}: {policy!r}")
        if self.most_attempts is not None and policy.max_attempts > self.most_attempts:
            raise ValueError(
                f"{self.name} makes {self.most_attempts} attempts at most, in silence; "
                f"max_attempts={policy.max_attempts} cannot be carried over"
            )

    def mapped(self, policy: RetryPolicy, value: T, *more: str) -> Mapped[T]:
        """The finished mapping; what is dropped (`more`: for this policy in particular) is told to the log, at debug."""
        without = self.dropped(policy)
        dropped = tuple(field for field in FIELDS if field in without or field in more)
        if dropped:
            LOG.debug("%s has no place for %s of %r", self.name, ", ".join(dropped), policy)
        return Mapped(value, dropped)


def as_asked(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    """The policy's own waits."""
    return policy.wait(attempt, 0.0), policy.wait(attempt, 1.0)
