"""Reading: a client's stream as a Python file, whose errors are ours."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, NoReturn, Protocol, cast, runtime_checkable

from .body import CHUNK

NONE = memoryview(b"")


SOUGHT = 256 * 1024
"""Bytes asked for after a seek, doubled for whoever reads on: a reader of columns wants little of each place."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...
    def close(self) -> object: ...


@runtime_checkable
class Seekable(Protocol):
    """A source that can go on from any byte."""

    @property
    def length(self) -> int:
        """Bytes in all."""

    def seek(self, at: int, /) -> None:
        """Go on from this byte. What was sent for is not read any more."""


def reading(source: _Source, mapped: Callable[[Exception], Exception], /, *, window: int = CHUNK) -> BinaryIO:
    """A file to read from, seekable where the source is. In bounded memory: a seek is a new range, not a copy of the file.

    mapped: from an error of the client to one of ours. window: bytes asked of the client at a time.
    """
    return cast(BinaryIO, io.BufferedReader(_Raw(source, mapped, window), CHUNK))


class _Raw(io.RawIOBase):
    """Reads from a client, and puts its errors into our words. Not shared between threads, as files are not.

    Holds what the client gave until it is asked for: so that a large window costs one copy, and not two.
    """

    def __init__(self, source: _Source, mapped: Callable[[Exception], Exception], window: int) -> None:
        self._source = source
        self._window = self._step = window
        self._mapped = mapped
        self._ready = NONE
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return isinstance(self._source, Seekable)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not isinstance(self._source, Seekable):
            raise io.UnsupportedOperation("seek")
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.length}[whence]
        if at < 0:
            raise ValueError(f"negative seek position {at}")
        if at != self._at:
            ahead = at - self._at
            if 0 < ahead <= len(self._ready):
                self._ready = self._ready[ahead:]
            else:
                self._ready = NONE
                self._step = min(SOUGHT, self._window)
                self._source.seek(at)
            self._at = at
        return at

    def readinto(self, target: memoryview, /) -> int:  # type: ignore[override]  # the stubs want any buffer; BufferedReader gives this
        if not self._ready:
            self._ready = NONE  # the last of a view would keep all of it in memory
            self._ready = self._next()
        many = min(len(target), len(self._ready))
        target[:many] = self._ready[:many]
        self._ready = self._ready[many:]
        self._at += many
        return many

    def readall(self) -> bytes:
        # The usual one reads 8 KiB at a time, each of them a request.
        pieces = [self._ready]
        self._ready = NONE
        while piece := self._next():
            pieces.append(piece)
        self._at += sum(map(len, pieces))
        return b"".join(pieces)

    def _next(self) -> memoryview:
        try:
            piece = memoryview(self._source.read(self._step)).cast("B")
            self._step = min(2 * self._step, self._window)
            return piece
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
