"""Connections: the httpx2 client beneath ours, opened when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import httpx2

from ..core.lock import LOCK
from .network import bound

if TYPE_CHECKING:
    import ssl

C = TypeVar("C")


class Connections(Generic[C]):
    """The client that sends. Threads may share it; a forked child, and another event loop, opens its own.

    One that was given by the user stays the user's: it is never closed here, and belongs to whom httpx2 says.
    """

    __slots__ = ("_client", "_given", "_make", "_place", "bounded", "closed", "defaults")

    def __init__(self, given: C | None, make: Callable[[], C]) -> None:
        self._given = given
        self._make = make
        self._client: C | None = None
        self._place: tuple[int, object] | None = None
        self.closed = False
        self.bounded = False
        """Whether its connections keep to the end of an attempt by themselves."""
        self.defaults: dict[str, str] = {}
        """The headers that httpx2 sends with every request; of a client that was given, it puts them in itself."""

    def client(self, loop: object = None) -> C:
        """The client for this process and this event loop."""
        place = self._place
        if place is not None and place[0] == os.getpid() and place[1] is loop and self._client is not None:
            return self._client
        return self._opened((os.getpid(), loop))

    def _opened(self, place: tuple[int, object]) -> C:
        if self.closed:
            raise RuntimeError("this client is closed; enter it again with `with`, or create a new one")
        client = self._given or self._make()  # not under the lock: it reads certificates
        bounded = _bound(client)
        with LOCK:
            if self._client is None or self._place != place:  # else another thread was quicker, and nobody misses ours
                self._client, self._place, self.bounded = client, place, bounded
                self.defaults = {} if self._given is not None else dict(getattr(client, "headers", {}))
            return self._client

    def request(
        self, client: Any, method: str, url: str, headers: dict[str, str], body: Any, content: Any, params: Any
    ) -> httpx2.Request:
        """A request with these headers, and the cookies of earlier answers."""
        if self._given is not None:
            found: httpx2.Request = client.build_request(method, url, json=body, content=content, params=params, headers=headers)
            return found
        # As our own client, which has nothing but defaults, would make it: at less than half of what it takes.
        return httpx2.Request(method, url, json=body, content=content, params=params, headers=headers, cookies=client.cookies)

    def reopen(self) -> None:
        """Entered again after it was closed: new connections when they are needed."""
        self.closed = False

    def take(self) -> C | None:
        """The client to be closed; None: there is none, or it is the user's own."""
        with LOCK:
            self.closed = True
            client, self._client, self._place = self._client, None, None
            return None if self._given is not None else client


@cache
def certificates() -> ssl.SSLContext:
    """What every client of ours trusts: the machine's own. Read once: that takes a hundred times as long as all else."""
    return httpx2.create_ssl_context()


def _bound(client: Any) -> bool:
    mounted = getattr(client, "_mounts", {}).values()
    transports = [getattr(client, "_transport", None), *(each for each in mounted if each is not None)]
    found = [bound(transport) for transport in transports]  # every one of them, also after one that cannot be
    return all(found)
