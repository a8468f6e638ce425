"""Changes of the counters, in the transaction of the rows that they count."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from ...core.lazy import deferred
from ..db.session import Session
from ..timestamps import to_micros

if TYPE_CHECKING:
    from ..stats.failure_groups import FailureDelta, FailureGroup
    from .postgres import counters as on_postgres
    from .sqlite import counters as on_sqlite
else:  # each compiles its statements when it is imported
    on_postgres, on_sqlite = deferred(__package__, "postgres.counters", "sqlite.counters")


def add(session: Session, changes: Mapping[str, Mapping[str, int]], /) -> None:
    """Add to the counters of job types, in the open transaction."""
    (on_sqlite if session.sqlite else on_postgres).add_all(session.raw, changes)


def add_failures(
    session: Session, changes: Mapping[FailureGroup, FailureDelta], now: datetime, /
) -> None:
    """Add to the counters of failures, in the open transaction."""
    if session.sqlite:
        on_sqlite.add_failures(session.raw, changes, to_micros(now))
    else:
        on_postgres.add_failures(session.raw, changes)


def fold(session: Session, /) -> int:
    """Sum up the rows of changed counters (on Postgres), and return how many."""
    return 0 if session.sqlite else on_postgres.fold(session) + on_postgres.fold_failures(session)
