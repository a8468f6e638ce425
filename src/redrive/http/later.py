"""AsyncClient: calls to another service from async code."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx2

from ..core.key import KeyLike
from ..core.seconds import Seconds, positive
from ..engine.attempt import deadline
from ..engine.loop import coroutine
from ..engine.retry import Retry, RetryLike
from ..errors import AttemptTimeout
from .connections import Connections, certificates
from .key import checked
from .layer import Layer, chosen
from .network import left, less
from .options import Asking, AsyncSending
from .outgoing import Call, Outgoing
from .ready import looking, not_ready
from .told import TOLD, overdue, put_back
from .whole import MAX_BODY, read_async

T = TypeVar("T")
OVERDUE = overdue(httpx2)


class AsyncClient:
    """Calls to one HTTP service. Errors are httpx2's own.

    GET, HEAD, OPTIONS, PUT and DELETE are tried again; POST and PATCH only with an idempotency key, or when never sent.
    The tasks of one event loop may share one; another event loop, and a forked child, opens its own connections.
    """

    __slots__ = ("_connections", "_layer", "_outgoing", "_owner")

    def __init__(
        self,
        base_url: str,
        /,
        *,
        auth: str | httpx2.Auth | None = None,
        user: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry: RetryLike | None = None,
        idempotent: bool | None = None,
        idempotency_key: Literal[True] | None = None,
        max_body: int | None = MAX_BODY,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        """auth: a string is a bearer token. user: sent in `x-user-id`.

        retry: default 3 attempts, 0.25 to 5 s apart, 10 s each, and a budget of its own.
        idempotent: True: every call may be repeated, POST and PATCH too; False: none may, unless it was never sent.
        idempotency_key: True: a POST or PATCH without a key gets a new one, for services that honour it.
        max_body: bytes of a response, decompressed (default 100 MiB; None: no limit). A larger one is an `httpx2.DecodingError`.
        client: an httpx2 client of yours, with its proxies, certificates and limits; it stays yours to close.
        """
        if client is not None and not isinstance(client, httpx2.AsyncClient):
            raise TypeError(
                f"client= is an httpx2.AsyncClient, not {type(client).__module__}.{type(client).__name__}: "
                f"give redrive.http.Transport to a client of another kind"
            )
        self._outgoing = Outgoing.of(base_url, auth, headers, user, idempotent, idempotency_key, max_body)
        self._connections: Connections[httpx2.AsyncClient] = Connections(
            client, lambda: httpx2.AsyncClient(timeout=None, verify=certificates())
        )
        self._layer = Layer(
            chosen(retry, f"http {self._outgoing.address.netloc}"), coroutine, _attempts(self._connections, self._outgoing)
        )
        self._owner = True

    @property
    def __redrive__(self) -> Retry:
        """What `redrive layers` and `testing.inject` look at."""
        return self._layer.retry

    def using(
        self,
        *,
        user: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry: RetryLike | None = None,
        idempotent: bool | None = None,
    ) -> AsyncClient:
        """The same connections with other options. They are closed by the client that this one was made from."""
        copy: AsyncClient = object.__new__(AsyncClient)
        copy._connections = self._connections
        copy._outgoing = self._outgoing.using(user, headers, idempotent)
        copy._layer = self._layer
        if retry is not None:
            own = chosen(retry, f"http {copy._outgoing.address.netloc}")
            copy._layer = Layer(own, coroutine, _attempts(self._connections, copy._outgoing))
        copy._owner = False
        return copy

    @overload
    async def request(self, method: str, path: str, /, **options: Unpack[AsyncSending]) -> httpx2.Response: ...
    @overload
    async def request(self, method: str, path: str, /, *, into: type[T], **options: Unpack[AsyncSending]) -> T: ...
    @overload
    async def request(self, method: str, path: str, /, *, into: Callable[[Any], T], **options: Unpack[AsyncSending]) -> T: ...
    async def request(
        self,
        method: str,
        path: str,
        /,
        *,
        into: Any = None,
        json: object = None,
        content: bytes | str | Iterable[bytes] | AsyncIterable[bytes] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: KeyLike | Literal[True] | None = None,
        ok_statuses: Collection[int] = (),
        operation: str | None = None,
        timeout: Seconds | None = None,
        idempotent: bool | None = None,
    ) -> Any:
        """Raises `httpx2.HTTPStatusError` for everything but 2xx, unless the status is in `ok_statuses`.

        into: the type of the JSON answer (a class, list[...], dict[...], TypedDict), or a function that makes it. A bad shape is
        an `httpx2.DecodingError` that says where, and is not retried.
        idempotency_key: a key; True for a fresh one. Inside of work that has a key, one is derived from it, the operation and the
        body. content: a body of another kind than JSON; a stream is sent once.
        timeout: seconds for the whole call, with all its attempts and waits. idempotent: True: it may be repeated without a key.
        """
        client = self._connections.client(get_running_loop())
        call = self._outgoing.call(
            self._connections,
            client,
            method,
            path,
            into,
            json,
            content,
            params,
            headers,
            idempotency_key,
            ok_statuses,
            operation,
            (checked(idempotent), self._outgoing.idempotent, self._layer.declared),
        )
        loop = self._layer.loop(call.operation, call.repeatable, call.key is not None, OVERDUE)
        if timeout is None:
            return await _run(loop, call)
        with deadline(positive("timeout", timeout)):
            return await _run(loop, call)

    @overload
    async def get(self, path: str, /, **options: Unpack[Asking]) -> httpx2.Response: ...
    @overload
    async def get(self, path: str, /, *, into: type[T], **options: Unpack[Asking]) -> T: ...
    @overload
    async def get(self, path: str, /, *, into: Callable[[Any], T], **options: Unpack[Asking]) -> T: ...
    async def get(
        self,
        path: str,
        /,
        *,
        into: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        ok_statuses: Collection[int] = (),
        operation: str | None = None,
        timeout: Seconds | None = None,
        idempotent: bool | None = None,
    ) -> Any:
        """`request("GET", ...)`."""
        return await self.request(
            "GET",
            path,
            into=into,
            params=params,
            headers=headers,
            ok_statuses=ok_statuses,
            operation=operation,
            timeout=timeout,
            idempotent=idempotent,
        )

    @overload
    async def post(self, path: str, /, **options: Unpack[AsyncSending]) -> httpx2.Response: ...
    @overload
    async def post(self, path: str, /, *, into: type[T], **options: Unpack[AsyncSending]) -> T: ...
    @overload
    async def post(self, path: str, /, *, into: Callable[[Any], T], **options: Unpack[AsyncSending]) -> T: ...
    async def post(
        self,
        path: str,
        /,
        *,
        into: Any = None,
        json: object = None,
        content: bytes | str | Iterable[bytes] | AsyncIterable[bytes] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: KeyLike | Literal[True] | None = None,
        ok_statuses: Collection[int] = (),
        operation: str | None = None,
        timeout: Seconds | None = None,
        idempotent: bool | None = None,
    ) -> Any:
        """`request("POST", ...)`."""
        return await self.request(
            "POST",
            path,
            into=into,
            json=json,
            content=content,
            params=params,
            headers=headers,
            idempotency_key=idempotency_key,
            ok_statuses=ok_statuses,
            operation=operation,
            timeout=timeout,
            idempotent=idempotent,
        )

    async def wait_until_ready(self, path: str = "/health", /, *, within: Seconds = 60) -> None:
        """Look until it answers 2xx. `errors.NotReady` says whether it was unavailable, or is there and failed."""
        client = self._connections.client(get_running_loop())
        call = self._outgoing.call(self._connections, client, "GET", path, None, None, None, None, None, None, (), None)
        try:
            await _run(looking(within, coroutine, _attempts(self._connections, self._outgoing)), call)
        except (httpx2.HTTPError, AttemptTimeout) as error:
            raise not_ready(call.told.url, error) from error

    async def aclose(self) -> None:
        """Close the connections. Closing twice is fine; a copy made by `using` closes nothing."""
        client = self._connections.take() if self._owner else None
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        if self._owner:
            self._connections.reopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._outgoing.address)!r})"


async def _run(loop: Callable[[Call], Awaitable[Any]], call: Call) -> Any:
    token = TOLD.set(call.told)
    try:
        return await loop(call)
    except httpx2.TimeoutException as error:
        error.request = call.request  # the engine, which ended the attempt, knows of none
        raise
    finally:
        call.told.over()
        put_back(token)


def _attempts(connections: Connections[httpx2.AsyncClient], outgoing: Outgoing) -> Callable[[Call], Coroutine[Any, Any, Any]]:
    """What makes one attempt: sends, reads the whole answer in the time that is left, and says what it is worth."""
    auth: Any = outgoing.auth if outgoing.auth or "authorization" in outgoing.headers else httpx2.USE_CLIENT_DEFAULT

    async def attempt(call: Call) -> Any:
        request = call.begin(less(left()))
        try:
            response = await connections.client(get_running_loop()).send(request, auth=auth, stream=True)
            await read_async(response, call.told.url, outgoing.max_body, call.is_error(response))
            answer = call.answer(response)
        except BaseException:
            call.told.ended()
            raise
        call.told.succeeded()
        return answer

    return attempt
