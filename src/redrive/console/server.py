"""Server: the console as a process of its own, on loopback unless a password or a token is asked for."""

from __future__ import annotations

import gc
import ipaddress
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from ..ops.source import Operated
from .access import Access
from .site import site

PATIENCE = 2
"""Seconds that a request may take to end, when the server is told to stop; streams of events never end by themselves."""


class Exposed(ValueError):
    """Other machines could reach it, and nobody would be asked for anything."""


def checked(host: str, access: Access, /) -> None:
    """Exposed: this address is not this machine's alone, and neither a password nor a token was set."""
    if access.guarded or host == "localhost":
        return
    try:
        alone = ipaddress.ip_address(host).is_loopback
    except ValueError:
        alone = False
    if not alone:
        raise Exposed(f"{host} can be reached by others: set a password or a token first, or stay on 127.0.0.1")


def bound(host: str, port: int, /) -> socket.socket:
    """The socket to be served. OSError: the address is not to be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


def address_of(listening: socket.socket, /) -> str:
    """Where to look, for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    shown = "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http://{shown}:{port}/"


def serve(app: Operated, access: Access, listening: socket.socket, /, *, begun: Callable[[], Any]) -> None:
    """Serve it until SIGINT or SIGTERM. Belongs to the main thread."""
    config = uvicorn.Config(
        site(app, access), log_level="warning", access_log=False, server_header=False, lifespan="off",
        timeout_graceful_shutdown=PATIENCE,
    )  # fmt: skip
    gc.collect()
    gc.freeze()  # all that was imported stays: a collector that looks it through again and again holds a page up by 200 ms
    # When it has stopped, uvicorn raises the signal again that stopped it: stopping is what was wanted, not a failure.
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
    begun()
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
