"""Chore: something periodic that a worker does for its app, beside the jobs: cron schedules, source readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol, runtime_checkable


class Chore(Protocol):
    """Each has a thread of its own in the worker. Several workers do it at once: it must be safe then."""

    @property
    def name(self) -> str:
        """For records and threads."""

    @property
    def every(self) -> float:
        """Seconds from the end of one time to the beginning of the next."""

    def do(self, now: datetime, /) -> None:
        """Once. now: by the ledger's clock. What it raises is recorded, and it is done again, later and later."""


@runtime_checkable
class Drains(Protocol):
    """A chore that has things under way when the worker stops."""

    def wake(self) -> None:
        """The worker stops: don't wait for anything. From any thread, and from a signal handler."""

    def drain(self, left: Callable[[], float], /) -> None:
        """End them, and give back what has not ended. left: seconds that there are; fewer at each look, and none after a second
        signal. In the thread of the chore; nothing is done after it."""


@runtime_checkable
class Signs(Protocol):
    """A chore that takes leases of its own: they bear its worker's name, or nobody could tell whose they are."""

    def sign(self, worker: str, /) -> None:
        """As its worker is called. Before it is done for the first time."""


@runtime_checkable
class Tallies(Protocol):
    """A chore that does work of its own, and counts what became of it."""

    @property
    def tally(self) -> Mapping[str, int]:
        """How many are running, and how many have ended how. From any thread."""
