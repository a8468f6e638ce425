"""Timeouts of an attempt, and connections whose every read and write ends with the attempt.

httpx applies a timeout to each read. A server that sends one byte now and then could therefore
delay its caller without limit. Here each operation gets the time that is left of the attempt, and
none starts after its end. Nothing is interrupted, so sync code needs no extra thread. The httpx2
client that sends the requests is opened on first use.
"""

from __future__ import annotations

import math
import os
import sys
from _thread import get_ident
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import httpx2

from ..core.clock import SYSTEM
from ..core.context import SLOT, SLOW_PATH_USERS, clock_around
from ..core.lock import LOCK
from .call_state import CURRENT_CALL

if TYPE_CHECKING:
    import ssl

HttpxClient = TypeVar("HttpxClient", bound=httpx2.Client | httpx2.AsyncClient)


class HttpxConnections(Generic[HttpxClient]):
    """Opens an httpx2 client for each process and event loop. Threads may share it.

    A client that the user passed is used everywhere, and never closed here.
    """

    __slots__ = (
        "_client",
        "_closed",
        "_create",
        "_opened_in",
        "_user_client",
        "default_headers",
        "has_deadline",
    )

    def __init__(self, user_client: HttpxClient | None, create: Callable[[], HttpxClient]) -> None:
        self._user_client = user_client
        self._create = create
        self._client: HttpxClient | None = None
        self._opened_in: tuple[int, object] | None = None
        """Process id and event loop of the open client."""
        self._closed = False
        self.has_deadline = False
        """Whether reads and writes of these connections end with the attempt."""
        self.default_headers: dict[str, str] = {}
        """Headers that httpx2 sends with every request. A user's client adds its own."""

    def client(self, event_loop: object = None) -> HttpxClient:
        """Return the client for this process and event loop."""
        place = self._opened_in
        if (
            place is not None
            and place[0] == os.getpid()
            and place[1] is event_loop
            and self._client is not None
        ):
            return self._client
        return self._open((os.getpid(), event_loop))

    def _open(self, place: tuple[int, object]) -> HttpxClient:
        if self._closed:
            raise RuntimeError(
                "this client is closed; enter it again with `with`, or create a new one"
            )
        # Created outside the lock, because this reads certificates.
        client = self._user_client or self._create()
        has_deadline = _bind_transports(client)
        with LOCK:
            if (
                self._client is None or self._opened_in != place
            ):  # Otherwise another thread was faster.
                self._client, self._opened_in, self.has_deadline = client, place, has_deadline
                self.default_headers = {}
                if self._user_client is None:
                    self.default_headers = dict(getattr(client, "headers", {}))
            return self._client

    def build_request(
        self, method: str, url: str, client: Any, headers: dict[str, str], **body: Any
    ) -> httpx2.Request:
        """Build a request with these headers and the cookies of earlier responses.

        body: `json`, `content` and `params`.
        """
        if self._user_client is not None:
            request: httpx2.Request = client.build_request(method, url, headers=headers, **body)
            return request
        # Equal to `build_request` of a client with default options, in less than half the time.
        return httpx2.Request(method, url, headers=headers, cookies=client.cookies, **body)

    def reopen(self) -> None:
        """Allow new connections after a close."""
        self._closed = False

    def detach(self) -> HttpxClient | None:
        """Return the client to close. None if there is none, or if the user passed it."""
        with LOCK:
            self._closed = True
            client, self._client, self._opened_in = self._client, None, None
            return None if self._user_client is not None else client


@cache
def system_certificates() -> ssl.SSLContext:
    """Return the certificates that our clients trust. Cached, because reading them is slow."""
    return httpx2.create_ssl_context()


def _bind_transports(client: Any) -> bool:
    mounted = getattr(client, "_mounts", {}).values()
    transports = [
        getattr(client, "_transport", None),
        *(transport for transport in mounted if transport is not None),
    ]
    # `all` alone would stop at the first transport that cannot be bound.
    bound = [bind_to_deadline(transport) for transport in transports]
    return all(bound)


MAX_MARGIN_SECONDS = 0.05
"""Async reads end this much before the attempt, or 2 % of the time left if that is less.

The attempt ends by a cancellation. The library's own timeout says more: for example, whether there
was a connection at all.
"""
_PHASES = ("connect", "read", "write", "pool")


def seconds_left() -> float:
    """Return the seconds until the end of the current attempt. Infinite if it has no end."""
    cell = SLOT.get()
    if cell is None:
        return math.inf
    scope = cell.scope if cell.thread == get_ident() else cell.base  # `scope_around`, inlined
    if scope is None or scope[0] == math.inf:
        return math.inf
    return scope[0] - (clock_around() if SLOW_PATH_USERS else SYSTEM).monotonic()


def subtract_margin(seconds: float) -> float:
    """Return the time that an async attempt passes to its library."""
    return seconds - min(MAX_MARGIN_SECONDS, seconds / 50)


def phase_timeouts(own: Mapping[str, float | None], seconds: float, /) -> dict[str, float | None]:
    """Return httpx's timeouts for one attempt: the client's own, limited to the seconds left."""
    return {phase: _shorter(own.get(phase), seconds) for phase in _PHASES}


def _shorter(timeout: float | None, seconds: float) -> float:
    return seconds if timeout is None or seconds < timeout else timeout


def limit_timeout(timeout: float | None, source: object, error_name: str) -> float | None:
    """Limit the timeout of one operation to the time left.

    If no time is left, raise the timeout error of this name from the library of `source`.
    """
    seconds = seconds_left()
    if seconds == math.inf:
        return timeout
    if seconds <= 0:
        raise _timeout_error(source, error_name)
    return seconds if timeout is None or seconds < timeout else timeout


def limit_async_timeout(timeout: float | None, source: object, error_name: str) -> float | None:
    """Limit the timeout of one async operation, which ends a little before the attempt."""
    limited = limit_timeout(None, source, error_name)
    return timeout if limited is None else _shorter(timeout, subtract_margin(limited))


def _timeout_error(source: object, name: str) -> Exception:
    library: Any = sys.modules[type(source).__module__.partition(".")[0]]
    error: Exception = getattr(library, name)("the attempt timed out")
    return error


class _Wrapper:
    """Passes all other attributes of a stream or network on."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_extra_info(self, info: str) -> Any:
        """Return details of a connection. Defined here because `__getattr__` is slower."""
        return self._inner.get_extra_info(info)


class DeadlineStream(_Wrapper):
    """A connection of a sync client. Used by the pool that opened it."""

    __slots__ = ()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read within the time left."""
        timeout = limit_timeout(timeout, self._inner, "ReadTimeout")
        data: bytes = self._inner.read(max_bytes, timeout=timeout)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write within the time left."""
        if buffer:  # httpcore ends every request with an empty write.
            timeout = limit_timeout(timeout, self._inner, "WriteTimeout")
            self._inner.write(buffer, timeout=timeout)

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> DeadlineStream:
        """Start TLS within the time left."""
        timeout = limit_timeout(timeout, self._inner, "ConnectTimeout")
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, timeout))


class DeadlineNetwork(_Wrapper):
    """The network backend of a sync client. Threads may share it."""

    __slots__ = ()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **options: Any
    ) -> DeadlineStream:
        """Connect within the time left."""
        timeout = limit_timeout(timeout, self._inner, "ConnectTimeout")
        return DeadlineStream(self._inner.connect_tcp(host, port, timeout=timeout, **options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, **options: Any
    ) -> DeadlineStream:
        """Connect to a Unix socket within the time left."""
        timeout = limit_timeout(timeout, self._inner, "ConnectTimeout")
        return DeadlineStream(self._inner.connect_unix_socket(path, timeout=timeout, **options))


class AsyncDeadlineStream(_Wrapper):
    """A connection of an async client. Used by the pool that opened it."""

    __slots__ = ()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read within the time left."""
        timeout = limit_async_timeout(timeout, self._inner, "ReadTimeout")
        data: bytes = await self._inner.read(max_bytes, timeout=timeout)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write within the time left, and note that the request was sent."""
        if buffer:
            call = CURRENT_CALL.get()
            if call is not None:
                call.sent = True
            timeout = limit_async_timeout(timeout, self._inner, "WriteTimeout")
            await self._inner.write(buffer, timeout=timeout)

    async def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> AsyncDeadlineStream:
        """Start TLS within the time left."""
        timeout = limit_async_timeout(timeout, self._inner, "ConnectTimeout")
        return AsyncDeadlineStream(
            await self._inner.start_tls(ssl_context, server_hostname, timeout)
        )


class AsyncDeadlineNetwork(_Wrapper):
    """The network backend of an async client. Used by one event loop."""

    __slots__ = ()

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **options: Any
    ) -> AsyncDeadlineStream:
        """Connect within the time left."""
        timeout = limit_async_timeout(timeout, self._inner, "ConnectTimeout")
        stream = await self._inner.connect_tcp(host, port, timeout=timeout, **options)
        return AsyncDeadlineStream(stream)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, **options: Any
    ) -> AsyncDeadlineStream:
        """Connect to a Unix socket within the time left."""
        timeout = limit_async_timeout(timeout, self._inner, "ConnectTimeout")
        stream = await self._inner.connect_unix_socket(path, timeout=timeout, **options)
        return AsyncDeadlineStream(stream)


def bind_to_deadline(transport: Any, /) -> bool:
    """Make new connections of httpx's own transport end with the attempt.

    httpcore accepts a network backend, but httpx does not pass one on. It is therefore replaced in
    the pool of httpx. Open connections do not change.

    Returns:
        False if it is a transport of another kind.
    """
    pool = getattr(transport, "_pool", None)
    network = getattr(pool, "_network_backend", None)
    if pool is None or network is None:
        return False
    if not isinstance(network, (DeadlineNetwork, AsyncDeadlineNetwork)):
        is_async = hasattr(transport, "handle_async_request")
        pool._network_backend = (AsyncDeadlineNetwork if is_async else DeadlineNetwork)(network)
    return True
