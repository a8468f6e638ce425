"""ObjectRanges: one version of an object, read range by range."""

from __future__ import annotations

from typing import Any

from .client import ObstoreClient, PendingRead

FIRST_RANGE_BYTES = 1024 * 1024
"""Bytes of the first request: small, for callers that read little. Doubled while they read on."""
MAX_RANGE_BYTES = 8 * 1024 * 1024
EMPTY = memoryview(b"")


class ObjectRanges:
    """One version of an object. Do not share it between threads.

    The constructor reads the first range. Once the ranges have grown, the next one is requested
    while the caller uses the current one. Each range has the attempts of the policy.
    """

    def __init__(self, client: ObstoreClient, path: str) -> None:
        self._client = client
        self._path = path
        self._range_bytes = FIRST_RANGE_BYTES
        self._ahead: PendingRead | None = None
        meta, data = self._read_first()
        self._etag: str | None = meta["e_tag"]
        self.length: int = meta["size"]
        """Total number of bytes."""
        self._buffered = memoryview(data)
        self._position = 0

    def seek(self, position: int, /) -> None:
        """Continue at this byte, of the same version."""
        self.close()
        self._position = position
        self._range_bytes = FIRST_RANGE_BYTES

    def read(self, size: int, /) -> Any:
        """Return up to this number of bytes, with at most one request. Empty at the end."""
        if not self._buffered and self._position < self.length:
            self._buffered = memoryview(self._next_range(size))
        piece, self._buffered = self._buffered[:size], self._buffered[size:]
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Drop the bytes that were requested ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
        self._buffered = EMPTY

    def _read_first(self) -> tuple[Any, Any]:
        try:
            return self._client.read(self._path, range=(0, FIRST_RANGE_BYTES))
        except Exception as error:
            if "416" not in str(error) and "Range" not in str(error):
                raise
            return self._client.read(self._path)  # The object is empty.

    def _next_range(self, size: int) -> Any:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            data = ahead.result()[1]
        else:
            end = min(self._position + min(size, self._range_bytes), self.length)
            data = self._client.read(self._path, **self._options(self._position, end))[1]
        following = self._position + len(data)
        if self._range_bytes == MAX_RANGE_BYTES and following < self.length:
            end = min(following + MAX_RANGE_BYTES, self.length)
            self._ahead = self._client.read_ahead(self._path, **self._options(following, end))
        self._range_bytes = min(2 * self._range_bytes, MAX_RANGE_BYTES)
        return data

    def _options(self, start: int, end: int) -> dict[str, Any]:
        return {"range": (start, end), "if_match": self._etag}
