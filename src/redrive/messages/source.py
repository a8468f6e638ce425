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
    """A source of events that workers read. An entry is acknowledged after it was stored."""

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters."""

    def chores(self, inbox: Inbox, /) -> Sequence[Chore]:
        """Return the tasks by which a worker reads the source.

        Args:
            inbox: Where events are stored.

        Returns:
            The tasks.
        """

    def kinds(self, inbox: Inbox, /) -> Sequence[Kind]:
        """Return the job types that run entries which could not be decoded.

        Args:
            inbox: Where events are stored.

        Returns:
            The job types.
        """


def checked(given: Any, /) -> tuple[Source, ...]:
    """What `App(sources=...)` was given; TypeError or ValueError says what is wrong with it."""
    if isinstance(given, Source) or not isinstance(given, Sequence):
        raise TypeError(f"sources= must be a list; pass [{given!r}]")
    for one in given:
        if not isinstance(one, Source):
            raise TypeError(f"a source must be a RedisStream, or an object with the same name, chores and kinds: {one!r}")
    names = [one.name for one in given]
    if len(set(names)) < len(names):
        raise ValueError(f"two sources have the same name; rename one: {', '.join(sorted(names))}")
    return tuple(given)
