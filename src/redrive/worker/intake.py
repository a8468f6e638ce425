"""Intake: what sources have read, on its way into the ledger: it is written in the worker's own turn.

Events, the jobs of their handlers and the ends of the jobs before become durable together, and jobs for which there is room
are begun in the same transaction: nobody has to claim them.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol, runtime_checkable

from ..ledger.arrival import Arriving, Received

LINGER = 0.1
"""Seconds that what has come may wait for room, where jobs are short: there will be some in a moment."""

SOON = 0.05
"""Seconds that what has ended waits for the next that a source brings, where there is more to read: both are one commit."""

TOGETHER = 100
"""Events of several that are stored in one transaction."""


class Arrival:
    """Events that a source has read together. Made by one thread, stored by another."""

    __slots__ = ("_over", "events", "fresh", "kinds", "since")

    def __init__(self, events: Sequence[Arriving]) -> None:
        self.events = events
        self.kinds = Counter([part.kind for one in events for part in one.parts])
        self.since = monotonic()
        self.fresh: list[bool] | None = None
        """Which of them were new; None: they are not stored."""
        self._over = threading.Event()

    def wait(self) -> bool:
        """Until it is decided; whether they are stored."""
        self._over.wait()
        return self.fresh is not None

    @property
    def over(self) -> bool:
        """Whether it is decided."""
        return self._over.is_set()

    def end(self, fresh: list[bool] | None, /) -> None:
        """They are stored; or (None) they are not, and whoever read them has to see to it."""
        self.fresh = fresh
        self._over.set()


class Intake:
    """What waits for the ledger thread. Threads may share it."""

    def __init__(self, poke: Callable[[], None]) -> None:
        self._poke = poke
        self._lock = threading.Lock()
        self._waiting: list[Arrival] = []
        self._closed = False
        self._soon = 0.0
        """Until when more may come, on the monotonic clock."""

    def put(self, events: Sequence[Arriving], /, *, more: bool = False) -> Arrival:
        """Have these stored, soon. more: there is more to read, and it is being read."""
        arrival = Arrival(events)
        with self._lock:
            if not self._closed:
                self._waiting.append(arrival)
                self._soon = arrival.since + SOON if more else 0.0
        if self._closed:
            arrival.end(None)
        else:
            self._poke()
        return arrival

    def dry(self) -> None:
        """There is nothing more to read for now: what has ended need not wait for it."""
        if self._soon:
            self._soon = 0.0
            self._poke()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def comes(self) -> bool:
        """Whether something waits, or will in a moment."""
        return bool(self._waiting) or monotonic() < self._soon

    @property
    def until(self) -> float:
        """How long the first one may wait, on the monotonic clock."""
        first = next(iter(self._waiting), None)
        return math.inf if first is None else first.since + LINGER

    @property
    def next(self) -> float:
        """When whoever waits for something to come had better look again."""
        return min(self.until, self._soon if monotonic() < self._soon else math.inf)

    def waiting(self) -> list[Arrival]:
        """The first that waits, and as many of the others as go with it."""
        found: list[Arrival] = []
        many = 0
        for arrival in list(self._waiting):
            many += len(arrival.events)
            if found and many > TOGETHER:
                break
            found.append(arrival)
        return found

    def stored(self, arrivals: Sequence[Arrival], write: Callable[[Sequence[Arriving]], Received], /) -> Received:
        """Write these, the first ones, and tell whoever brought them."""
        with self._lock:
            del self._waiting[: len(arrivals)]
        try:
            found = write([one for arrival in arrivals for one in arrival.events])
        except BaseException:
            for arrival in arrivals:
                arrival.end(None)
            raise
        fresh = iter(found.fresh)
        for arrival in arrivals:
            arrival.end([next(fresh) for _ in arrival.events])
        return found

    def close(self) -> None:
        """Nothing more is stored here: whoever brings something, or has, is told so."""
        with self._lock:
            self._closed, self._soon = True, 0.0
            left, self._waiting = self._waiting, []
        for arrival in left:
            arrival.end(None)


@runtime_checkable
class Brings(Protocol):
    """A chore that reads events, and leaves it to the worker to store them."""

    def brings_to(self, intake: Intake, /) -> None:
        """Before it is done for the first time: where to bring them."""

    def end(self) -> None:
        """It is not done any more: see to what was brought and is not stored."""
