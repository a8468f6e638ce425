"""Transport: retries for an httpx or httpx2 client that you have already, plain or async."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core.context import IDS, end_of, scope_around
from ..engine.loop import coroutine, plain
from ..engine.nesting import outcome
from ..engine.retry import Retry, RetryLike
from . import headers as head
from .body import timed
from .key import REPEATABLE, derived
from .layer import Layer, chosen
from .network import bound, left, less
from .timeouts import timeouts

if TYPE_CHECKING:
    import httpx
    import httpx2

    class Both(httpx2.BaseTransport, httpx2.AsyncBaseTransport, httpx.BaseTransport, httpx.AsyncBaseTransport):  # type: ignore[misc]
        """A transport of either library; at run time neither is needed for the other."""

    Inner = httpx2.BaseTransport | httpx2.AsyncBaseTransport | httpx.BaseTransport | httpx.AsyncBaseTransport
else:
    Both = object

MARK = "redrive"
"""The extension of a response that says how it ended, for the layers around: `outcome(error)` of a response."""


class Exchange:
    """One request on its way. Belongs to the call that sends it."""

    __slots__ = ("_extensions", "_own", "ids", "inner", "key", "library", "repeatable", "request")

    def __init__(self, request: Any, inner: Any, library: Any) -> None:
        self.request = request
        self.inner = inner
        self.library = library
        headers, url = request.headers, request.url
        for name, value in head.trace().items():
            headers.setdefault(name, value)
        if head.REQUEST_ID not in headers:
            headers[head.REQUEST_ID] = head.request_id()
        whole = isinstance(request.stream, library.ByteStream)
        self.key = headers.get(head.KEY)
        if self.key is None and whole and request.method not in REPEATABLE:
            self.key = derived(request.method, url.raw_path.decode("ascii"), request.content, None)
            if self.key is not None:
                headers[head.KEY] = self.key
        self.repeatable = whole and (request.method in REPEATABLE or self.key is not None)
        self.ids: dict[str, Any] = {
            **IDS.get(),
            "request_id": headers[head.REQUEST_ID],
            "http_method": request.method,
            "url": f"{url.scheme}://{url.netloc.decode('ascii')}{url.path}",
        }
        self._extensions = request.extensions
        self._own = request.extensions.get("timeout") or {}

    @property
    def operation(self) -> str:
        """Its name in journal and tests."""
        return f"{self.request.method} {self.request.url.netloc.decode('ascii')}"

    def begin(self, number: int, seconds: float) -> Any:
        """The request for this attempt, which may take so long."""
        self.request.headers[head.ATTEMPT] = str(number)
        if seconds != math.inf:
            self.request.extensions = {**self._extensions, "timeout": timeouts(self._own, seconds)}
        self.ids.pop("http_status", None)
        return self.request

    def failed(self, response: Any, body: bytes) -> Exception:
        """A bad status as an error, with the answer as it came: the caller gets that in the end."""
        library, status = self.library, response.status_code
        answer = library.Response(
            status,
            headers=response.headers,
            stream=library.ByteStream(body),
            extensions=response.extensions,
            request=self.request,
        )
        error: Exception = library.HTTPStatusError(f"{status} for {self.ids['url']}", request=self.request, response=answer)
        return error

    def end(self) -> None:
        """As the caller had made it: the same request may be sent again."""
        self.request.extensions = self._extensions


class Transport(Both):
    """Retries for an httpx or httpx2 client that you have, plain or async: `httpx.Client(transport=Transport())`.

    It tries again what fails until the head of the answer is there; the body is the client's to read, against the end of the
    attempt. Bad statuses are retried too, and the last answer is given back as it came. Whoever may share the inner transport may
    share this one.
    """

    def __init__(self, inner: Inner | None = None, /, *, retry: RetryLike | None = None) -> None:
        """inner: what sends; default: the library's own, with its defaults.

        retry: default 3 attempts, 0.25 to 5 s apart, and a budget of its own. One attempt may take as long as the client's own
        time-outs let it, or `retry(attempt_timeout=...)`, its body included.
        """
        if inner is not None and not hasattr(inner, "handle_request") and not hasattr(inner, "handle_async_request"):
            raise TypeError(f"the inner transport is one of httpx or httpx2, not {type(inner).__name__}")
        self._retry = chosen(retry, "http transport", attempt_timeout=None)
        self._plain = Layer(self._retry, plain, _attempt)
        self._later = Layer(self._retry, coroutine, _later_attempt)
        self._inner: Any = inner
        self._given = inner is not None
        if self._given:
            bound(inner)

    @property
    def __redrive__(self) -> Retry:
        """What `redrive layers` and `testing.inject` look at."""
        return self._retry

    def handle_request(self, request: Any) -> Any:
        """The answer, after as many attempts as it takes."""
        exchange = self._exchange(request, "handle_request", "HTTPTransport")
        loop: Callable[[Exchange], Any] = self._plain.loop(exchange.operation, exchange.repeatable, exchange.library.ReadTimeout)
        token = IDS.set(exchange.ids)
        try:
            return loop(exchange)
        except exchange.library.HTTPStatusError as error:
            return _given_up(error)
        finally:
            IDS.reset(token)
            exchange.end()

    async def handle_async_request(self, request: Any) -> Any:
        """The answer, after as many attempts as it takes."""
        exchange = self._exchange(request, "handle_async_request", "AsyncHTTPTransport")
        loop: Callable[[Exchange], Coroutine[Any, Any, Any]] = self._later.loop(
            exchange.operation, exchange.repeatable, exchange.library.ReadTimeout
        )
        token = IDS.set(exchange.ids)
        try:
            return await loop(exchange)
        except exchange.library.HTTPStatusError as error:
            return _given_up(error)
        finally:
            try:
                IDS.reset(token)
            except ValueError:
                pass  # closed by another context than the one it ran in, which has nothing of ours to undo
            exchange.end()

    def _exchange(self, request: Any, method: str, default: str) -> Exchange:
        library: Any = sys.modules[type(request).__module__.partition(".")[0]]
        inner = self._inner
        if inner is None:
            inner = self._inner = getattr(library, default)()
            bound(inner)
        _check(inner, method)
        return Exchange(request, inner, library)

    def close(self) -> None:
        """Close the inner transport."""
        if self._inner is not None:
            self._inner.close()

    async def aclose(self) -> None:
        """Close the inner transport."""
        if self._inner is not None:
            await self._inner.aclose()

    def __enter__(self) -> Self:
        if self._given:
            _check(self._inner, "handle_request")
            self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._given:
            self._inner.__exit__(kind, error, trace)
        else:
            self.close()

    async def __aenter__(self) -> Self:
        if self._given:
            _check(self._inner, "handle_async_request")
            await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._given:
            await self._inner.__aexit__(kind, error, trace)
        else:
            await self.aclose()


def _check(inner: object, method: str) -> None:
    if not hasattr(inner, method):
        raise TypeError(f"{type(inner).__name__} is a transport of the other colour: an async client needs an async one")


def _attempt(exchange: Exchange) -> Any:
    scope = scope_around()
    end = end_of(scope)
    response = exchange.inner.handle_request(exchange.begin(1 if scope is None else scope[1], left()))
    if end != math.inf:
        response.stream = timed(exchange.library).plain(response.stream, end)
    exchange.ids["http_status"] = response.status_code
    if response.status_code < 400:
        return response
    try:
        body = b"".join(response.stream)
    finally:
        response.close()
    raise exchange.failed(response, body)


async def _later_attempt(exchange: Exchange) -> Any:
    scope = scope_around()
    end = end_of(scope)
    response = await exchange.inner.handle_async_request(exchange.begin(1 if scope is None else scope[1], less(left())))
    if end != math.inf:
        response.stream = timed(exchange.library).later(response.stream, end)
    exchange.ids["http_status"] = response.status_code
    if response.status_code < 400:
        return response
    try:
        body = b"".join([part async for part in response.stream])
    finally:
        await response.aclose()
    raise exchange.failed(response, body)


def _given_up(error: Any) -> Any:
    """The last answer, which says by its extension that retries were spent on it."""
    response = error.response
    ended = outcome(error)
    if ended is not None:
        response.extensions = {**response.extensions, MARK: ended}
    return response
