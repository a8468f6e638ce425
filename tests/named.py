"""Names of test cases that are the same in every process: no addresses, sets in order."""

from __future__ import annotations

import re


def named(value: object) -> str:
    """The value as text, the beginning of it."""
    text = str(sorted(map(str, value))) if isinstance(value, (set, frozenset)) else str(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text)[:60]
