"""Samples: bytes, well formed paths that easily go wrong, and paths that are none."""

from __future__ import annotations

import io
from functools import cache
from random import Random

BIG = 5 * 1024 * 1024 + 7
"""More than one piece of every backend."""
NAMES = (
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
"""Paths that are well formed and easily go wrong."""
BAD = (
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
def body(size: int, seed: int = 0) -> bytes:
    """Bytes that are the same in every run."""
    return Random(seed).randbytes(size)


class Pipe(io.RawIOBase):
    """Bytes from something that cannot seek, in small pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, 65_536) if size >= 0 else 65_536)
