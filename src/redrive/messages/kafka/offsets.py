"""PartitionOffsets: which offset of a partition may be committed. Pure.

A group has one offset for each partition: all messages below it are done. Messages are
acknowledged in any order, so the offset is that of the oldest message that is not acknowledged.

Kafka does not count deliveries. A consumer that starts to read a partition notes the count in the
metadata of the committed offset, and removes the note with the first progress, or when it returns
the partition. Only a crash leaves it behind.
"""

from __future__ import annotations

from collections import deque

NOTE = "redrive deliveries="
"""Begin of the metadata of an offset whose messages were delivered and not acknowledged."""


class PartitionOffsets:
    """The offsets of one assigned partition. Belongs to one thread."""

    __slots__ = ("_acked", "_delivered", "committed", "crashes", "position")

    def __init__(self, crashes: int = 0) -> None:
        """Track a partition.

        Args:
            crashes: Number of consumers that ended without progress at the first offset.
        """
        self.crashes = crashes
        self.position = -1
        """The offset to commit. Negative: no message was delivered yet."""
        self.committed = -1
        """The offset that was sent in the last commit. Negative: none, or it failed."""
        self._delivered: deque[int] = deque()
        """Offsets from the position on, in order. There are gaps in topics that are compacted or
        written in transactions."""
        self._acked: set[int] = set()

    @property
    def deliveries(self) -> int:
        """Number of deliveries of the next message, this one included."""
        return self.crashes + 1

    @property
    def has_begun(self) -> bool:
        """Whether a message was delivered."""
        return self.position >= 0

    @property
    def is_due(self) -> bool:
        """Whether the position is to be committed."""
        return self.position != self.committed

    @property
    def note(self) -> str:
        """The metadata of the first offset, which is committed before its message is delivered."""
        return f"{NOTE}{self.deliveries}"

    def begin(self, offset: int, /) -> None:
        """Start with the first message. Its offset is committed."""
        self.position = self.committed = offset

    def deliver(self, offset: int, /) -> None:
        """Add the next message."""
        self._delivered.append(offset)

    def ack(self, offset: int, /) -> None:
        """Mark a message as stored, and move the position if it was the oldest.

        A message of an earlier assignment is stored as well: it is done when it comes again.
        """
        delivered, acked = self._delivered, self._acked
        if not delivered or offset != delivered[0]:
            if offset >= self.position:
                acked.add(offset)
            return
        delivered.popleft()
        acked.discard(offset)  # acknowledged in an earlier assignment, too
        while delivered and delivered[0] in acked:
            offset = delivered.popleft()
            acked.discard(offset)
        self.position = offset + 1


def crashes_of(metadata: str | None, /) -> int:
    """Return the number of crashes that the metadata of an offset notes."""
    text = (metadata or "").rstrip("\0")
    count = text.removeprefix(NOTE)
    return int(count) if text.startswith(NOTE) and count.isascii() and count.isdigit() else 0
