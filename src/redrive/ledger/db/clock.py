"""The ledger's clock: the server's on Postgres, this machine's on SQLite."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, literal, select

from ...core.context import SIMULATION, SLOW_PATH_USERS
from ..timestamps import from_db, to_micros
from .session import Session
from .types import UtcTimestamp


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
