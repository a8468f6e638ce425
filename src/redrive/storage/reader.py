"""Readers: a client's stream as a Python file, and downloads that resume after a break."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, NoReturn, Protocol, cast, runtime_checkable

from ..core.fault import Rule
from ..core.policy import RetryPolicy
from ..engine.retry import retry
from .body import CHUNK_BYTES

EMPTY = memoryview(b"")
SEEK_BYTES = 256 * 1024
"""Bytes requested after a seek, doubled while the caller reads on. Parquet readers need little."""


class ByteStream(Protocol):
    """The bytes of a file, as a client provides them."""

    def read(self, size: int, /) -> bytes:
        """Return up to this number of bytes. Empty at the end."""

    def close(self) -> object:
        """Release the connection."""


@runtime_checkable
class Seekable(Protocol):
    """A stream that can continue at any byte."""

    @property
    def length(self) -> int:
        """Total number of bytes."""

    def seek(self, position: int, /) -> None:
        """Continue at this byte. Bytes that were requested ahead are dropped."""


def open_reader(
    stream: ByteStream, to_storage_error: Callable[[Exception], Exception], /, *, window: int
) -> BinaryIO:
    """Return a file that reads from a stream, with windows of bytes as large as given.

    The file can seek if the stream is `Seekable`. A seek requests a new range.
    """
    raw = _RawReader(stream, to_storage_error, window)
    return cast(BinaryIO, io.BufferedReader(raw, CHUNK_BYTES))


class _RawReader(io.RawIOBase):
    """Reads from a stream, and translates its errors. Do not share it between threads.

    It keeps a view of the client's bytes until they are read: a large window is copied once only.
    """

    def __init__(
        self, stream: ByteStream, to_storage_error: Callable[[Exception], Exception], window: int
    ) -> None:
        self._stream = stream
        self._to_storage_error = to_storage_error
        self._window = self._request_bytes = window
        self._buffered = EMPTY
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return isinstance(self._stream, Seekable)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        stream = self._stream
        if not isinstance(stream, Seekable):
            raise io.UnsupportedOperation("seek")
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: stream.length}[whence]
        position = start + offset
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        if position != self._position:
            distance = position - self._position
            if 0 < distance <= len(self._buffered):
                self._buffered = self._buffered[distance:]
            else:
                self._buffered = EMPTY
                self._request_bytes = min(SEEK_BYTES, self._window)
                stream.seek(position)
            self._position = position
        return position

    # The stubs want any buffer. BufferedReader passes a memoryview.
    def readinto(self, target: memoryview, /) -> int:  # type: ignore[override]
        if not self._buffered:
            self._buffered = EMPTY  # An empty slice would keep the whole view in memory.
            self._buffered = self._request()
        count = min(len(target), len(self._buffered))
        target[:count] = self._buffered[:count]
        self._buffered = self._buffered[count:]
        self._position += count
        return count

    def readall(self) -> bytes:
        # The inherited method reads 8 KiB at a time, each of them a request.
        pieces = [self._buffered]
        self._buffered = EMPTY
        while piece := self._request():
            pieces.append(piece)
        self._position += sum(map(len, pieces))
        return b"".join(pieces)

    def _request(self) -> memoryview:
        try:
            piece = memoryview(self._stream.read(self._request_bytes)).cast("B")
            self._request_bytes = min(2 * self._request_bytes, self._window)
            return piece
        except Exception as error:
            self._raise_storage_error(error)

    def _raise_storage_error(self, error: Exception) -> NoReturn:
        storage_error = self._to_storage_error(error)
        if storage_error is error:
            raise error
        raise storage_error from error

    def close(self) -> None:
        if not self.closed:
            try:
                self._stream.close()
            except Exception:  # The bytes were read. An error of closing does not matter.
                pass
            self._buffered = EMPTY
        super().close()


class TruncatedBody(ConnectionError):
    """A response body ended before its announced length."""


class ResumingStream:
    """Reads one version of a file, and opens a new stream where the last one broke.

    The client retries requests. This loop retries only bodies that break while they are read, so
    that each error has one owner. A new stream is opened by the client with its own attempts. If
    these are spent, the error ends this loop too. Do not share it between threads.

    `open_at` opens a stream of the same version at a byte. `open_after_seek` does the same for
    callers that seek and read little. `break_rules` classify the errors of a body that breaks.
    """

    def __init__(
        self,
        first: ByteStream,
        length: int,
        open_at: Callable[[int], ByteStream],
        *,
        policy: RetryPolicy,
        break_rules: tuple[Rule, ...],
        operation: str,
        open_after_seek: Callable[[int], ByteStream] | None = None,
    ) -> None:
        self.length = length
        """Total number of bytes."""
        self._stream: ByteStream | None = first
        self._open_at = open_at
        self._open_after_seek = open_at if open_after_seek is None else open_after_seek
        self._position = 0
        rules = (TruncatedBody, *break_rules)
        retrying = retry(policy, on=rules, attempt_timeout=None, operation=operation)
        self._read_retrying = retrying(self._read_once)

    def seek(self, position: int, /) -> None:
        """Continue at this byte, of the same version."""
        self.close()
        self._position = position
        self._open_at = self._open_after_seek

    def read(self, size: int, /) -> bytes:
        """Return up to this number of bytes. Empty at the end."""
        if self._position >= self.length:
            return b""
        piece = self._read_retrying(min(size, self.length - self._position))
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Release the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _read_once(self, size: int) -> bytes:
        if self._stream is None:
            self._stream = self._open_at(self._position)
        try:
            piece = self._stream.read(size)
            if not piece:
                raise TruncatedBody(f"the body ended at byte {self._position:,} of {self.length:,}")
        except BaseException:
            self.close()
            raise
        return piece
