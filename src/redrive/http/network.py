"""Timeouts of an attempt, and connections whose every read and write ends with the attempt.

httpx applies a timeout to each read. A server that sends one byte now and then could therefore
delay its caller without limit. Here each operation gets the time that is left of the attempt, and
none starts after its end. Nothing is interrupted, so sync code needs no extra thread.
"""

from __future__ import annotations

import math
import sys
from _thread import get_ident
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.clock import SYSTEM
from ..core.context import SLOT, SLOW_PATH_USERS, clock_around
from .call_state import CURRENT_CALL

if TYPE_CHECKING:
    pass


def bind_transports(client: Any) -> bool:
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
