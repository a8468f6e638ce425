"""Arrays as Postgres reads them in text: psycopg builds them item by item in Python, which costs more than the statement."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


def plain(values: Iterable[int | float | bool | None], /) -> str:
    """Of numbers and truths."""
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def texts(values: Iterable[str | None], /) -> str:
    """Of texts."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def blobs(values: Iterable[bytes | None], /) -> str:
    """Of bytes."""
    return "{" + ",".join(["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]) + "}"


def moments(values: Iterable[datetime | None], /) -> str:
    """Of moments, which have a time zone."""
    return "{" + ",".join(["NULL" if value is None else f'"{value.isoformat()}"' for value in values]) + "}"


def _quoted(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'
