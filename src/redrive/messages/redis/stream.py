"""RedisStream: a Redis stream as a source of events, read through a consumer group.

DeadLetterPublisher writes dead letters to a Redis stream, too. The ledger is authoritative.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select, update

from ...core.job_reasons import DeadReason
from ...core.policy import RetryPolicy
from ...core.seconds import Seconds, positive, whole_number
from ...engine.settings import RetrySettings
from ...journal.redaction.secrets import keep_address_secret, redact_address
from ...ledger.db.tables import dead
from ...ledger.events import SOURCE_ID
from ...ledger.failpoint import crash_point
from ...ledger.model import Lease
from ...worker.job_type import JobType, Undecodable
from ...worker.maintenance import BackgroundTask
from ...worker.process import process_label
from ..event import MAX_NAME_BYTES
from ..inbox import Inbox
from .consumer_group import ConsumerGroup
from .entry import LOST_HEADER, Decode, StreamEntry, UnreadableEntry, decode_entry, load_fields
from .reader import StreamReader

if TYPE_CHECKING:
    import redis

BATCH_SIZE = 100
MAX_STREAM_ENTRIES = 100_000
"""Approximate number of entries that the stream keeps."""
FIELDS = (
    "id",
    "kind",
    "key",
    "reason",
    "error",
    "signature",
    "attempts",
    "source",
    "source_id",
    "created_at",
)


class DeadLetterPublisher:
    """A worker task that adds an entry for each new dead letter, at least once.

    Belongs to one thread.
    """

    every = 1.0

    def __init__(self, inbox: Inbox, client: redis.Redis, source: str, stream: str) -> None:
        self.name = f"tell {stream}"
        self._inbox, self._client = inbox, client
        self._source, self._stream = source, stream

    def do(self, now: datetime, /) -> None:
        """Publish the dead letters that were not published before."""
        while self._publish_batch(now) == BATCH_SIZE:
            pass

    def _publish_batch(self, now: datetime) -> int:
        is_own = dead.c.source == self._source
        if self._inbox.sources[:1] == (self._source,):
            # The first source also publishes dead letters that came from no stream.
            has_no_stream = dead.c.source.not_in(self._inbox.sources)
            is_own = or_(is_own, dead.c.source.is_(None), has_no_stream)
        columns = (*(dead.c[name] for name in FIELDS), dead.c.payload)
        query = select(*columns).where(dead.c.told_at.is_(None), is_own)
        with self._inbox.ledger.connections.read.use() as session:
            rows = session.core.execute(query.order_by(dead.c.id).limit(BATCH_SIZE)).all()
        if not rows:
            return 0
        pipeline = self._client.pipeline(transaction=False)
        for row in rows:
            values = {name: getattr(row, name) for name in FIELDS}
            fields: dict[Any, Any] = {
                name: _to_text(value) for name, value in values.items() if value is not None
            }
            if row.source == self._source:
                # Its payload was in Redis before. Payloads of other jobs are not published.
                fields["payload"] = row.payload
            pipeline.xadd(self._stream, fields, maxlen=MAX_STREAM_ENTRIES, approximate=True)
        pipeline.execute()
        crash_point("tell.after")
        published = update(dead).where(dead.c.id.in_([row.id for row in rows]))
        with self._inbox.ledger.connections.write.use() as session:
            session.core.execute(published.values(told_at=now))
        return len(rows)


def _to_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


WITHOUT_RETRIES = RetrySettings().using(RetryPolicy.disabled(), {"attempt_timeout": None})
MAX_BATCH = 1000
SOCKET_SECONDS = 10
CONNECT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class RedisStream:
    """A Redis stream that workers read through a consumer group. Extra: `redis`.

    Creating one opens nothing. Immutable: threads, event loops and forked children may share one.

    Args:
        url: Address, such as `redis://localhost`. `rediss://`, `unix://`, `valkey://` and
            `valkeys://` work too.
        stream: Name of the stream.
        group: Name of the consumer group.
        decode: Function from the fields of an entry to an `Event`. Default: the fields `type`, `id`
            and `payload`, and all others as headers.
        dead_stream: Stream to which dead letters are also written. Default: the name of the stream
            and `.dead`. None: none.
        batch: Maximum number of entries in one read, up to 1,000.
        idle: Seconds that an entry may be pending before another consumer takes it over.
        trim: If True, remove entries that every group has acknowledged. Leave it False if others
            read the stream without a group.

    Raises:
        ValueError: An option is not valid.
    """

    url: str = field(repr=False)
    stream: str
    group: str = field(kw_only=True)
    decode: Decode | None = field(default=None, kw_only=True)
    dead_stream: str | None = field(default="", kw_only=True)
    batch: int = field(default=100, kw_only=True)
    idle: Seconds = field(default=60, kw_only=True)
    trim: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("url", "stream", "group"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip() or not value.isprintable():
                shown = "" if name == "url" else f": {value!r}"
                raise ValueError(
                    f"RedisStream: {name} must be text, printable and not empty{shown}"
                )
        keep_address_secret(self.url)
        if not self.url.startswith(("redis://", "rediss://", "unix://", "valkey://", "valkeys://")):
            raise ValueError(
                "RedisStream: the URL must begin with redis://, rediss:// or unix://: "
                f"{redact_address(self.url)!r}"
            )
        if len(self.name.encode()) > MAX_NAME_BYTES:
            raise ValueError(
                f"RedisStream: the stream's name must not be longer than {MAX_NAME_BYTES} bytes: "
                f"{self.stream[:60]!r}…"
            )
        if whole_number("batch", self.batch) > MAX_BATCH:
            raise ValueError(f"RedisStream: batch= must be at most {MAX_BATCH}: {self.batch!r}")
        positive("idle", self.idle)
        if self.decode is not None and not callable(self.decode):
            raise TypeError(
                "RedisStream: decode= must be a function from an entry's fields to an Event, not "
                f"{self.decode!r}"
            )
        if self.dead_stream == "":
            object.__setattr__(self, "dead_stream", f"{self.stream}.dead")
        if self.dead_stream == self.stream:
            raise ValueError(
                f"RedisStream: dead letters in {self.stream!r} would be read as messages; change "
                "dead_stream="
            )

    @property
    def name(self) -> str:
        """Name of the source in events and dead letters."""
        return self.stream

    @property
    def unread(self) -> str:
        """Job type of entries that cannot be decoded."""
        return f"read:{self.stream}"

    def connect(self) -> redis.Redis:
        """Open a client without retries of its own. It returns entries as bytes.

        Returns:
            The client.

        Raises:
            ImportError: redis-py is not installed.
        """
        try:
            import redis  # noqa: PLC0415
            from redis.backoff import NoBackoff  # noqa: PLC0415
            from redis.retry import Retry  # noqa: PLC0415
        except ImportError as missing:
            raise ImportError(
                'RedisStream needs redis-py: pip install "redrive[redis]"'
            ) from missing
        # The reader itself retries. A second layer of retries below it would only hide faults.
        url = self.url.replace("valkeys://", "rediss://", 1).replace("valkey://", "redis://", 1)
        return redis.Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
        )

    def chores(self, inbox: Inbox, /) -> Sequence[BackgroundTask]:
        """Return the worker's tasks that read the stream and report dead letters.

        Args:
            inbox: Where events are stored.

        Returns:
            The tasks.
        """
        # The end of the name tells other consumers whether the process is gone.
        consumer = f"{socket.gethostname()}-{secrets.token_hex(3)}-{process_label()}"
        reader = StreamReader(
            inbox,
            ConsumerGroup(self.connect(), self.stream, self.group, consumer),
            source=self.name,
            kind=self.unread,
            batch=self.batch,
            idle=positive("idle", self.idle),
            decode=self.decode,
            trim=self.trim,
        )
        if self.dead_stream is None:
            return [reader]
        return [reader, DeadLetterPublisher(inbox, self.connect(), self.name, self.dead_stream)]

    def kinds(self, inbox: Inbox, /) -> Sequence[JobType]:
        """Return the job type that runs entries which could not be decoded.

        Args:
            inbox: Where events are stored.

        Returns:
            The job types.
        """

        def run(lease: Lease) -> None:
            is_lost = LOST_HEADER in lease.headers
            entry = StreamEntry(lease.headers[SOURCE_ID], None)
            try:
                if not is_lost:
                    entry = entry._replace(fields=load_fields(lease.payload))
                event = decode_entry(entry, self.name, self.decode, inbox.ledger.max_payload)
                inbox.store([inbox.incoming(event)])
            except (UnreadableEntry, ValueError) as error:
                reason: DeadReason = "payload_lost" if is_lost else "undecodable"
                message = f"entry {entry.id} of {self.stream}: {error}"
                raise Undecodable(message, reason=reason) from error

        return [
            JobType(
                name=self.unread,
                run=run,
                execution="thread",
                settings=WITHOUT_RETRIES,
                parks_on_outage=False,
            )
        ]
