"""Waiting: the items of a send buffer before they are answered, and which of them may go now. Pure: no clock, no loop."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from ...core.seconds import whole

Item = TypeVar("Item")
Ticket = TypeVar("Ticket", bound=Hashable)


class Limits(NamedTuple):
    """How much goes into one batch, and how much is taken in before it is answered."""

    batch: int
    held: int
    batch_bytes: float
    held_bytes: float


class Batch(NamedTuple, Generic[Ticket, Item]):
    """What is sent at once."""

    tickets: list[Ticket]
    items: list[Item]
    size: int
    """In bytes, where somebody says how large an item is; else 0."""


class Waiting(Generic[Ticket, Item]):
    """Items in the order in which they came: outside while there is no room, inside until a batch takes them, in flight until
    they are answered. A ticket stands for whoever waits for the answer. Belongs to one event loop.
    """

    __slots__ = ("_bytes", "_held_bytes", "_inside", "_limits", "_outside", "_size", "_sizes", "closing", "held", "late")

    def __init__(self, limits: Limits, size: Callable[[Item], int] | None = None) -> None:
        self._limits = limits
        self._size = size
        self._inside: OrderedDict[Ticket, Item] = OrderedDict()  # a withdrawal from the middle costs what one from the end does
        self._outside: OrderedDict[Ticket, Item] = OrderedDict()
        self._sizes: dict[Ticket, int] = {}
        self._bytes = self._held_bytes = 0  # of what is inside; and of what is in flight as well
        self.held = 0
        """Items inside and in flight."""
        self.late = False
        """Whether the interval is over: what is inside goes as soon as it can, however little it is."""
        self.closing = False
        """Whether nothing more will come, so that there is nothing to wait for."""

    def __len__(self) -> int:
        """How many are not in flight yet."""
        return len(self._inside) + len(self._outside)

    @property
    def in_flight(self) -> int:
        """How many were taken and not answered."""
        return self.held - len(self._inside)

    @property
    def full(self) -> bool:
        """Whether the next one has to wait outside."""
        return self.held >= self._limits.held or self._held_bytes >= self._limits.held_bytes or bool(self._outside)

    def enter(self, ticket: Ticket, item: Item) -> bool:
        """Take an item in, or have it wait outside. True: a batch is full, and may go."""
        if self._size is not None:
            self._sizes[ticket] = whole("the size of an item", self._size(item), least=0)
        if self.held >= self._limits.held or self._sizes or self._outside:  # else there is room for sure
            self._outside[ticket] = item
            self._admit()
        else:
            self.held += 1
            self._inside[ticket] = item
        return len(self._inside) >= self._limits.batch or self._bytes >= self._limits.batch_bytes or bool(self._outside)

    def withdraw(self, ticket: Ticket) -> bool:
        """Whoever waited has gone. False: it is in flight, or answered, and cannot be called back."""
        if ticket in self._outside:
            del self._outside[ticket]
            self._sizes.pop(ticket, None)
            return True
        if ticket not in self._inside:
            return False
        del self._inside[ticket]
        self._bytes -= self._sizes.get(ticket, 0)
        self._leave([ticket])
        return True

    def take(self) -> Batch[Ticket, Item] | None:
        """The next batch, if one is full or due; it is in flight from then on."""
        inside, limits = self._inside, self._limits
        due = self.late or self.closing or self._outside  # while some are outside, what is inside cannot grow
        if not inside or (not due and len(inside) < limits.batch and self._bytes < limits.batch_bytes):
            return None
        tickets: list[Ticket] = []
        items: list[Item] = []
        size = 0
        while inside and len(items) < limits.batch:
            if self._sizes:
                size += self._sizes[next(iter(inside))]
                if items and size > limits.batch_bytes:  # one that is too large even alone goes alone: the server decides
                    size -= self._sizes[next(iter(inside))]
                    break
            ticket, item = inside.popitem(last=False)
            tickets.append(ticket)
            items.append(item)
        self._bytes -= size
        if not inside and not self._outside:
            self.late = False
        return Batch(tickets, items, size)

    def answered(self, batch: Batch[Ticket, Item]) -> None:
        """A batch is over: there is room for others."""
        self._leave(batch.tickets)

    def clear(self) -> Batch[Ticket, Item]:
        """All that is not in flight, taken out."""
        left = {**self._inside, **self._outside}
        held = list(self._inside)
        self._inside.clear()
        self._outside.clear()
        self._bytes = 0
        self._leave(held)
        return Batch(list(left), list(left.values()), 0)

    def _leave(self, tickets: list[Ticket]) -> None:
        self.held -= len(tickets)
        if self._sizes:
            self._held_bytes -= sum(self._sizes.pop(ticket, 0) for ticket in tickets)
        if self._outside:
            self._admit()

    def _admit(self) -> None:
        limits, outside = self._limits, self._outside
        while outside and self.held < limits.held:
            ticket = next(iter(outside))
            size = self._sizes.get(ticket, 0)
            if self.held and self._held_bytes + size > limits.held_bytes:  # one that is too large even alone comes in alone
                return
            self._inside[ticket] = outside.pop(ticket)
            self.held += 1
            self._bytes += size
            self._held_bytes += size
