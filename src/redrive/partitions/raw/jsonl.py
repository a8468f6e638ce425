"""JSON Lines: one row for each line, written and read in bounded memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, BinaryIO
from uuid import UUID

ENDINGS = (".jsonl", ".ndjson")
PIECE_BYTES = 256 * 1024
"""Minimum size of a piece that is written."""
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is not a row, and is not read into memory."""


class LineEncoder:
    """Encodes and counts the rows of one file. Not shared between threads."""

    def __init__(self, name: str, /) -> None:
        self.name = name
        self.rows = 0

    def pieces(self, rows: Iterable[Mapping[str, Any]], /) -> Iterator[bytes]:
        """Yield the bytes of many lines at a time.

        Raises:
            TypeError: A row cannot be written. The message names it.
            ValueError: The same.
        """
        lines: list[bytes] = []
        size = 0
        for row in rows:
            line = self.line(row)
            lines.append(line)
            size += len(line)
            if size >= PIECE_BYTES:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)

    def line(self, row: Mapping[str, Any], /) -> bytes:
        """Return the line of a row."""
        if not isinstance(row, Mapping):
            raise TypeError(
                f"{self.name}: row {self.rows + 1} is not a mapping of columns to values, "
                f"but {type(row).__name__}"
            )
        try:
            line = _encode(row if type(row) is dict else dict(row)).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"{self.name}: row {self.rows + 1} cannot be written as JSON: {error}"
            ) from error
        self.rows += 1
        return line


def check_rows(rows: object, /) -> None:
    """Check that these can be the rows of a file.

    Raises:
        TypeError: They cannot.
    """
    if isinstance(rows, AsyncIterable) or hasattr(rows, "__await__"):
        close = getattr(rows, "close", None)
        if close is not None:
            close()
        raise TypeError(
            "rows() takes what a `for` goes through; "
            "an async one is written by `await out.arows(...)`"
        )
    if isinstance(rows, Mapping):
        raise TypeError("rows() takes many rows, and this is one: out.rows([row])")
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        name = type(rows).__name__
        raise TypeError(f"rows() takes an iterable of rows, which are mappings, not {name}")


def read_rows(file: BinaryIO, name: str, /) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file.

    Raises:
        ValueError: A line is not a row. The message names it.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES:
            limit = MAX_LINE_BYTES // 1024 // 1024
            raise ValueError(f"{name}, line {number}: it is longer than {limit} MiB")
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{name}, line {number} is not valid JSON: {error}") from None
        if not isinstance(row, dict):
            expected = f"expected a JSON object, not {type(row).__name__}"
            raise ValueError(f"{name}, line {number} is not a row; {expected}")
        yield row


def count_lines(pieces: Iterable[bytes], /) -> int:
    """Count the lines of a file. The last one may lack its line feed."""
    count, last = 0, b"\n"
    for piece in pieces:
        count += piece.count(b"\n")
        last = piece[-1:]
    return count + (last != b"\n")


def _to_json(value: object) -> Any:
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    item = getattr(value, "item", None)  # a number of numpy
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    name = type(value).__name__
    raise TypeError(f"a value of type {name} has no place in JSON: make it text or a number")


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_to_json
).encode
