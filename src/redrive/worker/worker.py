"""Worker: takes jobs from the ledger, runs them, and says what became of them."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime
from time import monotonic
from types import TracebackType
from typing import Self

from ..core.clock import SYSTEM
from ..core.seconds import Seconds, dated_duration, seconds, whole_number
from ..journal.bus import ATTEMPT_WRAPPERS, emit
from ..journal.redaction import redact_text
from ..ledger.ledger import DAY, Ledger
from .chore import Chore, Drains, Signs, Tallies
from .clerk import Clerk
from .intake import Brings
from .kind import Kind
from .parking import Parking
from .process import identity
from .status import Status
from .upkeep import FOREVER

LEASE = 7.0
"""Seconds, renewed four times in that: long enough for a pause of all Python, short enough for who waits for a dead worker."""
DRAIN = 30.0
KEEP = 30 * DAY
GRACE = 3.0
"""Seconds that a chore has to give back what it holds, when all others have ended; and all of them, once `drain` is over."""
SILENT = 2.0
"""Seconds: a worker that stops gives up on a statement that was not answered for so long."""
UNHEALTHY = 15.0
"""Seconds without a completed turn; an idle worker has one every five."""
CHORE_PAUSE = 5.0
"""Seconds; the longest wait of a chore that fails: a stream is read soon after its server is back."""


def kept(keep: Seconds | None, /) -> float:
    """Seconds for which what has ended is kept; infinite: for ever."""
    return KEEP if keep is None else FOREVER if keep == FOREVER else dated_duration("keep", keep)


class Worker:
    """Claims jobs from the ledger and runs them, until it is stopped. Creating one opens nothing.

    Use it as a context manager, or call `start` and `close`, or `run` in your own thread.

    Threads may share it. A forked child makes its own.
    """

    def __init__(
        self, ledger: Ledger, kinds: Iterable[Kind] | Mapping[str, Kind], /, *, threads: int = 8, tasks: int = 100,
        drain: Seconds = DRAIN, chores: Sequence[Chore] = (), name: str | None = None, lease: Seconds = LEASE,
        parking: Parking | None = None, keep: Seconds | None = None,
    ) -> None:  # fmt: skip
        """threads: plain functions at once; tasks: async ones at once. drain: how long what runs may take to end when the worker
        stops; what has not ended then goes back, uncharged. lease: how long a job stays ours without a sign of life.
        parking: when an outage parks a kind (default: 10 jobs, 90 %; off: `Parking.disabled()`).
        keep: how long done jobs are kept before they are pruned (default: 30 days; for ever: `math.inf`).
        name: what its name begins with (default: the host's); the rest is the process's own.
        """
        self._ledger = ledger
        given = kinds.values() if isinstance(kinds, Mapping) else kinds
        self._kinds = {kind.name: kind for kind in given}
        self._threads, self._tasks = whole_number("threads", threads), whole_number("tasks", tasks)
        self._drain = seconds("drain", drain)
        self._lease = dated_duration("lease", lease)
        self._keep = kept(keep)
        self._parking = Parking() if parking is None else parking
        self._chores = tuple(chores)
        # Never the name of another process, not even of one before this: its leases would seem to be held by one that lives.
        self.name = f"{socket.gethostname() if name is None else name}-{os.getpid()}-{secrets.token_hex(3)}"
        for chore in self._chores:
            if isinstance(chore, Signs):
                chore.sign(self.name)
        self._own = ledger
        """For the ledger thread alone, where it can have connections of its own."""
        self._clerk: Clerk | None = None
        self._thread: threading.Thread | None = None
        self._since: datetime = SYSTEM.now()
        self._over = threading.Event()
        self._failing: dict[str, str] = {}
        self._told = False
        """To stop; perhaps before it was started."""
        self._until: float | None = None
        """When what runs must have ended, on the monotonic clock."""

    def run(self, stop: threading.Event | None = None, /) -> None:
        """Work until `stop` is set or `stop()` is called, then drain.

        It returns at most 3 s after the drain, even if a thread is blocked.

        Args:
            stop: Event that stops the worker.
        """
        self.start()
        try:
            while self._is_running():
                if stop is not None and stop.is_set():
                    self.stop()
        except BaseException:  # Ctrl+C, where nobody has made another arrangement
            self.stop(now=True)
            self._wait()
            raise

    def _is_running(self) -> bool:
        """Whether to go on waiting for it; waits a little itself, so that signals are dealt with in between."""
        thread = self._thread
        if thread is None:
            return False
        if self._until is not None and monotonic() > self._until + GRACE:
            return False  # blocked: its leases run out by themselves
        thread.join(0.1)
        return thread.is_alive()

    def _wait(self) -> None:
        while self._is_running():
            pass

    def start(self) -> Self:
        """Work in the background. Returns when the worker is ready to claim jobs.

        Returns:
            The worker.

        Raises:
            RuntimeError: It was started before.
        """
        if self._thread is not None:
            raise RuntimeError("this worker was already started; create a new one")
        info = {
            "process": identity(),
            "kinds": sorted(self._kinds),
            "threads": self._threads,
            "tasks": self._tasks,
            "lease": self._lease,
        }
        self._since = SYSTEM.now()
        self._own = self._ledger.beside()
        self._clerk = Clerk(
            self._own, self._ledger, _wrapped(self._kinds), name=self.name, threads=self._threads, tasks=self._tasks,
            lease=self._lease, drain=self._drain, parking=self._parking, keep=self._keep, info=info, context=copy_context(),
        )  # fmt: skip
        self._clerk.failing = self._failing
        if self._told:
            self._clerk.stop()
        self._thread = threading.Thread(target=self._work, args=(self._clerk,), name=self.name, daemon=True)
        self._thread.start()
        return self

    def _work(self, clerk: Clerk) -> None:
        others = [threading.Thread(target=self._listen, args=(clerk,), name=f"{self.name}-wake", daemon=True)]
        draining: list[threading.Thread] = []
        for chore in self._chores:
            thread = threading.Thread(target=self._do, args=(chore, clerk), name=f"{self.name}-{chore.name}", daemon=True)
            (draining if isinstance(chore, Drains) else others).append(thread)
        for thread in (*others, *draining):
            thread.start()
        try:
            clerk.run()
        finally:
            clerk.intake.close()
            self._over.set()
            for thread in others:
                thread.join(1)
            for thread in draining:
                thread.join(self._left() + GRACE)
            if self._own is not self._ledger:
                self._own.close()

    def stop(self, *, now: bool = False) -> None:
        """Claim no more jobs, and let running jobs end within `drain`. Returns at once.

        It is safe in a signal handler.

        Args:
            now: Do not wait for running jobs.
        """
        self._told = True
        end = monotonic() + (0.0 if now else self._drain)
        self._until = end if self._until is None else min(end, self._until)
        if self._clerk is not None:
            self._clerk.stop(now=now)
        if self._own is not self._ledger:
            self._own.connections.hurry(SILENT)
        for chore in self._chores:
            if isinstance(chore, Drains):
                chore.wake()

    def hurry(self) -> None:
        """Give up on every statement of this ledger that was not answered for 2 s: the process is about to end."""
        self._ledger.connections.hurry(SILENT)

    def close(self) -> None:
        """Stop the worker, and wait until it has ended, at most 3 s longer than `drain`."""
        self.stop()
        self._wait()

    @property
    def is_healthy(self) -> bool:
        """True if the ledger responds and the last turn was completed less than 15 s ago."""
        clerk = self._clerk
        return clerk is None or (clerk.trouble.says is None and monotonic() - clerk.turned < UNHEALTHY)

    @property
    def problem(self) -> str | None:
        """After the end: why some results could not be stored. None if all were."""
        clerk = self._clerk
        if clerk is None or clerk.gave_back:
            return None
        return str(clerk.removed) if clerk.removed else clerk.trouble.says or "the ledger did not respond in time"

    @property
    def is_ledger_removed(self) -> bool:
        """True if the worker ended because its SQLite file was removed or replaced."""
        return self._clerk is not None and self._clerk.removed is not None

    @property
    def status(self) -> Status:
        """The status of the worker now."""
        clerk = self._clerk
        counts: Counter[str] = Counter() if clerk is None else clerk.ends.counts
        return Status(
            name=self.name,
            state="starting" if clerk is None else clerk.state,
            since=self._since,
            running=0 if clerk is None else len(clerk.hand),
            done=counts["done"],
            again=counts["again"],
            dead=counts["dead"],
            late=counts["late"],
            overdue=0 if clerk is None else clerk.hand.overdue,
            parked={} if clerk is None else {name: one.reason for name, one in clerk.ends.parked.items()},
            trouble=None if clerk is None else clerk.trouble.says,
            failing=dict(self._failing),
            partitions={name: many for chore in self._chores if isinstance(chore, Tallies) for name, many in chore.tally.items()},
        )

    def _listen(self, clerk: Clerk) -> None:
        """Tells the clerk that something was submitted."""
        while not self._over.is_set():
            try:
                wake = self._own.wake()
                try:
                    clerk.poke()  # what came while nobody listened
                    while not self._over.is_set():
                        if wake.wait(0.5):
                            clerk.poke()
                finally:
                    wake.close()
            except Exception:  # the database is away; the clerk says so
                self._over.wait(0.5)

    def _do(self, chore: Chore, clerk: Clerk) -> None:
        if isinstance(chore, Brings):
            chore.brings_to(clerk.intake)
        pause = chore.every
        while not clerk.stopped.is_set():
            try:
                chore.do(clerk.now())
                pause = chore.every
                self._failing.pop(chore.name, None)
            except Exception as error:
                self._failing[chore.name] = redact_text(f"{type(error).__name__}: {error}")
                _failed(chore, error)
                pause = min(max(pause, 0.1) * 2, max(CHORE_PAUSE, chore.every))
            clerk.stopped.wait(pause)
        if isinstance(chore, Brings):
            try:
                chore.end()
            except Exception as error:  # where it came from is away too: others will find it there
                _failed(chore, error)
        if isinstance(chore, Drains):
            chore.drain(self._left)

    def _left(self) -> float:
        """Seconds until what runs must have ended."""
        return 0.0 if self._until is None else max(0.0, self._until - monotonic())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()


def _failed(chore: Chore, error: Exception) -> None:
    emit("chore_failed", {"operation": chore.name, "error": str(error), "error_class": type(error).__name__})


def _wrapped(kinds: dict[str, Kind]) -> dict[str, Kind]:
    """With what the journal puts around every attempt: a span, where there is a tracer."""
    for wrap in list(ATTEMPT_WRAPPERS):
        kinds = {name: replace(kind, run=wrap(name, kind.colour, kind.run)) for name, kind in kinds.items()}
    return kinds
