"""Calls of azure's client with a deadline, downloads in ranges, and the errors of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, TypeVar

from ...core.classification.classify import classify
from ...errors import Denied, NotFound, PathInvalid, StorageError, Unavailable
from ..backend import import_client
from ..deadline import DeadlinePassed, call_until_deadline, time_left
from ..errors import file_exists, file_not_found

T = TypeVar("T")

FIRST_RANGE_BYTES = 4 * 1024 * 1024
"""Bytes of the first request: small, for callers that read little. Doubled while they read on."""
MAX_RANGE_BYTES = 8 * 1024 * 1024
RANGE_NOT_SATISFIABLE = 416
NO_CONTAINER_CODES = frozenset(("ContainerNotFound", "ContainerBeingDeleted"))
EXISTS_CODES = frozenset(("BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite"))
INVALID_PATH_CODES = frozenset(("InvalidUri", "InvalidResourceName", "OutOfRangeInput"))


def call(method: Callable[..., T], /, *arguments: Any, **options: Any) -> T:
    """Call a method of the client. After the deadline its retries send no more requests."""
    hook = _deadline_hook()
    return call_until_deadline(lambda: method(*arguments, **options, **hook))


def list_pages(method: Callable[..., Any], /) -> Iterator[list[Any]]:
    """Yield the pages of a listing, each fetched in one call."""
    pages = method(**_deadline_hook()).by_page()
    while (page := call_until_deadline(lambda: _next_page(pages))) is not None:
        yield page


def list_items(method: Callable[..., Any], /) -> Iterator[Any]:
    """Yield the items of a listing."""
    for page in list_pages(method):
        yield from page


def _next_page(pages: Iterator[Any]) -> list[Any] | None:
    page = next(pages, None)
    return None if page is None else list(page)


def _deadline_hook() -> dict[str, Callable[[Any], None]]:
    """Return an option with a hook before each attempt. Empty without a deadline."""
    remaining = time_left()
    if remaining is None:
        return {}
    end = monotonic() + remaining

    def hook(_request: Any) -> None:
        if monotonic() >= end:
            raise DeadlinePassed

    return {"raw_request_hook": hook}


class BrokenDownload(ConnectionError):
    """A response body broke while it was read.

    Not an AzureError, which the client's own loop around downloads would catch and retry.
    """


class BlobRanges:
    """One version of a blob, fetched range by range. Do not share it between threads.

    The constructor fetches the first range.
    """

    def __init__(self, blob: Any) -> None:
        self._blob = blob
        self._position = 0
        self._range_bytes = FIRST_RANGE_BYTES
        self._etag: str | None = None
        self.length = 0
        """Total number of bytes, known after the first response."""
        self._buffered = self._fetch_first()

    def reopen(self, position: int) -> BlobRanges:
        """Continue at a byte of the same version."""
        self._position = position
        self._range_bytes = FIRST_RANGE_BYTES
        self._buffered = b""
        return self

    def read(self, size: int, /) -> bytes:
        """Return up to this number of bytes, with at most one request."""
        piece, self._buffered = self._buffered[:size], self._buffered[size:]
        if not piece:
            condition = import_client("azure.core", "azure").MatchConditions.IfNotModified
            count = min(size, self._range_bytes, self.length - self._position)
            piece = self._fetch(self._position, count, etag=self._etag, match_condition=condition)
            self._range_bytes = min(2 * self._range_bytes, MAX_RANGE_BYTES)
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Do nothing: no response is open between requests."""

    def _fetch_first(self) -> bytes:
        try:
            return self._fetch(0, FIRST_RANGE_BYTES)
        except import_client("azure.core.exceptions", "azure").HttpResponseError as error:
            if error.status_code == RANGE_NOT_SATISFIABLE:
                return b""  # The blob is empty.
            raise

    def _fetch(self, start: int, length: int, **condition: Any) -> bytes:
        download, content = call(self._download, start, length, **condition)
        if self._etag is None:
            self._etag = download.properties.etag
            # "bytes 0-4194303/20971520". The property `size` is that of the range.
            self.length = int(download.properties.content_range.rpartition("/")[2])
        return content

    def _download(self, start: int, length: int, **options: Any) -> tuple[Any, bytes]:
        download = self._blob.download_blob(
            start, length, raw_response_hook=_disable_download_retries, **options
        )
        # One chunk, without a copy. `readall` would copy it twice.
        return download, b"".join(download.chunks())


def _disable_download_retries(response: Any) -> None:
    """Wrap the stream of a response, so that the client does not fetch it three times itself."""
    http_response = response.http_response
    stream_download = getattr(http_response, "stream_download", None)
    if stream_download is None:
        return

    def unretried_download(*arguments: Any, **options: Any) -> Any:
        stream = stream_download(*arguments, **options)
        return _UnretriedStream(stream, getattr(http_response, "internal_response", None))

    http_response.stream_download = unretried_download


class _UnretriedStream:
    """A stream of azure that raises BrokenDownload in place of AzureError."""

    def __init__(self, stream: Any, response: Any) -> None:
        self._stream = stream
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except import_client("azure.core.exceptions", "azure").AzureError as error:
            if callable(getattr(self._response, "close", None)):
                self._response.close()  # The client does not close it.
            raise BrokenDownload(f"{type(error).__name__}: {error}") from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def from_azure(error: BaseException, /, *, path: str, backend: str, container: str) -> StorageError:
    """Return the storage error for an error of the client. Raise it `from` the original error."""
    where = {"path": path, "backend": backend}
    raw_code = getattr(error, "error_code", None) or ""
    code = str(getattr(raw_code, "value", raw_code))  # An enum, or text if the enum lacks it.
    status = getattr(error, "status_code", None)
    reason = _reason(error, code)
    subject = repr(path) if path else f"the container {container!r}"
    if code in NO_CONTAINER_CODES or (status == 404 and path == ""):
        return NotFound(f"{backend}: the container {container!r} is missing", **where)
    if status == 404:
        return file_not_found(path, backend)
    if code in EXISTS_CODES or status == 412:
        return file_exists(path, backend)
    if status in (401, 403) or code.startswith("Lease"):
        return Denied(f"{backend}: {subject} is not allowed: {reason}", **where)
    if code in INVALID_PATH_CODES:
        return PathInvalid(f"{backend}: invalid path {path!r}: {reason}", **where)
    if isinstance(error, Exception) and classify(error).retryable:
        return Unavailable(f"{backend}: {subject} cannot be reached: {reason}", **where)
    return StorageError(f"{backend}: {subject}: {reason}", **where)


def _reason(error: BaseException, code: str) -> str:
    """Return the first line of the message. Azure adds request ids, times and XML."""
    first_line = str(error).partition("\n")[0].strip()
    return f"{code}: {first_line}" if code else f"{type(error).__name__}: {first_line}"
