"""`AsyncClient`: HTTP calls with retries from async code."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx2

from ..core.key import KeyLike
from ..core.seconds import Seconds, positive
from ..engine.attempt import deadline
from ..engine.fastpath import wrap_async
from ..engine.retry import Retry
from .base_client import READINESS_ERRORS, AsyncBodyOptions, BaseClient, QueryOptions, not_ready
from .bounded_body import read_body_async
from .call_state import CURRENT_CALL, RetryLoops, reset
from .connections import HttpxConnections
from .network import seconds_left, subtract_margin
from .request import CallOptions, HttpCall, RequestDefaults

T = TypeVar("T")


class AsyncClient(BaseClient[httpx2.AsyncClient]):
    """A client for one HTTP service, with retries, for async code. Errors are those of httpx2.

    GET, HEAD, OPTIONS, PUT and DELETE are retried. POST and PATCH are retried only with an
    idempotency key, or if the request was never sent.

    The tasks of one event loop may share one. Another event loop, or a forked child, opens its own
    connections.
    """

    __slots__ = ()

    _httpx_class = httpx2.AsyncClient

    @overload
    async def request(
        self, method: str, path: str, /, **options: Unpack[AsyncBodyOptions]
    ) -> httpx2.Response: ...
    @overload
    async def request(
        self, method: str, path: str, /, *, into: type[T], **options: Unpack[AsyncBodyOptions]
    ) -> T: ...
    @overload
    async def request(
        self,
        method: str,
        path: str,
        /,
        *,
        into: Callable[[Any], T],
        **options: Unpack[AsyncBodyOptions],
    ) -> T: ...
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
            operation: Name in log records. Default: method and host.
            timeout: Seconds for the whole call, with all attempts and waits.
            idempotent: True: this request may be repeated without a key.

        Returns:
            The response, or the value that `into` asks for.

        Raises:
            httpx2.HTTPStatusError: The status is neither 2xx nor in `ok_statuses`.
            httpx2.DecodingError: The response does not fit `into`. It is not retried.
        """
        request = (into, json, content, params, headers, idempotency_key)
        options = CallOptions(*request, ok_statuses, operation, idempotent)
        call, loop = self._prepare(method, path, options, get_running_loop())
        if timeout is None:
            return await _run(loop, call)
        with deadline(positive("timeout", timeout)):
            return await _run(loop, call)

    @overload
    async def get(self, path: str, /, **options: Unpack[QueryOptions]) -> httpx2.Response: ...
    @overload
    async def get(self, path: str, /, *, into: type[T], **options: Unpack[QueryOptions]) -> T: ...
    @overload
    async def get(
        self, path: str, /, *, into: Callable[[Any], T], **options: Unpack[QueryOptions]
    ) -> T: ...
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
            operation: Name in log records. Default: method and host.
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
    async def post(self, path: str, /, **options: Unpack[AsyncBodyOptions]) -> httpx2.Response: ...
    @overload
    async def post(
        self, path: str, /, *, into: type[T], **options: Unpack[AsyncBodyOptions]
    ) -> T: ...
    @overload
    async def post(
        self, path: str, /, *, into: Callable[[Any], T], **options: Unpack[AsyncBodyOptions]
    ) -> T: ...
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
            operation: Name in log records. Default: method and host.
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
        call, loop = self._prepare_readiness(path, within, get_running_loop())
        try:
            await _run(loop, call)
        except READINESS_ERRORS as error:
            raise not_ready(call.state.url, error) from error

    async def aclose(self) -> None:
        """Close the connections. You may close twice. A copy made by `using` closes nothing."""
        client = self._connections.detach() if self._owns_connections else None
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        if self._owns_connections:
            self._connections.reopen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        await self.aclose()

    @staticmethod
    def _build_loops(
        retry: Retry, connections: HttpxConnections[httpx2.AsyncClient], defaults: RequestDefaults
    ) -> RetryLoops:
        auth: Any = defaults.auth
        if not auth and "authorization" not in defaults.headers:
            auth = httpx2.USE_CLIENT_DEFAULT

        async def attempt(call: HttpCall) -> Any:
            request = call.begin_attempt(subtract_margin(seconds_left()))
            try:
                client = connections.client(get_running_loop())
                response = await client.send(request, auth=auth, stream=True)
                is_error = call.is_error(response)
                await read_body_async(response, call.state.url, defaults.max_body, is_error)
                result = call.result(response)
            except BaseException:
                call.state.publish()
                raise
            call.state.publish_success()
            return result

        return RetryLoops(retry, wrap_async, attempt)


async def _run(loop: Callable[[HttpCall], Awaitable[Any]], call: HttpCall) -> Any:
    token = CURRENT_CALL.set(call.state)
    try:
        return await loop(call)
    except httpx2.TimeoutException as error:
        error.request = call.request  # The engine ended the attempt without knowing the request.
        raise
    finally:
        call.state.restore_ids()
        reset(token)
