"""SendQueue: the items of a send buffer without a response, and the next batch.

Pure: no clock, no loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from ...core.seconds import whole_number

Item = TypeVar("Item")
Ticket = TypeVar("Ticket", bound=Hashable)


class QueueLimits(NamedTuple):
    """The size of a batch, and how much is admitted before it has a response."""

    batch_items: int
    admitted_items: int
    batch_bytes: float
    admitted_bytes: float


class QueuedBatch(NamedTuple, Generic[Ticket, Item]):
    """The items of one batch and the tickets of their callers."""

    tickets: list[Ticket]
    items: list[Item]
    bytes: int
    """0 if the buffer has no function for the size of an item."""


class SendQueue(Generic[Ticket, Item]):
    """Items in the order of their arrival. A ticket stands for the caller that waits.

    An item is blocked while the limit is reached, then queued, then in flight from the time at
    which a batch takes it until it has a response. Belongs to one event loop.
    """

    __slots__ = (
        "_admitted_bytes",
        "_blocked",
        "_limits",
        "_queued",
        "_queued_bytes",
        "_size",
        "_sizes",
        "admitted",
        "is_closing",
        "is_due",
    )

    def __init__(self, limits: QueueLimits, size: Callable[[Item], int] | None = None) -> None:
        """Create a queue. `size` returns the bytes of an item."""
        self._limits = limits
        self._size = size
        # Ordered dicts, because withdrawals remove items from the middle.
        self._queued: OrderedDict[Ticket, Item] = OrderedDict()
        self._blocked: OrderedDict[Ticket, Item] = OrderedDict()
        self._sizes: dict[Ticket, int] = {}
        self._queued_bytes = 0
        self._admitted_bytes = 0
        self.admitted = 0
        """Number of items that are queued or in flight."""
        self.is_due = False
        """The flush interval is over: queued items are sent at once, in batches of any size."""
        self.is_closing = False
        """No more items will arrive, so batches need not fill up."""

    def __len__(self) -> int:
        """Number of items that are not in flight yet."""
        return len(self._queued) + len(self._blocked)

    @property
    def in_flight(self) -> int:
        """Number of items that a batch has taken and that have no response yet."""
        return self.admitted - len(self._queued)

    @property
    def is_full(self) -> bool:
        """True if the next item will be blocked."""
        limits = self._limits
        return (
            self.admitted >= limits.admitted_items
            or self._admitted_bytes >= limits.admitted_bytes
            or bool(self._blocked)
        )

    def add(self, ticket: Ticket, item: Item) -> bool:
        """Add an item. Returns True if a batch is full and may go."""
        limits = self._limits
        if self._size is not None:
            self._sizes[ticket] = whole_number("the size of an item", self._size(item), least=0)
        if self.admitted >= limits.admitted_items or self._sizes or self._blocked:
            self._blocked[ticket] = item
            self._admit()
        else:  # the fast path: there is room
            self.admitted += 1
            self._queued[ticket] = item
        return (
            len(self._queued) >= limits.batch_items
            or self._queued_bytes >= limits.batch_bytes
            or bool(self._blocked)
        )

    def withdraw(self, ticket: Ticket) -> bool:
        """Remove the item of a cancelled caller. False if it is in flight or has a response."""
        if ticket in self._blocked:
            del self._blocked[ticket]
            self._sizes.pop(ticket, None)
            return True
        if ticket not in self._queued:
            return False
        del self._queued[ticket]
        self._queued_bytes -= self._sizes.get(ticket, 0)
        self._release([ticket])
        return True

    def take_batch(self) -> QueuedBatch[Ticket, Item] | None:
        """Take the next batch, if one is full or due. Its items are in flight from then on."""
        queued, limits = self._queued, self._limits
        # While items are blocked, the queue cannot grow.
        is_due = self.is_due or self.is_closing or self._blocked
        is_full = len(queued) >= limits.batch_items or self._queued_bytes >= limits.batch_bytes
        if not queued or not (is_due or is_full):
            return None
        tickets: list[Ticket] = []
        items: list[Item] = []
        size = 0
        while queued and len(items) < limits.batch_items:
            if self._sizes:
                item_size = self._sizes[next(iter(queued))]
                # An item above the limit goes alone. The server decides whether it takes it.
                if items and size + item_size > limits.batch_bytes:
                    break
                size += item_size
            ticket, item = queued.popitem(last=False)
            tickets.append(ticket)
            items.append(item)
        self._queued_bytes -= size
        if not queued and not self._blocked:
            self.is_due = False
        return QueuedBatch(tickets, items, size)

    def finish(self, batch: QueuedBatch[Ticket, Item]) -> None:
        """Release the room of a batch that has a response."""
        self._release(batch.tickets)

    def take_all(self) -> QueuedBatch[Ticket, Item]:
        """Take all items that are not in flight."""
        items = {**self._queued, **self._blocked}
        queued = list(self._queued)
        self._queued.clear()
        self._blocked.clear()
        self._queued_bytes = 0
        self._release(queued)
        return QueuedBatch(list(items), list(items.values()), 0)

    def _release(self, tickets: list[Ticket]) -> None:
        self.admitted -= len(tickets)
        if self._sizes:
            self._admitted_bytes -= sum(self._sizes.pop(ticket, 0) for ticket in tickets)
        if self._blocked:
            self._admit()

    def _admit(self) -> None:
        limits, blocked = self._limits, self._blocked
        while blocked and self.admitted < limits.admitted_items:
            ticket = next(iter(blocked))
            size = self._sizes.get(ticket, 0)
            # An item above the limit is admitted alone.
            if self.admitted and self._admitted_bytes + size > limits.admitted_bytes:
                return
            self._queued[ticket] = blocked.pop(ticket)
            self.admitted += 1
            self._queued_bytes += size
            self._admitted_bytes += size
