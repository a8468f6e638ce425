"""Data in chunks of 1 MiB."""

import io
from collections.abc import Iterator

CHUNK = 1024 * 1024
BLOCK = bytes(index % 251 for index in range(CHUNK))


class Source(io.RawIOBase):
    """Generates bytes. Like a pipe, it is not seekable and returns short reads."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        take = min(self.left, CHUNK if size < 0 else size, CHUNK)
        self.left -= take
        return BLOCK[:take]

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        chunk = self.read(len(target))
        target[: len(chunk)] = chunk
        return len(chunk)


def chunks(size: int) -> Iterator[bytes]:
    source = Source(size)
    while chunk := source.read(CHUNK):
        yield chunk


def read_all(file: object) -> int:
    total = 0
    while chunk := file.read(CHUNK):  # type: ignore[attr-defined]
        total += len(chunk)
    return total
