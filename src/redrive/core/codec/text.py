"""The JSON of stored values: strict, compact, in UTF-8."""

from __future__ import annotations

import json
import math
from typing import Any

from .misfit import shown_name

MAX_OUTLINED_NAMES = 20
"""Names of a stored object in an error message."""


def to_bytes(data: Any, /) -> bytes:
    """Return JSON in UTF-8. NaN, infinities and lone surrogates are rejected."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as problem:
        half = text[problem.start]
    # The message names the place, not the text, which may be a secret.
    place = _place_of(data, half) or "it"
    raise ValueError(f"{place} has half a surrogate pair, {half!r}, which cannot be stored")


def _place_of(data: Any, half: str) -> str | None:
    """Return the path of the first text that contains this. Empty: the data itself."""
    if isinstance(data, str):
        return "" if half in data else None
    if isinstance(data, dict):
        for name, value in data.items():
            inner = _place_of(value, half)
            if inner is not None:
                return f"{name}{'.' if inner[:1] not in ('', '[') else ''}{inner}"
            if half in str(name):
                return "a name"
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            inner = _place_of(value, half)
            if inner is not None:
                return f"[{index}]{'.' if inner[:1] not in ('', '[') else ''}{inner}"
    return None


def outline(stored: bytes, /) -> str:
    """Return the names and types of stored JSON for an error message, without the values."""
    try:
        data = from_bytes(stored)
    except (ValueError, RecursionError):
        return f"{len(stored)} bytes that are not JSON"
    if not isinstance(data, dict):
        return _kind(data)
    items = list(data.items())[:MAX_OUTLINED_NAMES]
    names = ", ".join(f"{shown_name(name)} ({_kind(value)})" for name, value in items)
    more = ", …" if len(data) > MAX_OUTLINED_NAMES else ""
    return f"an object of {names or 'nothing'}{more}"


def _kind(data: Any) -> str:
    return "null" if data is None else type(data).__name__


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large for a float")
    return number


_raw_decode = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_finite).raw_decode


def from_bytes(stored: bytes | str, /) -> Any:
    """Return the stored value. NaN, infinities and numbers beyond a float are rejected."""
    if (
        isinstance(stored, str) and stored[:1] in "{["
    ):  # the checks of `loads` take as long as parsing
        value, end = _raw_decode(stored)
        if end == len(stored):
            return value
    return json.loads(stored, parse_constant=_reject_constant, parse_float=_finite)
