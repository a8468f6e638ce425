"""JSON text of stored values: strict, compact, in UTF-8."""

from __future__ import annotations

import json
import math
from typing import Any

from .misfit import shown_name

OUTLINED = 20
"""Names of a stored object in an error."""


def to_bytes(data: Any, /) -> bytes:
    """JSON in UTF-8. NaN, infinities and halves of characters are refused: no other reader could take them."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as wrong:
        half = text[wrong.start]
    # Not what it says, too: it may be a secret.
    raise ValueError(f"{_holder(data, half) or 'it'} has half a surrogate pair, {half!r}, which cannot be stored")


def _holder(data: Any, half: str) -> str | None:
    """Where in the data the first text with this in it stands; empty: it is the data."""
    if isinstance(data, str):
        return "" if half in data else None
    if isinstance(data, dict):
        for name, value in data.items():
            found = _holder(value, half)
            if found is not None:
                return f"{name}{'.' if found[:1] not in ('', '[') else ''}{found}"
            if half in str(name):
                return "a name"
    elif isinstance(data, (list, tuple)):
        for place, value in enumerate(data):
            found = _holder(value, half)
            if found is not None:
                return f"[{place}]{'.' if found[:1] not in ('', '[') else ''}{found}"
    return None


def outline(stored: bytes, /) -> str:
    """The names and types of stored JSON, for an error. Not the values: any of them may be a secret."""
    try:
        data = from_bytes(stored)
    except (ValueError, RecursionError):
        return f"{len(stored)} bytes that are not JSON"
    if not isinstance(data, dict):
        return _kind(data)
    shown = [f"{shown_name(name)} ({_kind(value)})" for name, value in list(data.items())[:OUTLINED]]
    return f"an object of {', '.join(shown) or 'nothing'}{', …' if len(data) > OUTLINED else ''}"


def _kind(data: Any) -> str:
    return "null" if data is None else type(data).__name__


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large for a float")
    return number


_SCAN = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).raw_decode


def from_bytes(stored: bytes | str, /) -> Any:
    """What was stored. NaN, infinities and numbers beyond a float are refused, as `to_bytes` refuses them."""
    if isinstance(stored, str) and stored[:1] in "{[":  # what `loads` asks first takes as long as the reading
        value, end = _SCAN(stored)
        if end == len(stored):
            return value
    return json.loads(stored, parse_constant=_refuse, parse_float=_finite)
