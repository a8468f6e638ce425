"""Source: where events come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..worker.chore import Chore
from ..worker.kind import Kind

if TYPE_CHECKING:
    from .inbox import Inbox


@runtime_checkable
class Source(Protocol):
    """Where events come from. The worker reads it; what is not stored is not acknowledged."""

    @property
    def name(self) -> str:
        """As events and dead letters name it."""

    def chores(self, inbox: Inbox, /) -> Sequence[Chore]:
        """What a worker does, again and again, to read it."""

    def kinds(self, inbox: Inbox, /) -> Sequence[Kind]:
        """What runs what could not be read: a dead letter of it can be replayed, like any other."""


def checked(given: Any, /) -> tuple[Source, ...]:
    """What `App(sources=...)` was given; TypeError or ValueError says what is wrong with it."""
    if isinstance(given, Source) or not isinstance(given, Sequence):
        raise TypeError(f"sources= is a list: [{given!r}]")
    for one in given:
        if not isinstance(one, Source):
            raise TypeError(f"a source is a RedisStream, or has a name, chores and kinds as it has: {one!r}")
    names = [one.name for one in given]
    if len(set(names)) < len(names):
        raise ValueError(f"two sources of one name: {', '.join(sorted(names))}")
    return tuple(given)
