"""Server: the console as a process of its own, on loopback unless a password or a token is asked for."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..ops.target import Operated
from .security.credentials import Access
from .site import site

PATIENCE = 2
"""Seconds that a request may take to end, when the server is told to stop; streams of events never end by themselves."""


HEAD_SECONDS = 10.0
"""Seconds within which the head of a request has to arrive."""


class Exposed(ValueError):
    """The address is reachable from other machines, and no password or token is set."""


def checked(host: str, access: Access, /) -> None:
    """Exposed: this address is not this machine's alone, and neither a password nor a token was set."""
    if access.guarded or host == "localhost":
        return
    try:
        alone = ipaddress.ip_address(host).is_loopback
    except ValueError:
        alone = False
    if not alone:
        raise Exposed(f"{host} is reachable from other machines; set a password or a token, or use 127.0.0.1")


def bound(host: str, port: int, /) -> socket.socket:
    """The socket to be served. OSError: the address is not to be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


def address_of(listening: socket.socket, /) -> str:
    """Where to look, for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    shown = "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http://{shown}:{port}/"


class HeadTimeout(H11Protocol):
    """uvicorn's protocol with a limit for the head of a request: it waits for one without end."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the limit of the first head."""
        super().connection_made(transport)
        self._limit_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the limit."""
        self._forget_limit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Drop the limit once a head is complete; limit the next one from its first byte."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_limit()
        elif self._late is None and not self.transport.is_closing():
            self._limit_head()

    def _limit_head(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _forget_limit(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def serve(app: Operated, access: Access, listening: socket.socket, /, *, begun: Callable[[], Any], proxies: str = "") -> None:
    """Serve it until SIGINT or SIGTERM. Belongs to the main thread.

    proxies: addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, separated by commas.
    """
    config = uvicorn.Config(
        site(app, access),
        http=HeadTimeout,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        timeout_graceful_shutdown=PATIENCE,
    )
    gc.collect()
    gc.freeze()  # all that was imported stays: a collector that looks it through again and again holds a page up by 200 ms
    server = uvicorn.Server(config)
    # A signal before uvicorn has its own handlers stops the server too. When it has stopped, uvicorn raises the signal
    # again: that is not a failure.
    before = {each: signal.signal(each, server.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
    begun()
    try:
        server.run(sockets=[listening])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
