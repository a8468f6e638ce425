"""Decides what a stored key means for a new caller. Pure."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeAlias

from ..ledger.timestamps import to_micros
from .record import BeginResult

MIN_RETRY_SECONDS = 1.0
"""The shortest time after which a caller should retry."""
MAX_EXTRA_RETENTION_SECONDS = 30.0
"""See `extra_retention`."""
MAX_FENCE_JITTER = 1_000_000
"""Maximum random microseconds added to a fence if the clock is behind the previous fence."""


Row: TypeAlias = tuple[Any, ...]
"""The values of a `KeyRow` as the database returns them.

Making a `KeyRow` takes as long as the decision.
"""


class KeyRow(NamedTuple):
    """The columns that the decision reads, in the order of the statements.

    The database compares the timestamps, by its own clock.
    """

    status: str
    request_hash: bytes | None
    fence: int
    response: bytes | None
    error: str | None
    is_leased: bool
    """The lease of the holder has not expired."""
    is_expired: bool
    """The retention of the key is over."""


STORED_COLUMNS = KeyRow._fields[:5]


def decide(row: Row, request_hash: bytes | None, lease: float, /) -> BeginResult | None:
    """Return the result for a new caller.

    None: the key is free, and the caller may take it over.
    """
    status, known_hash, fence, response, error, is_leased, is_expired = row
    if is_expired and not (is_leased and status == "processing"):
        return None
    if known_hash != request_hash and known_hash is not None and request_hash is not None:
        return BeginResult("conflict")
    if status == "completed":
        return BeginResult("completed", response=response)
    if status == "failed":
        return BeginResult("failed", error=json.loads(error or "{}"))
    return BeginResult("busy", retry_at=retry_at(fence, lease)) if is_leased else None


def extra_retention(keep: float, /) -> float:
    """Return the seconds by which a new key is kept longer than `keep`: at most one percent.

    A key that is settled within this time keeps its `expires_at`. To move a row in the index of
    `expires_at` is the most expensive part of settling.
    """
    return min(MAX_EXTRA_RETENTION_SECONDS, keep / 100)


def retry_at(fence: int | None, lease: float, /) -> datetime:
    """Return when a caller should retry a busy key, by this machine's clock.

    The holder is expected to need as long again as it has run, but at most the time of its lease.
    The fence of the holder is the time at which it began. None: not known.
    """
    now = datetime.now(timezone.utc)
    elapsed = 0.0 if fence is None else (to_micros(now) - fence) / 1_000_000
    return now + timedelta(seconds=max(MIN_RETRY_SECONDS, min(elapsed, lease)))
