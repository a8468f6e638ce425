"""Body: the bytes of a write, read once from front to back, in pieces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TypeAlias

Data: TypeAlias = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]
"""Data that `write` takes: bytes, an open binary file, or an iterable of bytes."""
Progress: TypeAlias = Callable[[int], object]
"""Called with the number of bytes that have just been moved."""
CHUNK_BYTES = 1024 * 1024
"""Bytes in memory at a time, unless a backend needs larger pieces."""


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
        """Error of the source or of `progress`. It is the caller's, not the backend's."""
        self.moved = 0
        """Number of bytes read until now."""
        self.size = _size_of(data)
        """Total number of bytes. None if it is known only at the end."""
        self._progress = progress
        self._read_source = _read_function(data)
        self._rest: bytes | memoryview = b""
        self._is_exhausted = False

    def read(self, size: int = -1, /) -> bytes:
        """Read exactly this number of bytes, or fewer at the end.

        Args:
            size: Number of bytes. Negative: all that are left.

        Returns:
            The bytes.
        """
        pieces: list[bytes] = []
        count = 0
        try:
            while not self._is_exhausted and (size < 0 or count < size):
                piece = self._next_piece(self._step_size(size - count))
                pieces.append(piece)
                count += len(piece)
        except BaseException as failure:
            self.failure = failure  # The store tells the caller's errors from the backend's.
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self, size: int = CHUNK_BYTES, /) -> Iterator[bytes]:
        """Yield the bytes in pieces of one size. The last may be shorter.

        Args:
            size: Number of bytes.

        Yields:
            The pieces.
        """
        while piece := self.read(size):
            yield piece

    def _step_size(self, wanted: int) -> int:
        """Return the bytes to request at once. Progress needs small steps, unknown sizes too."""
        if wanted < 0:
            return CHUNK_BYTES
        return wanted if self._progress is None else min(CHUNK_BYTES, wanted)

    def _next_piece(self, max_bytes: int) -> bytes:
        data, self._rest = self._rest or self._pull(max_bytes), b""
        if len(data) > max_bytes:
            # Slices of a view: the rest of a large piece is not copied each time.
            data, self._rest = memoryview(data)[:max_bytes], memoryview(data)[max_bytes:]
        piece = bytes(data)
        self.moved += len(piece)
        if piece and self._progress is not None:
            self._progress(len(piece))
        return piece

    def _pull(self, max_bytes: int) -> bytes:
        data = self._read_source(max_bytes)
        if isinstance(data, str):
            raise TypeError("the file to write from gives text, not bytes: open it in binary mode")
        if not isinstance(data, bytes):
            data = bytes(data)
        self._is_exhausted = not data
        return data


def _size_of(data: Any) -> int | None:
    if isinstance(data, (bytes, bytearray)):
        return len(data)
    if isinstance(data, memoryview):
        return data.nbytes
    try:
        position: int = data.tell()
        end: int = data.seek(0, os.SEEK_END)
        data.seek(position)
    except (AttributeError, OSError, ValueError):  # An iterable, a pipe or a socket.
        return None
    return max(0, end - position)


def _read_function(data: Any) -> Callable[[int], Any]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _InMemoryReader(data).read
    read: Callable[[int], Any] | None = getattr(data, "read", None)
    if callable(read):
        return read
    if not hasattr(data, "__iter__"):
        expected = "bytes, an open binary file, or an iterable of bytes"
        raise TypeError(f"a file is written from {expected}, not {type(data).__name__}")
    pieces = iter(data)

    def next_piece(_max_bytes: int) -> Any:
        for piece in pieces:
            if len(piece):  # An empty piece in the middle is not the end.
                return piece
        return b""

    return next_piece


class _InMemoryReader:
    """Reads bytes in slices, so that large data is not copied as a whole."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B")
        self._position = 0

    def read(self, max_bytes: int) -> bytes:
        piece = bytes(self._view[self._position : self._position + max_bytes])
        self._position += len(piece)
        return piece
