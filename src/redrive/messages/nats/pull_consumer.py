"""PullConsumer: reads a stream through a durable pull consumer, and publishes to it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nats.errors import NoRespondersError

from ...core.event_loop_thread import EventLoopThread
from ..source import DeadLetterNotice, Message
from .address import NatsAddress
from .client import (
    CONNECT_SECONDS,
    INFO_SECONDS,
    RESPONSE_SECONDS,
    ApiError,
    Connection,
    explain,
    parse_response,
)
from .delivery import ACK_PREFIX, NANOSECONDS, parse_state, to_message
from .publication import (
    Publication,
    dead_stream_config,
    is_covered,
    to_announcement,
    to_publication,
)

T = TypeVar("T")
ACK, NAK, IN_PROGRESS = b"+ACK", b"-NAK", b"+WPI"
MAX_READ_BYTES = 80 * 1024 * 1024
"""Bytes of one read. A message of NATS has at most 64 MiB."""
PENDING_BATCHES = 100
"""Batches of all workers that may be reserved at the same time (`max_ack_pending`)."""
RENEWALS_PER_ACK_WAIT = 3
MAX_RENEW_SECONDS = 600.0
"""Time for which messages stay reserved while they are not stored. Then the worker counts as hung,
and others get them."""
CONSUMER_NOT_FOUND = 10014
NO_MESSAGES, REQUEST_ENDED, NO_RESPONDERS = 404, 408, 503
END_OF_BATCH = ("Batch Completed", "Message Size Exceeds MaxBytes")
"""Conflicts that only end a request."""


class ConsumerOptions(NamedTuple):
    """The options of a `NatsStream`, validated."""

    address: NatsAddress
    stream: str
    consumer: str
    subjects: Sequence[str]
    dead_subject: str | None
    batch: int
    ack_wait: float
    credentials: str | Path | None
    tls: ssl.SSLContext | None


class Reservation(NamedTuple):
    """A message that was delivered and neither acknowledged nor returned."""

    reply: str
    read_at: float


class Pull:
    """One request for messages, and the messages that came so far."""

    def __init__(self, inbox: str, limit: int) -> None:
        self.inbox = inbox.encode()
        self.messages: list[Message] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._limit = limit

    def add(self, message: Message, /) -> None:
        """Add a message. The last one ends the request."""
        self.messages.append(message)
        if len(self.messages) >= self._limit and not self.done.done():
            self.done.set_result(None)

    def end(self, code: int, text: str, /) -> None:
        """End the request by a state that the server sent."""
        if self.done.done():
            return
        is_end = code in (NO_MESSAGES, REQUEST_ENDED) or text in END_OF_BATCH
        if is_end or self.messages:
            self.done.set_result(None)
        elif code == NO_RESPONDERS:
            self.done.set_exception(NoRespondersError())
        else:
            self.done.set_exception(ApiError({"code": code, "description": text}))


class PullConsumer:
    """Reads one stream, or publishes to it. One thread at a time uses it.

    It has another thread for its event loop.

    While messages are reserved, JetStream is told that work on them is in progress, so that a slow
    ledger does not let them be delivered again.
    """

    def __init__(self, source: ConsumerOptions) -> None:
        self._source = source
        self._loop = EventLoopThread(f"redrive nats {source.stream}")
        # All that follows is used in the event loop only.
        self._connection: Connection | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._servers = list(source.address.servers)
        self._reserved: dict[str, Reservation] = {}
        self._inbox = ""
        self._pull: Pull | None = None
        self._pull_number = 0
        self._stream_config: dict[str, Any] = {}
        self._ack_wait = source.ack_wait

    def read(self, limit: int, wait: float, /) -> Sequence[Message]:
        """Return messages that wait in the stream, or the next one."""
        return self._run(lambda: self._read(limit, wait), wait)

    def ack(self, messages: Sequence[Message], /) -> None:
        """Acknowledge messages. Returns when JetStream has confirmed it, in one round trip."""
        self._run(lambda: self._settle(messages, ACK))

    def nack(self, messages: Sequence[Message], delay: float, /) -> None:
        """Return messages. They are delivered again after `delay` seconds."""
        body = NAK + (b' {"delay": %d}' % int(delay * NANOSECONDS) if delay > 0 else b"")
        self._run(lambda: self._settle(messages, body))

    def announce(self, notices: Sequence[DeadLetterNotice], /) -> None:
        """Publish dead letters. The stream for them is created if no stream has their subject."""
        if self._source.dead_subject is not None:
            self._run(lambda: self._announce(notices))

    def publish(self, messages: Sequence[Message], /) -> None:
        """Publish messages in order. Returns when the stream has stored all of them."""
        self._run(lambda: self._publish(messages))

    def close(self) -> None:
        """Return messages that were not acknowledged, and close the connection."""
        try:
            self._loop.run(self._return_and_close, CONNECT_SECONDS + RESPONSE_SECONDS)
        except Exception:
            pass  # The messages are delivered again after `ack_wait`.
        finally:
            self._loop.close(cancel_seconds=CONNECT_SECONDS)

    def _run(self, work: Callable[[], Awaitable[T]], wait: float = 0.0) -> T:
        """Run a coroutine. After an error, the next call connects again."""
        seconds = wait + CONNECT_SECONDS * len(self._servers) + 4 * RESPONSE_SECONDS
        try:
            return self._loop.run(work, seconds)
        except Exception as error:
            self._loop.run(self._disconnect, None)
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> Exception:
        source = self._source
        return explain(
            error,
            stream=source.stream,
            consumer=source.consumer,
            servers=source.address.without_login,
        )

    async def _connect(self) -> Connection:
        """Return the connection. Open it if there is none, or if it has failed."""
        if self._connection is not None and not self._connection.is_broken:
            return self._connection
        await self._disconnect()
        source = self._source
        connection = await Connection.open(
            source.address,
            self._servers,
            name=f"redrive {source.stream} {source.consumer}",
            tls=source.tls,
            credentials=source.credentials,
        )
        self._connection = connection
        # A cluster tells its other servers. They help if the configured ones are down.
        known = dict.fromkeys([*source.address.servers, *connection.discovered_servers])
        self._servers = list(known)
        info = await connection.ask_info(f"STREAM.INFO.{source.stream}")
        self._stream_config = info["config"]
        subjects = self._stream_config.get("subjects") or ()
        dead = source.dead_subject
        if (
            dead is not None
            and is_covered(dead, subjects)
            and is_covered(dead, source.subjects or [">"])
        ):
            raise ValueError(
                f"NATS stream {source.stream!r}: it has the subject {dead!r}, so dead letters "
                "would be read as messages; change dead_subject="
            )
        return connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        renewal, self._renewal = self._renewal, None
        self._inbox = ""
        if renewal is not None:
            renewal.cancel()
        if connection is not None:
            await connection.close()

    async def _read(self, limit: int, wait: float) -> list[Message]:
        connection = await self._connect()
        if not self._inbox:
            await self._bind(connection)
        source = self._source
        self._pull_number += 1
        inbox = f"{self._inbox}.{self._pull_number}"
        # `no_wait` returns what there is. With `expires`, it waits for the first message.
        request = {"batch": limit, "no_wait": True, "max_bytes": MAX_READ_BYTES}
        if wait > 0:
            request["expires"] = int(wait * NANOSECONDS)
        pull = self._pull = Pull(inbox, limit)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{source.stream}.{source.consumer}"
        try:
            await connection.publish(subject, json.dumps(request).encode(), reply=inbox)
            async with asyncio.timeout(wait + RESPONSE_SECONDS):
                await connection.wait(pull.done)
        except Exception:
            # Messages can be acknowledged on another connection. The next read raises the error.
            if not pull.messages:
                raise
            await self._disconnect()
        finally:
            self._pull = None
        now = asyncio.get_running_loop().time()
        for message in pull.messages:
            self._reserved[message.id] = Reservation(message.raw, now)
        return pull.messages

    def _deliver(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        """Take a message, or the state of a request, from the connection."""
        pull = self._pull
        if pull is None:
            return  # Its read has failed, and the connection is closed soon.
        if reply.startswith(ACK_PREFIX):
            pull.add(to_message(subject, reply, headers, body))
        elif subject == pull.inbox:
            pull.end(*parse_state(headers))

    async def _bind(self, connection: Connection) -> None:
        """Create the consumer if it does not exist, and an inbox for its messages."""
        source = self._source
        place = f"{source.stream}.{source.consumer}"
        try:
            info = await connection.ask_info(f"CONSUMER.INFO.{place}")
        except ApiError as error:
            if error.code != CONSUMER_NOT_FOUND:
                raise
            request = {"stream_name": source.stream, "config": _consumer_config(source)}
            info = await connection.create(f"CONSUMER.CREATE.{place}", request)
        _check_consumer(source, info["config"])
        self._ack_wait = info["config"].get("ack_wait", 0) / NANOSECONDS or self._ack_wait
        self._inbox = await connection.receive(self._deliver)
        self._renewal = asyncio.create_task(self._renew(connection))

    async def _renew(self, connection: Connection) -> None:
        """Keep messages reserved that are not stored for longer than usual."""
        pause = self._ack_wait / RENEWALS_PER_ACK_WAIT
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            for reply, read_at in list(self._reserved.values()):
                if now - read_at < max(MAX_RENEW_SECONDS, self._ack_wait):
                    try:
                        await connection.publish(reply, IN_PROGRESS)
                    except Exception:
                        return  # The next call finds out, and connects again.

    async def _settle(self, messages: Sequence[Message], body: bytes) -> None:
        """Acknowledge or return messages.

        JetStream handles the acknowledgements of a connection in order. So the response to the last
        one confirms all of them.
        """
        if not messages:
            return
        connection = await self._connect()
        *others, last = messages
        for message in others:
            await connection.publish(message.raw, body)
        try:
            await connection.request(last.raw, body, seconds=INFO_SECONDS)
        except NoRespondersError:
            # The consumer was deleted, or has no leader for now.
            if await self._exists(connection):
                raise
        except TimeoutError:
            # A server that was killed may have forgotten the last deliveries, and ignores their
            # acknowledgements. It delivers them again. If there is no leader, this raises.
            await self._exists(connection)
        for message in messages:
            self._reserved.pop(message.id, None)

    async def _exists(self, connection: Connection) -> bool:
        """Return whether the consumer exists. Raises an error if it has no leader."""
        source = self._source
        try:
            await connection.ask_info(f"CONSUMER.INFO.{source.stream}.{source.consumer}")
        except ApiError as error:
            if error.code != CONSUMER_NOT_FOUND:
                raise
            return False
        return True

    async def _publish(self, messages: Sequence[Message]) -> None:
        stream = self._source.stream
        publications = [to_publication(message, stream) for message in messages]
        try:
            await self._store(publications)
        except NoRespondersError as error:
            subjects = ", ".join(sorted({publication.subject for publication in publications}))
            raise LookupError(
                f"NATS stream {stream!r}: it has no subject {subjects}; add it: nats stream edit "
                f"{stream} --subjects '{stream}.>'"
            ) from error

    async def _announce(self, notices: Sequence[DeadLetterNotice]) -> None:
        subject = self._source.dead_subject
        assert subject is not None
        connection = await self._connect()
        letters = [
            to_announcement(notice, subject, self._source.consumer, connection.max_payload)
            for notice in notices
        ]
        try:
            await self._store(letters)
        except NoRespondersError:
            await self._create_dead_stream(connection)
            await self._store(letters)

    async def _store(self, publications: Sequence[Publication]) -> None:
        """Publish messages and wait until all are stored. All are on their way at the same time."""
        connection = await self._connect()
        requests = [
            asyncio.create_task(connection.request(subject, body, headers=headers))
            for subject, headers, body in publications
        ]
        try:
            for response in await asyncio.gather(*requests):
                parse_response(response)
        finally:
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    async def _create_dead_stream(self, connection: Connection) -> None:
        subject = self._source.dead_subject
        assert subject is not None
        config = dead_stream_config(subject, self._stream_config)
        name = config["name"]
        try:
            await connection.create(f"STREAM.CREATE.{name}", config)
        except Exception as error:
            raise PermissionError(
                f"NATS: no stream has the subject {subject!r} for dead letters, and it cannot be "
                f"created ({self._explain(error)}); create it: "
                f"nats stream add {name} --subjects {subject}, or pass dead_subject=None"
            ) from error

    async def _return_and_close(self) -> None:
        try:
            if self._reserved and self._connection is not None:
                messages = [
                    Message(message_id, None, raw=reservation.reply)
                    for message_id, reservation in self._reserved.items()
                ]
                await self._settle(messages, NAK)
        finally:
            self._reserved.clear()
            await self._disconnect()


def _consumer_config(source: ConsumerOptions) -> dict[str, Any]:
    config: dict[str, Any] = {
        "durable_name": source.consumer,
        "name": source.consumer,
        "ack_policy": "explicit",
        "ack_wait": int(source.ack_wait * NANOSECONDS),
        # JetStream never delivers a message again that was delivered so often: it would be lost.
        "max_deliver": -1,
        "max_ack_pending": PENDING_BATCHES * source.batch,
        # Messages that were stored before are known as duplicates, and no other message is missed.
        "deliver_policy": "all",
        "replay_policy": "instant",
    }
    if len(source.subjects) == 1:
        config["filter_subject"] = source.subjects[0]
    elif source.subjects:
        config["filter_subjects"] = list(source.subjects)
    return config


def _check_consumer(source: ConsumerOptions, config: dict[str, Any]) -> None:
    """Reject a consumer with which messages would be lost.

    Raises:
        ValueError: The consumer cannot be used.
    """
    place = f"NATS consumer {source.consumer!r} of stream {source.stream!r}"
    edit = f"nats consumer edit {source.stream} {source.consumer}"
    if config.get("deliver_subject"):
        raise ValueError(f"{place}: it is a push consumer; pass another name with consumer=")
    if config.get("ack_policy") != "explicit":
        raise ValueError(
            f"{place}: its ack policy is {config.get('ack_policy')!r}, so messages would be lost; "
            "pass another name with consumer="
        )
    if config.get("max_deliver", -1) > 0:
        raise ValueError(
            f"{place}: messages that were delivered {config['max_deliver']} times would be lost; "
            f"remove the limit: {edit} --max-deliver=-1"
        )
    filters = set(config.get("filter_subjects") or filter(None, [config.get("filter_subject")]))
    if source.subjects and filters != set(source.subjects):
        existing = ", ".join(sorted(filters)) or "all subjects"
        raise ValueError(
            f"{place}: it reads {existing}, but subjects= is {', '.join(source.subjects)}; "
            f"change it with {edit}, or pass another name with consumer="
        )
