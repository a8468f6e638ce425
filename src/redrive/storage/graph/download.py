"""Download: the bytes of an item, from an address that is a key of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import Unavailable
from .failure import failed
from .sender import Sender

if TYPE_CHECKING:
    import httpx2

PIECE = 64 * 1024


class Download:
    """The rest of a file, as it comes. Not shared between threads, as files are not."""

    def __init__(self, response: httpx2.Response, skip: int = 0) -> None:
        """skip: bytes to leave out, of a server that always begins at the front."""
        self._response = response
        self._pieces = response.iter_bytes(PIECE)
        self._rest = b""
        while skip > 0:
            skip -= len(self.read(min(skip, PIECE))) or skip

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def close(self) -> None:
        self._response.close()


def download(sender: Sender, url: str, path: str, at: int) -> Download:
    """From a byte on. No token goes there."""
    headers = {"accept-encoding": "identity"} | ({"range": f"bytes={at}-"} if at else {})
    response = sender.stream(url, path, headers=headers)
    if response.status_code == 206 or (response.status_code == 200 and not at):
        return Download(response)
    if response.status_code == 200:
        return Download(response, skip=at)
    response.close()
    if response.status_code < 400:
        message = f"{sender.name}: {path!r}: the address of its bytes answers {response.status_code}"
        raise Unavailable(message, path=path, backend=sender.name)
    raise failed(response, path=path, backend=sender.name)
