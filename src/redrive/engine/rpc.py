"""gRPC methods under a retry: request streams that are replayed, response streams that are opened. Imports no grpcio."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial, wraps
from typing import Any

REQUESTS = "request_iterator"
_SHAPES = ("UnaryStreamMultiCallable", "StreamUnaryMultiCallable", "StreamStreamMultiCallable")
_OPEN = object()
_EMPTY = object()


def replayable(fn: Any, max_attempts: int, /) -> Any:
    """Return what each attempt calls: `fn` itself, or for a streaming method of gRPC a function that is safe to call twice.

    A request stream is made anew for every attempt. A response stream is opened (up to its first message) within the attempt.

    Raises:
        TypeError: `fn` starts a call and returns before the call can fail, so that no failure would be seen.
    """
    if "grpc" not in sys.modules:
        return fn
    method, bound = _unbound(fn)
    owner = getattr(method, "__self__", method)
    if not type(owner).__module__.startswith("grpc."):
        return fn
    shape, is_async = _shape(owner)
    if owner is not method and getattr(method, "__name__", "") == "future":
        raise TypeError(
            f"{_name(owner)}: future() returns before the call can fail, so it cannot be retried; call the method itself"
        )
    if shape is None:
        return fn
    sends, receives = shape.startswith("Stream"), shape.endswith("StreamMultiCallable")

    def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = (*bound.args, *args), {**bound.keywords, **kwargs}
        if sends:
            args, kwargs = _with_requests(owner, args, kwargs, max_attempts)
        return method(*args, **kwargs)

    if is_async:

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            call = begun(args, kwargs)
            return await _opened_async(call) if receives else await call

        made: Any = call_async
    else:

        def call(*args: Any, **kwargs: Any) -> Any:
            call = begun(args, kwargs)
            return _opened(call) if receives else call

        made = call
    return wraps(owner, assigned=(), updated=())(made)


class OpenedStream:
    """A response stream whose first message has arrived. Everything else is the call's own: `cancel()`, `code()`, metadata."""

    __slots__ = ("_call", "_first")

    def __init__(self, call: Any, first: object) -> None:
        self._call = call
        self._first = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        first, self._first = self._first, _OPEN
        if first is _EMPTY:
            raise StopIteration
        return next(self._call) if first is _OPEN else first


class AsyncOpenedStream:
    """The same for aio: `async for`, or `read()`."""

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
        first, self._first = self._first, _OPEN
        if first is _EMPTY:
            raise StopAsyncIteration
        return await anext(self._messages) if first is _OPEN else first

    async def read(self) -> Any:
        """Return the next message, or `grpc.aio.EOF`."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            return sys.modules["grpc.aio"].EOF


def _unbound(fn: Any) -> tuple[Any, partial[Any]]:
    """Separate a method from the arguments that `functools.partial` bound to it."""
    if isinstance(fn, partial):  # partials of partials are flat
        return fn.func, fn
    return fn, partial(fn)


def _shape(method: Any) -> tuple[str | None, bool]:
    for module in ("grpc", "grpc.aio"):
        library = sys.modules.get(module)
        for name in _SHAPES:
            kind = getattr(library, name, None)
            if isinstance(kind, type) and isinstance(method, kind):
                return name, module == "grpc.aio"
    return None, False


def _with_requests(
    method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], max_attempts: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace the request stream by a fresh iterator over the same requests."""
    given = args[0] if args else kwargs.get(REQUESTS)
    requests: Any = given
    if callable(given) and not _iterates(given):
        requests = given()
    elif not _iterates(given) or (max_attempts > 1 and _is_iterator(given)):
        raise TypeError(
            f"{_name(method)}: the request stream {type(given).__name__} cannot be replayed, and a retry would send only the "
            f"rest of it; pass a list, or a function that returns a new iterator for each attempt (or RetryPolicy.disabled())"
        )
    if not _is_iterator(requests):
        requests = aiter(requests) if hasattr(type(requests), "__aiter__") else iter(requests)
    if args:
        return (requests, *args[1:]), kwargs
    return args, {**kwargs, REQUESTS: requests}


def _iterates(value: object) -> bool:
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__aiter__")


def _is_iterator(value: object) -> bool:
    return hasattr(type(value), "__next__") or hasattr(type(value), "__anext__")


def _opened(call: Any) -> OpenedStream:
    try:
        return OpenedStream(call, next(call, _EMPTY))
    except Exception:
        raise
    except BaseException:
        call.cancel()
        raise


async def _opened_async(call: Any) -> AsyncOpenedStream:
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
