"""Body: an answer's body, read against the end of the attempt that asked for it, whoever reads it and when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any, NamedTuple

from ..core.context import Entered, clock_around, own_cell, scope_around, within


class Timed(NamedTuple):
    """The two kinds of stream, as classes of one library: its clients take no others."""

    plain: Any
    later: Any


@cache
def timed(library: Any, /) -> Timed:
    """Streams for answers of `httpx` or `httpx2`: each made of a stream and the moment at which it ends."""

    class Plain(library.SyncByteStream):  # type: ignore[misc]  # which of the two is known only here
        """A body that plain code reads. Belongs to the code that reads it."""

        def __init__(self, stream: Any, end: float) -> None:
            self._stream = stream
            self._end = end

        def __iter__(self) -> Iterator[bytes]:
            parts = iter(self._stream)
            while True:
                _in_time(library, self._end)
                cell = own_cell()
                outer = cell.scope
                cell.scope = within(self._end, outer)
                try:
                    part = next(parts, None)
                finally:
                    cell.scope = outer
                if part is None:
                    return
                yield part

        def close(self) -> None:
            """Give the connection back."""
            self._stream.close()

    class Later(library.AsyncByteStream):  # type: ignore[misc]  # likewise
        """A body that async code reads. Belongs to the task that reads it."""

        def __init__(self, stream: Any, end: float) -> None:
            self._stream = stream
            self._end = end

        async def __aiter__(self) -> AsyncIterator[bytes]:
            parts = aiter(self._stream)
            try:
                while True:
                    _in_time(library, self._end)
                    entered = Entered(within(self._end, scope_around()))
                    try:
                        part = await anext(parts, None)
                    finally:
                        entered.leave()
                    if part is None:
                        return
                    yield part
            finally:
                if hasattr(parts, "aclose"):
                    await parts.aclose()

        async def aclose(self) -> None:
            """Give the connection back."""
            await self._stream.aclose()

    return Timed(Plain, Later)


def replays(stream: Any, library: Any, /) -> bool:
    """Whether a request's body can be sent twice: bytes, or a form all of whose files are bytes or can be rewound."""
    if isinstance(stream, library.ByteStream):
        return True
    if type(stream).__name__ != "MultipartStream":
        return False  # an iterator of the user's: nothing of it is left after the first time
    return all(_rewinds(getattr(field, "file", b"")) for field in stream.fields)


def _rewinds(file: Any) -> bool:
    if isinstance(file, (bytes, str)):
        return True
    try:
        return bool(file.seekable())
    except Exception:  # a file-like object of the user's that has no such method, or is closed
        return False


def _in_time(library: Any, end: float) -> None:
    if clock_around().monotonic() >= end:
        raise library.ReadTimeout("the attempt timed out before the body was complete")
