"""Interceptor: every unary call of a channel through a `Retry`, so that no call site has to say so. Plain and aio."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from ..core.key import header_text
from ..engine.attempt import current
from ..engine.retry import Retry
from .call import retry as default

ATTEMPT = "x-redrive-attempt"
"""gRPC's own header for this is for its channel alone, which strips ours."""
KEY = "idempotency-key"


class _Details(
    namedtuple("_Details", "method timeout metadata credentials wait_for_ready compression"),  # as grpcio's own
    grpc.ClientCallDetails,
):
    """What a call is made with."""


class Interceptor(grpc.UnaryUnaryClientInterceptor):
    """Retries for sync channels: `grpc.intercept_channel(channel, Interceptor(rpc))`.

    A call without `timeout=` gets the timeout of the attempt. `.future()` calls are made once.
    Threads may share one.

    Args:
        retry: A `redrive.grpc.retry(...)`. Default: its defaults.
    """

    def __init__(self, retry: Retry | None = None, /) -> None:
        self._retry = _checked(retry)
        self._calls: dict[Any, Callable[..., Any]] = {}

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Make one call with the attempts of the `Retry`. grpcio calls this.

        Args:
            continuation: The next step of the channel.
            client_call_details: Method, timeout and metadata.
            request: The request.

        Returns:
            The call.
        """
        call = self._calls.get(client_call_details.method)
        if call is None:
            call = self._calls[client_call_details.method] = _named(self._retry, client_call_details.method)(_attempt)
        return call(continuation, client_call_details, request)


class AsyncInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """Retries for aio channels.

    Pass it as `grpc.aio.insecure_channel(target, interceptors=[AsyncInterceptor(rpc)])`. A call
    without `timeout=` gets the timeout of the attempt. Event loops may share one.

    Args:
        retry: A `redrive.grpc.retry(...)`. Default: its defaults.
    """

    def __init__(self, retry: Retry | None = None, /) -> None:
        self._retry = _checked(retry)
        self._calls: dict[Any, Callable[..., Any]] = {}

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Make one call with the attempts of the `Retry`. grpcio calls this.

        Args:
            continuation: The next step of the channel.
            client_call_details: Method, timeout and metadata.
            request: The request.

        Returns:
            The call.
        """
        call = self._calls.get(client_call_details.method)
        if call is None:
            call = self._calls[client_call_details.method] = _named(self._retry, client_call_details.method)(_async_attempt)
        return await call(continuation, client_call_details, request)


def _attempt(continuation: Any, details: Any, request: Any) -> Any:
    call = continuation(_details(details, tuple), request)
    if not call.done():
        return call  # a future: waiting for it here would hold its caller up
    error = call.exception()
    if error is not None:
        raise error
    return call


async def _async_attempt(continuation: Any, details: Any, request: Any) -> Any:
    call = await continuation(_details(details, _aio_metadata), request)
    await call
    return call


def _details(details: Any, metadata: Callable[[list[tuple[str, Any]]], Any]) -> _Details:
    attempt = current()
    timeout, left = details.timeout, attempt.remaining
    if left is not None and (timeout is None or left < timeout):
        timeout = left
    pairs = list(details.metadata or ())
    if attempt.number > 1:
        pairs.append((ATTEMPT, str(attempt.number)))
    if attempt.key is not None and not any(name.lower() == KEY for name, _ in pairs):
        pairs.append((KEY, header_text(attempt.key)))
    own = {name: getattr(details, name, None) for name in ("method", "credentials", "wait_for_ready", "compression")}
    return _Details(timeout=timeout, metadata=metadata(pairs) if pairs else details.metadata, **own)


def _aio_metadata(pairs: list[tuple[str, Any]]) -> Any:
    return grpc.aio.Metadata(*pairs)


def _checked(retry: Retry | None) -> Retry:
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"an interceptor takes a result of redrive.grpc.retry(...), not {type(retry).__name__}: {retry!r}")
    return default() if retry is None else retry


def _named(retry: Retry, method: str | bytes) -> Retry:
    text = method.decode() if isinstance(method, bytes) else method
    return retry if retry.operation else retry.using(operation=text.strip("/"))
