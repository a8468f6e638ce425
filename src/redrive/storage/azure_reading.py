"""Pieces: a blob, fetched range by range, each in one request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .azure_call import call
from .extra import client

EMPTY = 416
FIRST, MOST = 4 * 1024 * 1024, 8 * 1024 * 1024
"""Bytes in a request: few at first, for those who want no more; doubled for whoever reads on, since each one costs time."""


class Broken(ConnectionError):
    """A body broke while it was read. Not one of azure's errors: those its own loop around downloads would catch."""


class Pieces:
    """A blob from a byte on. Not shared between threads, as files are not."""

    def __init__(self, blob: Any) -> None:
        self._blob = blob
        self._at = 0
        self._step = FIRST
        self._etag: str | None = None
        self.length = 0
        """Bytes in all, known once the first ones are there."""
        self._ready = self._first()

    def again(self, at: int) -> Pieces:
        """The same version, from a byte on: whatever broke, nothing of it is left here."""
        self._at = at
        self._step = FIRST
        self._ready = b""
        return self

    def read(self, size: int, /) -> bytes:
        """So many bytes at most, in one request."""
        piece, self._ready = self._ready[:size], self._ready[size:]
        if not piece:
            match = client("azure.core", "azure").MatchConditions.IfNotModified
            many = min(size, self._step, self.length - self._at)
            piece = self._fetched(self._at, many, etag=self._etag, match_condition=match)
            self._step = min(2 * self._step, MOST)
        self._at += len(piece)
        return piece

    def close(self) -> None:
        """Nothing is open between requests."""

    def _first(self) -> bytes:
        try:
            return self._fetched(0, FIRST)
        except client("azure.core.exceptions", "azure").HttpResponseError as error:
            if error.status_code == EMPTY:
                return b""  # there is a blob, and it has not even a first byte
            raise

    def _fetched(self, start: int, length: int, **same: Any) -> bytes:
        found, content = call(self._downloaded, start, length, **same)
        if self._etag is None:
            self._etag = found.properties.etag
            # Not its size: that is of the range. "bytes 0-4194303/20971520"
            self.length = int(found.properties.content_range.rpartition("/")[2])
        return content

    def _downloaded(self, start: int, length: int, **options: Any) -> tuple[Any, bytes]:
        found = self._blob.download_blob(start, length, raw_response_hook=_breaks, **options)
        return found, b"".join(found.chunks())  # one of them, as it came; readall() would copy it twice


def _breaks(response: Any) -> None:
    """Give azure's stream errors that its loop around downloads does not know: it would fetch three times by itself."""
    answer = response.http_response
    given = getattr(answer, "stream_download", None)
    if given is None:
        return

    def stream_download(*arguments: Any, **options: Any) -> Any:
        return _Speaking(given(*arguments, **options), getattr(answer, "internal_response", None))

    answer.stream_download = stream_download


class _Speaking:
    """azure's stream, whose errors leave as Broken."""

    def __init__(self, stream: Any, response: Any) -> None:
        self._stream = stream
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except client("azure.core.exceptions", "azure").AzureError as error:
            if callable(getattr(self._response, "close", None)):
                self._response.close()  # azure forgets it
            raise Broken(f"{type(error).__name__}: {error}") from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
