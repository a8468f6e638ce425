"""`Transport`: retries for your own httpx or httpx2 client, sync or async."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ..core.classification.classify import classify
from ..core.context import end_of, scope_around
from ..engine.fastpath import wrap_async, wrap_sync
from ..engine.nesting import outcome
from ..engine.retry import Retry, RetryLike
from ..errors import Rejected
from . import headers as header
from .call_state import CURRENT_CALL, CallState, RetryLoops, reset, resolve_retry, timeout_error
from .headers import (
    IDEMPOTENT_METHODS,
    check_generates_keys,
    check_idempotent,
    implicit_key,
    key_header,
    may_repeat,
)
from .network import bind_to_deadline, phase_timeouts, seconds_left, subtract_margin
from .streams import (
    buffer_failed_response,
    buffer_failed_response_async,
    can_replay,
    deadline_streams,
)

if TYPE_CHECKING:
    import httpx
    import httpx2

    class AnyTransport(  # type: ignore[misc]  # The four bases differ in their signatures.
        httpx2.BaseTransport,
        httpx2.AsyncBaseTransport,
        httpx.BaseTransport,
        httpx.AsyncBaseTransport,
    ):
        """A transport of both libraries. At run time, only one of them needs to be installed."""

    InnerTransport = (
        httpx2.BaseTransport
        | httpx2.AsyncBaseTransport
        | httpx.BaseTransport
        | httpx.AsyncBaseTransport
    )
else:
    AnyTransport = object

_REQUEST_ID = header.REQUEST_ID.encode()
_ATTEMPT = header.ATTEMPT.encode()
_KEY = header.IDEMPOTENCY_KEY.encode()
EXTENSION = "redrive"
"""Extension of a request with its options, and of a response with the outcome of its retries."""
REQUEST_OPTIONS = ("idempotent", "idempotency_key")
"""Names that the extension of a request may contain."""


class Exchange:
    """One request of a transport, with all its attempts. Used by the call that sends it."""

    __slots__ = (
        "_extensions",
        "_max_attempts",
        "_transport",
        "inner",
        "key",
        "library",
        "loop",
        "open_response",
        "request",
        "state",
    )

    def __init__(
        self, transport: Transport, request: Any, inner: Any, library: Any, loops: RetryLoops
    ) -> None:
        """Add Redrive's headers to the request, and choose its retry loop."""
        self._transport = transport
        self.request = request
        self.inner = inner
        self.library = library
        self.open_response: Any = None
        """A failed attempt's response whose body still is a stream. Closed by the next attempt."""
        self._extensions = request.extensions
        options = _request_options(request.extensions.get(EXTENSION))
        url, method, headers = request.url, request.method, request.headers
        # Read once, because looking up a single header costs as much.
        sent = {name.lower(): value for name, value in headers.raw}
        for name, value in header.trace_headers().items():
            if name.encode() not in sent:
                headers[name] = value
        request_id = sent.get(_REQUEST_ID, b"").decode("latin-1")
        if not request_id:
            headers[header.REQUEST_ID] = request_id = header.current_request_id()
        if sent.get(_ATTEMPT) != b"1":
            headers[header.ATTEMPT] = "1"
        self.key: str | None = sent[_KEY].decode("latin-1") if _KEY in sent else None
        if self.key is None:
            self.key = self._new_key(options.get("idempotency_key"), transport.generates_keys)
            if self.key is not None:
                headers[header.IDEMPOTENCY_KEY] = self.key
        has_key = self.key is not None
        declared = (
            check_idempotent(options.get("idempotent")),
            transport.idempotent,
            loops.declared_idempotent,
        )
        repeatable = can_replay(request.stream, library) and may_repeat(method, has_key, *declared)
        self._max_attempts = loops.retry.settings.max_attempts if repeatable else 1
        operation = f"{method} {url.netloc.decode('ascii')}"
        self.loop = loops.loop(operation, repeatable, has_key, timeout_error(library))
        self.state = CallState(method, url, request_id, transport.has_deadline)

    def _new_key(self, requested: Any, generates_keys: bool) -> str | None:
        """Return the key of a request without one: requested, derived, or a new one."""
        request = self.request
        if requested is not None and requested is not False:
            return key_header(requested)
        if request.method in IDEMPOTENT_METHODS:
            return None
        body = request.content if isinstance(request.stream, self.library.ByteStream) else None
        return implicit_key(request, body, None, generates_keys and requested is not False)

    def begin_attempt(self, seconds: float) -> Any:
        """Return the request for the next attempt, which may take this many seconds."""
        number = self.state.begin_attempt()
        if number > 1:
            self.request.headers[header.ATTEMPT] = str(number)
        if seconds != math.inf:
            timeouts = phase_timeouts(self._extensions.get("timeout") or {}, seconds)
            self.request.extensions = {**self._extensions, "timeout": timeouts}
        return self.request

    def failure(self, response: Any) -> Exception | None:
        """Return the error of a response: a status of 400 or more, or rejected by `reject=`."""
        self.state.status = status = response.status_code
        response.request = self.request
        error: Exception
        if status >= 400:
            message = f"{status} for {self.state.url}"
            error = self.library.HTTPStatusError(message, request=self.request, response=response)
            return error
        reject = self._transport.reject
        if reject is not None and reject(response):
            message = f"{self.state.url}: the response {status} was rejected"
            return Rejected(message, result=response)
        return None

    def is_final(self, error: Exception) -> bool:
        """Return whether the caller certainly gets this response, and reads its body."""
        if self.state.attempt >= self._max_attempts:
            return True
        return not self._transport.has_rules and not classify(error).retryable

    def attach_response(self, error: Exception, response: Any, is_open: bool) -> None:
        """Put the response into its error. is_open: the body still is a stream."""
        if isinstance(error, Rejected):
            error.result = response
        else:
            error.response = response  # type: ignore[attr-defined]  # of either library
        self.open_response = response if is_open else None

    def final_response(self, error: Any) -> Any:
        """Return the last response with the outcome as an extension, or None if there is none."""
        response = error.result if isinstance(error, Rejected) else error.response
        if not isinstance(response, self.library.Response):
            return None
        self.open_response = None
        ended = outcome(error)
        if ended is not None:
            response.extensions = {**response.extensions, EXTENSION: ended}
        return response

    def end(self) -> None:
        """Restore the caller's request, which may be sent again."""
        self.request.extensions = self._extensions
        self.state.restore_ids()


class Transport(AnyTransport):
    """Retries for your own httpx or httpx2 client: `httpx.Client(transport=Transport())`.

    It works with sync and async clients. It retries failures up to the response's headers. The
    client reads the body, within the time of the attempt. Statuses and responses that
    `retry(reject=...)` rejects are retried too, and the last response is returned.

    Threads or tasks may share it if they may share the inner transport.
    """

    def __init__(
        self,
        inner: InnerTransport | None = None,
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
        if (
            inner is not None
            and not hasattr(inner, "handle_request")
            and not hasattr(inner, "handle_async_request")
        ):
            raise TypeError(
                f"the inner transport must be one of httpx or httpx2, not {type(inner).__name__}"
            )
        self._retry = resolve_retry(retry, "http transport", attempt_timeout=None)
        settings = self._retry.settings
        # The engine does not close rejected responses, so this transport applies reject= itself.
        retry_inside = Retry(replace(settings.named(settings.operation, self._retry), reject=None))
        self.reject = settings.reject
        self.has_rules = bool(settings.error_rules.rules)
        self.idempotent = check_idempotent(idempotent)
        self.generates_keys = check_generates_keys(idempotency_key)
        self._sync_loops = RetryLoops(retry_inside, wrap_sync, _attempt)
        self._async_loops = RetryLoops(retry_inside, wrap_async, _attempt_async)
        self._inner: Any = inner
        self._is_inner_given = inner is not None
        self.has_deadline = self._is_inner_given and bind_to_deadline(inner)

    @property
    def __redrive__(self) -> Retry:
        """The `Retry` that `redrive layers` shows and `testing.inject` changes."""
        return self._retry

    def handle_request(self, request: Any) -> Any:
        """Send a request with retries. A sync client calls this.

        Args:
            request: The request.

        Returns:
            The response.
        """
        exchange = self._exchange(request, "handle_request", "HTTPTransport", self._sync_loops)
        try:
            return exchange.loop(exchange)
        except (exchange.library.HTTPStatusError, Rejected) as error:
            response = exchange.final_response(error)
            if response is None:
                raise
            return response
        finally:
            exchange.end()
            if exchange.open_response is not None:
                exchange.open_response.close()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request with retries. An async client calls this.

        Args:
            request: The request.

        Returns:
            The response.
        """
        exchange = self._exchange(
            request, "handle_async_request", "AsyncHTTPTransport", self._async_loops
        )
        token = CURRENT_CALL.set(exchange.state)
        try:
            return await exchange.loop(exchange)
        except (exchange.library.HTTPStatusError, Rejected) as error:
            response = exchange.final_response(error)
            if response is None:
                raise
            return response
        finally:
            exchange.end()
            reset(token)
            if exchange.open_response is not None:
                await exchange.open_response.aclose()

    def _exchange(self, request: Any, method: str, default: str, loops: RetryLoops) -> Exchange:
        library = _library_of(type(request))
        inner = self._inner
        if inner is None:
            inner = self._inner = getattr(library, default)()
            self.has_deadline = bind_to_deadline(inner)
        _check_inner(inner, method)
        return Exchange(self, request, inner, library, loops)

    def close(self) -> None:
        """Close the inner transport."""
        if self._inner is not None:
            self._inner.close()

    async def aclose(self) -> None:
        """Close the inner transport."""
        if self._inner is not None:
            await self._inner.aclose()

    def __enter__(self) -> Self:
        if self._is_inner_given:
            _check_inner(self._inner, "handle_request")
            self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._is_inner_given:
            self._inner.__exit__(kind, error, trace)
        else:
            self.close()

    async def __aenter__(self) -> Self:
        if self._is_inner_given:
            _check_inner(self._inner, "handle_async_request")
            await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._is_inner_given:
            await self._inner.__aexit__(kind, error, trace)
        else:
            await self.aclose()


def _check_inner(inner: object, method: str) -> None:
    if not hasattr(inner, method):
        raise TypeError(
            f"{type(inner).__name__} does not fit this client; "
            "a sync client needs a sync transport, an async client an async one"
        )


def _library_of(kind: type) -> Any:
    """Return `httpx` or `httpx2`: the library of a request's class or of its base class."""
    for base in kind.__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return sys.modules[name]
    raise TypeError(
        f"the request must be one of httpx or httpx2, not {kind.__module__}.{kind.__qualname__}"
    )


def _request_options(extension: object) -> Mapping[str, Any]:
    """Return the options of one request, from `extensions={"redrive": {...}}`."""
    if extension is None:
        return {}
    if not isinstance(extension, Mapping) or not set(extension) <= set(REQUEST_OPTIONS):
        names = " and ".join(REQUEST_OPTIONS)
        raise TypeError(f"extensions['redrive'] must be a mapping with {names}, not {extension!r}")
    return extension


def _attempt(exchange: Exchange) -> Any:
    if exchange.open_response is not None:
        exchange.open_response.close()
        exchange.open_response = None
    end = end_of(scope_around())
    request = exchange.begin_attempt(seconds_left())
    try:
        response = exchange.inner.handle_request(request)
        if end != math.inf:
            response.stream = deadline_streams(exchange.library).sync_stream(response.stream, end)
        try:
            error = exchange.failure(response)
        except BaseException:
            response.close()
            raise
        if error is None:
            exchange.state.publish_success()
            return response
        if exchange.is_final(error) or response.is_stream_consumed:
            exchange.attach_response(error, response, not response.is_closed)
        else:
            exchange.attach_response(error, *buffer_failed_response(exchange.library, response))
        raise error
    except BaseException:
        exchange.state.publish()
        raise


async def _attempt_async(exchange: Exchange) -> Any:
    if exchange.open_response is not None:
        await exchange.open_response.aclose()
        exchange.open_response = None
    end = end_of(scope_around())
    request = exchange.begin_attempt(subtract_margin(seconds_left()))
    try:
        response = await exchange.inner.handle_async_request(request)
        if end != math.inf:
            response.stream = deadline_streams(exchange.library).async_stream(response.stream, end)
        try:
            error = exchange.failure(response)
        except BaseException:
            await response.aclose()
            raise
        if error is None:
            exchange.state.publish_success()
            return response
        if exchange.is_final(error) or response.is_stream_consumed:
            exchange.attach_response(error, response, not response.is_closed)
        else:
            buffered = await buffer_failed_response_async(exchange.library, response)
            exchange.attach_response(error, *buffered)
        raise error
    except BaseException:
        exchange.state.publish()
        raise
