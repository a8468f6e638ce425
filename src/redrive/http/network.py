"""Network: connections whose every read and write ends with the attempt, in plain code too.

httpx has a time-out for each read, so that a server which sends a byte now and then holds its caller for ever. Here each of them
gets what is left until the end of the attempt around it, and none begins after it. Nothing is interrupted, and no thread needed.
"""

from __future__ import annotations

import math
import sys
from _thread import get_ident
from typing import Any

from ..core.clock import SYSTEM
from ..core.context import CELL, WATCH, clock_around
from .told import TOLD

MARGIN = 0.05
"""Seconds, at most a fiftieth of the time: so much earlier does an async read end than the attempt, whose end is a cancellation.
The library's own time-out says more: whether there was a connection at all."""


class Stream:
    """A connection of a plain client. Belongs to the pool that opened it."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Bytes, in the time that is left."""
        read: bytes = self._stream.read(max_bytes, timeout=shorter(timeout, self._stream, "ReadTimeout"))
        return read

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send, in the time that is left."""
        if buffer:  # httpcore writes an empty end for every request
            self._stream.write(buffer, timeout=shorter(timeout, self._stream, "WriteTimeout"))

    def get_extra_info(self, info: str) -> Any:
        """Whether it is readable, and what else can be asked of a connection."""
        return self._stream.get_extra_info(info)

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Stream:
        """The same connection with TLS, in the time that is left."""
        timeout = shorter(timeout, self._stream, "ConnectTimeout")
        return Stream(self._stream.start_tls(ssl_context, server_hostname, timeout))


class Network:
    """Opens the connections of a plain client. Threads may share it."""

    __slots__ = ("_network",)

    def __init__(self, network: Any) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Stream:
        """A connection, in the time that is left."""
        timeout = shorter(timeout, self._network, "ConnectTimeout")
        return Stream(self._network.connect_tcp(host, port, timeout=timeout, **options))

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> Stream:
        """The same for a socket in the file system."""
        timeout = shorter(timeout, self._network, "ConnectTimeout")
        return Stream(self._network.connect_unix_socket(path, timeout=timeout, **options))


class AsyncStream:
    """A connection of an async client. Belongs to the pool that opened it."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Bytes, in the time that is left."""
        read: bytes = await self._stream.read(max_bytes, timeout=earlier(timeout, self._stream, "ReadTimeout"))
        return read

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send, in the time that is left."""
        if buffer:
            told = TOLD.get()
            if told is not None:
                told.sent = True
            await self._stream.write(buffer, timeout=earlier(timeout, self._stream, "WriteTimeout"))

    def get_extra_info(self, info: str) -> Any:
        """Whether it is readable, and what else can be asked of a connection."""
        return self._stream.get_extra_info(info)

    async def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> AsyncStream:
        """The same connection with TLS, in the time that is left."""
        timeout = earlier(timeout, self._stream, "ConnectTimeout")
        return AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))


class AsyncNetwork:
    """Opens the connections of an async client. Belongs to one event loop."""

    __slots__ = ("_network",)

    def __init__(self, network: Any) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> AsyncStream:
        """A connection, in the time that is left."""
        timeout = earlier(timeout, self._network, "ConnectTimeout")
        return AsyncStream(await self._network.connect_tcp(host, port, timeout=timeout, **options))

    async def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> AsyncStream:
        """The same for a socket in the file system."""
        timeout = earlier(timeout, self._network, "ConnectTimeout")
        return AsyncStream(await self._network.connect_unix_socket(path, timeout=timeout, **options))


def left() -> float:
    """Seconds until the end of the attempt around; infinite where there is none."""
    cell = CELL.get()
    if cell is None:
        return math.inf
    scope = cell.scope if cell.thread == get_ident() else cell.base  # as `scope_around`, in one step
    if scope is None or scope[0] == math.inf:
        return math.inf
    return scope[0] - (clock_around() if WATCH else SYSTEM).monotonic()


def less(seconds: float) -> float:
    """A little less: what an async attempt lets its library take."""
    return seconds - min(MARGIN, seconds / 50)


def shorter(timeout: float | None, of: object, name: str) -> float | None:
    """The time-out of one read or write, or what is left; raises the library's own time-out where nothing is."""
    seconds = left()
    if seconds == math.inf:
        return timeout
    if seconds <= 0:
        raise _late(of, name)
    return seconds if timeout is None or seconds < timeout else timeout


def earlier(timeout: float | None, of: object, name: str) -> float | None:
    """The same for async code, which ends a little before the attempt does."""
    seconds = left()
    if seconds == math.inf:
        return timeout
    if seconds <= 0:
        raise _late(of, name)
    seconds = less(seconds)
    return seconds if timeout is None or seconds < timeout else timeout


def _late(of: object, name: str) -> Exception:
    """The time-out of the library that this object is from: httpcore or httpcore2."""
    library: Any = sys.modules[type(of).__module__.partition(".")[0]]
    error: Exception = getattr(library, name)("the attempt timed out")
    return error


def bound(transport: Any, /) -> bool:
    """Have the connections of httpx's own transport keep to the end of the attempt; False where it is another one.

    httpcore lets its user give a network, httpx does not hand that on: so it is put in where httpx keeps its pool.
    Connections that are open already stay as they are.
    """
    pool = getattr(transport, "_pool", None)
    network = getattr(pool, "_network_backend", None)
    if pool is None or network is None:
        return False
    if not isinstance(network, (Network, AsyncNetwork)):
        pool._network_backend = AsyncNetwork(network) if hasattr(transport, "handle_async_request") else Network(network)
    return True
