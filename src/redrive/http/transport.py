"""Transport: retries for an httpx or httpx2 client that you have already, plain or async."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ..core.classify import classify
from ..core.context import end_of, scope_around
from ..engine.loop import coroutine, plain
from ..engine.nesting import outcome
from ..engine.retry import Retry, RetryLike
from ..errors import Rejected
from . import headers as head
from .body import replays, timed
from .kept import kept, kept_async
from .key import REPEATABLE, checked, derived, fresh, may_repeat, told
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
"""The extension of a request that says whether it may be repeated, and of a response that says how it ended."""


class Exchange:
    """One request on its way. Belongs to the call that sends it."""

    __slots__ = ("_extensions", "_final", "_owner", "inner", "key", "library", "loop", "open", "request", "told")

    def __init__(self, owner: Transport, request: Any, inner: Any, library: Any, layer: Layer) -> None:
        self._owner = owner
        self.request = request
        self.inner = inner
        self.library = library
        self.open: Any = None
        """The response of a failed attempt whose body is still a stream: closed before the next attempt."""
        self._extensions = request.extensions
        wanted = _wanted(request.extensions.get(MARK))
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
        self.key: str | None = sent[_KEY].decode("latin-1") if _KEY in sent else None
        if self.key is None:
            self.key = self._new_key(wanted.get("idempotency_key"), owner.generates_keys)
            if self.key is not None:
                headers[head.KEY] = self.key
        declared = checked(wanted.get("idempotent")), owner.idempotent, layer.declared
        repeatable = replays(request.stream, library) and may_repeat(method, self.key is not None, *declared)
        self._final = layer.retry.settings.max_attempts if repeatable else 1
        operation = f"{method} {url.netloc.decode('ascii')}"
        self.loop = layer.loop(operation, repeatable, self.key is not None, overdue(library))
        self.told = Told(method, url, request_id, owner.bounded)

    def _new_key(self, wanted: Any, generates: bool) -> str | None:
        request = self.request
        if wanted is not None and wanted is not False:
            return told(wanted)
        if request.method in REPEATABLE:
            return None
        if isinstance(request.stream, self.library.ByteStream):
            own = derived(request.method, request.url.raw_path.decode("ascii"), request.content, None)
            if own is not None:
                return own
        return told(True) if generates and wanted is not False else None

    def begin(self, seconds: float) -> Any:
        """The request for the next attempt, which may take so long."""
        number = self.told.begin()
        if number > 1:
            self.request.headers[head.ATTEMPT] = str(number)
        if seconds != math.inf:
            own = self._extensions.get("timeout") or {}
            self.request.extensions = {**self._extensions, "timeout": timeouts(own, seconds)}
        return self.request

    def failure(self, response: Any) -> Exception | None:
        """The error that a response stands for: a bad status, or one that `reject=` refused. None: it is a success."""
        self.told.status = status = response.status_code
        response.request = self.request
        error: Exception
        if status >= 400:
            message = f"{status} for {self.told.url}"
            error = self.library.HTTPStatusError(message, request=self.request, response=response)
            return error
        reject = self._owner.reject
        if reject is not None and reject(response):
            return Rejected(f"{self.told.url}: the response {status} was rejected", result=response)
        return None

    def is_final(self, error: Exception) -> bool:
        """Whether the caller gets this response for certain, so that its body is the caller's to read."""
        if self.told.attempt >= self._final:
            return True
        return not self._owner.has_rules and not classify(error).retryable

    def keep(self, error: Exception, response: Any, in_use: bool) -> None:
        """Put the response into the error that it stands for. in_use: its body is still a stream."""
        if isinstance(error, Rejected):
            error.result = response
        else:
            error.response = response  # type: ignore[attr-defined]  # of either library
        self.open = response if in_use else None

    def given_up(self, error: Any) -> Any:
        """The last response, which says by its extension that retries were spent on it; None where the error has none."""
        response = error.result if isinstance(error, Rejected) else error.response
        if not isinstance(response, self.library.Response):
            return None
        self.open = None
        ended = outcome(error)
        if ended is not None:
            response.extensions = {**response.extensions, MARK: ended}
        return response

    def end(self) -> None:
        """As the caller had made it: the same request may be sent again."""
        self.request.extensions = self._extensions
        self.told.over()


class Transport(Both):
    """Retries for your own httpx or httpx2 client: `httpx.Client(transport=Transport())`.

    It works with sync and async clients. It retries failures up to the response's headers. The
    client reads the body, within the time of the attempt. Statuses and responses that
    `retry(reject=...)` rejects are retried too, and the last response is returned.

    Threads or tasks may share it if they may share the inner transport.
    """

    def __init__(
        self,
        inner: Inner | None = None,
        /,
        *,
        retry: RetryLike | None = None,
        idempotent: bool | None = None,
        idempotency_key: Literal[True] | None = None,
    ) -> None:
        """Wrap a transport.

        A single request can override the options: `client.post(..., extensions={"redrive":
        {"idempotent": True}})`, or `"idempotency_key"`.

        Args:
            inner: The transport that sends. Default: the library's own transport.
            retry: Policy. Default: 3 attempts, 0.25 s to 5 s apart, and its own budget. An attempt
                may take as long as the timeouts of the client allow, or
                `retry(attempt_timeout=...)`, including its body.
            idempotent: True: every request may be repeated, including POST and PATCH. False: none
                may, unless it was never sent. None: by method and key.
            idempotency_key: True: a POST or PATCH without an Idempotency-Key header gets a new one.

        Raises:
            TypeError: `inner` is not a transport of httpx or httpx2.
        """
        if inner is not None and not hasattr(inner, "handle_request") and not hasattr(inner, "handle_async_request"):
            raise TypeError(f"the inner transport must be one of httpx or httpx2, not {type(inner).__name__}")
        self._retry = chosen(retry, "http transport", attempt_timeout=None)
        settings = self._retry.settings
        # The responses of refused attempts have to be closed, which the engine's own reject= knows nothing of.
        inside = Retry(replace(settings.named(settings.operation, self._retry), reject=None))
        self.reject = settings.reject
        self.has_rules = bool(settings.judgement.rules)
        self.idempotent = checked(idempotent)
        self.generates_keys = fresh(idempotency_key)
        self._plain = Layer(inside, plain, _attempt)
        self._later = Layer(inside, coroutine, _later_attempt)
        self._inner: Any = inner
        self._given = inner is not None
        self.bounded = self._given and bound(inner)

    @property
    def __redrive__(self) -> Retry:
        """What `redrive layers` and `testing.inject` look at."""
        return self._retry

    def handle_request(self, request: Any) -> Any:
        """Send a request with retries. A sync client calls this.

        Args:
            request: The request.

        Returns:
            The response.
        """
        exchange = self._exchange(request, "handle_request", "HTTPTransport", self._plain)
        try:
            return exchange.loop(exchange)
        except (exchange.library.HTTPStatusError, Rejected) as error:
            response = exchange.given_up(error)
            if response is None:
                raise
            return response
        finally:
            exchange.end()
            if exchange.open is not None:
                exchange.open.close()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request with retries. An async client calls this.

        Args:
            request: The request.

        Returns:
            The response.
        """
        exchange = self._exchange(request, "handle_async_request", "AsyncHTTPTransport", self._later)
        token = TOLD.set(exchange.told)
        try:
            return await exchange.loop(exchange)
        except (exchange.library.HTTPStatusError, Rejected) as error:
            response = exchange.given_up(error)
            if response is None:
                raise
            return response
        finally:
            exchange.end()
            put_back(token)
            if exchange.open is not None:
                await exchange.open.aclose()

    def _exchange(self, request: Any, method: str, default: str, layer: Layer) -> Exchange:
        library = _library(type(request))
        inner = self._inner
        if inner is None:
            inner = self._inner = getattr(library, default)()
            self.bounded = bound(inner)
        _check(inner, method)
        return Exchange(self, request, inner, library, layer)

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
        raise TypeError(
            f"{type(inner).__name__} does not fit this client; a sync client needs a sync transport, an async client an async one"
        )


def _library(kind: type) -> Any:
    """The library that a class of requests is from: `httpx` or `httpx2`. The class may be a subclass of the user's own."""
    for each in kind.__mro__:
        name = each.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return sys.modules[name]
    raise TypeError(f"the request must be one of httpx or httpx2, not {kind.__module__}.{kind.__qualname__}")


def _wanted(extension: object) -> Mapping[str, Any]:
    """What one request says of itself: `extensions={"redrive": {...}}`."""
    if extension is None:
        return {}
    known = ("idempotent", "idempotency_key")
    if not isinstance(extension, Mapping) or not set(extension) <= set(known):
        raise TypeError(f"extensions['redrive'] must be a mapping with {' and '.join(known)}, not {extension!r}")
    return extension


def _attempt(exchange: Exchange) -> Any:
    if exchange.open is not None:
        exchange.open.close()
        exchange.open = None
    end = end_of(scope_around())
    request = exchange.begin(left())
    try:
        response = exchange.inner.handle_request(request)
        if end != math.inf:
            response.stream = timed(exchange.library).plain(response.stream, end)
        try:
            error = exchange.failure(response)
        except BaseException:
            response.close()
            raise
        if error is None:
            exchange.told.succeeded()
            return response
        if exchange.is_final(error) or response.is_stream_consumed:
            exchange.keep(error, response, not response.is_closed)
        else:
            exchange.keep(error, *kept(exchange.library, response))
        raise error
    except BaseException:
        exchange.told.ended()
        raise


async def _later_attempt(exchange: Exchange) -> Any:
    if exchange.open is not None:
        await exchange.open.aclose()
        exchange.open = None
    end = end_of(scope_around())
    request = exchange.begin(less(left()))
    try:
        response = await exchange.inner.handle_async_request(request)
        if end != math.inf:
            response.stream = timed(exchange.library).later(response.stream, end)
        try:
            error = exchange.failure(response)
        except BaseException:
            await response.aclose()
            raise
        if error is None:
            exchange.told.succeeded()
            return response
        if exchange.is_final(error) or response.is_stream_consumed:
            exchange.keep(error, response, not response.is_closed)
        else:
            exchange.keep(error, *await kept_async(exchange.library, response))
        raise error
    except BaseException:
        exchange.told.ended()
        raise
