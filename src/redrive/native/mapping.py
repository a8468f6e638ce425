"""ClientMapping: how a client takes the fields of a RetryPolicy, and which it ignores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Generic, NamedTuple, TypeVar

from ..core.policy import RetryPolicy

T = TypeVar("T")

LOG = logging.getLogger("redrive.native")
POLICY_FIELDS = tuple(field.name for field in fields(RetryPolicy))


class Mapped(NamedTuple, Generic[T]):
    """A client's own retry object, and the fields of the policy that it ignores. Immutable.

    Attributes:
        value: The client's retry object or arguments.
        dropped: Names of the fields that could not be carried over.
    """

    value: T
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientMapping:
    """How one client takes a policy. Immutable."""

    name: str
    templates: Mapping[str, str]
    """The client's form of each supported field, for people. Other fields are dropped."""
    wait_range: Callable[[RetryPolicy, int], tuple[float, float]]
    """Returns the shortest and the longest wait after failed attempt n (from 1), in seconds."""
    notes: tuple[str, ...] = ()
    """What users should know: errors that are retried, hidden retries, Retry-After."""
    max_attempts: int | None = None
    """More attempts are rejected."""
    package: str = ""
    """The package to install. Empty: the mapping does not need the client."""

    def describe_field(self, field: str, policy: RetryPolicy) -> str | None:
        """Return the client's form of a field of this policy. None if it is dropped."""
        template = self.templates.get(field)
        if template is None:
            return None
        if getattr(policy, field) is None:
            return "nothing"  # The policy has no such limit.
        return template.format(retries=policy.max_attempts - 1, **asdict(policy))

    def dropped_fields(self, policy: RetryPolicy) -> tuple[str, ...]:
        """Return the fields of this policy that the client ignores.

        With a single attempt no other field has an effect, so none is dropped.
        """
        if policy.max_attempts == 1:
            return ()
        return tuple(
            field
            for field in POLICY_FIELDS
            if field not in self.templates and getattr(policy, field) is not None
        )

    def check(self, policy: RetryPolicy) -> None:
        """Raise ValueError if the client would silently reduce the attempts."""
        if not isinstance(policy, RetryPolicy):
            kind = type(policy).__name__
            raise TypeError(f"a mapping takes a RetryPolicy, not {kind}: {policy!r}")
        if self.max_attempts is not None and policy.max_attempts > self.max_attempts:
            raise ValueError(
                f"{self.name} makes {self.max_attempts} attempts at most, in silence; "
                f"max_attempts={policy.max_attempts} cannot be carried over"
            )

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Import the client in the block. If it is missing, the error says what to install."""
        try:
            yield
        except ModuleNotFoundError as missing:
            package = self.package
            message = f"redrive.native needs {package} for {self.name}: pip install {package}"
            raise ImportError(message, name=missing.name) from missing

    def to_mapped(self, policy: RetryPolicy, value: T, *also_dropped: str) -> Mapped[T]:
        """Return the client's object with the dropped fields, which are logged at level debug."""
        unsupported = self.dropped_fields(policy)
        dropped = tuple(
            field for field in POLICY_FIELDS if field in unsupported or field in also_dropped
        )
        if dropped:
            LOG.debug("%s has no place for %s of %r", self.name, ", ".join(dropped), policy)
        return Mapped(value, dropped)


def policy_wait_range(policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    """Return the waits of the policy itself, for clients that use them."""
    return policy.wait(attempt, 0.0), policy.wait(attempt, 1.0)
