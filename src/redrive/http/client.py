"""`Client`: HTTP calls with retries from sync code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx2

from ..core.context import end_of, scope_around
from ..core.key import KeyLike
from ..core.seconds import Seconds, positive
from ..engine.attempt import deadline
from ..engine.fastpath import wrap_sync
from ..engine.retry import Retry
from .base_client import READINESS_ERRORS, BaseClient, BodyOptions, QueryOptions, not_ready
from .bounded_body import read_body
from .call_state import RetryLoops
from .connections import HttpxConnections
from .network import seconds_left
from .request import CallOptions, HttpCall, RequestDefaults
from .streams import deadline_streams

T = TypeVar("T")


class Client(BaseClient[httpx2.Client]):
    """A client for one HTTP service, with retries. Errors are those of httpx2.

    GET, HEAD, OPTIONS, PUT and DELETE are retried. POST and PATCH are retried only with an
    idempotency key, or if the request was never sent.

    Threads may share one. A forked child opens its own connections.
    """

    __slots__ = ()

    _httpx_class = httpx2.Client

    @overload
    def request(
        self, method: str, path: str, /, **options: Unpack[BodyOptions]
    ) -> httpx2.Response: ...
    @overload
    def request(
        self, method: str, path: str, /, *, into: type[T], **options: Unpack[BodyOptions]
    ) -> T: ...
    @overload
    def request(
        self, method: str, path: str, /, *, into: Callable[[Any], T], **options: Unpack[BodyOptions]
    ) -> T: ...
    def request(
        self,
        method: str,
        path: str,
        /,
        *,
        into: Any = None,
        json: object = None,
        content: bytes | str | Iterable[bytes] | None = None,
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
        call, loop = self._prepare(method, path, options)
        if timeout is None:
            return _run(loop, call)
        with deadline(positive("timeout", timeout)):
            return _run(loop, call)

    @overload
    def get(self, path: str, /, **options: Unpack[QueryOptions]) -> httpx2.Response: ...
    @overload
    def get(self, path: str, /, *, into: type[T], **options: Unpack[QueryOptions]) -> T: ...
    @overload
    def get(
        self, path: str, /, *, into: Callable[[Any], T], **options: Unpack[QueryOptions]
    ) -> T: ...
    def get(
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
        return self.request(
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
    def post(self, path: str, /, **options: Unpack[BodyOptions]) -> httpx2.Response: ...
    @overload
    def post(self, path: str, /, *, into: type[T], **options: Unpack[BodyOptions]) -> T: ...
    @overload
    def post(
        self, path: str, /, *, into: Callable[[Any], T], **options: Unpack[BodyOptions]
    ) -> T: ...
    def post(
        self,
        path: str,
        /,
        *,
        into: Any = None,
        json: object = None,
        content: bytes | str | Iterable[bytes] | None = None,
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
        return self.request(
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

    def wait_until_ready(self, path: str = "/health", /, *, within: Seconds = 60) -> None:
        """Poll a health address until it returns 2xx.

        Args:
            path: Path of the health address.
            within: Maximum number of seconds.

        Raises:
            NotReady: The service was not ready in time. It says whether it was unavailable or
                failed.
        """
        call, loop = self._prepare_readiness(path, within)
        try:
            _run(loop, call)
        except READINESS_ERRORS as error:
            raise not_ready(call.state.url, error) from error

    def close(self) -> None:
        """Close the connections. You may close twice. A copy made by `using` closes nothing."""
        client = self._connections.detach() if self._owns_connections else None
        if client is not None:
            client.close()

    def __enter__(self) -> Self:
        if self._owns_connections:
            self._connections.reopen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self.close()

    @staticmethod
    def _build_loops(
        retry: Retry, connections: HttpxConnections[httpx2.Client], defaults: RequestDefaults
    ) -> RetryLoops:
        auth: Any = defaults.auth
        if not auth and "authorization" not in defaults.headers:
            auth = httpx2.USE_CLIENT_DEFAULT
        deadline_body = deadline_streams(httpx2).sync_stream

        def attempt(call: HttpCall) -> Any:
            request = call.begin_attempt(seconds_left())
            try:
                response = connections.client().send(request, auth=auth, stream=True)
                if not connections.has_deadline:
                    response.stream = deadline_body(response.stream, end_of(scope_around()))
                read_body(response, call.state.url, defaults.max_body, call.is_error(response))
                result = call.result(response)
            except BaseException:
                call.state.publish()
                raise
            call.state.publish_success()
            return result

        return RetryLoops(retry, wrap_sync, attempt)


def _run(loop: Callable[[HttpCall], Any], call: HttpCall) -> Any:
    try:
        return loop(call)
    finally:
        call.state.restore_ids()
