"""Arrivals: events that sources have read, on their way into the ledger.

The dispatcher stores them in its own turn. Events, the jobs of their handlers and the settlements
of finished jobs are committed together. Jobs that fit start in the same transaction, without a
claim.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Container, Sequence
from time import monotonic
from typing import Any

from ..ledger.events import IncomingEvent, StoreResult
from ..ledger.jobs.pauses import Pauses

MAX_WAIT_SECONDS = 0.1
"""How long events may wait for capacity, where jobs are short."""
NEXT_BATCH_WAIT_SECONDS = 0.05
"""How long settlements wait for the next events of a source that has more to read."""
MAX_BATCH_EVENTS = 100
"""Events of several arrivals that are stored in one transaction."""


class Arrival:
    """Events that a source has read together. Created by one thread, stored by another."""

    __slots__ = ("_decided", "encoded", "events", "jobs_by_type", "new", "since")

    def __init__(self, events: Sequence[IncomingEvent], encoded: Any = None) -> None:
        self.events = events
        self.encoded = encoded
        """None: not encoded yet."""
        self.jobs_by_type = Counter([part.kind for event in events for part in event.jobs])
        self.since = monotonic()
        self.new: list[bool] | None = None
        """For each event, whether it was stored for the first time. None: they are not stored."""
        self._decided = threading.Event()

    def wait(self) -> bool:
        """Wait until the events are stored or refused. Return whether they are stored."""
        self._decided.wait()
        return self.new is not None

    @property
    def is_decided(self) -> bool:
        """Whether the events are stored or refused."""
        return self._decided.is_set()

    def mark_stored(self, new: list[bool], /) -> None:
        """Note that the events are stored, and which of them are new."""
        self.new = new
        self._decided.set()

    def refuse(self) -> None:
        """Note that the events are not stored here. Their source must store them."""
        self._decided.set()


class ArrivalQueue:
    """Arrivals that wait for the ledger thread. Threads may share it."""

    def __init__(
        self,
        wake: Callable[[], None],
        encode: Callable[[Sequence[IncomingEvent]], Any],
        parked: Callable[[], Container[str]] = tuple,
    ) -> None:
        """Create a queue.

        Args:
            wake: Wakes up the ledger thread.
            encode: Returns events as the ledger takes them. Runs in the thread of the source.
            parked: Returns the parked job types.
        """
        self._wake, self._encode, self._parked = wake, encode, parked
        self._lock = threading.Lock()
        self._waiting: list[Arrival] = []
        self._is_closed = False
        self._more_until = 0.0
        """End of the wait for the next batch, on the monotonic clock."""
        self.pauses: Pauses | None = None
        """Pauses by hand. Set by the ledger thread, read by sources. None: not known yet."""

    def is_paused(self, source: str, /) -> bool:
        """Return whether a source, or the app, is paused by hand, or may be."""
        return self.pauses is None or self.pauses.get("source", source) is not None

    def is_paused_or_parked(self, job_type: str, /) -> bool:
        """Return whether a job type is paused by hand or parked."""
        pauses = self.pauses
        return pauses is None or job_type in pauses.job_types or job_type in self._parked()

    def put(self, events: Sequence[IncomingEvent], /, *, has_more: bool = False) -> Arrival:
        """Queue events to be stored.

        Args:
            events: The events.
            has_more: Whether the source is reading more.
        """
        queued = sum(len(waiting.events) for waiting in list(self._waiting))
        # Small arrivals are stored together, and are encoded then.
        is_joined = 0 < queued <= MAX_BATCH_EVENTS - len(events)
        arrival = Arrival(events, None if is_joined else self._encode(events))
        with self._lock:
            if not self._is_closed:
                self._waiting.append(arrival)
                self._more_until = arrival.since + NEXT_BATCH_WAIT_SECONDS if has_more else 0.0
        if self._is_closed:
            arrival.refuse()
        else:
            self._wake()
        return arrival

    def source_idle(self) -> None:
        """Note that the source has nothing more to read: settlements need not wait for it."""
        if self._more_until:
            self._more_until = 0.0
            self._wake()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def expects_more(self) -> bool:
        """Whether events wait, or will very soon."""
        return bool(self._waiting) or monotonic() < self._more_until

    @property
    def store_by(self) -> float:
        """Until when the first arrival may wait, on the monotonic clock."""
        first = next(iter(self._waiting), None)
        return math.inf if first is None else first.since + MAX_WAIT_SECONDS

    @property
    def next_look(self) -> float:
        """When the dispatcher should check this queue again, on the monotonic clock."""
        return min(self.store_by, self._more_until if monotonic() < self._more_until else math.inf)

    def next_batch(self) -> list[Arrival]:
        """Return the first arrival, and the following ones that fit into its transaction."""
        batch: list[Arrival] = []
        events = 0
        for arrival in list(self._waiting):
            events += len(arrival.events)
            if batch and events > MAX_BATCH_EVENTS:
                break
            batch.append(arrival)
        return batch

    def store(
        self, batch: Sequence[Arrival], write: Callable[[Any], StoreResult], /
    ) -> StoreResult:
        """Store the first arrivals, and tell their sources.

        Args:
            batch: From `next_batch`.
            write: Writes encoded events.
        """
        with self._lock:
            del self._waiting[: len(batch)]
        try:
            events = [event for arrival in batch for event in arrival.events]
            encoded = batch[0].encoded if len(batch) == 1 else None
            received = write(self._encode(events) if encoded is None else encoded)
        except BaseException:
            for arrival in batch:
                arrival.refuse()
            raise
        new = iter(received.are_new)
        for arrival in batch:
            arrival.mark_stored([next(new) for _ in arrival.events])
        return received

    def close(self) -> None:
        """Refuse all waiting and future arrivals."""
        with self._lock:
            self._is_closed, self._more_until = True, 0.0
            refused, self._waiting = self._waiting, []
        for arrival in refused:
            arrival.refuse()
