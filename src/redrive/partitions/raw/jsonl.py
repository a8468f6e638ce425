"""JSON Lines: a row to a line, in and out, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, BinaryIO
from uuid import UUID

ENDINGS = (".jsonl", ".ndjson")
PIECE = 256 * 1024
"""Bytes, about, that are handed on at a time."""
LONGEST = 64 * 1024 * 1024
"""Bytes of one line: what is longer is no row, and is not read into memory."""


class Lines:
    """Rows on their way into a file, counted. For one file, and not shared."""

    def __init__(self, name: str, /) -> None:
        self.name = name
        self.rows = 0

    def pieces(self, rows: Iterable[Mapping[str, Any]], /) -> Iterator[bytes]:
        """Bytes of many lines at a time. What the rows themselves raise goes through; TypeError or ValueError names a bad row."""
        waiting: list[bytes] = []
        size = 0
        for row in rows:
            line = self.line(row)
            waiting.append(line)
            size += len(line)
            if size >= PIECE:
                yield b"".join(waiting)
                waiting, size = [], 0
        if waiting:
            yield b"".join(waiting)

    def line(self, row: Mapping[str, Any], /) -> bytes:
        """One row."""
        if not isinstance(row, Mapping):
            raise TypeError(
                f"{self.name}: row {self.rows + 1} is a {type(row).__name__}, and a row is a mapping of columns to values"
            )
        try:
            found = _encode(row if type(row) is dict else dict(row)).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as wrong:
            kind = TypeError if isinstance(wrong, TypeError) else ValueError
            raise kind(f"{self.name}: row {self.rows + 1} cannot be written as JSON: {wrong}") from wrong
        self.rows += 1
        return found


def taken(rows: object, /) -> None:
    """TypeError where these cannot be the rows of a file."""
    if isinstance(rows, AsyncIterable) or hasattr(rows, "__await__"):
        close = getattr(rows, "close", None)
        if close is not None:
            close()
        raise TypeError("rows() takes what a `for` goes through; an async one is written by `await out.arows(...)`")
    if isinstance(rows, Mapping):
        raise TypeError("rows() takes many rows, and this is one: out.rows([row])")
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise TypeError(f"rows() takes an iterable of rows, which are mappings, not {type(rows).__name__}")


def read(file: BinaryIO, name: str, /) -> Iterator[dict[str, Any]]:
    """The rows of a file, one at a time. ValueError names the line that is none."""
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if len(line) == LONGEST:
            raise ValueError(f"{name}, line {number}: it is longer than {LONGEST // 1024 // 1024} MiB")
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as wrong:
            raise ValueError(f"{name}, line {number} is not valid JSON: {wrong}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{name}, line {number} is not a row; expected a JSON object, not {type(row).__name__}")
        yield row


def counted(pieces: Iterable[bytes], /) -> int:
    """How many lines a file has that somebody else has written; the last need not end."""
    ends, last = 0, b"\n"
    for piece in pieces:
        ends += piece.count(b"\n")
        last = piece[-1:]
    return ends + (last != b"\n")


def _other(value: object) -> Any:
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    item = getattr(value, "item", None)  # a number of numpy's
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    raise TypeError(f"a value of type {type(value).__name__} has no place in JSON: make it text or a number")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other).encode
