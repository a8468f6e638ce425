"""What a stored key means for a caller who comes now. Pure."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeAlias

from ..ledger.moment import micros
from .record import Begun

SOON = 1.0
"""Seconds. Nobody is told to come back earlier."""
SPARE = 30.0
"""Seconds, at most, that a key is kept longer than was asked for: see `spare`."""
SCATTER = 1_000_000
"""Microseconds by which a fence may be ahead of the one before, at random, where the clock is behind it."""


Row: TypeAlias = tuple[Any, ...]
"""As the database gives it, in the order of Stored: to make one of it takes as long as to look at it."""


class Stored(NamedTuple):
    """A row, in the order in which the statements select it. Moments are compared by the database, by its own clock."""

    status: str
    request_hash: bytes | None
    fence: int
    response: bytes | None
    error: str | None
    leased: bool
    """The lease of whoever began has not run out."""
    over: bool
    """It was kept as long as was asked for."""


STORED = Stored._fields[:5]


def standing(stored: Row, request_hash: bytes | None, lease: float, /) -> Begun | None:
    """What the caller is told; None: the key is free to be taken over."""
    status, known, fence, response, error, leased, over = stored
    if over and not (leased and status == "processing"):
        return None
    if known != request_hash and known is not None and request_hash is not None:
        return Begun("conflict")
    if status == "completed":
        return Begun("completed", response=response)
    if status == "failed":
        return Begun("failed", error=json.loads(error or "{}"))
    return Begun("busy", until=come_back(fence, lease)) if leased else None


def spare(keep: float, /) -> float:
    """Seconds by which a key that is begun is kept longer: an end within them need not move its place among those that expire.

    A hundredth at most. To move it is the dearest part of writing an end.
    """
    return min(SPARE, keep / 100)


def come_back(begun: int | None, lease: float, /) -> datetime:
    """After as long again as the holder has been at it, since nobody knows more; but not later than its lease could end.

    By this machine's clock: it is the caller who looks at it.
    """
    now = datetime.now(timezone.utc)
    taken = 0.0 if begun is None else (micros(now) - begun) / 1_000_000
    return now + timedelta(seconds=max(SOON, min(taken, lease)))
