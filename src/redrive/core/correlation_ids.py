"""Correlation ids, as they are passed to logs, jobs and other services. Their size is bounded."""

from __future__ import annotations

from collections.abc import Mapping

MAX_ID_CHARS = 256
"""Longer ids are shortened, not rejected, because they may come from a client."""
MAX_NAME_CHARS = 100
MAX_IDS = 64
"""Ids in one context."""
DIGEST_CHARS = 16


def shorten_id(value: str, /) -> str:
    """Return the id, or its start and a digest if it is too long. Different ids stay different."""
    if len(value) <= MAX_ID_CHARS:
        return value
    from hashlib import sha256  # noqa: PLC0415  # 2 ms, rarely used

    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
    return f"{value[: MAX_ID_CHARS - DIGEST_CHARS - 1]}~{digest}"


def merge_ids(outer: Mapping[str, str], added: Mapping[str, str], /) -> dict[str, str]:
    """Return the ids of the context with these added, shortened if necessary.

    Raises:
        ValueError: There are too many ids, or a name is too long.
    """
    merged = {**outer, **{name: shorten_id(value) for name, value in added.items()}}
    if len(merged) > MAX_IDS:
        raise ValueError(
            f"correlation ids: {len(merged)} at once; "
            f"carry at most {MAX_IDS}, and put the rest into the payload"
        )
    for name in added:
        if len(name) > MAX_NAME_CHARS:
            raise ValueError(
                f"correlation ids: the name {name[:40]!r}… has {len(name)} characters; "
                f"use at most {MAX_NAME_CHARS}"
            )
    return merged
