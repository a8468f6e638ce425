"""Names of test cases that are equal in every process: no addresses, sorted sets."""

from __future__ import annotations

import re


def case_name(value: object) -> str:
    """Return the beginning of the value as text."""
    text = str(sorted(map(str, value))) if isinstance(value, (set, frozenset)) else str(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text)[:60]
