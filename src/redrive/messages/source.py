"""Source: the protocol of a source of events that workers read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..worker.job_type import JobType
from ..worker.tasks import BackgroundTask

if TYPE_CHECKING:
    from .inbox import Inbox


@runtime_checkable
class Source(Protocol):
    """A source of events that workers read. An entry is acknowledged after it was stored."""

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters."""

    def chores(self, inbox: Inbox, /) -> Sequence[BackgroundTask]:
        """Return the tasks by which a worker reads the source.

        Args:
            inbox: Where events are stored.

        Returns:
            The tasks.
        """

    def kinds(self, inbox: Inbox, /) -> Sequence[JobType]:
        """Return the job types that run entries which could not be decoded.

        Args:
            inbox: Where events are stored.

        Returns:
            The job types.
        """


def check_sources(sources: Any, /) -> tuple[Source, ...]:
    """Validate the option `sources=` of an app.

    Raises:
        TypeError: It is not a list of sources.
        ValueError: Two sources have one name.
    """
    if isinstance(sources, Source) or not isinstance(sources, Sequence):
        raise TypeError(f"sources= must be a list; pass [{sources!r}]")
    for source in sources:
        if not isinstance(source, Source):
            raise TypeError(
                "a source must be a RedisStream, or an object with the same name, chores and "
                f"kinds: {source!r}"
            )
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"two sources have the same name; rename one: {', '.join(sorted(names))}")
    return tuple(sources)
