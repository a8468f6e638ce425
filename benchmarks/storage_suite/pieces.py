"""Pieces: data that comes and goes 1 MiB at a time."""

import io
from collections.abc import Iterator

PIECE = 1024 * 1024
BLOCK = bytes(index % 251 for index in range(PIECE))


class Source(io.RawIOBase):
    """So many bytes, made up as they are read. Cannot seek, and gives no more than it has at a time, as a pipe does."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        take = min(self.left, PIECE if size < 0 else size, PIECE)
        self.left -= take
        return BLOCK[:take]

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        piece = self.read(len(target))
        target[: len(piece)] = piece
        return len(piece)


def pieces(size: int) -> Iterator[bytes]:
    source = Source(size)
    while piece := source.read(PIECE):
        yield piece


def drained(file: object) -> int:
    total = 0
    while piece := file.read(PIECE):  # type: ignore[attr-defined]
        total += len(piece)
    return total
