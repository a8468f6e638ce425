"""Upload: a large file in chunks, in a session that goes on where it broke and is never begun anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...engine.retry import retry
from ...errors import StorageError, Unavailable
from ..body import Body
from .failure import AGAIN, answered, failed, fields, meaning, unreachable
from .sender import Sender

if TYPE_CHECKING:
    import httpx2

UNIT = 320 * 1024
"""Chunks are whole multiples of this, but for the last."""
CHUNK = 32 * UNIT
GONE = frozenset((404, 410))
_RANGE = re.compile(r"(\d+)-")


class Session:
    """One upload. The server says from where on it wants bytes; each position has attempts of its own. Not shared.

    Its address is a key of its own: no token goes there, and it is never shown.
    """

    def __init__(self, sender: Sender, url: str, body: Body, size: int, path: str, arrived: Callable[[], bool]) -> None:
        """arrived: is the whole file there? Asked where the last answer was lost: a session that is done is gone."""
        self._arrived = arrived
        self._sender = sender
        self._url = url
        self._body = body
        self._size = size
        self._path = path
        self._chunk = b""
        self._start = 0
        """Where the chunk begins in the file: what is before it has been received."""
        self._unsure = False
        """The last request may or may not have been received: ask before anything is sent."""
        tried = retry(sender.policy, on=meaning, attempt_timeout=None, operation=f"storage.{sender.name}.chunk")
        self._put = tried(self._attempt)

    def run(self) -> None:
        """Send all of it. Whatever goes wrong, the session is given up: nothing half-written stays."""
        try:
            while not self._step():
                pass
        except BaseException:
            self._give_up()
            raise

    def _step(self) -> bool:
        """Send one chunk, or what is left of it; True when the file is there."""
        wanted = min(CHUNK, self._size - self._start)
        self._chunk += self._body.read(wanted - len(self._chunk))  # filled up: what is left of one may be no whole multiple
        if len(self._chunk) < wanted:
            raise self._error(f"the source ended at byte {self._start + len(self._chunk):,} of {self._size:,}")
        try:
            response = self._put()
        except Exception as error:
            if meaning(error) is False:
                raise
            raise unreachable(error, path=self._path, backend=self._sender.name) from error
        if response is None or (response.status_code != 202 and "nextExpectedRanges" not in fields(response)):
            return True
        self._advance(response)
        return False

    def _attempt(self) -> httpx2.Response | None:
        """The answer to a chunk, or to the question where to go on; None where the file has turned out to be there."""
        if self._unsure:
            response = self._ask()
            if response is None:
                return None
            if self._expected(response) != self._start:
                return response  # it had arrived, all of it or a part
        self._unsure = True
        end = self._start + len(self._chunk) - 1
        headers = {"content-range": f"bytes {self._start}-{end}/{self._size}"}
        response = self._sender.once("PUT", self._url, content=self._chunk, headers=headers)
        if response.status_code == 416:
            return self._ask()  # it has these bytes already, from an attempt whose answer was lost
        self._check(response)
        return response

    def _ask(self) -> httpx2.Response | None:
        response = self._sender.once("GET", self._url)
        last = self._start + len(self._chunk) == self._size
        if response.status_code in GONE and last and self._arrived():
            return None
        self._check(response)
        return response

    def _check(self, response: httpx2.Response) -> None:
        if response.status_code in AGAIN:
            raise answered(response)
        if response.status_code in GONE:
            raise self._error("the upload session has expired, and what it had received is gone: write the file again")
        if response.status_code not in (200, 201, 202):
            raise failed(response, path=self._path, backend=self._sender.name)

    def _advance(self, response: httpx2.Response) -> None:
        """Go on from where the server wants it."""
        expected = self._expected(response)
        if not self._start < expected <= self._start + len(self._chunk):
            raise self._error(f"the upload does not move: at byte {self._start:,} the server asks for byte {expected:,}")
        self._chunk = self._chunk[expected - self._start :]
        self._start = expected
        self._unsure = False

    def _expected(self, response: httpx2.Response) -> int:
        ranges: Any = fields(response).get("nextExpectedRanges")
        found = _RANGE.match(ranges[0]) if isinstance(ranges, list) and ranges and isinstance(ranges[0], str) else None
        if found is None:
            raise self._error("the server does not say from where on it wants bytes")
        return int(found[1])

    def _give_up(self) -> None:
        try:
            self._sender.once("DELETE", self._url)
        except Exception:  # it ends by itself some day; what was raised already says more
            pass

    def _error(self, message: str) -> StorageError:
        return StorageError(f"{self._sender.name}: {self._path!r}: {message}", path=self._path, backend=self._sender.name)


def not_begun(response: httpx2.Response, path: str, backend: str) -> StorageError:
    """No session was given."""
    if response.status_code >= 400:
        return failed(response, path=path, backend=backend)
    return Unavailable(f"{backend}: {path!r}: Graph gives no address to upload to", path=path, backend=backend)
