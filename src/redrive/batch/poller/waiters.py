"""Waiters: who waits for which id, and which signal goes to whom. Pure: no clock, no loop."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

Id = TypeVar("Id", bound=Hashable)
Signal = TypeVar("Signal")
Ticket = TypeVar("Ticket", bound=Hashable)
REMEMBERED = 10_000
"""Signals whose identity is remembered, so that one that is fetched twice is delivered once."""


class Delivery(NamedTuple, Generic[Ticket, Id, Signal]):
    """One signal for one waiter."""

    ticket: Ticket
    id: Id
    signal: Signal


class Waiters(Generic[Ticket, Id, Signal]):
    """Waiters by id, each id in the order in which they came, and signals that no waiter was there for. A ticket stands for one
    waiter. Belongs to one event loop."""

    def __init__(self, max_kept: int, identity: Callable[[Signal], Hashable] | None = None) -> None:
        """max_kept: signals kept for ids without a waiter; the oldest are dropped. identity: what makes two signals the same."""
        self._max_kept = max_kept
        self._identity = identity
        self._waiting: OrderedDict[Id, deque[Ticket]] = OrderedDict()
        self._ids: dict[Ticket, Id] = {}
        self._kept: OrderedDict[Id, deque[Signal]] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self.kept = 0
        self.dropped = 0
        """Signals that were dropped since no waiter took them in time."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._ids)

    @property
    def ids(self) -> list[Id]:
        """What the next poll asks for: each id once, the one that waits longest first."""
        return list(self._waiting)

    def enter(self, ticket: Ticket, id_: Id) -> Delivery[Ticket, Id, Signal] | None:
        """Wait for a signal of this id; one that is kept already is delivered at once."""
        kept = self._kept.get(id_)
        if kept:
            signal = kept.popleft()
            self.kept -= 1
            if not kept:
                del self._kept[id_]
            return Delivery(ticket, id_, signal)
        self._waiting.setdefault(id_, deque()).append(ticket)
        self._ids[ticket] = id_
        return None

    def withdraw(self, ticket: Ticket) -> None:
        """A waiter has gone. One that was answered is not there any more, and nothing happens."""
        id_ = self._ids.pop(ticket, None)
        if id_ is None:
            return
        queue = self._waiting[id_]
        queue.remove(ticket)
        if not queue:
            del self._waiting[id_]

    def arrived(self, id_: Id, signals: Iterable[Signal]) -> list[Delivery[Ticket, Id, Signal]]:
        """Give signals to the waiters of this id, one each; keep the rest for those who come."""
        found = []
        for signal in signals:
            if self._is_new(id_, signal):
                delivery = self._give(id_, signal)
                if delivery is not None:
                    found.append(delivery)
        return found

    def returned(self, id_: Id, signal: Signal) -> Delivery[Ticket, Id, Signal] | None:
        """A signal comes back whose waiter had gone: it is the next waiter's, before all others."""
        return self._give(id_, signal, first=True)

    def clear(self) -> list[Ticket]:
        """All who wait, taken out."""
        left = list(self._ids)
        self._ids.clear()
        self._waiting.clear()
        return left

    def _give(self, id_: Id, signal: Signal, first: bool = False) -> Delivery[Ticket, Id, Signal] | None:
        queue = self._waiting.get(id_)
        if queue:
            ticket = queue.popleft()
            del self._ids[ticket]
            if not queue:
                del self._waiting[id_]
            return Delivery(ticket, id_, signal)
        kept = self._kept.setdefault(id_, deque())
        if first:
            kept.appendleft(signal)
        else:
            kept.append(signal)
        self.kept += 1
        while self.kept > self._max_kept:
            self._drop()
        return None

    def _drop(self) -> None:
        oldest = next(iter(self._kept))
        signal = self._kept[oldest].popleft()
        if self._identity is not None:
            # It was not delivered: when the server sends it again, it is new.
            self._seen.pop((oldest, self._identity(signal)), None)
        if not self._kept[oldest]:
            del self._kept[oldest]
        self.kept -= 1
        self.dropped += 1

    def _is_new(self, id_: Id, signal: Signal) -> bool:
        if self._identity is None:
            return True
        key = (id_, self._identity(signal))
        if key in self._seen:
            self._seen.move_to_end(key)
            return False
        self._seen[key] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True
