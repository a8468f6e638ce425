"""Reading: a client's stream as a Python file, whose errors are ours."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, NoReturn, Protocol, cast

from .body import CHUNK


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...
    def close(self) -> object: ...


def reading(source: _Source, mapped: Callable[[Exception], Exception], /, *, buffer: int = CHUNK) -> BinaryIO:
    """A file to read from, with a buffer of its own. mapped: from an error of the client to one of ours."""
    return cast(BinaryIO, io.BufferedReader(_Raw(source, mapped, buffer), buffer))


class _Raw(io.RawIOBase):
    """Reads from a client, and puts its errors into our words. Not shared between threads, as files are not."""

    def __init__(self, source: _Source, mapped: Callable[[Exception], Exception], buffer: int) -> None:
        self._source = source
        self._into: Callable[[memoryview], int] | None = getattr(source, "readinto", None)  # saves a copy, where there is one
        self._buffer = buffer
        self._mapped = mapped

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview, /) -> int:  # type: ignore[override]  # the stubs want any buffer; BufferedReader gives this
        try:
            if self._into is not None:
                return self._into(target)
            found = self._source.read(len(target))
        except Exception as error:
            self._raise(error)
        target[: len(found)] = found
        return len(found)

    def readall(self) -> bytes:
        # The usual one reads 8 KiB at a time, each of them a request.
        pieces = []
        try:
            while piece := self._source.read(self._buffer):
                pieces.append(piece)
        except Exception as error:
            self._raise(error)
        return b"".join(pieces)

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
        super().close()
