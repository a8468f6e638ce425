"""Read a response into memory, up to a limit of decompressed bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2

from ..core.seconds import whole_number

DEFAULT_MAX_BYTES = 100 * 1024 * 1024
"""Decompressed bytes of a response that a client reads by default."""
MAX_ERROR_BYTES = 1024 * 1024
"""Decompressed bytes that are kept of an error response. The rest is cut off."""


def check_max_body(max_body: object, /) -> int | None:
    """Return the value of a `max_body=` option."""
    return None if max_body is None else whole_number("max_body", max_body)


def read_body(response: httpx2.Response, url: str, limit: int | None, is_error: bool, /) -> None:
    """Read the body and close the response.

    Raises:
        httpx2.DecodingError: The body is larger than `limit`. An error response is cut off
            instead, because its status matters more.
    """
    try:
        if limit is None or _is_known_to_fit(response, limit):
            response.read()
            return
        byte_limit = _byte_limit(response, url, limit, is_error)
        response.iter_bytes = _limit_chunks(response.iter_bytes, byte_limit)  # type: ignore[method-assign]
        try:
            response.read()
        finally:
            del response.iter_bytes  # It would keep the response in a reference cycle.
    finally:
        response.close()


async def read_body_async(
    response: httpx2.Response, url: str, limit: int | None, is_error: bool, /
) -> None:
    """Do the same as `read_body` for async code."""
    try:
        if limit is None or _is_known_to_fit(response, limit):
            await response.aread()
            return
        byte_limit = _byte_limit(response, url, limit, is_error)
        chunks = _limit_chunks_async(response.aiter_bytes, byte_limit)
        response.aiter_bytes = chunks  # type: ignore[method-assign,assignment]
        try:
            await response.aread()
        finally:
            del response.aiter_bytes
    finally:
        await response.aclose()


def _is_known_to_fit(response: httpx2.Response, limit: int) -> bool:
    """Return whether the headers promise a small body. Its bytes need not be counted then."""
    length = response.headers.get("content-length", "")
    if "content-encoding" in response.headers or not length.isdecimal():
        return False
    return int(length) <= min(limit, MAX_ERROR_BYTES)


class _ByteLimit:
    """Counts the bytes of one response."""

    def __init__(self, limit: int, error: httpx2.DecodingError | None) -> None:
        """Set the limit. At the limit, raise the error, or cut the body off if it is None."""
        self._bytes_left = limit
        self._error = error

    def accept(self, chunk: bytes) -> tuple[bytes, bool]:
        """Return the part of the chunk to keep, and whether it is the last."""
        self._bytes_left -= len(chunk)
        if self._bytes_left >= 0:
            return chunk, False
        if self._error is not None:
            raise self._error
        return chunk[: self._bytes_left], True


def _byte_limit(response: httpx2.Response, url: str, limit: int, is_error: bool) -> _ByteLimit:
    if is_error:
        return _ByteLimit(min(limit, MAX_ERROR_BYTES), None)
    message = (
        f"{url}: the response body is larger than max_body={limit} bytes; "
        "pass a larger max_body= to the client"
    )
    return _ByteLimit(limit, httpx2.DecodingError(message, request=response.request))


def _limit_chunks(
    iter_bytes: Callable[..., Iterator[bytes]], byte_limit: _ByteLimit
) -> Callable[..., Iterator[bytes]]:
    def iterate(*options: Any) -> Iterator[bytes]:
        for chunk in iter_bytes(*options):
            accepted, is_last = byte_limit.accept(chunk)
            yield accepted
            if is_last:
                return

    return iterate


def _limit_chunks_async(
    aiter_bytes: Callable[..., AsyncIterator[bytes]], byte_limit: _ByteLimit
) -> Callable[..., AsyncIterator[bytes]]:
    async def iterate(*options: Any) -> AsyncIterator[bytes]:
        chunks: Any = aiter_bytes(*options)
        try:
            async for chunk in chunks:
                accepted, is_last = byte_limit.accept(chunk)
                yield accepted
                if is_last:
                    return
        finally:
            await chunks.aclose()

    return iterate
