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
    """A client for one HTTP service, with retries, for async code. Errors are those of httpx2.

    GET, HEAD, OPTIONS, PUT and DELETE are retried. POST and PATCH are retried only with an
    idempotency key, or if the request was never sent.

    The tasks of one event loop may share one. Another event loop, or a forked child, opens its own
    connections.
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
        """Configure the client. Connections are opened at the first request.

        Args:
            base_url: Address of the service.
            auth: Bearer token, or an `httpx2.Auth`.
            user: User id, sent as `x-user-id`.
            headers: Headers of every request.
            retry: Policy. Default: 3 attempts, 0.25 s to 5 s apart, 10 s each, and its own budget.
            idempotent: True: every request may be repeated, including POST and PATCH. False: none
                may, unless it was never sent. None: by method and key.
            idempotency_key: True: a POST or PATCH without a key gets a new one.
            max_body: Maximum number of bytes of a response, decompressed. None: no limit. A larger
                response is an `httpx2.DecodingError`.
            client: Your own `httpx2.AsyncClient`, with its proxies, certificates and limits. You
                close it.

        Raises:
            TypeError: `client` is of another library. Use `Transport` there.
        """
        if client is not None and not isinstance(client, httpx2.AsyncClient):
            raise TypeError(
                f"client= must be an httpx2.AsyncClient, not {type(client).__module__}.{type(client).__name__}; "
                f"use redrive.http.Transport with other clients"
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
        """Return a copy with other options and the same connections.

        Args:
            user: User id, sent as `x-user-id`.
            headers: Headers that are added.
            retry: Another policy.
            idempotent: Whether requests may be repeated.

        Returns:
            The copy. The original client closes the connections.
        """
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
        """Send a request with retries.

        Args:
            method: HTTP method.
            path: Path under the base URL.
            into: Type of the JSON response (a class, `list[...]`, `dict[...]`, TypedDict), or a
                function that makes it. Default: return the response.
            json: Body as JSON.
            content: Body of another kind. A stream is sent once.
            params: Query parameters.
            headers: Headers of this request.
            idempotency_key: A key, or True for a new one. Inside of work that has a key, one is
                derived from it.
            ok_statuses: Statuses besides 2xx that are not an error.
            operation: Name in log records. Default: method and path.
            timeout: Seconds for the whole call, with all attempts and waits.
            idempotent: True: this request may be repeated without a key.

        Returns:
            The response, or the value that `into` asks for.

        Raises:
            httpx2.HTTPStatusError: The status is neither 2xx nor in `ok_statuses`.
            httpx2.DecodingError: The response does not fit `into`. It is not retried.
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
        """Send a GET request. See `request`.

        Args:
            path: Path under the base URL.
            into: Type of the JSON response, or a function that makes it.
            params: Query parameters.
            headers: Headers of this request.
            ok_statuses: Statuses besides 2xx that are not an error.
            operation: Name in log records. Default: method and path.
            timeout: Seconds for the whole call.
            idempotent: False: do not repeat this request.

        Returns:
            The response, or the value that `into` asks for.
        """
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
        """Send a POST request. See `request`.

        Args:
            path: Path under the base URL.
            into: Type of the JSON response, or a function that makes it.
            json: Body as JSON.
            content: Body of another kind. A stream is sent once.
            params: Query parameters.
            headers: Headers of this request.
            idempotency_key: A key, or True for a new one.
            ok_statuses: Statuses besides 2xx that are not an error.
            operation: Name in log records. Default: method and path.
            timeout: Seconds for the whole call.
            idempotent: True: this request may be repeated without a key.

        Returns:
            The response, or the value that `into` asks for.
        """
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
        """Poll a health address until it returns 2xx.

        Args:
            path: Path of the health address.
            within: Maximum number of seconds.

        Raises:
            NotReady: The service was not ready in time. It says whether it was unavailable or
                failed.
        """
        client = self._connections.client(get_running_loop())
        call = self._outgoing.call(self._connections, client, "GET", path, None, None, None, None, None, None, (), None)
        try:
            await _run(looking(within, coroutine, _attempts(self._connections, self._outgoing)), call)
        except (httpx2.HTTPError, AttemptTimeout) as error:
            raise not_ready(call.told.url, error) from error

    async def aclose(self) -> None:
        """Close the connections. You may close twice. A copy made by `using` closes nothing."""
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
