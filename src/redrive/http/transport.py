"""Transport: retries for an httpx or httpx2 client that you have already, plain or async."""

from __future__ import annotations

import math
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core.context import end_of, scope_around
from ..engine.loop import coroutine, plain
from ..engine.nesting import outcome
from ..engine.retry import Retry, RetryLike
from . import headers as head
from .body import timed
from .key import REPEATABLE, derived
from .layer import Layer, chosen
from .network import bound, left, less
from .timeouts import timeouts
from .told import TOLD, Told, overdue, put_back

if TYPE_CHECKING:
    import httpx
    import httpx2

    class Both(httpx2.BaseTransport, httpx2.AsyncBaseTransport, httpx.BaseTransport, httpx.AsyncBaseTransport):  # type: ignore[misc]
        """A transport of either library; at run time neither is needed for the other."""

    Inner = httpx2.BaseTransport | httpx2.AsyncBaseTransport | httpx.BaseTransport | httpx.AsyncBaseTransport
else:
    Both = object

_REQUEST_ID, _ATTEMPT, _KEY = head.REQUEST_ID.encode(), head.ATTEMPT.encode(), head.KEY.encode()
MARK = "redrive"
"""The extension of a response that says how it ended, for the layers around: `outcome(error)` of a response."""


class Exchange:
    """One request on its way. Belongs to the call that sends it."""

    __slots__ = ("_extensions", "inner", "key", "library", "loop", "request", "told")

    def __init__(self, request: Any, inner: Any, library: Any, layer: Layer, bounded: bool) -> None:
        self.request = request
        self.inner = inner
        self.library = library
        self._extensions = request.extensions
        url, method, headers = request.url, request.method, request.headers
        sent = {name.lower(): value for name, value in headers.raw}  # once: each look at a single one costs as much
        for name, value in head.trace().items():
            if name.encode() not in sent:
                headers[name] = value
        request_id = sent.get(_REQUEST_ID, b"").decode("latin-1")
        if not request_id:
            headers[head.REQUEST_ID] = request_id = head.request_id()
        if sent.get(_ATTEMPT) != b"1":
            headers[head.ATTEMPT] = "1"
        whole = isinstance(request.stream, library.ByteStream)
        self.key: str | None = sent[_KEY].decode("latin-1") if _KEY in sent else None
        if self.key is None and whole and method not in REPEATABLE:
            self.key = derived(method, url.raw_path.decode("ascii"), request.content, None)
            if self.key is not None:
                headers[head.KEY] = self.key
        repeatable = whole and (method in REPEATABLE or self.key is not None)
        operation = f"{method} {url.netloc.decode('ascii')}"
        self.loop = layer.loop(operation, repeatable, self.key is not None, overdue(library))
        self.told = Told(method, url, request_id, bounded)

    def begin(self, seconds: float) -> Any:
        """The request for the next attempt, which may take so long."""
        number = self.told.begin()
        if number > 1:
            self.request.headers[head.ATTEMPT] = str(number)
        if seconds != math.inf:
            own = self._extensions.get("timeout") or {}
            self.request.extensions = {**self._extensions, "timeout": timeouts(own, seconds)}
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
        error: Exception = library.HTTPStatusError(f"{status} for {self.told.url}", request=self.request, response=answer)
        return error

    def end(self) -> None:
        """As the caller had made it: the same request may be sent again."""
        self.request.extensions = self._extensions
        self.told.over()


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
        self._bounded = self._given and bound(inner)

    @property
    def __redrive__(self) -> Retry:
        """What `redrive layers` and `testing.inject` look at."""
        return self._retry

    def handle_request(self, request: Any) -> Any:
        """The answer, after as many attempts as it takes."""
        exchange = self._exchange(request, "handle_request", "HTTPTransport", self._plain)
        try:
            return exchange.loop(exchange)
        except exchange.library.HTTPStatusError as error:
            return _given_up(error)
        finally:
            exchange.end()

    async def handle_async_request(self, request: Any) -> Any:
        """The answer, after as many attempts as it takes."""
        exchange = self._exchange(request, "handle_async_request", "AsyncHTTPTransport", self._later)
        token = TOLD.set(exchange.told)
        try:
            return await exchange.loop(exchange)
        except exchange.library.HTTPStatusError as error:
            return _given_up(error)
        finally:
            exchange.end()
            put_back(token)

    def _exchange(self, request: Any, method: str, default: str, layer: Layer) -> Exchange:
        library: Any = sys.modules[type(request).__module__.partition(".")[0]]
        inner = self._inner
        if inner is None:
            inner = self._inner = getattr(library, default)()
            self._bounded = bound(inner)
        _check(inner, method)
        return Exchange(request, inner, library, layer, self._bounded)

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
    end = end_of(scope_around())
    request = exchange.begin(left())
    try:
        response = exchange.inner.handle_request(request)
        if end != math.inf:
            response.stream = timed(exchange.library).plain(response.stream, end)
        exchange.told.status = response.status_code
        if response.status_code < 400:
            exchange.told.succeeded()
            return response
        try:
            body = b"".join(response.stream)
        finally:
            response.close()
        raise exchange.failed(response, body)
    except BaseException:
        exchange.told.ended()
        raise


async def _later_attempt(exchange: Exchange) -> Any:
    end = end_of(scope_around())
    request = exchange.begin(less(left()))
    try:
        response = await exchange.inner.handle_async_request(request)
        if end != math.inf:
            response.stream = timed(exchange.library).later(response.stream, end)
        exchange.told.status = response.status_code
        if response.status_code < 400:
            exchange.told.succeeded()
            return response
        try:
            body = b"".join([part async for part in response.stream])
        finally:
            await response.aclose()
        raise exchange.failed(response, body)
    except BaseException:
        exchange.told.ended()
        raise


def _given_up(error: Any) -> Any:
    """The last answer, which says by its extension that retries were spent on it."""
    response = error.response
    ended = outcome(error)
    if ended is not None:
        response.extensions = {**response.extensions, MARK: ended}
    return response
