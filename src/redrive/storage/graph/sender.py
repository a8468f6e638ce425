"""Sender: the one way in which a request leaves, with its retries and its token."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.policy import RetryPolicy
from ...engine.attempt import current
from ...engine.retry import retry
from ...errors import Denied, StorageError
from ..deadline import DeadlinePassed, time_left
from ..extra import client
from .address import Address, without_query
from .failure import AGAIN, answered, meaning, unreachable
from .tokens import Tokens

if TYPE_CHECKING:
    import httpx2

DEFAULT = RetryPolicy()


class Sender:
    """Sends requests: each is tried again by itself, as the policy says, and redirects are never followed.

    Over the transport alone: the client's own log has whole addresses in it, and some of those are keys to a file. Threads may
    share it; a forked child connects anew.
    """

    def __init__(
        self, address: Address, tokens: Tokens, policy: RetryPolicy | None, timeout: float, proxy: str | None, name: str
    ) -> None:
        self.address = address
        self.policy = policy or DEFAULT
        self.name = name
        self._tokens = tokens
        self._timeout = timeout
        self._proxy = proxy
        self._retry = retry(self.policy, on=meaning, attempt_timeout=None, operation=f"storage.{name}")
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._transport: httpx2.HTTPTransport | None = None

    def send(self, method: str, url: str, path: str, /, *, authorized: bool = True, **content: Any) -> httpx2.Response:
        """The answer, read; any that does not call for another attempt. content: json, content, data, headers, as httpx2 has it.

        authorized: with the token, which goes to the service itself and nowhere else.
        """
        if authorized and not self.address.is_home(url):
            message = f"{self.name}: Graph sends us to {without_query(url)}, where the token must not go"
            raise Denied(message, path=path, backend=self.name)
        return self._tried(path, lambda: _read(self._attempt(method, url, path, authorized, content)))

    def stream(self, url: str, path: str, /, headers: Mapping[str, str]) -> httpx2.Response:
        """The answer to a GET without the token, not read yet: close it."""
        return self._tried(path, lambda: self._attempt("GET", url, path, False, {"headers": headers}))

    def _tried(self, path: str, attempt: Callable[[], httpx2.Response]) -> httpx2.Response:
        try:
            return self._retry.call(attempt)
        except Exception as error:
            if meaning(error) is False:
                raise
            raise unreachable(error, path=path, backend=self.name) from error

    def once(self, method: str, url: str, /, **content: Any) -> httpx2.Response:
        """One attempt, without the token, read: for loops that ask again by themselves."""
        return _read(self._transmit(method, url, None, content))

    def close(self) -> None:
        """Let go of all connections; used again, they open again."""
        with self._lock:
            transport, self._transport = self._transport, None
        if transport is not None and self._pid == os.getpid():
            transport.close()

    def _attempt(self, method: str, url: str, path: str, authorized: bool, content: Mapping[str, Any]) -> httpx2.Response:
        token = self._token(path) if authorized else None
        response = self._transmit(method, url, token, content)
        if response.status_code == 401 and token is not None:
            response.close()
            response = self._transmit(method, url, self._token(path, refused=token), content)  # once, and no attempt of its own
        if response.status_code in AGAIN:
            raise answered(_read(response))
        response.extensions["attempt"] = current().number
        return response

    def _token(self, path: str, refused: str | None = None) -> str:
        try:
            return self._tokens.get(refused)
        except StorageError:
            raise
        except Exception as error:
            raise Denied(f"{self.name}: no token could be had: {type(error).__name__}", path=path, backend=self.name) from error

    def _transmit(self, method: str, url: str, token: str | None, content: Mapping[str, Any]) -> httpx2.Response:
        module = client("httpx2", "graph")
        left = current().remaining
        limit = self._timeout if left is None else min(self._timeout, left)
        request = module.Request(method, url, extensions={"timeout": module.Timeout(limit).as_dict()}, **content)
        if token is not None:
            request.headers["authorization"] = f"Bearer {token}"
        response: httpx2.Response = self._opened(module).handle_request(request)
        response.stream = _bounded(module)(response.stream)
        return response

    def _opened(self, module: Any) -> Any:
        if self._pid != os.getpid():  # the parent goes on using its connections
            self._pid, self._lock, self._transport = os.getpid(), threading.Lock(), None
        with self._lock:
            if self._transport is None:
                self._transport = module.HTTPTransport(proxy=self._proxy)
            return self._transport


@cache
def _bounded(module: Any) -> Any:
    """A kind of body: a server that sends a little at a time does not outlast the deadline around.

    Made once: a class of its own for each response would keep the response in memory until the garbage collector runs.
    """

    class Bounded(module.SyncByteStream):  # type: ignore[misc]  # the module is loaded when it is first needed
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            for piece in self._stream:
                yield piece
                try:
                    time_left()
                except DeadlinePassed as passed:
                    raise module.ReadTimeout(str(passed)) from passed

        def close(self) -> None:
            self._stream.close()

    return Bounded


def _read(response: httpx2.Response) -> httpx2.Response:
    try:
        response.read()
    finally:
        response.close()
    return response
