"""What a stored key means for a caller who comes now. Pure; in the units of whichever database it came from."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import NamedTuple

from ..ledger.moment import micros, moment
from .record import Begun

SOON = 1.0
"""Seconds. Nobody is told to come back earlier."""


class Stored(NamedTuple):
    """A row, in the order in which the statements select it. Moments as the database has them."""

    status: str
    request_hash: bytes | None
    fence: int
    response: bytes | None
    error: str | None
    lease_until: int | datetime
    expires_at: int | datetime


STORED = Stored._fields


def standing(stored: Stored, request_hash: bytes | None, now: int | datetime, /) -> Begun | None:
    """What the caller is told; None: the key is free to be taken over."""
    status, known, fence, response, error, lease_until, expires_at = stored
    held = status == "processing" and lease_until > now  # type: ignore[operator]  # both numbers or both moments
    if not held and expires_at <= now:  # type: ignore[operator]  # likewise
        return None
    if request_hash is not None and known is not None and known != request_hash:
        return Begun("conflict")
    if status == "completed":
        return Begun("completed", response=response)
    if status == "failed":
        return Begun("failed", error=json.loads(error or "{}"))
    return Begun("busy", until=_come_back(fence, lease_until, now)) if held else None


def _come_back(begun: int, lease_until: int | datetime, now: int | datetime) -> datetime:
    """After as long again as the holder has been at it, since nobody knows more; at the latest when its lease is over."""
    at, end = moment(now), moment(lease_until)
    assert at is not None
    assert end is not None
    soon = at + timedelta(seconds=SOON)
    as_long_again = at + timedelta(microseconds=micros(at) - begun)
    return max(soon, min(as_long_again, end))
