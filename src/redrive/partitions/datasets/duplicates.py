"""Seen: whether a value came before, for more values than fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from tempfile import TemporaryFile
from types import TracebackType
from typing import BinaryIO, Self

IN_MEMORY = 250_000
"""Digests that are held in memory, some 25 MB; beyond that they go to temporary files."""
BUCKETS = 64
DIGEST = 16
"""Bytes: two different values have the same one by chance once in the life of no program."""


class Seen:
    """Digests of values, counted where one comes again. Belongs to one thread; a context manager, for its files."""

    def __init__(self, in_memory: int = IN_MEMORY, /) -> None:
        self._in_memory = in_memory
        self._known: set[bytes] = set()
        self._files: list[BinaryIO] = []
        self.repeated = 0
        """Values that came before, as far as is known; `close` knows of all."""

    def add(self, value: bytes, /) -> bool:
        """One more. True: it is known that it came before."""
        digest = blake2b(value, digest_size=DIGEST).digest()
        if digest in self._known:
            self.repeated += 1
            return True
        if self._files:
            self._files[digest[0] % BUCKETS].write(digest)
            return False
        self._known.add(digest)
        if len(self._known) > self._in_memory:
            self._spill()
        return False

    def count(self) -> int:
        """How many came before, all told."""
        return self.repeated + sum(map(_repeated, self._files))

    def _spill(self) -> None:
        """From now on to files: what one of them holds is held in memory at the end, one after the other."""
        self._files = [TemporaryFile() for _ in range(BUCKETS)]  # noqa: SIM115  # closed by `close`
        for digest in self._known:
            self._files[digest[0] % BUCKETS].write(digest)
        self._known = set()

    def close(self) -> None:
        """Its files are gone."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()


def _repeated(file: BinaryIO) -> int:
    known: set[bytes] = set()
    many = 0
    for digest in _digests(file):
        many += 1
        known.add(digest)
    return many - len(known)


def _digests(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(DIGEST * 4096):
        for at in range(0, len(piece), DIGEST):
            yield piece[at : at + DIGEST]
