"""The console as a process: bind an address, and serve it with uvicorn."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from .. import console
from ..ops.project.settings import ConsoleSettings
from ..ops.project.target import Operated
from .application import create_application
from .security.credentials import AccessControl, Role
from .security.group_roles import parse_roles
from .security.middleware import ASGI, Receive, Scope, Send
from .security.proxy import PEER, TrustedProxy
from .security.sign_in import SignIn, make_sign_in

SHUTDOWN_SECONDS = 2
"""Time for running requests to end at a shutdown. Event streams never end on their own."""
HEAD_SECONDS = 10.0
"""Time within which the head of a request must arrive."""


class Exposed(ValueError):
    """The address is reachable from other machines, and no password or token is set."""


def check_exposure(host: str, access: AccessControl, /) -> None:
    """Raise Exposed if other machines could reach a console without a password or a token."""
    if access.is_protected or host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise Exposed(
            f"{host} is reachable from other machines; set a password or a token, or use 127.0.0.1"
        )


def bind(host: str, port: int, /) -> socket.socket:
    """Return a listening socket. OSError: the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


def url_of(listening: socket.socket, /) -> str:
    """Return the URL of the console for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class HeadTimeout(H11Protocol):
    """uvicorn's protocol with a time limit for the head of a request. uvicorn has none."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop the timer when a head is complete. Start it with the first byte of the next one."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None and not self.transport.is_closing():
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _with_peer(app: Any) -> ASGI:
    """Store the address of the connection, before X-Forwarded-For replaces it."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER] = scope.get("client")
        await app(scope, receive, send)

    return call


def serve(
    target: Operated,
    access: AccessControl,
    listening: socket.socket,
    /,
    *,
    on_start: Callable[[], Any],
    proxies: str = "",
    sign_in: SignIn | None = None,
    audit_reads: bool = False,
) -> None:
    """Serve the console until SIGINT or SIGTERM. Call it in the main thread.

    Args:
        target: The app or the ledger to show.
        access: The passwords, tokens and roles.
        listening: The socket to serve.
        on_start: Called before the first request is accepted.
        proxies: Addresses of trusted proxies, separated by commas. The console uses their
            X-Forwarded-For and X-Forwarded-Proto headers.
        sign_in: The programs that authenticate users.
        audit_reads: Whether the audit log records who opened which payload.
    """
    application: ASGI = create_application(target, access, sign_in, audit_reads=audit_reads)
    if proxies:
        application = _with_peer(ProxyHeadersMiddleware(application, proxies))  # type: ignore[arg-type]
    config = uvicorn.Config(
        application,
        http=HeadTimeout,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    # Imported modules stay forever. Without a freeze, full garbage collections scan them and delay
    # a page by 200 ms.
    gc.collect()
    gc.freeze()
    server = uvicorn.Server(config)
    # Handle signals that arrive before uvicorn installs its handlers. After it has stopped, uvicorn
    # raises the signal again, which is not a failure.
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, server.handle_exit) for number in signals}
    on_start()
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def sign_in_from_settings(settings: ConsoleSettings, /) -> SignIn:
    """Return the proxy and the provider of the settings.

    Raises:
        ValueError: A setting is not valid, or one is missing.
        ImportError: The extra `oidc` is not installed.
    """
    roles = parse_roles("console.roles", settings.roles)
    if settings.role not in (None, *get_args(Role)):
        raise ValueError(f"console.role: invalid role {settings.role!r}; use viewer or operator")
    role = cast("Role | None", settings.role)
    if roles and settings.oidc_issuer is None and settings.proxy_groups is None:
        problem = "no user has groups; set console.proxy_groups or console.oidc_issuer"
        raise ValueError(f"console.roles: {problem}")
    proxy = oidc = None
    if settings.proxy_header is not None:
        groups_header = settings.proxy_groups
        own_roles = roles if groups_header is not None else {}
        proxy = TrustedProxy(
            settings.proxy_header,
            settings.proxy_addresses,
            groups_header=groups_header,
            roles=own_roles,
            role=role or (None if own_roles else "viewer"),
        )
    elif settings.proxy_addresses or settings.proxy_groups:
        raise ValueError("console.proxy_header: missing; name the header with the user")
    if settings.oidc_issuer is not None:
        if settings.oidc_client_id is None:
            raise ValueError("console.oidc_client_id: missing; set it beside console.oidc_issuer")
        oidc = console.OIDC(  # its library may be missing
            settings.oidc_issuer,
            settings.oidc_client_id,
            _read_secret(settings),
            roles=roles,
            role=role,
            claim=settings.oidc_claim,
            name_claim=settings.oidc_name_claim,
            scope=settings.oidc_scope,
            redirect_url=settings.oidc_redirect_url,
        )
    elif settings.oidc_client_id or settings.oidc_secret or settings.oidc_secret_file:
        raise ValueError("console.oidc_issuer: missing; set the address of the provider")
    return make_sign_in(proxy=proxy, oidc=oidc)


def _read_secret(settings: ConsoleSettings) -> str | None:
    file = settings.oidc_secret_file
    if file is None:
        return settings.oidc_secret
    if settings.oidc_secret is not None:
        raise ValueError("console.oidc_secret: set it or the file, not both")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is not text"
        raise ValueError(f"console.oidc_secret_file: {file}: {problem}") from None
