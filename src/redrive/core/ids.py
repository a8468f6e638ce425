"""Ids: correlation ids as they are carried to logs, jobs and other services, each of bounded length."""

from __future__ import annotations

from collections.abc import Mapping

MAX_ID = 256
"""Characters of one id. A longer one is shortened: it may be a client's, and its request is served all the same."""
MAX_NAME = 100
MAX_IDS = 64
"""How many ids one context carries."""
DIGEST = 16


def shortened(value: str, /) -> str:
    """The id itself, or its start with a digest of the whole, so that different ids stay different."""
    if len(value) <= MAX_ID:
        return value
    from hashlib import sha256  # noqa: PLC0415  # 2 ms that a program without long ids need not pay

    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
    return f"{value[: MAX_ID - DIGEST - 1]}~{digest}"


def merged(around: Mapping[str, str], given: Mapping[str, str], /) -> dict[str, str]:
    """The ids around and these, all of bounded length.

    Raises:
        ValueError: there are too many of them, or a name is too long.
    """
    found = {**around, **{name: shortened(value) for name, value in given.items()}}
    if len(found) > MAX_IDS:
        raise ValueError(f"correlation ids: {len(found)} at once; carry at most {MAX_IDS}, and put the rest into the payload")
    for name in given:
        if len(name) > MAX_NAME:
            raise ValueError(f"correlation ids: the name {name[:40]!r}… has {len(name)} characters; use at most {MAX_NAME}")
    return found
