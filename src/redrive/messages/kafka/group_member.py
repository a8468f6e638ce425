"""GroupMember: one consumer of a Kafka group. The only module that reads Kafka."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...core.lazy import deferred
from ..source import DeadLetterNotice, Message
from .assignment import Assignment
from .offsets import PartitionOffsets, crashes_of
from .problems import ClientError, QuietLogger, explain
from .publisher import TopicPublisher
from .record import lost_messages, to_message

if TYPE_CHECKING:
    from confluent_kafka import cimpl
else:  # the extra may be missing
    (cimpl,) = deferred("confluent_kafka", "cimpl")

RESPONSE_SECONDS = 5.0
"""Time that the cluster has to respond."""
CONNECT_SECONDS = 2.0
"""Time to wait for a connection. The client goes on connecting until the next read."""
POLL_SECONDS = 1.0
"""Time without a read after which the partitions are paused, and polled by a thread."""
REBALANCE_SECONDS = 0.05
"""Time between two attempts to note a first delivery while the group is being rebalanced."""
WAKE_SECONDS = 0.2
"""Time to wait for the response that only wakes the client."""
MAX_HELD = 10_000
"""Number of returned messages that wait for the end of their delay. Above, no others are read."""

VAGUE = (ClientError.ALL_BROKERS_DOWN, ClientError.TRANSPORT, ClientError.TIMED_OUT)
"""Errors that the last error of a connection explains."""


class GroupMember:
    """One consumer of a group. Belongs to one thread.

    A member that does not poll for `max.poll.interval.ms` is removed from its group, and its
    partitions go to others. While the ledger is slow, a second thread polls instead, with paused
    partitions. It takes part in rebalances and reads nothing. Both hold the lock.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        *,
        starts_at_end: bool = False,
        dead_letters: TopicPublisher | None = None,
    ) -> None:
        """Create a consumer that connects at its first read.

        Args:
            options: Options of librdkafka, complete.
            topic: Name of the topic.
            starts_at_end: Whether a new group skips the messages that are in the topic.
            dead_letters: Where dead letters are announced.
        """
        self._options = options
        self._topic = topic
        self._starts_at_end = starts_at_end
        self._dead_letters = dead_letters
        self._lock = threading.RLock()
        self._client: Any = None
        self._is_subscribed = self._is_paused = False
        self.assignment = Assignment()
        self._out_of_range: dict[int, int] = {}
        """Partitions whose next offset does not exist, with this offset."""
        self._has_commit_in_flight = False
        self._last_poll = 0.0
        self._problem: cimpl.KafkaError | None = None
        """The error of the connections, until the cluster responds again."""
        self._error: cimpl.KafkaError | None = None
        """An error that the next read raises."""
        self._reason = ""
        """The last error of a connection."""
        self._closed = threading.Event()
        self._poller: threading.Thread | None = None

    def read(self, limit: int, wait: float, /) -> Sequence[Message]:
        """Return messages whose delay is over, or new ones of the assigned partitions."""
        try:
            with self._lock:
                self._connect()
                self._commit()
                can_deliver = False
                pause = self.assignment.shorten(wait, monotonic())
                if self.assignment.held_count < MAX_HELD:
                    self._fetch(limit, pause)
                    can_deliver = self._note_deliveries()
                    if not can_deliver:  # the group waits for this consumer to poll
                        self._keep([self._poll(min(pause, REBALANCE_SECONDS), paused=True)])
                else:
                    self._closed.wait(pause)
                # Nothing may fail from here on: a message that is taken has to be returned.
                messages = self.assignment.take_due(limit, monotonic())
                if can_deliver:
                    messages += self.assignment.deliver(limit - len(messages))
                return messages
        except cimpl.KafkaException as error:
            raise self._explain(error.args[0]) from None

    def ack(self, messages: Sequence[Message], /) -> None:
        """Commit the offsets below which all messages are stored."""
        try:
            with self._lock:
                self.assignment.ack(messages)
                self._commit()
        except cimpl.KafkaException as error:
            raise self._explain(error.args[0]) from None

    def nack(self, messages: Sequence[Message], delay: float, /) -> None:
        """Keep messages until their delay is over. Their offsets are not committed.

        If the partition goes to another consumer before, they come again immediately.
        """
        with self._lock:
            self.assignment.hold(messages, monotonic() + delay)

    def announce(self, notices: Sequence[DeadLetterNotice], /) -> None:
        """Write dead letters to their topic."""
        if self._dead_letters is not None:
            self._dead_letters.announce(notices)

    def close(self) -> None:
        """Commit what is acknowledged, and leave the group."""
        self._closed.set()
        with self._lock:
            self._disconnect()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def poll_if_idle(self) -> None:
        """Stay a member of the group while nothing reads."""
        with self._lock:
            if not self._is_subscribed or monotonic() - self._last_poll < POLL_SECONDS:
                return
            try:
                self._keep([self._poll(0.0, paused=True)])
            except cimpl.KafkaException as error:
                self._error = error.args[0]

    def _connect(self) -> None:
        """Join the group, unless this is done. After an outage, check that the cluster is back."""
        if self._client is None:
            self._client = cimpl.Consumer(
                {
                    **self._options,
                    "error_cb": self._on_error,
                    "on_commit": self._on_commit,
                    "logger": QuietLogger(),
                }
            )
        if self._is_subscribed and self._problem is None:
            return
        try:
            metadata = self._client.list_topics(self._topic, timeout=CONNECT_SECONDS)
        except cimpl.KafkaException:
            self._poll(0.0)  # calls _on_error, which learns the reason
            raise
        error = metadata.topics[self._topic].error
        if error is not None:
            raise cimpl.KafkaException(error)
        self._problem, self._reason = None, ""
        if not self._is_subscribed:
            self._client.subscribe(
                [self._topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            self._is_subscribed = True
            self._start_polling()

    def _start_polling(self) -> None:
        if self._poller is None:
            self._poller = threading.Thread(
                target=_poll_while_idle,
                args=(weakref.ref(self), self._closed),
                name=f"poll {self._topic}",
                daemon=True,
            )
            self._poller.start()

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        self._is_subscribed = self._is_paused = self._has_commit_in_flight = False
        try:
            if client is not None:
                client.close()  # calls _on_revoke
        finally:
            self._forget(list(self.assignment.partitions))

    def _poll(self, wait: float, *, paused: bool = False) -> Any:
        """Wait for a message. Take part in rebalances and learn of errors.

        The client reports a rebalance behind the messages that it has fetched. A pause drops them.
        """
        if paused:
            self._is_paused = True
            self._client.pause(self._client.assignment())
        self._last_poll = monotonic()
        record = self._client.poll(wait)
        self._last_poll = monotonic()
        return record

    def _fetch(self, limit: int, wait: float) -> None:
        """Fetch messages. Raise an error that came between them before."""
        if self._error is not None:
            error, self._error = self._error, None
            raise cimpl.KafkaException(error)
        if self._is_paused:
            self._client.resume(self._client.assignment())
            self._is_paused = False
            _wake(self._client)
        if self._out_of_range:
            self._skip_missing()
        if not self.assignment.fetched:
            # Kept before the next call: if its partition is revoked there, it is forgotten.
            self._keep([self._poll(wait)])
            if self.assignment.fetched and limit > 1:
                self._keep(self._client.consume(limit - 1, 0.0))

    def _keep(self, records: Iterable[Any]) -> None:
        """Keep records that were fetched, and their errors."""
        for record in records:
            if record is None:
                continue
            error = record.error()
            if error is None:
                self.assignment.fetched.append(to_message(record, self._topic))
            elif error.code() == ClientError.AUTO_OFFSET_RESET:
                offset = record.offset()
                self._out_of_range[record.partition()] = -1 if offset is None else offset
            elif error.code() != ClientError.MAX_POLL_EXCEEDED:  # it joins again by itself
                self._error = error
                self._is_subscribed &= error.code() != cimpl.KafkaError.UNKNOWN_TOPIC_OR_PART

    def _skip_missing(self) -> None:
        """Continue partitions behind messages that were deleted before they were read.

        The lost messages become one dead letter.
        """
        for partition, offset in list(self._out_of_range.items()):
            place = cimpl.TopicPartition(self._topic, partition)
            first, end = self._client.get_watermark_offsets(place, timeout=RESPONSE_SECONDS)
            if 0 <= offset < first:
                self.assignment.fetched.append(lost_messages(self._topic, partition, offset, first))
            place.offset = end if offset < 0 and self._starts_at_end else first
            self._client.incremental_unassign([place])
            self._client.incremental_assign([place])
            del self._out_of_range[partition]

    def _note_deliveries(self) -> bool:
        """Note at the first messages of partitions that they were delivered, before they are.

        False: this was not possible, because the group is being rebalanced.
        """
        partitions, firsts = self.assignment.partitions, self.assignment.first_offsets()
        notes = [
            self._to_commit(number, offset, partitions[number].note)
            for number, offset in firsts.items()
        ]
        if notes and not self._commit_now(notes):
            return False
        for number, offset in firsts.items():
            partitions[number].begin(offset)
        return True

    def _commit(self) -> None:
        """Commit the positions that have moved. One commit at a time is on its way."""
        if self._client is None or self._has_commit_in_flight:
            return
        due = self.assignment.due()
        if not due:
            return
        offsets = [self._to_commit(number, due[number].position) for number in due]
        # If a crash is to be counted from here on, the position has to be known before it.
        if any(partition.crashes for partition in due.values()):
            if not self._commit_now(offsets):
                return
        else:
            self._client.commit(offsets=offsets, asynchronous=True)
            self._has_commit_in_flight = True
        for partition in due.values():
            partition.committed, partition.crashes = partition.position, 0

    def _commit_now(self, offsets: list[cimpl.TopicPartition]) -> bool:
        """Commit offsets and wait for it. False: they belong to a generation that has ended."""
        try:
            self._client.commit(offsets=offsets, asynchronous=False)
        except cimpl.KafkaException as error:
            if error.args[0].code() in (
                cimpl.KafkaError.REBALANCE_IN_PROGRESS,
                cimpl.KafkaError.ILLEGAL_GENERATION,
                cimpl.KafkaError.UNKNOWN_MEMBER_ID,
            ):
                return False
            raise
        return True

    def _to_commit(self, partition: int, offset: int, metadata: str = "") -> cimpl.TopicPartition:
        return cimpl.TopicPartition(self._topic, partition, offset, metadata)

    def _on_commit(
        self, error: cimpl.KafkaError | None, partitions: Sequence[cimpl.TopicPartition]
    ) -> None:
        """Take the result of a commit that was on its way. The next read repeats a failed one."""
        self._has_commit_in_flight = False
        for place in partitions:
            partition = self.assignment.partitions.get(place.partition)
            failed = error or place.error
            if failed is not None and partition is not None:
                partition.committed = -1
                if failed.code() == cimpl.KafkaError.GROUP_AUTHORIZATION_FAILED:
                    self._error = failed

    def _on_assign(self, client: Any, places: list[cimpl.TopicPartition]) -> None:
        """Start partitions at their committed offsets. A new group starts at the first message.

        A new group that starts at the end commits the end. Otherwise it would skip messages that
        are sent before it has read one, if the partition moves or the worker restarts.
        """
        try:
            committed = client.committed(places, timeout=RESPONSE_SECONDS)
        except cimpl.KafkaException:
            committed = places  # the client looks for the offsets itself, and repeats it
        for place in committed:
            partition = PartitionOffsets(crashes_of(place.metadata))
            self.assignment.partitions[place.partition] = partition
            if committed is places or place.offset >= 0:
                continue
            place.offset = cimpl.OFFSET_BEGINNING
            if self._starts_at_end:
                place.offset = partition.position = _end_of(client, place)
        client.incremental_assign(committed)
        _wake(client)

    def _on_revoke(self, client: Any, places: list[cimpl.TopicPartition]) -> None:
        """Commit what is acknowledged, without the note of a crash, and forget the rest."""
        numbers = [place.partition for place in places]
        positions = [self._to_commit(*place) for place in self.assignment.positions(numbers)]
        if positions:
            try:
                # The client sends it before it returns the partitions.
                client.commit(offsets=positions, asynchronous=True)
            except cimpl.KafkaException:
                pass  # the messages come again, and are known as duplicates
        self._on_lost(client, places)

    def _on_lost(self, client: Any, places: list[cimpl.TopicPartition]) -> None:
        """Forget partitions that belong to other consumers."""
        if self._is_paused:  # the client would keep the pause of a partition that comes back
            client.resume(places)
        self._forget([place.partition for place in places])

    def _forget(self, partitions: Sequence[int]) -> None:
        self.assignment.forget(partitions)
        for number in partitions:
            self._out_of_range.pop(number, None)

    def _on_error(self, error: cimpl.KafkaError) -> None:
        """Learn of an error of a connection. One broker may be offline: others have its data."""
        if error.code() in (
            ClientError.ALL_BROKERS_DOWN,
            ClientError.AUTHENTICATION,
            ClientError.SSL,
        ):
            self._problem = error
        if error.code() != ClientError.ALL_BROKERS_DOWN:
            self._reason = error.str()

    def _explain(self, error: cimpl.KafkaError) -> Exception:
        """Return the error for users. The next read checks whether it is over."""
        problem = self._problem
        if error.code() == ClientError.TRANSPORT and problem is not None:
            error = problem  # such as a login that was rejected
        self._problem = error
        if error.fatal() or self._client is None:
            with self._lock:
                self._disconnect()
        is_vague = error.code() in VAGUE
        return explain(
            error,
            servers=self._options["bootstrap.servers"],
            topic=self._topic,
            group=self._options["group.id"],
            reason=self._reason if is_vague else "",
        )


def _wake(client: Any) -> None:
    """Make the client fetch at once from partitions that were paused, here or by a rebalance.

    Its threads sleep for up to a second before they notice. A request to the leaders wakes them.
    """
    places = client.assignment()
    for place in places:
        place.offset = cimpl.OFFSET_END
    with suppress(cimpl.KafkaException):  # the client fetches without it, too
        client.offsets_for_times(places, timeout=WAKE_SECONDS)


def _end_of(client: Any, place: cimpl.TopicPartition) -> int:
    """Return the offset of the next message, or a negative number that stands for it."""
    try:
        return int(client.get_watermark_offsets(place, timeout=RESPONSE_SECONDS)[1])
    except cimpl.KafkaException:
        return int(cimpl.OFFSET_END)


def _poll_while_idle(member: weakref.ref[GroupMember], closed: threading.Event) -> None:
    """Poll for a member, until it is closed or forgotten."""
    while not closed.wait(POLL_SECONDS):
        consumer = member()
        if consumer is None:
            return
        consumer.poll_if_idle()
        del consumer
