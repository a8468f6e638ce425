"""Timestamps: aware UTC in Python, `timestamptz` in Postgres, microseconds since 1970 in SQLite."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
MICROSECONDS = 1_000_000
"""In a second."""
EARLIEST = (datetime(1, 1, 1, tzinfo=timezone.utc) - EPOCH) // MICROSECOND
LATEST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc) - EPOCH) // MICROSECOND
"""The range of `datetime`. A stored timestamp beyond it would break every list with its row."""


def to_micros(timestamp: datetime, /) -> int:
    """Convert a timestamp to microseconds since 1970.

    Raises:
        ValueError: The timestamp has no time zone, or does not exist in UTC.
    """
    if timestamp.tzinfo is None:
        raise ValueError(
            f"a datetime needs a time zone, for example datetime.now(timezone.utc): {timestamp!r}"
        )
    micros = (timestamp - EPOCH) // MICROSECOND
    if not EARLIEST <= micros <= LATEST:
        raise ValueError(f"this time does not exist in UTC: {timestamp!r}")
    return micros


def from_db(stored: int | datetime | None, /) -> datetime | None:
    """Convert a timestamp as either database returns it to an aware UTC datetime."""
    if stored is None:
        return None
    if isinstance(stored, datetime):
        return stored.astimezone(timezone.utc)
    return EPOCH + timedelta(microseconds=min(max(stored, EARLIEST), LATEST))
