"""The database's clock: on Postgres the server's, on SQLite the machine's, since that is the only one there."""

from __future__ import annotations

import time
from datetime import datetime

from sqlalchemy import func, select

from ...core.context import SIMULATION, SLOW_PATH_USERS
from .session import Session
from .types import micros, moment


def micros_now() -> int:
    """Microseconds since 1970, by this machine's clock; by a test's own, where it is the ledger's too."""
    stage = SIMULATION.get() if SLOW_PATH_USERS else None
    if stage is not None and stage.ledger:
        return micros(stage.clock.now())
    return time.time_ns() // 1000


def now_on(session: Session, /) -> datetime:
    """The moment by the database's clock."""
    found = moment(micros_now()) if session.sqlite else session.core.scalar(select(func.clock_timestamp()))
    assert found is not None
    return found
