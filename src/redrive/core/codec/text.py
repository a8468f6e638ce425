"""JSON text of stored values: strict, compact, in UTF-8."""

from __future__ import annotations

import json
from typing import Any


def to_bytes(data: Any, /) -> bytes:
    """JSON in UTF-8. NaN and infinities are refused: no other reader could take them."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


_SCAN = json.JSONDecoder().raw_decode


def from_bytes(stored: bytes | str, /) -> Any:
    """What was stored."""
    if isinstance(stored, str) and stored[:1] in "{[":  # what `loads` asks first takes as long as the reading
        value, end = _SCAN(stored)
        if end == len(stored):
            return value
    return json.loads(stored)
