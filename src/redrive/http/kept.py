"""Kept: the response of a failed attempt. A short body is read, so that its connection is free; a long one stays a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any, NamedTuple

EXCERPT = 64 * 1024
"""Bytes of a failed attempt's body that are read before the next attempt."""


class Resumed(NamedTuple):
    """The two kinds of stream, as classes of one library: its clients accept no others."""

    plain: Any
    later: Any


@cache
def resumed(library: Any, /) -> Resumed:
    """Streams of `httpx` or `httpx2`: bytes that were read already, then the rest of a stream."""

    class Plain(library.SyncByteStream):  # type: ignore[misc]  # which of the two is known only here
        """A body whose start was read. Belongs to the code that reads it."""

        def __init__(self, start: list[bytes], rest: Iterator[bytes], stream: Any) -> None:
            self._start = start
            self._rest = rest
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            yield from self._start
            yield from self._rest

        def close(self) -> None:
            """Give the connection back."""
            self._stream.close()

    class Later(library.AsyncByteStream):  # type: ignore[misc]  # likewise
        """The same for async code. Belongs to the task that reads it."""

        def __init__(self, start: list[bytes], rest: AsyncIterator[bytes], stream: Any) -> None:
            self._start = start
            self._rest = rest
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for part in self._start:
                yield part
            async for part in self._rest:
                yield part

        async def aclose(self) -> None:
            """Give the connection back."""
            if hasattr(self._rest, "aclose"):
                await self._rest.aclose()
            await self._stream.aclose()

    return Resumed(Plain, Later)


def kept(library: Any, response: Any, /) -> tuple[Any, bool]:
    """Return a response with the same body, and whether its connection is still in use by it."""
    start: list[bytes] = []
    try:
        parts = iter(response.stream)
        for part in parts:
            start.append(part)
            if sum(map(len, start)) > EXCERPT:
                return _with_body(library, response, resumed(library).plain(start, parts, response.stream)), True
    except BaseException:
        response.close()
        raise
    response.close()
    return _with_body(library, response, library.ByteStream(b"".join(start))), False


async def kept_async(library: Any, response: Any, /) -> tuple[Any, bool]:
    """The same for async code."""
    start: list[bytes] = []
    try:
        parts = aiter(response.stream)
        async for part in parts:
            start.append(part)
            if sum(map(len, start)) > EXCERPT:
                return _with_body(library, response, resumed(library).later(start, parts, response.stream)), True
    except BaseException:
        await response.aclose()
        raise
    await response.aclose()
    return _with_body(library, response, library.ByteStream(b"".join(start))), False


def _with_body(library: Any, response: Any, stream: Any) -> Any:
    return library.Response(
        response.status_code, headers=response.headers, stream=stream, extensions=response.extensions, request=response.request
    )
