"""ConsumerGroup: one consumer of a group of a Redis stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.lazy import deferred
from ...journal.bus import emit
from ...worker.processes.identity import is_label_gone
from ..decoding import message_of_fields, timestamp_of
from ..source import MAX_BATCH, DeadLetterNotice, Message
from .address import RedisAddress
from .client import Client, close, disconnect, run_pipeline
from .faults import explain

if TYPE_CHECKING:
    from redis import exceptions
    from redis.client import Pipeline
else:  # the extra may be missing
    (exceptions,) = deferred("redis", "exceptions")

T = TypeVar("T")
FIRST_ENTRY = "0"
"""Start of a new group. It reads the whole stream. Stored entries are duplicates."""
TRIM_SECONDS = 30.0
CONSUMER_CHECK_SECONDS = 3600.0
CONSUMER_IDLE_SECONDS = 86_400.0
"""Time after which an idle consumer belongs to a process that has ended."""
MAX_CLAIM_CHECK_SECONDS = 5.0
RENEWALS_PER_IDLE_TIME = 4
MAX_DEAD_ENTRIES = 100_000
"""Approximate number of entries that the stream of dead letters keeps."""
LOCAL = RedisAddress("single", "redis://localhost")


class ConsumerGroup:
    """One consumer of a group. Belongs to one thread."""

    def __init__(
        self,
        client: Client,
        stream: str,
        group: str,
        consumer: str,
        *,
        address: RedisAddress = LOCAL,
        idle: float = 60.0,
        trims: bool = False,
        dead_stream: str | None = None,
    ) -> None:
        """Create a consumer. `idle`, `trims` and `dead_stream` are options of `RedisStream`."""
        self.client: Any = client
        self._address = address
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self._idle = idle
        self._trims = trims
        self._dead_stream = dead_stream
        self._cursor = ""
        """The last pending entry that `claim_idle` has seen."""
        self._reserved: set[str] = set()
        """Entries that were read and neither acknowledged nor returned."""
        self._next_claim = self._next_trim = self._next_consumer_check = 0.0
        self.may_support_trim_acked = True
        """False once the server has rejected `XTRIM ... ACKED`, which exists since Redis 8.2."""

    def read(self, limit: int, wait: float, /) -> Sequence[Message]:
        """Return entries of dead consumers, or new ones. Maintain the stream now and then."""
        with _faults(self.client, self._address, self.stream):
            now = monotonic()
            if self._trims and now >= self._next_trim:
                self._next_trim = now + TRIM_SECONDS
                self._with_group(self.trim)
            if now >= self._next_consumer_check:
                self._next_consumer_check = now + CONSUMER_CHECK_SECONDS
                self._with_group(lambda: self.remove_idle_consumers(CONSUMER_IDLE_SECONDS))
            messages = self._claim_abandoned(limit, now) or self.read_new(limit, wait)
        self._reserved.update([message.id for message in messages])
        return messages

    def ack(self, messages: Sequence[Message], /) -> None:
        """Acknowledge entries that are stored."""
        with _faults(self.client, self._address, self.stream):
            self.client.xack(self.stream, self.group, *[message.id for message in messages])
        self._reserved.difference_update([message.id for message in messages])

    def ack_and_read(
        self, messages: Sequence[Message], limit: int, wait: float, /
    ) -> Sequence[Message]:
        """Acknowledge entries and return new ones, in one round trip unless maintenance is due."""
        due = min(self._next_claim, self._next_consumer_check)
        if monotonic() >= (min(due, self._next_trim) if self._trims else due):
            self.ack(messages)
            return self.read(limit, wait)
        ids = [message.id for message in messages]
        with _faults(self.client, self._address, self.stream):
            new = self.read_new(limit, wait, acknowledged=ids)
        self._reserved.difference_update(ids)
        self._reserved.update([message.id for message in new])
        return new

    def nack(self, messages: Sequence[Message], delay: float, /) -> None:
        """Set their idle time to `idle - delay`, so they can be claimed after `delay` seconds."""
        ids: list[Any] = [message.id for message in messages]
        milliseconds = int(max(self._idle - delay, 0.0) * 1000)
        with _faults(self.client, self._address, self.stream):
            self.client.xclaim(
                self.stream, self.group, self.consumer, 0, ids, idle=milliseconds, justid=True
            )
        self._reserved.difference_update(ids)
        self._next_claim = min(self._next_claim, monotonic() + delay)

    @property
    def renew_seconds(self) -> float:
        """Time between two calls of `renew`."""
        return self._idle / RENEWALS_PER_IDLE_TIME

    def renew(self, messages: Sequence[Message], /) -> None:
        """Set the idle time of entries that this consumer still has to 0.

        Threads may call it. Another consumer has an entry if this process was stopped for long.
        """
        if not messages:
            return
        ids = [message.id for message in messages]
        most = 4 * MAX_BATCH  # with batches that are on their way into the ledger
        pending: Any = self.client.xpending_range(
            self.stream, self.group, "-", "+", most, consumername=self.consumer
        )
        own = {_to_text(row["message_id"]) for row in pending}.intersection(ids)
        if own:
            self.client.xclaim(
                self.stream, self.group, self.consumer, 0, sorted(own), idle=0, justid=True
            )

    def announce(self, notices: Sequence[DeadLetterNotice], /) -> None:
        """Add an entry for each dead letter to the stream of dead letters."""
        dead_stream = self._dead_stream
        if dead_stream is None:
            return

        def add(pipeline: Pipeline) -> None:
            for notice in notices:
                fields: dict[Any, Any] = dict(notice.fields)
                if notice.payload is not None:
                    fields["payload"] = notice.payload
                pipeline.xadd(dead_stream, fields, maxlen=MAX_DEAD_ENTRIES, approximate=True)

        with _faults(self.client, self._address, dead_stream):
            run_pipeline(self.client, dead_stream, add)

    def close(self) -> None:
        """Return entries that were not acknowledged, and close the connection."""
        try:
            if self._reserved:
                self.nack([Message(entry_id, None) for entry_id in self._reserved], 0.0)
        finally:
            close(self.client)

    def _claim_abandoned(self, limit: int, now: float) -> list[Message]:
        """Claim entries of dead consumers until there are none, and check again after a while.

        Entries of a process that has ended on this machine are claimed at once, others after their
        idle time.
        """
        if now < self._next_claim:
            return []
        claimed = self.claim_from_dead_consumers(limit, _is_dead)
        if not claimed:
            claimed = self.claim_idle(limit, self._idle)
        # Our own entries can become idle while the ledger is unavailable.
        claimed = [message for message in claimed if message.id not in self._reserved]
        if claimed:
            fields = {"source": self.stream, "entries": len(claimed)}
            emit("taken_over", {"operation": f"read {self.stream}", **fields})
        else:
            self._next_claim = now + min(self._idle / 2, MAX_CLAIM_CHECK_SECONDS)
        return claimed

    def read_new(
        self, limit: int, wait: float, /, *, acknowledged: Sequence[str] = ()
    ) -> list[Message]:
        """Return new entries, and wait up to `wait` seconds for them.

        Acknowledge others before, in the same round trip. To do it twice changes nothing.
        """
        milliseconds = int(wait * 1000) or None  # 0 would block for ever
        streams: Any = {self.stream: ">"}

        def read(client: Any) -> Any:
            return client.xreadgroup(
                self.group, self.consumer, streams, count=limit, block=milliseconds
            )

        def add(pipeline: Pipeline) -> None:
            pipeline.xack(self.stream, self.group, *acknowledged)
            read(pipeline)

        if acknowledged:
            reply = self._with_group(lambda: run_pipeline(self.client, self.stream, add)[1])
        else:
            reply = self._with_group(lambda: read(self.client))
        return [message for _, rows in _streams_of(reply) for message in _to_messages(rows)]

    def claim_idle(self, count: int, idle: float, /) -> list[Message]:
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
    ) -> list[Message]:
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

    def _claim(self, pending: Sequence[Any], idle: float) -> list[Message]:
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

        def add_lookups(pipeline: Pipeline) -> None:
            for entry_id in owners:
                pipeline.xrange(self.stream, entry_id, entry_id)

        replies = zip(owners, run_pipeline(self.client, self.stream, add_lookups), strict=True)
        existing: list[Any] = [entry_id for entry_id, entry in replies if entry]
        claimed: Any = []
        if existing:
            claimed = self.client.xclaim(
                self.stream, self.group, self.consumer, int(idle * 1000), existing
            )
        messages = _to_messages([row for row in claimed if row is not None and row[0] is not None])
        trimmed = [
            Message(entry_id, None)
            for entry_id in owners.keys() - set(existing)
            if self._owner(entry_id) == owners[entry_id][0]
        ]
        return [
            *(
                message._replace(deliveries=self._deliveries(*owners[message.id]))
                for message in messages
            ),
            *sorted(trimmed),
        ]

    def _deliveries(self, owner: str, before: int) -> int:
        """Return the deliveries of a claimed entry. Those to ourselves do not count."""
        return 1 if owner == self.consumer else before + 1

    def _owner(self, entry_id: str) -> str | None:
        """Return the consumer of a pending entry. None: it was acknowledged."""
        pending: Any = self.client.xpending_range(self.stream, self.group, entry_id, entry_id, 1)
        return _to_text(pending[0]["consumer"]) if pending else None

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

    def _with_group(self, act: Callable[[], T]) -> T:
        """Do something with the group. Create the group, or the stream, if it does not exist."""
        try:
            return act()
        except exceptions.ResponseError as error:
            # A pipeline puts the number of the command before the error.
            if "NOGROUP" not in str(error) and "no such key" not in str(error):
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


class StreamPublisher:
    """Adds entries to a stream. Belongs to one thread at a time."""

    def __init__(self, client: Client, stream: str, *, address: RedisAddress = LOCAL) -> None:
        self._client = client
        self._stream = stream
        self._address = address

    def publish(self, messages: Sequence[Message], /) -> None:
        """Add an entry for each message: its headers as fields, and its body as `payload`."""

        def add(pipeline: Pipeline) -> None:
            for message in messages:
                fields: dict[Any, Any] = {**message.headers, "payload": message.body or b""}
                pipeline.xadd(self._stream, fields)

        with _faults(self._client, self._address, self._stream):
            run_pipeline(self._client, self._stream, add)

    def close(self) -> None:
        """Close the connection."""
        close(self._client)


@contextmanager
def _faults(client: Client, address: RedisAddress, key: str) -> Iterator[None]:
    """Close the connection after an error, and raise it in words for users."""
    try:
        yield
    except Exception as error:
        disconnect(client)
        explained = explain(error, address, key)
        if explained is error:
            raise
        raise explained from error


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


def _to_messages(rows: Sequence[tuple[Any, Any]]) -> list[Message]:
    messages = []
    for raw_id, fields in rows:
        entry_id = raw_id.decode() if isinstance(raw_id, bytes) else str(raw_id)
        if fields is None:  # it was trimmed
            messages.append(Message(entry_id, None))
            continue
        by_name = fields if isinstance(fields, dict) else dict(fields)
        at = timestamp_of(entry_id.partition("-")[0])
        messages.append(message_of_fields(entry_id, by_name, at))
    return messages


def _to_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _to_numbers(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def _is_dead(consumer: str) -> bool:
    return is_label_gone(consumer.rpartition("-")[2])
