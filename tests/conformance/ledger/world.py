"""Shared by the tests of the ledger: URLs, and moving time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import sqlalchemy

from redrive.ledger import Ledger, NewJob
from redrive.ledger.db.clock import UtcTimestamp
from redrive.ledger.db.session import Session
from redrive.ledger.db.tables import METADATA
from redrive.ledger.model import Lease, Tally

KIND = "mail"
WORKER = "w1"


def new(*keys: str, kind: str = KIND, **fields: Any) -> list[NewJob]:
    return [NewJob(kind, key, key.encode(), **fields) for key in keys]


def claim(ledger: Ledger, most: int = 100, /, **options: Any) -> list[Lease]:
    return ledger.claim({options.pop("kind", KIND): most}, worker=options.pop("worker", WORKER), **options)


def keys(leases: Iterable[Lease]) -> set[str]:
    return {lease.key for lease in leases}


def tally(ledger: Ledger, kind: str = KIND) -> Tally:
    return ledger.counts().get(kind, Tally())


@contextmanager
def session(ledger: Ledger) -> Iterator[Session]:
    """A connection of the ledger, to inspect its rows."""
    with ledger.connections.write.use() as held:
        yield held


def pass_time(ledger: Ledger, seconds: float) -> None:
    """Let time pass on either database without waiting: all stored timestamps move into the past."""
    with session(ledger) as held:
        shift: Any = int(seconds * 1_000_000) if held.sqlite else timedelta(seconds=seconds)
        for table in METADATA.sorted_tables:
            timestamps = [column for column in table.columns if isinstance(column.type, UtcTimestamp)]
            if timestamps:
                shift_sql = sqlalchemy.literal(shift, sqlalchemy.BigInteger() if held.sqlite else sqlalchemy.Interval())
                held.core.execute(
                    sqlalchemy.update(table).values(
                        {column.name: sqlalchemy.type_coerce(column, shift_sql.type) - shift_sql for column in timestamps}
                    )
                    if held.sqlite
                    else sqlalchemy.update(table).values({column.name: column - shift_sql for column in timestamps})
                )


def rows(ledger: Ledger, query: str) -> list[Any]:
    with session(ledger) as held:
        return list(held.raw.execute(query).fetchall())
