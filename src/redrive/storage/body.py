"""Body: what is to be written, read once from front to back, in pieces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TypeAlias

Data: TypeAlias = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]
"""What `write` takes: bytes, an open binary file, or any iterable of bytes (a generator, say)."""
Progress: TypeAlias = Callable[[int], object]
"""Called with the number of bytes that have just been moved."""
CHUNK = 1024 * 1024
"""Bytes held at a time, unless a backend needs larger pieces."""


class Body:
    """Bytes to write, with `read` as files have. For one write. Do not share it.

    Args:
        data: Bytes, an open file, or an iterable of bytes.
        progress: Function that gets the number of bytes just read.
    """

    def __init__(self, data: Data, /, progress: Progress | None = None) -> None:
        if isinstance(data, str):
            raise TypeError("a file holds bytes, not text: say .encode()")
        self.failure: BaseException | None = None
        """What the source itself raised, or `progress`. It is the caller's own, and no error of the backend."""
        self.moved = 0
        """Bytes read so far."""
        self.size = _size(data)
        """Bytes in all; None where only the end will tell."""
        self._progress = progress
        self._read = _reader(data)
        self._rest: bytes | memoryview = b""
        self._done = False

    def read(self, size: int = -1, /) -> bytes:
        """Read exactly this number of bytes, or fewer at the end.

        Args:
            size: Number of bytes. Negative: all that are left.

        Returns:
            The bytes.
        """
        pieces: list[bytes] = []
        have = 0
        try:
            while not self._done and (size < 0 or have < size):
                piece = self._next(self._step(size - have))
                pieces.append(piece)
                have += len(piece)
        except BaseException as failure:  # kept, and raised on: the store tells the caller's errors from the backend's
            self.failure = failure
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self, size: int = CHUNK, /) -> Iterator[bytes]:
        """Yield the bytes in pieces of one size. The last may be shorter.

        Args:
            size: Number of bytes.

        Yields:
            The pieces.
        """
        while piece := self.read(size):
            yield piece

    def _step(self, wanted: int) -> int:
        """Bytes to ask for at once: all, unless somebody watches how it goes on, or only the end will tell."""
        if wanted < 0 or self._progress is not None:
            return CHUNK if wanted < 0 else min(CHUNK, wanted)
        return wanted

    def _next(self, most: int) -> bytes:
        given, self._rest = self._rest or self._pull(most), b""
        if len(given) > most:  # a view: what is left is not copied over and over
            given, self._rest = memoryview(given)[:most], memoryview(given)[most:]
        piece = bytes(given)
        self.moved += len(piece)
        if piece and self._progress is not None:
            self._progress(len(piece))
        return piece

    def _pull(self, most: int) -> bytes:
        found = self._read(most)
        if isinstance(found, str):
            raise TypeError("the file to write from gives text, not bytes: open it in binary mode")
        if not isinstance(found, bytes):
            found = bytes(found)
        self._done = not found
        return found


def _size(data: Any) -> int | None:
    if isinstance(data, (bytes, bytearray)):
        return len(data)
    if isinstance(data, memoryview):
        return data.nbytes
    try:
        here: int = data.tell()
        end: int = data.seek(0, os.SEEK_END)
        data.seek(here)
    except (AttributeError, OSError, ValueError):  # an iterable, a pipe, a socket
        return None
    return max(0, end - here)


def _reader(data: Any) -> Callable[[int], Any]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _Slices(data).read
    read: Callable[[int], Any] | None = getattr(data, "read", None)
    if callable(read):
        return read
    if not hasattr(data, "__iter__"):
        raise TypeError(f"a file is written from bytes, an open binary file, or an iterable of bytes, not {type(data).__name__}")
    given = iter(data)

    def next_piece(_most: int) -> Any:
        for piece in given:
            if len(piece):  # an empty piece in the middle is not the end
                return piece
        return b""

    return next_piece


class _Slices:
    """Bytes in memory, read in slices: a large one is not copied as a whole."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B")
        self._at = 0

    def read(self, most: int) -> bytes:
        piece = bytes(self._view[self._at : self._at + most])
        self._at += len(piece)
        return piece
