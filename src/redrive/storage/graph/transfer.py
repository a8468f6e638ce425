"""Downloads, uploads in sessions that resume after a break, and waiting for long operations.

Downloads and uploads use URLs that give access by themselves: no token is sent there, and they are
never logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.classification.known.http_responses import retry_after
from ...core.context import clock_around
from ...engine.attempt import current
from ...engine.retry import retry
from ...errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
from ..body import Body
from .client import (
    RETRYABLE_STATUSES,
    GraphClient,
    RetryableResponse,
    from_response,
    from_spent_retries,
    json_object,
    retry_rule,
)

if TYPE_CHECKING:
    import httpx2

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 30.0
"""Waits between two polls, doubled from the first to the largest."""
ERROR_BY_CODE: dict[str, type[StorageError]] = {
    "accessDenied": Denied,
    "itemNotFound": NotFound,
    "nameAlreadyExists": AlreadyExists,
    "resourceLocked": Denied,
}


def wait_for_operation(client: GraphClient, url: str, path: str, timeout: float) -> None:
    """Poll an operation until it ends. Each poll is a request with the retries of the policy.

    The URL gives access by itself, so no token is sent. It raises Unavailable at the timeout, or at
    the deadline around the call.
    """
    clock = clock_around()
    remaining = current().remaining
    end = clock.monotonic() + (timeout if remaining is None else min(timeout, remaining))
    wait = FIRST_POLL_SECONDS
    while True:
        has_ended, server_wait = _poll(client, url, path)
        if has_ended:
            return
        pause = max(wait, server_wait)
        if clock.monotonic() + pause > end:
            limit = f"after {timeout:g} s, and was not waited for (copy_timeout)"
            if remaining is not None and remaining < timeout:
                limit = "after the deadline around the call, and was not waited for"
            message = f"{client.name}: {path!r}: it goes on {limit}"
            raise Unavailable(message, path=path, backend=client.name)
        clock.sleep(pause)
        wait = min(MAX_POLL_SECONDS, wait * 2)


def _poll(client: GraphClient, url: str, path: str) -> tuple[bool, float]:
    """Return whether the operation has ended, and the seconds that the service asks to wait."""
    response = client.send("GET", url, path, authorized=False)
    server_wait = retry_after(response.headers) or 0.0
    if 300 <= response.status_code < 400:
        return True, 0.0  # A redirect to the new item.
    if response.status_code >= 400:
        raise from_response(response, path=path, backend=client.name)
    content = json_object(response)
    status = str(content.get("status", ""))
    if status in ("failed", "deleteFailed", "cancelled"):
        error = content.get("error")
        code = str(error.get("code", status)) if isinstance(error, dict) else status
        error_class = ERROR_BY_CODE.get(code, StorageError)
        message = f"{client.name}: {path!r} was not done: {code}"
        raise error_class(message, path=path, backend=client.name)
    return status == "completed", server_wait


DOWNLOAD_PIECE_BYTES = 64 * 1024
CHUNK_UNIT_BYTES = 320 * 1024
"""The size of a chunk is a multiple of this, apart from the last one."""
UPLOAD_CHUNK_BYTES = 32 * CHUNK_UNIT_BYTES
SESSION_GONE_STATUSES = frozenset((404, 410))
_RANGE_START = re.compile(r"(\d+)-")


class Download:
    """The body of a response. Do not share it between threads.

    Args:
        response: The response.
        skip: Bytes to drop, for a server that ignores the requested range.
    """

    def __init__(self, response: httpx2.Response, skip: int = 0) -> None:
        self._response = response
        self._pieces = response.iter_bytes(DOWNLOAD_PIECE_BYTES)
        self._rest = b""
        while skip > 0:
            skip -= len(self.read(min(skip, DOWNLOAD_PIECE_BYTES))) or skip

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        self._response.close()


def open_download(client: GraphClient, url: str, path: str, position: int) -> Download:
    """Open the download of an item at a byte."""
    headers = {"accept-encoding": "identity"}
    if position:
        headers["range"] = f"bytes={position}-"
    response = client.stream(url, path, headers=headers)
    if response.status_code == 206 or (response.status_code == 200 and not position):
        return Download(response)
    if response.status_code == 200:
        return Download(response, skip=position)
    response.close()
    if response.status_code < 400:
        problem = f"the address of its bytes answers {response.status_code}"
        raise Unavailable(f"{client.name}: {path!r}: {problem}", path=path, backend=client.name)
    raise from_response(response, path=path, backend=client.name)


class UploadSession:
    """The upload of one file in chunks. The server says which byte it expects next.

    Each position has its own retries. A session is never started again. Do not share it.

    `has_arrived` returns whether the file is complete. It is called if the last response was lost,
    because a completed session no longer exists.
    """

    def __init__(
        self,
        client: GraphClient,
        url: str,
        body: Body,
        size: int,
        path: str,
        has_arrived: Callable[[], bool],
    ) -> None:
        self._client = client
        self._url = url
        self._body = body
        self._size = size
        self._path = path
        self._has_arrived = has_arrived
        self._chunk = b""
        self._position = 0
        """First byte of the chunk. The server has received all bytes before it."""
        self._is_uncertain = False
        """The server may have received the last request. Ask before sending more."""
        operation = f"storage.{client.name}.chunk"
        retrying = retry(client.policy, on=retry_rule, attempt_timeout=None, operation=operation)
        self._put_retrying = retrying(self._put_chunk)

    def run(self) -> None:
        """Send all bytes. After an error the session is deleted, with the received bytes."""
        try:
            while not self._send_chunk():
                pass
        except BaseException:
            self._delete_session()
            raise

    def _send_chunk(self) -> bool:
        """Send a chunk, or the rest of one. Return True when the file is complete."""
        wanted = min(UPLOAD_CHUNK_BYTES, self._size - self._position)
        # Fill up: the rest of a chunk may not be a multiple of the unit.
        self._chunk += self._body.read(wanted - len(self._chunk))
        if len(self._chunk) < wanted:
            end = self._position + len(self._chunk)
            raise self._error(f"the source ended at byte {end:,} of {self._size:,}")
        try:
            response = self._put_retrying()
        except Exception as error:
            if retry_rule(error) is False:
                raise
            raise from_spent_retries(error, path=self._path, backend=self._client.name) from error
        if response is None:
            return True
        if response.status_code != 202 and "nextExpectedRanges" not in json_object(response):
            return True
        self._advance(response)
        return False

    def _put_chunk(self) -> httpx2.Response | None:
        """Send the chunk once, and return the response. None if the file is already complete."""
        if self._is_uncertain:
            response = self._ask_position()
            if response is None:
                return None
            if self._expected_position(response) != self._position:
                return response  # The chunk had arrived, or a part of it.
        self._is_uncertain = True
        end = self._position + len(self._chunk) - 1
        headers = {"content-range": f"bytes {self._position}-{end}/{self._size}"}
        response = self._client.send_once("PUT", self._url, content=self._chunk, headers=headers)
        if response.status_code == 416:
            return self._ask_position()  # An attempt whose response was lost sent these bytes.
        self._check(response)
        return response

    def _ask_position(self) -> httpx2.Response | None:
        response = self._client.send_once("GET", self._url)
        is_last = self._position + len(self._chunk) == self._size
        is_gone = response.status_code in SESSION_GONE_STATUSES
        if is_gone and is_last and self._has_arrived():
            return None
        self._check(response)
        return response

    def _check(self, response: httpx2.Response) -> None:
        if response.status_code in RETRYABLE_STATUSES:
            raise RetryableResponse(response)
        if response.status_code in SESSION_GONE_STATUSES:
            problem = "the upload session has expired, and what it had received is gone"
            raise self._error(f"{problem}: write the file again")
        if response.status_code not in (200, 201, 202):
            raise from_response(response, path=self._path, backend=self._client.name)

    def _advance(self, response: httpx2.Response) -> None:
        """Continue at the byte that the server expects."""
        expected = self._expected_position(response)
        if not self._position < expected <= self._position + len(self._chunk):
            problem = f"at byte {self._position:,} the server asks for byte {expected:,}"
            raise self._error(f"the upload does not move: {problem}")
        self._chunk = self._chunk[expected - self._position :]
        self._position = expected
        self._is_uncertain = False

    def _expected_position(self, response: httpx2.Response) -> int:
        ranges: Any = json_object(response).get("nextExpectedRanges")
        if isinstance(ranges, list) and ranges and isinstance(ranges[0], str):
            start = _RANGE_START.match(ranges[0])
            if start is not None:
                return int(start[1])
        raise self._error("the server does not say from where on it wants bytes")

    def _delete_session(self) -> None:
        try:
            self._client.send_once("DELETE", self._url)
        except Exception:
            pass  # The first error is raised. The session expires by itself.

    def _error(self, problem: str) -> StorageError:
        message = f"{self._client.name}: {self._path!r}: {problem}"
        return StorageError(message, path=self._path, backend=self._client.name)
