"""Waiters: the waiters of each id, and which signal goes to which waiter.

Pure: no clock, no loop.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

Id = TypeVar("Id", bound=Hashable)
Signal = TypeVar("Signal")
Ticket = TypeVar("Ticket", bound=Hashable)
MAX_REMEMBERED_SIGNALS = 10_000
"""Signals whose identity is remembered, so that a repeated signal is delivered once."""


class SignalDelivery(NamedTuple, Generic[Ticket, Id, Signal]):
    """One signal for one waiter."""

    ticket: Ticket
    id: Id
    signal: Signal


class Waiters(Generic[Ticket, Id, Signal]):
    """The waiters of each id in the order of their arrival, and the signals without a waiter.

    A ticket stands for one waiter. Belongs to one event loop.
    """

    def __init__(self, max_kept: int, identity: Callable[[Signal], Hashable] | None = None) -> None:
        """Create an empty collection.

        At most `max_kept` signals are kept for ids without a waiter. The oldest are dropped.
        `identity` returns what identifies a signal.
        """
        self._max_kept = max_kept
        self._identity = identity
        self._queues: OrderedDict[Id, deque[Ticket]] = OrderedDict()
        self._id_of: dict[Ticket, Id] = {}
        self._kept: OrderedDict[Id, deque[Signal]] = OrderedDict()
        self._remembered: OrderedDict[Hashable, None] = OrderedDict()
        self.kept = 0
        """Number of signals that are kept."""
        self.dropped = 0
        """Number of signals that were dropped because no waiter took them in time."""

    def __len__(self) -> int:
        """Number of waiters."""
        return len(self._id_of)

    @property
    def ids(self) -> list[Id]:
        """The ids of the next poll, the one that has waited longest first."""
        return list(self._queues)

    def add(self, ticket: Ticket, id_: Id) -> SignalDelivery[Ticket, Id, Signal] | None:
        """Add a waiter. Returns the delivery if a signal of its id is kept."""
        kept = self._kept.get(id_)
        if kept:
            signal = kept.popleft()
            self.kept -= 1
            if not kept:
                del self._kept[id_]
            return SignalDelivery(ticket, id_, signal)
        self._queues.setdefault(id_, deque()).append(ticket)
        self._id_of[ticket] = id_
        return None

    def remove(self, ticket: Ticket) -> None:
        """Remove a waiter, unless it has got its signal."""
        id_ = self._id_of.pop(ticket, None)
        if id_ is None:
            return
        queue = self._queues[id_]
        queue.remove(ticket)
        if not queue:
            del self._queues[id_]

    def deliver(
        self, id_: Id, signals: Iterable[Signal]
    ) -> list[SignalDelivery[Ticket, Id, Signal]]:
        """Give each waiter of an id one signal, and keep the rest for later waiters."""
        deliveries = []
        for signal in signals:
            if self._is_new(id_, signal):
                delivery = self._give(id_, signal)
                if delivery is not None:
                    deliveries.append(delivery)
        return deliveries

    def redeliver(self, id_: Id, signal: Signal) -> SignalDelivery[Ticket, Id, Signal] | None:
        """Give the signal of a cancelled waiter to the next one, before all other signals."""
        return self._give(id_, signal, first=True)

    def take_all(self) -> list[Ticket]:
        """Remove and return all waiters."""
        tickets = list(self._id_of)
        self._id_of.clear()
        self._queues.clear()
        return tickets

    def _give(
        self, id_: Id, signal: Signal, first: bool = False
    ) -> SignalDelivery[Ticket, Id, Signal] | None:
        queue = self._queues.get(id_)
        if queue:
            ticket = queue.popleft()
            del self._id_of[ticket]
            if not queue:
                del self._queues[id_]
            return SignalDelivery(ticket, id_, signal)
        kept = self._kept.setdefault(id_, deque())
        if first:
            kept.appendleft(signal)
        else:
            kept.append(signal)
        self.kept += 1
        while self.kept > self._max_kept:
            self._drop_oldest()
        return None

    def _drop_oldest(self) -> None:
        id_ = next(iter(self._kept))
        signal = self._kept[id_].popleft()
        if self._identity is not None:
            # It was not delivered. If the server sends it again, it is new.
            self._remembered.pop((id_, self._identity(signal)), None)
        if not self._kept[id_]:
            del self._kept[id_]
        self.kept -= 1
        self.dropped += 1

    def _is_new(self, id_: Id, signal: Signal) -> bool:
        if self._identity is None:
            return True
        key = (id_, self._identity(signal))
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return False
        self._remembered[key] = None
        if len(self._remembered) > MAX_REMEMBERED_SIGNALS:
            self._remembered.popitem(last=False)
        return True
