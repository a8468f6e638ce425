"""Sessions of aiobotocore: one send per attempt, a timeout for sending, and fast timestamps."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.handlers import add_expect_header
from botocore.utils import parse_timestamp

from ..backend import import_client


class SendOnceSession(AIOHTTPSession):  # type: ignore[misc]  # published without types
    """An HTTP session that sends each request once, and limits the time of sending.

    After a reset, aiohttp repeats GET, HEAD, PUT and DELETE without being asked. It has no public
    option against that. A test counts requests on the wire, and fails if the private one is gone.

    The read timeout of aiohttp begins when the request is sent. Without a limit for sending, a
    server that stops reading would block an upload forever.
    """

    _connector_args: dict[str, Any]

    async def _get_session(self, proxy_url: Any) -> Any:
        limit = self._timeout.sock_read
        if limit and "socket_factory" not in self._connector_args and _has_socket_factory():
            self._connector_args = {
                **self._connector_args,
                "socket_factory": sockets_with_send_timeout(limit),
            }
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


@cache
def _has_socket_factory() -> bool:
    """Return whether aiohttp takes a socket factory, as it does since 3.12."""
    connector = import_client("aiohttp", "s3").TCPConnector
    return "socket_factory" in inspect.signature(connector).parameters


def sockets_with_send_timeout(seconds: float, /) -> Callable[[Any], socket.socket]:
    """Return a factory of sockets that fail if the server accepts no bytes for this time.

    On systems without TCP_USER_TIMEOUT the sockets have no limit.
    """
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)

    def create_socket(address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        created = socket.socket(family, kind, protocol)
        if option is not None:
            created.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))
        return created

    return create_socket


def create_session(*, expect_continue: bool) -> AioSession:
    """Create a session. It finds credentials as botocore does.

    Without expect_continue it sends bodies without asking the server first. aiohttp would wait for
    the answer to `Expect: 100-continue` without a limit.
    """
    session = AioSession()
    if not expect_continue:
        session.unregister("before-call.s3", add_expect_header)
    parsers = session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=read_timestamp)
    return session


def read_timestamp(value: Any, /) -> datetime:
    """Parse a timestamp. The parser of botocore would take most of the time of a listing."""
    if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    timestamp: datetime = parse_timestamp(value)
    return timestamp
