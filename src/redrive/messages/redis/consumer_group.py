"""ConsumerGroup: one consumer of a group of a Redis stream. The only module that reads a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.lazy import deferred
from .entry import StreamEntry

if TYPE_CHECKING:
    import redis
    from redis import exceptions
else:  # the extra may be missing
    (exceptions,) = deferred("redis", "exceptions")

T = TypeVar("T")
FIRST_ENTRY = "0"
"""A new group starts here: stored entries are known as duplicates, and no other entry is lost."""
POISON_DELIVERIES = 2
"""Number of deliveries without being stored after which an entry is a suspected poison message."""


class ConsumerGroup:
    """One consumer of a group. Belongs to one thread."""

    def __init__(self, client: redis.Redis, stream: str, group: str, consumer: str) -> None:
        self.client = client
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self._cursor = ""
        """The last pending entry that `claim_idle` has seen."""
        self.may_support_trim_acked = True
        """False once the server has rejected `XTRIM ... ACKED`, which exists since Redis 8.2."""

    def read(self, count: int, block: float, /) -> list[StreamEntry]:
        """Return new entries, and wait up to `block` seconds for them."""
        milliseconds = int(block * 1000) or None  # 0 would block for ever
        streams: Any = {self.stream: ">"}
        reply = self._with_group(
            lambda: self.client.xreadgroup(
                self.group, self.consumer, streams, count=count, block=milliseconds
            )
        )
        return [entry for _, entries in _streams_of(reply) for entry in _to_entries(entries)]

    def claim_idle(self, count: int, idle: float, /) -> list[StreamEntry]:
        """Claim entries that were read at least `idle` seconds ago and never acknowledged.

        The next call continues after the last entry of this one.
        """
        start = f"({self._cursor}" if self._cursor else "-"
        milliseconds = int(idle * 1000)
        pending: Any = self._with_group(
            lambda: self.client.xpending_range(
                self.stream, self.group, start, "+", count, idle=milliseconds
            )
        )
        self._cursor = _to_text(pending[-1]["message_id"]) if len(pending) >= count else ""
        return self._claim(pending, idle)

    def claim_from_dead_consumers(
        self, count: int, is_dead: Callable[[str], bool], /
    ) -> list[StreamEntry]:
        """Claim entries of consumers that are dead for certain, before their idle time is over."""
        consumers: Any = self._with_group(
            lambda: self.client.xinfo_consumers(self.stream, self.group)
        )
        for consumer in consumers:
            name = _to_text(consumer["name"])
            if consumer["pending"] and name != self.consumer and is_dead(name):
                pending: Any = self.client.xpending_range(
                    self.stream, self.group, "-", "+", count, consumername=name
                )
                entries = self._claim(pending, 0.0)
                if entries:
                    return entries
        return []

    def _claim(self, pending: Sequence[Any], idle: float) -> list[StreamEntry]:
        """Claim pending entries of other consumers.

        XAUTOCLAIM would remove trimmed entries from the pending list before we could record them,
        and Redis 6.2 does not even report their ids. So each entry is looked up first. A trimmed
        entry stays pending until it is acknowledged.
        """
        owners = {
            _to_text(row["message_id"]): (_to_text(row["consumer"]), int(row["times_delivered"]))
            for row in pending
        }
        if not owners:
            return []
        lookups = self.client.pipeline(transaction=False)
        for entry_id in owners:
            lookups.xrange(self.stream, entry_id, entry_id)
        replies = zip(owners, lookups.execute(), strict=True)
        existing: list[Any] = [entry_id for entry_id, entry in replies if entry]
        claimed: Any = []
        if existing:
            claimed = self.client.xclaim(
                self.stream, self.group, self.consumer, int(idle * 1000), existing
            )
        entries = _to_entries([row for row in claimed if row is not None and row[0] is not None])
        suspected = {
            entry_id
            for entry_id, (owner, deliveries) in owners.items()
            if deliveries >= POISON_DELIVERIES and owner != self.consumer
        }
        trimmed = [
            StreamEntry(entry_id, None)
            for entry_id in owners.keys() - set(existing)
            if self._owner(entry_id) == owners[entry_id][0]
        ]
        return [
            *(entry._replace(is_suspected_poison=entry.id in suspected) for entry in entries),
            *sorted(trimmed),
        ]

    def _owner(self, entry_id: str) -> str | None:
        """Return the consumer of a pending entry. None: it was acknowledged."""
        pending: Any = self.client.xpending_range(self.stream, self.group, entry_id, entry_id, 1)
        return _to_text(pending[0]["consumer"]) if pending else None

    def acknowledge(self, ids: Sequence[str], /) -> None:
        """Acknowledge entries that are stored."""
        if ids:
            self.client.xack(self.stream, self.group, *ids)

    def trim(self) -> int:
        """Remove entries that every group of the stream has acknowledged. Returns their number."""
        groups: Any = self.client.xinfo_groups(self.stream)
        first_needed = [
            self._first_needed(_to_text(group["name"]), _to_text(group["last-delivered-id"]))
            for group in groups
        ]
        if not first_needed:
            return 0
        milliseconds, sequence = min(first_needed)
        return self._trim_before(f"{milliseconds}-{sequence}")

    def _trim_before(self, entry_id: str) -> int:
        """Remove older entries.

        Since Redis 8.2, the server itself keeps entries that a group still needs. Before, a group
        that was created after we looked would lose its entries.
        """
        if self.may_support_trim_acked:
            # By its name, because older clients have no argument for ACKED.
            execute: Callable[..., Any] = self.client.execute_command
            try:
                return int(execute("XTRIM", self.stream, "MINID", "~", entry_id, "ACKED"))
            except exceptions.ResponseError as error:
                if "syntax" not in str(error):
                    raise
                self.may_support_trim_acked = False  # an older Redis, or Valkey
        return int(self.client.xtrim(self.stream, minid=entry_id, approximate=True))

    def _first_needed(self, group: str, last_delivered: str) -> tuple[int, int]:
        """Return the first entry that a group needs: the oldest pending one, or the next one."""
        pending: Any = self.client.xpending(self.stream, group)
        oldest = pending["min"]
        if oldest is not None:
            return _to_numbers(_to_text(oldest))
        milliseconds, sequence = _to_numbers(last_delivered)
        return milliseconds, sequence + 1

    def remove_idle_consumers(self, idle: float, /) -> list[str]:
        """Remove consumers that were idle for `idle` seconds and have no pending entries.

        With a consumer, its pending entries would be removed too.
        """
        consumers: Any = self.client.xinfo_consumers(self.stream, self.group)
        names = {
            _to_text(consumer["name"])
            for consumer in consumers
            if not consumer["pending"] and consumer["idle"] > idle * 1000
        }
        removed = sorted(names - {self.consumer})
        for name in removed:
            self.client.xgroup_delconsumer(self.stream, self.group, name)
        return removed

    def disconnect(self) -> None:
        """Close the connection. After a failover it may lead to a server that is now a replica."""
        self.client.connection_pool.disconnect()

    def _with_group(self, act: Callable[[], T]) -> T:
        """Do something with the group. Create the group, or the stream, if it does not exist."""
        try:
            return act()
        except exceptions.ResponseError as error:
            if not str(error).startswith("NOGROUP") and "no such key" not in str(error):
                raise
        self.create()
        return act()

    def create(self) -> None:
        """Create the group and the stream, unless they exist."""
        self._cursor = ""
        try:
            self.client.xgroup_create(self.stream, self.group, id=FIRST_ENTRY, mkstream=True)
        except exceptions.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


def _streams_of(reply: Any) -> Any:
    """Return pairs of a stream and its entries."""
    if not reply:
        return []
    if not isinstance(reply, dict):
        return reply
    # RESP3 has a mapping. Some versions of the client wrap the entries in another list.
    return [
        (name, entries[0] if entries and isinstance(entries[0], list) else entries)
        for name, entries in reply.items()
    ]


def _to_entries(rows: Sequence[tuple[Any, Any]]) -> list[StreamEntry]:
    values = [
        (
            id_.decode() if isinstance(id_, bytes) else str(id_),
            fields if fields is None or isinstance(fields, dict) else dict(fields),
            False,
        )
        for id_, fields in rows
    ]
    return list(map(StreamEntry._make, values))


def _to_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _to_numbers(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)
