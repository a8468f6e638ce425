"""Moments: aware UTC in Python, `timestamptz` in Postgres, whole microseconds since 1970 in SQLite."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import BigInteger, DateTime
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
MICROSECONDS = 1_000_000
EARLIEST = (datetime(1, 1, 1, tzinfo=timezone.utc) - EPOCH) // MICROSECOND
LATEST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc) - EPOCH) // MICROSECOND
"""What Python can say again. One row with a moment beyond would spoil every list that it is in."""


def micros(moment: datetime, /) -> int:
    """Microseconds since 1970. A moment without a time zone is refused: nobody could say when it is."""
    if moment.tzinfo is None:
        raise ValueError(f"a datetime needs a time zone, for example datetime.now(timezone.utc): {moment!r}")
    stored = (moment - EPOCH) // MICROSECOND
    if not EARLIEST <= stored <= LATEST:
        raise ValueError(f"this time does not exist in UTC: {moment!r}")
    return stored


def moment(stored: int | datetime | None, /) -> datetime | None:
    """What either database gives back, as an aware moment in UTC."""
    if stored is None:
        return None
    if isinstance(stored, datetime):
        return stored.astimezone(timezone.utc)
    return EPOCH + timedelta(microseconds=min(max(stored, EARLIEST), LATEST))


class Moment(TypeDecorator[datetime]):
    """A column of moments."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """SQLite before 3.42 has no clock below the second, and no type for moments: numbers."""
        return dialect.type_descriptor(BigInteger() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | datetime | None:
        """As it is stored."""
        if value is None:
            return None
        stored = micros(value)
        return stored if dialect.name == "sqlite" else value

    def process_result_value(self, value: int | datetime | None, dialect: Dialect) -> datetime | None:
        """As Python has it."""
        return moment(value)
