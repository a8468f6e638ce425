"""Connection: one connection to a NATS server, through nats-py. It never reconnects by itself.

`explain` turns errors of NATS into one line with the thing, the problem and the fix.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
from asyncio import FIRST_COMPLETED, Future
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.errors import (
    ConnectionClosedError,
    Error,
    MaxPayloadError,
    NoRespondersError,
    SecureConnWantedError,
    StaleConnectionError,
)

from .address import NatsAddress
from .publication import BadHeaderError

T = TypeVar("T")
CONNECT_SECONDS = 3.0
CLOSE_SECONDS = 2.0
RESPONSE_SECONDS = 5.0
"""Time that a server, or the leader of a stream, has to respond."""
INFO_SECONDS = 2.0
"""Timeout of a read-only request. Without a leader, the server does not respond."""
STREAM_NOT_FOUND = 10059
MESSAGE_TOO_LARGE = 10054
OTHER_STREAM = 10060
NO_JETSTREAM = (10039, 10076)
"""JetStream is not enabled, for the account or on the server."""

Deliver = Callable[[bytes, bytes, bytes | None, bytes], None]
"""Takes subject, reply, headers and body of a message. It must not raise."""


class ApiError(Exception):
    """A response of JetStream that is an error."""

    def __init__(self, error: dict[str, Any], /) -> None:
        super().__init__(str(error.get("description", error)))
        self.status = int(error.get("code", 0))
        self.code = int(error.get("err_code", 0))


class StreamClient(Client):
    """A client of nats-py that passes on messages of one subscription as they came.

    The parser of nats-py loses bytes of headers, and some malformed headers stop its read loop.
    """

    raw_sid = 0
    deliver: Deliver | None = None
    needs_tls = False

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any
    ) -> None:
        if sid == self.raw_sid and self.deliver is not None:
            self.deliver(subject, reply, headers, data)
        else:
            await super()._process_msg(sid, subject, reply, data, headers)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # Before the login is sent. nats-py itself uses TLS only if the server requires it.
        if initial_connection and self.needs_tls and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise SecureConnWantedError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    async def receive(self, subject: str, deliver: Deliver, /) -> None:
        """Pass on all messages to a subject."""

        async def ignore(_message: object) -> None:
            """Messages of this subscription do not come here."""

        # The next subscription gets this number. Its first message can come before it returns.
        self.raw_sid, self.deliver = self._sid + 1, deliver
        await self.subscribe(subject, cb=ignore)

    def abort(self) -> None:
        """Close the socket without waiting."""
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]


class Connection:
    """One connection. Its methods run in the event loop that opened it.

    After an error of the connection, every call fails with this error.
    """

    def __init__(self, client: StreamClient, broken: Future[None]) -> None:
        self._client = client
        self._broken = broken

    @classmethod
    async def open(
        cls,
        address: NatsAddress,
        servers: Sequence[str],
        *,
        name: str,
        tls: ssl.SSLContext | None,
        credentials: str | Path | None,
    ) -> Connection:
        """Connect to one of the servers. Tries all of them once, in random order."""
        if credentials is not None:
            check_credentials(Path(credentials))
        problem: BaseException = ValueError("no servers")
        for server in random.sample(servers, len(servers)):
            broken: Future[None] = asyncio.get_running_loop().create_future()
            client = StreamClient()
            client.needs_tls = address.is_tls or tls is not None
            errors: list[Exception] = []

            async def fail(
                error: Exception,
                broken: Future[None] = broken,
                errors: list[Exception] = errors,
            ) -> None:
                errors.append(error)
                _break(broken, error)

            async def end(broken: Future[None] = broken) -> None:
                _break(broken, ConnectionResetError("connection closed"))

            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await client.connect(
                        servers=[f"{'tls' if address.is_tls else 'nats'}://{server}"],
                        error_cb=fail,
                        closed_cb=end,
                        name=name,
                        allow_reconnect=False,
                        max_reconnect_attempts=1,
                        reconnect_time_wait=0,
                        connect_timeout=int(CONNECT_SECONDS),
                        tls=tls,
                        user=address.user,
                        password=address.password,
                        token=address.token,
                        user_credentials=None if credentials is None else str(credentials),
                    )
                return cls(client, broken)
            except (OSError, Error, TimeoutError) as error:
                # nats-py reports a refused connection to its callback, and then `no servers`.
                problem = errors[-1] if errors else error
                await _close(client)
            except BaseException:
                await _close(client)
                raise
        raise problem

    @property
    def is_broken(self) -> bool:
        """Whether the connection has failed or is closed."""
        return self._broken.done()

    @property
    def max_payload(self) -> int:
        """Maximum number of bytes of headers and body of a message."""
        return self._client.max_payload

    @property
    def discovered_servers(self) -> list[str]:
        """Other servers of the cluster, as the server lists them."""
        return [server.netloc for server in self._client.discovered_servers]

    async def receive(self, deliver: Deliver, /) -> str:
        """Pass on all messages to a new inbox. Returns its prefix: any next token belongs to it."""
        inbox = self._client.new_inbox()
        await self._client.receive(f"{inbox}.*", deliver)
        return inbox

    async def publish(self, subject: str, body: bytes = b"", *, reply: str = "") -> None:
        """Send a message, without waiting for anything."""
        await self._client.publish(subject, body, reply=reply)

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        seconds: float = RESPONSE_SECONDS,
    ) -> bytes:
        """Send a message and return the body of its response.

        Raises:
            nats.errors.NoRespondersError: No one listens to the subject.
        """
        work = self._client.request(subject, body, timeout=seconds, headers=headers)
        return (await self.wait(asyncio.ensure_future(work))).data

    async def ask_info(self, place: str, /) -> dict[str, Any]:
        """Return the state of a stream or a consumer.

        Raises:
            ApiError: The response is an error.
        """
        return parse_response(await self.request(f"$JS.API.{place}", seconds=INFO_SECONDS))

    async def create(self, place: str, config: dict[str, Any], /) -> dict[str, Any]:
        """Create a stream or a consumer.

        Raises:
            ApiError: The response is an error.
        """
        return parse_response(await self.request(f"$JS.API.{place}", json.dumps(config).encode()))

    async def wait(self, future: Future[T], /) -> T:
        """Wait for a future, or until the connection fails."""
        waiting: set[Future[Any]] = {future, self._broken}
        try:
            await asyncio.wait(waiting, return_when=FIRST_COMPLETED)
            if not future.done():
                self._broken.result()
            return future.result()
        finally:
            future.cancel()

    async def close(self) -> None:
        """Close the connection."""
        await _close(self._client)


def parse_response(body: bytes, /) -> dict[str, Any]:
    """Return a response of JetStream.

    Raises:
        ApiError: It is an error.
    """
    response: dict[str, Any] = json.loads(body)
    if "error" in response:
        raise ApiError(response["error"])
    return response


def explain(error: BaseException, /, *, stream: str, consumer: str, servers: str) -> Exception:
    """Return the error for users. It has no secrets."""
    server = f"NATS server {servers}"
    if isinstance(error, PermissionError):
        return error
    text = str(error).removeprefix("nats: ").strip().strip("'")
    lower = text.lower()
    code = error.code if isinstance(error, ApiError) else 0
    if code == MESSAGE_TOO_LARGE or isinstance(error, (BadHeaderError, MaxPayloadError)):
        return ValueError(
            f"NATS stream {stream!r}: {text}; rename the header, or publish a reference to large "
            "data, or raise max_payload of the server and max_msg_size of the stream"
        )
    if isinstance(error, ApiError):
        if error.code == STREAM_NOT_FOUND:
            return LookupError(
                f"NATS stream {stream!r} does not exist on {servers}; "
                f"create it: nats stream add {stream} --subjects '{stream}.>'"
            )
        if error.code == OTHER_STREAM:
            return LookupError(
                f"NATS stream {stream!r}: another stream has the subject; add it to this stream"
            )
        if error.code in NO_JETSTREAM:
            return ConnectionError(f"{server}: JetStream is not enabled; start it with -js")
        return ConnectionError(
            f"NATS stream {stream!r}: {text} (JetStream error {code or error.status})"
        )
    if "authorization" in lower or "authentication" in lower or "user credentials" in lower:
        return PermissionError(
            f"{server}: the login was rejected; check user, password, token or credentials="
        )
    if "permissions violation" in lower:
        return PermissionError(
            f"NATS stream {stream!r}: {text}; grant this right to the user of consumer {consumer!r}"
        )
    if isinstance(error, SecureConnWantedError):
        return ConnectionError(f"{server}: it offers no TLS; use nats:// or configure its TLS")
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or error.reason or text
        return ConnectionError(
            f"{server}: TLS failed ({reason}); pass the certificate authority with tls="
        )
    if isinstance(error, NoRespondersError):
        return ConnectionError(
            f"NATS stream {stream!r}: no response on {servers}; JetStream is not enabled, or the "
            f"consumer {consumer!r} was deleted or has no leader"
        )
    if isinstance(error, TimeoutError):
        return ConnectionError(f"{server}: no response in time; check the network and the server")
    if isinstance(error, (ConnectionResetError, ConnectionClosedError, StaleConnectionError)):
        return ConnectionError(f"{server}: the connection was lost; check network and server")
    if isinstance(error, OSError):
        # asyncio puts the address into the text of a refused connection.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or text
        return ConnectionError(f"{server}: cannot connect ({reason}); check address and server")
    if isinstance(error, Error):
        return ConnectionError(f"{server}: {text}")
    return error if isinstance(error, Exception) else ConnectionError(f"{server}: {text}")


def check_credentials(path: Path, /) -> None:
    """Check a credentials file. nats-py reads a file without a login for ever.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a credentials file.
        ImportError: The library that signs with its key is not installed.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        reason = error.strerror or error
        raise PermissionError(
            f"NATS credentials {str(path)!r}: cannot be read ({reason}); check credentials="
        ) from None
    if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
        raise ValueError(
            f"NATS credentials {str(path)!r}: not a credentials file; create one: "
            "nsc generate creds, or nats auth user credential"
        )
    if find_spec("nkeys") is None:
        raise ImportError('NATS credentials need nkeys: pip install "nats-py[nkeys]"')


async def _close(client: StreamClient) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()
    except Exception:
        pass  # it is of no use any more
    finally:
        client.abort()
        # nats-py forgets tasks if its last write fails. This event loop has no others.
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def _break(broken: Future[None], error: Exception) -> None:
    if not broken.done():
        broken.set_exception(error)
        broken.exception()  # retrieved, so that asyncio does not log it
