"""Body streams: which request bodies can be sent twice, and response bodies of attempts.

A response body ends with its attempt, even if the caller reads it later. Of a failed attempt, a
short body is read at once, so that its connection is free. A long body stays a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any, NamedTuple

from ..core.context import ActiveScope, clock_around, own_slot, scope_around, within

MAX_BUFFERED_BYTES = 64 * 1024
"""Bytes of a failed attempt's body that are read before the next attempt."""


class StreamClasses(NamedTuple):
    """A sync and an async stream, as subclasses of one library. Its clients accept no others."""

    sync_stream: Any
    async_stream: Any


@cache
def deadline_streams(library: Any, /) -> StreamClasses:
    """Return streams of `httpx` or `httpx2` that end at a monotonic time."""

    class DeadlineBody(library.SyncByteStream):  # type: ignore[misc]  # the library varies
        """A body for sync code. Used by the code that reads it."""

        def __init__(self, stream: Any, end: float) -> None:
            self._stream = stream
            self._end = end

        def __iter__(self) -> Iterator[bytes]:
            chunks = iter(self._stream)
            while True:
                _check_time(library, self._end)
                slot = own_slot()
                outer = slot.scope
                slot.scope = scope = within(self._end, outer)
                try:
                    chunk = next(chunks, None)
                finally:
                    # A greenlet may have changed the slot, as in the loop of `retry`.
                    slot.scope = outer if slot.scope is scope else slot.base
                if chunk is None:
                    return
                yield chunk

        def close(self) -> None:
            """Release the connection."""
            self._stream.close()

    class AsyncDeadlineBody(library.AsyncByteStream):  # type: ignore[misc]  # the library varies
        """A body for async code. Used by the task that reads it."""

        def __init__(self, stream: Any, end: float) -> None:
            self._stream = stream
            self._end = end

        async def __aiter__(self) -> AsyncIterator[bytes]:
            chunks = aiter(self._stream)
            try:
                while True:
                    _check_time(library, self._end)
                    entered = ActiveScope(within(self._end, scope_around()))
                    try:
                        chunk = await anext(chunks, None)
                    finally:
                        entered.leave()
                    if chunk is None:
                        return
                    yield chunk
            finally:
                if hasattr(chunks, "aclose"):
                    await chunks.aclose()

        async def aclose(self) -> None:
            """Release the connection."""
            await self._stream.aclose()

    return StreamClasses(DeadlineBody, AsyncDeadlineBody)


def _check_time(library: Any, end: float) -> None:
    if clock_around().monotonic() >= end:
        raise library.ReadTimeout("the attempt timed out before the body was complete")


@cache
def resumed_streams(library: Any, /) -> StreamClasses:
    """Return streams of `httpx` or `httpx2`: chunks that were read already, then the rest."""

    class ResumedBody(library.SyncByteStream):  # type: ignore[misc]  # the library varies
        """A body for sync code. Used by the code that reads it."""

        def __init__(self, start: list[bytes], rest: Iterator[bytes], stream: Any) -> None:
            self._start = start
            self._rest = rest
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            yield from self._start
            yield from self._rest

        def close(self) -> None:
            """Release the connection."""
            self._stream.close()

    class AsyncResumedBody(library.AsyncByteStream):  # type: ignore[misc]  # the library varies
        """A body for async code. Used by the task that reads it."""

        def __init__(self, start: list[bytes], rest: AsyncIterator[bytes], stream: Any) -> None:
            self._start = start
            self._rest = rest
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in self._start:
                yield chunk
            async for chunk in self._rest:
                yield chunk

        async def aclose(self) -> None:
            """Release the connection."""
            if hasattr(self._rest, "aclose"):
                await self._rest.aclose()
            await self._stream.aclose()

    return StreamClasses(ResumedBody, AsyncResumedBody)


def buffer_failed_response(library: Any, response: Any, /) -> tuple[Any, bool]:
    """Return a response with the same body, and whether that body still is an open stream."""
    start: list[bytes] = []
    try:
        chunks = iter(response.stream)
        for chunk in chunks:
            start.append(chunk)
            if sum(map(len, start)) > MAX_BUFFERED_BYTES:
                stream = resumed_streams(library).sync_stream(start, chunks, response.stream)
                return _replace_body(library, response, stream), True
    except BaseException:
        response.close()
        raise
    response.close()
    return _replace_body(library, response, library.ByteStream(b"".join(start))), False


async def buffer_failed_response_async(library: Any, response: Any, /) -> tuple[Any, bool]:
    """Do the same as `buffer_failed_response` for async code."""
    start: list[bytes] = []
    try:
        chunks = aiter(response.stream)
        async for chunk in chunks:
            start.append(chunk)
            if sum(map(len, start)) > MAX_BUFFERED_BYTES:
                stream = resumed_streams(library).async_stream(start, chunks, response.stream)
                return _replace_body(library, response, stream), True
    except BaseException:
        await response.aclose()
        raise
    await response.aclose()
    return _replace_body(library, response, library.ByteStream(b"".join(start))), False


def _replace_body(library: Any, response: Any, stream: Any) -> Any:
    return library.Response(
        response.status_code,
        headers=response.headers,
        stream=stream,
        extensions=response.extensions,
        request=response.request,
    )


def can_replay(stream: Any, library: Any, /) -> bool:
    """Return whether a request body can be sent twice: bytes, or a form of rewindable files."""
    if isinstance(stream, library.ByteStream):
        return True
    if type(stream).__name__ != "MultipartStream":
        return False  # The user's iterator is exhausted after the first attempt.
    return all(_can_rewind(getattr(field, "file", b"")) for field in stream.fields)


def _can_rewind(file: Any) -> bool:
    if isinstance(file, (bytes, str)):
        return True
    try:
        return bool(file.seekable())
    except Exception:  # The user's object has no such method, or is closed.
        return False
