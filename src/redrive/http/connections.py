"""HttpxConnections: opens the httpx2 client that sends requests, on first use."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import httpx2

from ..core.lock import LOCK
from .network import bind_transports

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
        has_deadline = bind_transports(client)
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
