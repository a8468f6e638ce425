"""Publishing: events that are sent to a broker by jobs, so that they are written in a transaction.

An event to publish is a job of the type `publish:<destination>`. Jobs with the same key run one
after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..backoff import steps
from ..core.key import Key
from ..core.policy import RetryPolicy
from ..engine.settings import RetrySettings
from ..ledger.model import Lease, NewJob
from ..worker.job_type import JobType
from .event import DEFAULT_SOURCE, MAX_NAME_BYTES, Event, check_name
from .source import Message
from .stored_event import StoredEvent
from .tracing import MESSAGE_ID, destination_attributes, with_traceparent

PREFIX = "publish:"
EVENT_TYPE, EVENT_ID, EVENT_SOURCE, EVENT_TIME = "type", "id", "source", "time"
KEY_HEADER = "redrive-publish-key"
MAX_ATTEMPTS = 25
"""An outage does not count. After these, the event is a dead letter, and can be replayed."""
MAX_FAILURES = 2
"""Messages of a rejected batch that may fail alone before the rest is not tried."""
SETTINGS = RetrySettings().using(
    RetryPolicy(MAX_ATTEMPTS, 1, 600, 0.1),
    {"attempt_timeout": 60, "backoff": steps(1, 5, 30, 120, 600)},
)


class Publisher(Protocol):
    """Sends messages to a broker. One thread at a time uses it."""

    def publish(self, messages: Sequence[Message], /) -> None:
        """Send messages in order, and return when the broker has stored all of them.

        After an error, all of them are sent again. The broker may recognise them by their ids.

        Args:
            messages: With the headers `type` and `id`. `key` is set for events with a key.
        """

    def close(self) -> None:
        """Close the connection."""


@runtime_checkable
class Destination(Protocol):
    """A stream, queue or topic that `app.publish` sends events to, such as a `RedisStream`."""

    @property
    def name(self) -> str:
        """Name of the destination in `app.publish(..., to=name)`."""

    def publisher(self) -> Publisher:
        """Return a publisher. It may connect at its first use.

        Raises:
            ImportError: The client of the broker is not installed.
        """


def publish_job(event: Event[Any], to: str, key: str | None, /) -> NewJob:
    """Return the job that publishes an event."""
    if not isinstance(event, Event):
        raise TypeError(f"publish takes an Event, not {type(event).__name__}")
    if key is not None:
        check_name("key", key, MAX_NAME_BYTES)
    headers = {
        **event.headers,
        EVENT_TYPE: event.type,
        EVENT_ID: event.id,
    }
    # The id of an event is unique in its source only.
    stored = StoredEvent.from_event(event)
    if event.source != DEFAULT_SOURCE:
        headers[EVENT_SOURCE] = event.source
        stored = stored._replace(origin=event.source)
    if event.at is not None:
        headers[EVENT_TIME] = event.at.isoformat()
    if key is not None:
        headers[KEY_HEADER] = key
    return NewJob(
        kind=PREFIX + to,
        key=str(Key("publish", to, stored.dedupe_id, "send")),
        payload=stored.payload,
        max_attempts=MAX_ATTEMPTS,
        headers=headers,
        sequence=key,
    )


def message_to_publish(lease: Lease, /) -> Message:
    """Return the message of a job."""
    headers = with_traceparent(dict(lease.headers), lease.ids)
    key = headers.pop(KEY_HEADER, None)
    return Message(headers[EVENT_ID], lease.payload, headers, key=key)


class SharedPublisher:
    """A publisher that the threads of a worker share. Messages that wait are sent together."""

    def __init__(self, open_publisher: Callable[[], Publisher]) -> None:
        self._open = open_publisher
        self._publisher: Publisher | None = None
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []

    def publish(self, message: Message, /) -> None:
        """Send a message, and return when the broker has stored it."""
        waiting = _Waiting(message)
        with self._lock:
            self._waiting.append(waiting)
        with self._sending:
            if not waiting.is_sent:
                self._send_waiting()
        if waiting.error is not None:
            raise waiting.error

    def _send_waiting(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        error, failures = self._send(batch), 0
        for waiting in batch:
            waiting.error = error
            # One message that the broker rejects must not hold back the others. After a second
            # failure, the broker itself is away: the others are sent by their next attempts.
            if error is not None and len(batch) > 1:
                if failures < MAX_FAILURES:
                    waiting.error = self._send([waiting])
                    failures += waiting.error is not None
                else:  # not the error of this message, which may be a fault of another one
                    waiting.error = ConnectionError(f"not sent, because others failed: {error}")
            waiting.is_sent = True

    def _send(self, batch: Sequence[_Waiting]) -> BaseException | None:
        try:
            if self._publisher is None:
                self._publisher = self._open()
            self._publisher.publish([waiting.message for waiting in batch])
        except BaseException as error:
            return error
        return None

    def close(self) -> None:
        """Close the connection. The next message opens it again."""
        with self._sending:
            if self._publisher is not None:
                self._publisher.close()
                self._publisher = None


class _Waiting:
    __slots__ = ("error", "is_sent", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.is_sent = False
        self.error: BaseException | None = None


class Outbox:
    """The destinations of an app, and the job types that publish to them. Threads may share it."""

    def __init__(self, destinations: Mapping[str, Destination]) -> None:
        self._publishers = {
            name: SharedPublisher(destination.publisher)
            for name, destination in destinations.items()
        }
        self._attributes = {
            name: destination_attributes(destination, name)
            for name, destination in destinations.items()
        }

    def job(self, event: Event[Any], to: str, key: str | None, /) -> NewJob:
        """Return the job that publishes an event.

        Raises:
            ValueError: The app has no such destination.
        """
        if to not in self._publishers:
            known = ", ".join(sorted(self._publishers)) or "none"
            raise ValueError(
                f"destination {to!r} is unknown; known: {known}; "
                "add it with App(destinations=[...])"
            )
        return publish_job(event, to, key)

    @property
    def job_types(self) -> list[JobType]:
        """The job types that publish events."""

        def job_type(name: str, publisher: SharedPublisher) -> JobType:
            return JobType(
                name=PREFIX + name,
                run=lambda lease: publisher.publish(message_to_publish(lease)),
                execution="thread",
                settings=SETTINGS,
                is_sequenced=True,
                describe=lambda lease: {
                    **self._attributes[name],
                    MESSAGE_ID: lease.headers[EVENT_ID],
                },
            )

        return [job_type(name, publisher) for name, publisher in self._publishers.items()]

    def close(self) -> None:
        """Close the connections. They are opened again at the next use."""
        for publisher in self._publishers.values():
            publisher.close()


def open_outbox(sources: Sequence[object], destinations: Any, /) -> Outbox | None:
    """Validate the option `destinations=` of an app, and return its outbox.

    A source that can be published to is a destination, too.

    Returns:
        None if the app has no destinations.

    Raises:
        TypeError: It is not a list of destinations.
        ValueError: Two destinations have one name.
    """
    if isinstance(destinations, Destination) or not isinstance(destinations, Sequence):
        raise TypeError(f"destinations= must be a list; pass [{destinations!r}]")
    by_name: dict[str, Destination] = {}
    for destination in destinations:
        if not isinstance(destination, Destination):
            raise TypeError(
                "a destination must be a RedisStream, or an object with name and publisher: "
                f"{destination!r}"
            )
        if destination.name in by_name:
            raise ValueError(f"two destinations have the same name; rename one: {destination.name}")
        by_name[destination.name] = destination
    for source in sources:
        if isinstance(source, Destination):
            by_name.setdefault(source.name, source)
    return Outbox(by_name) if by_name else None
