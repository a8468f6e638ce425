"""Crew: who does the work, and what of it is in hand: threads for plain functions, an event loop for async ones."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from ..ledger.crashpoint import crash_point
from ..ledger.ledger import Ledger
from ..ledger.record import Lease
from .finished import Finished
from .hand import Hand
from .kind import Kind
from .loop import Loop
from .pool import Pool
from .room import Room
from .scope import Around

GRACE = 1.0
"""Seconds that cancelled work has to end."""


class Crew:
    """Belongs to the ledger thread."""

    def __init__(
        self, theirs: Ledger, known: Mapping[str, Kind], hand: Hand, room: Room, around: Around, *, threads: int,
        told: Callable[[list[Finished]], None], name: str,
    ) -> None:  # fmt: skip
        """theirs: the ledger for transactions of the work, which may have all of its connections in use for long."""
        self._known, self._hand, self._room = known, hand, room
        self._unstarted: deque[Lease] = deque()
        """Claimed last attempts that wait for a thread. Each is started just before it runs."""
        self._startable: list[Lease] = []
        """Claimed last attempts that have a thread, or run on the event loop."""
        self._pool = Pool(theirs, around, threads, told, name)
        self._loop = Loop(around, told, f"{name}-loop") if any(kind.colour == "async" for kind in known.values()) else None

    def give(self, leases: Sequence[Lease], /) -> None:
        """Run the started ones. The others wait for `starting`."""
        if not leases:
            return
        crash_point("worker.claimed")
        known = self._known
        both = [(known[lease.kind], lease) for lease in leases]
        self._hand.take(both)
        threads = self._room.takes(both)
        if not all(lease.started for lease in leases):
            for lease in leases:
                if not lease.started:
                    (self._unstarted if self._room.shares(lease) else self._startable).append(lease)
            both = [each for each in both if each[1].started]
        tasks = [each for each in both if each[0].colour == "async"] if self._loop is not None else []
        plain = [each for each in both if each[0].colour != "async"] if tasks else both
        if plain:
            self._pool.give(plain, max(1, math.ceil(threads - 1e-9)))
        if tasks and self._loop is not None:
            self._loop.give(tasks)

    @property
    def startable(self) -> bool:
        """Whether an unstarted lease can run at once."""
        return bool(self._startable) or (bool(self._unstarted) and self._room.startable > 0)

    def starting(self) -> list[Lease]:
        """Take the unstarted leases that can run at once: start them in the ledger, then pass them to `run` or `drop`."""
        leases, self._startable = self._startable, []
        if self._unstarted:
            free = min(len(self._unstarted), self._room.startable)
            shared = [self._unstarted.popleft() for _ in range(free)]
            self._room.start(shared)
            leases += shared
        return leases

    def run(self, leases: Sequence[Lease], /) -> None:
        """Run these last attempts before everything else."""
        both = [(self._known[lease.kind], lease) for lease in leases]
        self._hand.take(both)
        plain = [each for each in both if each[0].colour != "async"]
        tasks = [each for each in both if each[0].colour == "async"]
        if plain:
            self._pool.give_first(plain, self._room.threads_for(kind.name for kind, _ in plain))
        if tasks and self._loop is not None:
            self._loop.give(tasks)

    def drop(self, leases: Sequence[Lease], /) -> None:
        """These do not run."""
        self._room.gives(leases)
        self._hand.lose(leases)

    def drop_unstarted(self) -> list[Lease]:
        """Drop all leases that are not started."""
        leases = [*self._startable, *self._unstarted]
        self._startable.clear()
        self._unstarted.clear()
        self.drop(leases)
        return leases

    def back(self, finished: Sequence[Finished], /) -> None:
        """Attempts were made: they are in hand no more."""
        leases = [one.lease for one in finished]
        self._room.took([(one.kind.name, one.seconds) for one in finished])
        self._room.gives(leases)
        self._hand.lose(leases)

    @property
    def waiting(self) -> bool:
        """Whether anything waits for a thread."""
        return self._pool.waiting

    @property
    def waiting_last(self) -> bool:
        """Whether a started last attempt waits for a thread."""
        return self._pool.waiting_last

    def help(self, *, late: bool) -> None:
        """Wake one more thread for waiting jobs. late: wake all threads if a started last attempt is among them."""
        if self._pool.waiting:
            self._pool.help(self._pool.size if late and self._pool.waiting_last else 1)

    def cancel(self, leases: Sequence[Lease] | None = None, /) -> None:
        """Stop these, or all, as far as they can be stopped."""
        if self._loop is not None:
            self._loop.cancel(leases)

    def end(self, poke: threading.Event, collect: Callable[[], None], /) -> None:
        """Cancel what can be cancelled, give it a moment to end, and take back what has not begun."""
        self.cancel()
        until = monotonic() + GRACE
        while any(held.kind.colour == "async" for held in self._hand.all()) and monotonic() < until:
            poke.wait(0.02)
            poke.clear()
            collect()
        self._pool.empty()

    def close(self) -> None:
        """Let everybody go; who is at something ends after it."""
        self._pool.close()
        if self._loop is not None:
            self._loop.close()
