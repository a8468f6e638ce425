"""Assignment: the messages and offsets of the partitions that a consumer has. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from ..source import Message
from .offsets import PartitionOffsets


class Assignment:
    """The assigned partitions of a topic. Belongs to one thread."""

    def __init__(self) -> None:
        self.partitions: dict[int, PartitionOffsets] = {}
        self.fetched: deque[Message] = deque()
        """Messages that were fetched and not yet delivered."""
        self._held: list[tuple[float, int, Message]] = []
        """A heap of returned messages, by the end of their delay."""
        self._numbers = count()

    @property
    def held_count(self) -> int:
        """Number of messages that wait for the end of their delay."""
        return len(self._held)

    def shorten(self, wait: float, now: float, /) -> float:
        """Return the time to wait for new messages, which ends with the first delay."""
        return min(wait, max(self._held[0][0] - now, 0.0)) if self._held else wait

    def forget(self, partitions: Iterable[int], /) -> None:
        """Remove partitions, with all their messages."""
        for number in partitions:
            self.partitions.pop(number, None)
        kept = self.partitions
        self.fetched = deque(each for each in self.fetched if each.raw.partition in kept)
        self._held = sorted(entry for entry in self._held if entry[2].raw.partition in kept)

    def first_offsets(self) -> dict[int, int]:
        """Return the first fetched offset of each partition that has delivered nothing yet."""
        firsts: dict[int, int] = {}
        new = {number for number, each in self.partitions.items() if not each.has_begun}
        for message in self.fetched if new else ():
            number, offset = message.raw
            if number in new:
                firsts.setdefault(number, offset)
        return firsts

    def deliver(self, limit: int, /) -> list[Message]:
        """Take fetched messages. Each has the number of its deliveries."""
        messages: list[Message] = []
        while self.fetched and len(messages) < limit:
            message = self.fetched.popleft()
            number, offset = message.raw
            partition = self.partitions.get(number)
            if partition is None:  # revoked
                continue
            partition.deliver(offset)
            if partition.crashes:
                message = message._replace(deliveries=partition.deliveries)
            messages.append(message)
        return messages

    def ack(self, messages: Iterable[Message], /) -> None:
        """Mark messages as stored. Those of partitions that have moved are ignored."""
        partitions = self.partitions
        for message in messages:
            number, offset = message.raw
            if number in partitions:
                partitions[number].ack(offset)

    def hold(self, messages: Iterable[Message], end: float, /) -> None:
        """Keep messages until their delay ends. Those of partitions that have moved are ignored."""
        for message in messages:
            if message.raw.partition in self.partitions:
                heappush(self._held, (end, next(self._numbers), message))

    def take_due(self, limit: int, now: float, /) -> list[Message]:
        """Take held messages whose delay is over."""
        messages: list[Message] = []
        while self._held and self._held[0][0] <= now and len(messages) < limit:
            messages.append(heappop(self._held)[2])
        return messages

    def due(self) -> dict[int, PartitionOffsets]:
        """Return the partitions whose position is to be committed."""
        return {
            number: partition
            for number, partition in self.partitions.items()
            if partition.has_begun and partition.is_due
        }

    def positions(self, partitions: Sequence[int], /) -> Iterator[tuple[int, int]]:
        """Yield number and position of those partitions that have delivered a message."""
        for number in partitions:
            partition = self.partitions.get(number)
            if partition is not None and partition.has_begun:
                yield number, partition.position
