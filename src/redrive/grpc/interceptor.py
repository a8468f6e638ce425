"""Interceptors that retry every unary call of a sync or aio channel."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from ..core.key import header_text
from ..engine.attempt import current
from ..engine.retry import Retry
from .retrying import retry as default_retry

ATTEMPT_HEADER = "x-redrive-attempt"
"""Not gRPC's own header, which a channel strips from outgoing calls."""
KEY_HEADER = "idempotency-key"


class _CallDetails(
    namedtuple("_CallDetails", "method timeout metadata credentials wait_for_ready compression"),
    grpc.ClientCallDetails,
):
    """Method, timeout and metadata of one attempt, with the fields of grpcio's own class."""


class Interceptor(grpc.UnaryUnaryClientInterceptor):
    """Retries for sync channels: `grpc.intercept_channel(channel, Interceptor(rpc))`.

    A call without `timeout=` gets the timeout of the attempt. `.future()` calls are made once.
    Threads may share one.

    Args:
        retry: A `redrive.grpc.retry(...)`. Default: its defaults.
    """

    def __init__(self, retry: Retry | None = None, /) -> None:
        self._retry = _check_retry(retry)
        self._calls: dict[Any, Callable[..., Any]] = {}

    def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
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
            named = _with_operation(self._retry, client_call_details.method)
            call = self._calls[client_call_details.method] = named(_attempt)
        return call(continuation, client_call_details, request)


class AsyncInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """Retries for aio channels.

    Pass it as `grpc.aio.insecure_channel(target, interceptors=[AsyncInterceptor(rpc)])`. A call
    without `timeout=` gets the timeout of the attempt. Event loops may share one.

    Args:
        retry: A `redrive.grpc.retry(...)`. Default: its defaults.
    """

    def __init__(self, retry: Retry | None = None, /) -> None:
        self._retry = _check_retry(retry)
        self._calls: dict[Any, Callable[..., Any]] = {}

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
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
            named = _with_operation(self._retry, client_call_details.method)
            call = self._calls[client_call_details.method] = named(_attempt_async)
        return await call(continuation, client_call_details, request)


def _attempt(continuation: Any, details: Any, request: Any) -> Any:
    call = continuation(_details_of_attempt(details, tuple), request)
    if not call.done():
        return call  # A future. Waiting for it here would block the caller.
    error = call.exception()
    if error is not None:
        raise error
    return call


async def _attempt_async(continuation: Any, details: Any, request: Any) -> Any:
    call = await continuation(_details_of_attempt(details, _aio_metadata), request)
    await call
    return call


def _details_of_attempt(
    details: Any, make_metadata: Callable[[list[tuple[str, Any]]], Any]
) -> _CallDetails:
    """Limit the timeout to the attempt, and add its number and key to the metadata."""
    attempt = current()
    timeout, remaining = details.timeout, attempt.remaining
    if remaining is not None and (timeout is None or remaining < timeout):
        timeout = remaining
    headers = list(details.metadata or ())
    if attempt.number > 1:
        headers.append((ATTEMPT_HEADER, str(attempt.number)))
    if attempt.key is not None and not any(name.lower() == KEY_HEADER for name, _ in headers):
        headers.append((KEY_HEADER, header_text(attempt.key)))
    return _CallDetails(
        method=getattr(details, "method", None),
        timeout=timeout,
        metadata=make_metadata(headers) if headers else details.metadata,
        credentials=getattr(details, "credentials", None),
        wait_for_ready=getattr(details, "wait_for_ready", None),
        compression=getattr(details, "compression", None),
    )


def _aio_metadata(headers: list[tuple[str, Any]]) -> Any:
    return grpc.aio.Metadata(*headers)


def _check_retry(retry: Retry | None) -> Retry:
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(
            "an interceptor takes a result of redrive.grpc.retry(...), "
            f"not {type(retry).__name__}: {retry!r}"
        )
    return default_retry() if retry is None else retry


def _with_operation(retry: Retry, method: str | bytes) -> Retry:
    """Name the operation after the method, if it has no name."""
    text = method.decode() if isinstance(method, bytes) else method
    return retry if retry.operation else retry.using(operation=text.strip("/"))
