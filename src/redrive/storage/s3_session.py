"""Sessions: aiobotocore's, without aiohttp's second sending in secret, with an end to sending, and with times read quickly."""

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

from .extra import client


class SendsOnce(AIOHTTPSession):  # type: ignore[misc]  # published without types
    """After a reset, aiohttp sends GET, HEAD, PUT and DELETE once more by itself: twice as many requests as anybody asked for.

    It has no public switch for that; a test counts requests on the wire, and says if this one is gone. And the read time-out
    begins when all is sent: a server that falls silent in the middle of an upload would be waited for without end.
    """

    _connector_args: dict[str, Any]

    async def _get_session(self, proxy_url: Any) -> Any:
        limit = self._timeout.sock_read
        if limit and "socket_factory" not in self._connector_args and _takes_sockets():
            self._connector_args = {**self._connector_args, "socket_factory": sending_ends(limit)}
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


@cache
def _takes_sockets() -> bool:
    """aiohttp, which is beneath aiobotocore, does since 3.12."""
    return "socket_factory" in inspect.signature(client("aiohttp", "s3").TCPConnector).parameters


def sending_ends(limit: float, /) -> Callable[[Any], socket.socket]:
    """Makes sockets that break where nothing that was sent is taken for so many seconds; plain ones where the system cannot."""
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)

    def made(address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        found = socket.socket(family, kind, protocol)
        if option is not None:
            found.setsockopt(socket.IPPROTO_TCP, option, max(1, int(limit * 1000)))
        return found

    return made


def session(*, ends: bool) -> AioSession:
    """A session of botocore's: it finds credentials as every other does.

    ends: don't ask the server whether to go on before a body is sent. aiohttp waits for that answer without end.
    """
    made = AioSession()
    if ends:
        made.unregister("before-call.s3", add_expect_header)
    made.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=moment)
    return made


def moment(value: Any, /) -> datetime:
    """A time in an answer. The form that S3 lists files with is read by Python itself; botocore's way takes most of a listing."""
    if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    found: datetime = parse_timestamp(value)
    return found
