"""Array literals of Postgres. In psycopg, building an array costs more than the statement."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


def int_array(values: Iterable[int | float | bool | None], /) -> str:
    """Return an array of numbers or booleans."""
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def text_array(values: Iterable[str | None], /) -> str:
    """Return an array of texts."""
    return "{" + ",".join(["NULL" if value is None else _quote(value) for value in values]) + "}"


def bytes_array(values: Iterable[bytes | None], /) -> str:
    """Return an array of bytes."""
    items = ["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]
    return "{" + ",".join(items) + "}"


def timestamp_array(values: Iterable[datetime | None], /) -> str:
    """Return an array of timestamps with a time zone."""
    items = ["NULL" if value is None else f'"{value.isoformat()}"' for value in values]
    return "{" + ",".join(items) + "}"


def _quote(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'
