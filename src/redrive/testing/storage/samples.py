"""Sample data of the conformance suite: bytes, difficult valid paths, and invalid paths."""

from __future__ import annotations

import io
from functools import cache
from random import Random

LARGE_BYTES = 5 * 1024 * 1024 + 7
"""Larger than one piece of every backend."""
VALID_PATHS = (
    "a",
    "a/b/c/d/e.txt",
    "with space/and  two",
    "täst/日本語/🙂.csv",
    "e\u0301/decomposed",
    "percent%20/plus+and&=?#hash",
    "quote'\"and;semicolon",
    "UPPER/lower",
    ".hidden/.file",
    "dots.../..three",
    "-dash/--help",
    "~tilde/$dollar/*star[1]",
)
"""Valid paths that backends often treat wrongly."""
INVALID_PATHS = (
    "",
    "/",
    "/absolute",
    "folder/",
    "..",
    "../out",
    "a/../../out",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "nul\x00byte",
    "new\nline",
    "back\\slash",
    "..\\out",
    "lone\udcffsurrogate",
    ".redrive-mine",
    "x" * 1025,
    "é" * 513,
)


@cache
def sample_bytes(size: int, seed: int = 0) -> bytes:
    """Return random bytes that are the same in every run."""
    return Random(seed).randbytes(size)


class UnseekableFile(io.RawIOBase):
    """Bytes of a file that cannot seek, such as a pipe, in small pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, 65_536) if size >= 0 else 65_536)
