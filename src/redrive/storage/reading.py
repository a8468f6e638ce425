"""Reading: a client's stream as a Python file, whose errors are ours."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, NoReturn, Protocol, cast

from .body import CHUNK

NONE = memoryview(b"")


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...
    def close(self) -> object: ...


def reading(source: _Source, mapped: Callable[[Exception], Exception], /, *, window: int = CHUNK) -> BinaryIO:
    """A file to read from. mapped: from an error of the client to one of ours. window: bytes asked of the client at a time."""
    return cast(BinaryIO, io.BufferedReader(_Raw(source, mapped, window), CHUNK))


class _Raw(io.RawIOBase):
    """Reads from a client, and puts its errors into our words. Not shared between threads, as files are not.

    Holds what the client gave until it is asked for: so that a large window costs one copy, and not two.
    """

    def __init__(self, source: _Source, mapped: Callable[[Exception], Exception], window: int) -> None:
        self._source = source
        self._window = window
        self._mapped = mapped
        self._ready = NONE

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview, /) -> int:  # type: ignore[override]  # the stubs want any buffer; BufferedReader gives this
        if not self._ready:
            self._ready = NONE  # the last of a view would keep all of it in memory
            self._ready = self._next()
        many = min(len(target), len(self._ready))
        target[:many] = self._ready[:many]
        self._ready = self._ready[many:]
        return many

    def readall(self) -> bytes:
        # The usual one reads 8 KiB at a time, each of them a request.
        pieces = [self._ready]
        self._ready = NONE
        while piece := self._next():
            pieces.append(piece)
        return b"".join(pieces)

    def _next(self) -> memoryview:
        try:
            return memoryview(self._source.read(self._window)).cast("B")
        except Exception as error:
            self._raise(error)

    def _raise(self, error: Exception) -> NoReturn:
        ours = self._mapped(error)
        if ours is error:
            raise error
        raise ours from error

    def close(self) -> None:
        if not self.closed:
            try:
                self._source.close()
            except Exception:  # the bytes have been read; a connection that cannot say goodbye is no news
                pass
            self._ready = NONE
        super().close()
