"""Column types that the two databases store differently."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, DateTime, Interval, literal, type_coerce
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from ..timestamps import MICROSECOND, from_db, to_micros


class UtcTimestamp(TypeDecorator[datetime]):
    """A UTC timestamp: `timestamptz` on Postgres, microseconds since 1970 on SQLite."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the column. SQLite before 3.42 has no clock below the second."""
        return dialect.type_descriptor(
            BigInteger() if dialect.name == "sqlite" else DateTime(timezone=True)
        )

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | datetime | None:
        """Convert a timestamp to its stored form."""
        if value is None:
            return None
        micros = to_micros(value)
        return micros if dialect.name == "sqlite" else value

    def process_result_value(
        self, value: int | datetime | None, dialect: Dialect
    ) -> datetime | None:
        """Convert a stored timestamp to a datetime."""
        return from_db(value)


class Duration(TypeDecorator[timedelta]):
    """A duration to add to a `UtcTimestamp`: an interval on Postgres, microseconds on SQLite."""

    impl = Interval
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the parameter."""
        return dialect.type_descriptor(BigInteger() if dialect.name == "sqlite" else Interval())

    def process_bind_param(self, value: timedelta | None, dialect: Dialect) -> Any:
        """Convert a duration to its form in the database."""
        return value // MICROSECOND if value is not None and dialect.name == "sqlite" else value


def earlier(column: ColumnElement[Any], by: timedelta, /) -> ColumnElement[Any]:
    """Return the SQL for a timestamp column minus a duration."""
    return type_coerce(column.op("-")(literal(by, Duration())), column.type)
