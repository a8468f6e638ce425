"""NatsAdmin: operations of tests on a NATS server beside the source under test, without asyncio."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from redrive.core.event_loop_thread import EventLoopThread
from redrive.messages.nats.delivery import parse_headers

T = TypeVar("T")
SECONDS = 60.0


class NatsAdmin:
    """A connection that waits and reconnects without a limit."""

    def __init__(self, *urls: str, tls: ssl.SSLContext | None = None, token: str | None = None, timeout: float = 5) -> None:
        self._loop = EventLoopThread("nats admin")
        self._client = Client()

        async def silent(_error: Exception) -> None:
            """Ignore errors that do not end a call."""

        async def connect() -> JetStreamContext:
            await self._client.connect(
                list(urls),
                error_cb=silent,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.05,  # type: ignore[arg-type]
                tls=tls,
                token=token,
            )
            return self._client.jetstream(timeout=timeout)

        self.js: JetStreamContext = self.run(connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._client.close)
        self._loop.close()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine to its end."""
        return self._loop.run(work, SECONDS)

    def create_stream(self, name: str, *, replicas: int = 1, subjects: Sequence[str] = ()) -> None:
        """Create a stream with the subject `<name>.>`."""
        self.run(lambda: self.js.add_stream(name=name, subjects=list(subjects) or [f"{name}.>"], num_replicas=replicas))

    def delete_stream(self, name: str) -> None:
        self.run(lambda: self.js.delete_stream(name))

    def send(self, subject: str, messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> None:
        """Store messages, in order."""

        async def publish() -> None:
            for body, headers in messages:
                await self.js.publish(subject, body, headers=dict(headers) or None)

        self.run(publish)

    def send_surely(self, subject: str, ids: Sequence[str], body: bytes = b"{}") -> None:
        """Store messages once, by their ids, despite failures of servers."""

        async def publish() -> None:
            for each in ids:
                while True:
                    try:
                        headers = {"type": "paid", "id": each, "Nats-Msg-Id": each}
                        await self.js.publish(subject, body, headers=headers, timeout=2)
                        break
                    except Exception:
                        await asyncio.sleep(0.05)

        self._loop.run(publish, None)

    def pending(self, stream: str, consumer: str) -> int:
        """Messages that were delivered and not acknowledged."""
        return int(self.consumer(stream, consumer).num_ack_pending or 0)

    def unread(self, stream: str, consumer: str) -> int:
        """Messages that were not acknowledged, delivered or not. -1: the consumer does not exist, or has no leader."""
        try:
            info = self.consumer(stream, consumer)
        except (nats.errors.Error, NotFoundError):
            return -1
        return int(info.num_ack_pending or 0) + int(info.num_pending or 0)

    def consumer(self, stream: str, consumer: str) -> Any:
        return self.run(lambda: self.js.consumer_info(stream, consumer))

    def messages(self, stream: str) -> list[tuple[Mapping[str, str], bytes]]:
        """Headers and body of all messages of a stream."""

        async def read() -> list[tuple[Mapping[str, str], bytes]]:
            state = (await self.js.stream_info(stream)).state
            return [await self._stored(stream, number) for number in range(state.first_seq, state.last_seq + 1)]

        return self.run(read)

    def subjects(self, stream: str) -> dict[str, int]:
        """Number of messages of each subject of a stream."""
        info: Any = self.run(lambda: self.js.stream_info(stream, subjects_filter=">"))
        return dict(info.state.subjects or {})

    async def _stored(self, stream: str, number: int) -> tuple[Mapping[str, str], bytes]:
        # Not by `get_msg`: it does not return text that is not ASCII.
        asked = json.dumps({"seq": number}).encode()
        message = json.loads((await self._client.request(f"$JS.API.STREAM.MSG.GET.{stream}", asked, timeout=5)).data)["message"]
        return parse_headers(base64.b64decode(message.get("hdrs", ""))), base64.b64decode(message.get("data", ""))
