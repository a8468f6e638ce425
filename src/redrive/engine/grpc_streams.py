"""Retries of streaming gRPC methods: requests are replayed, responses are opened in the attempt.

It does not import grpcio.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial, wraps
from typing import Any

REQUESTS = "request_iterator"
_STREAMING_METHODS = (
    "UnaryStreamMultiCallable",
    "StreamUnaryMultiCallable",
    "StreamStreamMultiCallable",
)
_TAKEN = object()
_EMPTY = object()


def replayable(fn: Any, max_attempts: int, /) -> Any:
    """Return the function that each attempt calls.

    That is `fn`, except for streaming gRPC methods. Their request stream is created anew for each
    attempt, and their response stream is opened (up to its first message) within the attempt.

    Raises:
        TypeError: `fn` is a `future()` method, which returns before the call can fail.
    """
    method, bound = _unbind(fn)
    owner = getattr(method, "__self__", method)
    if not type(owner).__module__.startswith("grpc."):
        return fn
    if owner is not method and getattr(method, "__name__", "") == "future":
        raise TypeError(
            f"{_name(owner)}: future() returns before the call can fail, so it cannot be retried; "
            "call the method itself"
        )
    shape, is_async = _streaming_shape(owner)
    if shape is None:
        return fn
    sends_stream = shape.startswith("Stream")
    receives_stream = shape.endswith("StreamMultiCallable")

    def start_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = (*bound.args, *args), {**bound.keywords, **kwargs}
        if sends_stream:
            args, kwargs = _with_new_requests(owner, args, kwargs, max_attempts)
        return method(*args, **kwargs)

    def call_sync(*args: Any, **kwargs: Any) -> Any:
        call = start_call(args, kwargs)
        return _open(call) if receives_stream else call

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        call = start_call(args, kwargs)
        return await _open_async(call) if receives_stream else await call

    wrapper: Any = call_async if is_async else call_sync
    return wraps(owner, assigned=(), updated=())(wrapper)


class OpenedStream:
    """A response stream whose first message has arrived. Other attributes are those of the call."""

    __slots__ = ("_call", "_first")

    def __init__(self, call: Any, first: object) -> None:
        self._call = call
        self._first = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        first, self._first = self._first, _TAKEN
        if first is _EMPTY:
            raise StopIteration
        return next(self._call) if first is _TAKEN else first


class AsyncOpenedStream:
    """The same for grpc.aio: `async for`, or `read()`."""

    __slots__ = ("_call", "_first", "_messages")

    def __init__(self, call: Any, messages: AsyncIterator[Any], first: object) -> None:
        self._call = call
        self._messages = messages
        self._first = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        first, self._first = self._first, _TAKEN
        if first is _EMPTY:
            raise StopAsyncIteration
        return await anext(self._messages) if first is _TAKEN else first

    async def read(self) -> Any:
        """Return the next message, or `grpc.aio.EOF`."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            return sys.modules["grpc.aio"].EOF


def _unbind(fn: Any) -> tuple[Any, partial[Any]]:
    """Separate a method from the arguments that `functools.partial` bound to it."""
    if isinstance(fn, partial):  # partials of partials are flat
        return fn.func, fn
    return fn, partial(fn)


def _streaming_shape(method: Any) -> tuple[str | None, bool]:
    """Return the class of a streaming method, and whether it is async. None: it does not stream."""
    for module in ("grpc", "grpc.aio"):
        library = sys.modules.get(module)
        for name in _STREAMING_METHODS:
            kind = getattr(library, name, None)
            if isinstance(kind, type) and isinstance(method, kind):
                return name, module == "grpc.aio"
    return None, False


def _with_new_requests(
    method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], max_attempts: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace the request stream by a new iterator over the same requests."""
    stream = args[0] if args else kwargs.get(REQUESTS)
    requests: Any = stream
    if callable(stream) and not _is_iterable(stream):
        requests = stream()
    elif not _is_iterable(stream) or (max_attempts > 1 and _is_iterator(stream)):
        raise TypeError(
            f"{_name(method)}: the request stream {type(stream).__name__} cannot be replayed, "
            "and a retry would send only the rest of it; pass a list, or a function that returns "
            "a new iterator for each attempt (or RetryPolicy.disabled())"
        )
    if not _is_iterator(requests):
        is_async = hasattr(type(requests), "__aiter__")
        requests = aiter(requests) if is_async else iter(requests)
    if args:
        return (requests, *args[1:]), kwargs
    return args, {**kwargs, REQUESTS: requests}


def _is_iterable(value: object) -> bool:
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__aiter__")


def _is_iterator(value: object) -> bool:
    return hasattr(type(value), "__next__") or hasattr(type(value), "__anext__")


def _open(call: Any) -> OpenedStream:
    try:
        return OpenedStream(call, next(call, _EMPTY))
    except Exception:
        raise
    except BaseException:
        call.cancel()
        raise


async def _open_async(call: Any) -> AsyncOpenedStream:
    messages = aiter(call)
    try:
        return AsyncOpenedStream(call, messages, await anext(messages, _EMPTY))
    except Exception:
        raise
    except BaseException:
        call.cancel()
        raise


def _name(method: Any) -> str:
    name = getattr(method, "_method", type(method).__name__)
    return (name.decode() if isinstance(name, bytes) else str(name)).strip("/")
