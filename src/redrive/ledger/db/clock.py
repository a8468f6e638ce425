"""Time in the ledger: its clock, and the column types that the two databases store differently.

The clock is the server's on Postgres, and this machine's on SQLite.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Interval,
    func,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from ...core.context import SIMULATION, SLOW_PATH_USERS
from ..timestamps import MICROSECOND, from_db, to_micros
from .session import Session


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


def now_micros() -> int:
    """Return the time of this machine, or of a test's clock, in microseconds since 1970."""
    stage = SIMULATION.get() if SLOW_PATH_USERS else None
    if stage is not None and stage.ledger:
        return to_micros(stage.clock.now())
    return time.time_ns() // 1000


def now_on(session: Session, /) -> datetime:
    """Return the time of the ledger's clock."""
    now = (
        from_db(now_micros())
        if session.sqlite
        else session.core.scalar(select(func.clock_timestamp()))
    )
    assert now is not None
    return now


def now_sql(session: Session, /) -> ColumnElement[Any]:
    """Return SQL for the time of the ledger's clock, which Postgres reads in the statement."""
    if session.sqlite:
        return literal(now_on(session), UtcTimestamp())
    return func.clock_timestamp(type_=UtcTimestamp())


def has_one_clock(session: Session, /) -> bool:
    """Return whether all processes use one clock: that of the Postgres server."""
    return not session.sqlite
