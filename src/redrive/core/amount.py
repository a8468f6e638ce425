"""Amount: so many of something, as people say it."""

from __future__ import annotations


def amount(count: int, noun: str, /, plural: str | None = None) -> str:
    """1 partition, 2,000 partitions. plural: where it is more than the noun with an s, such as its verb with it."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
