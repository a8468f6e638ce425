"""Whole: a response that is read into memory, up to a limit of decompressed bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2

from ..core.seconds import whole as whole_number

MAX_BODY = 100 * 1024 * 1024
"""Decompressed bytes of a response that a client reads by default."""
ERROR_BODY = 1024 * 1024
"""Decompressed bytes that are kept of the body of an error response; the rest is cut off."""


def checked(max_body: object, /) -> int | None:
    """The value of a `max_body=` option."""
    return None if max_body is None else whole_number("max_body", max_body)


def read(response: httpx2.Response, url: str, limit: int | None, is_error: bool, /) -> None:
    """Read the body, and close the response.

    Raises:
        httpx2.DecodingError: it is larger than `limit`. An error response is cut off instead: its status says more.
    """
    try:
        if limit is None or _fits(response, limit):
            response.read()
            return
        response.iter_bytes = _bounded(response.iter_bytes, _stop(response, url, limit, is_error))  # type: ignore[method-assign]
        try:
            response.read()
        finally:
            del response.iter_bytes  # it knows the response, which would know it
    finally:
        response.close()


async def read_async(response: httpx2.Response, url: str, limit: int | None, is_error: bool, /) -> None:
    """The same for async code."""
    try:
        if limit is None or _fits(response, limit):
            await response.aread()
            return
        stop = _stop(response, url, limit, is_error)
        response.aiter_bytes = _bounded_async(response.aiter_bytes, stop)  # type: ignore[method-assign,assignment]
        try:
            await response.aread()
        finally:
            del response.aiter_bytes
    finally:
        await response.aclose()


def _fits(response: httpx2.Response, limit: int) -> bool:
    """Whether the head promises a small enough body: the usual case, in which nothing needs to be counted."""
    length = response.headers.get("content-length", "")
    return "content-encoding" not in response.headers and length.isdecimal() and int(length) <= min(limit, ERROR_BODY)


class _Stop:
    """Counts bytes. Belongs to the call that reads."""

    def __init__(self, limit: int, error: httpx2.DecodingError | None) -> None:
        self._left = limit
        self._error = error

    def part(self, part: bytes) -> tuple[bytes, bool]:
        """What may be kept of the next part, and whether it is the last."""
        self._left -= len(part)
        if self._left >= 0:
            return part, False
        if self._error is not None:
            raise self._error
        return part[: self._left], True


def _stop(response: httpx2.Response, url: str, limit: int, is_error: bool) -> _Stop:
    if is_error:
        return _Stop(min(limit, ERROR_BODY), None)
    message = f"{url}: the response body is larger than max_body={limit} bytes; pass a larger max_body= to the client"
    return _Stop(limit, httpx2.DecodingError(message, request=response.request))


def _bounded(parts: Callable[..., Iterator[bytes]], stop: _Stop) -> Callable[..., Iterator[bytes]]:
    def bounded(*options: Any) -> Iterator[bytes]:
        for part in parts(*options):
            kept, last = stop.part(part)
            yield kept
            if last:
                return

    return bounded


def _bounded_async(parts: Callable[..., AsyncIterator[bytes]], stop: _Stop) -> Callable[..., AsyncIterator[bytes]]:
    async def bounded(*options: Any) -> AsyncIterator[bytes]:
        source: Any = parts(*options)
        try:
            async for part in source:
                kept, last = stop.part(part)
                yield kept
                if last:
                    return
        finally:
            await source.aclose()

    return bounded
