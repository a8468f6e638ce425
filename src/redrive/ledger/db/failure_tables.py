"""Tables of failures by what they are alike in: how many, since when, ten minutes by ten minutes. Kept with what they count."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, PrimaryKeyConstraint, Table, Text, text

from .tables import BUSY, BYTES, METADATA, NUMBER
from .types import Moment

FAILURES = ("tries", "died", "pending", "blocked")
"""What is counted of failures alike: attempts that failed, and deaths, since they were first seen; dead letters that are pending
now, and how many of these are blocked."""


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


failure = Table(
    "redrive_failure",
    METADATA,
    Column("kind", BYTES, primary_key=True),
    Column("signature", BYTES, primary_key=True, comment="of nothing known: '', never null"),
    *map(_count, FAILURES),
    Column("first_at", Moment, nullable=False),
    Column("last_at", Moment, nullable=False),
    Column("job_id", BigInteger, comment="the last one that failed so"),
    Column("error", Text, comment="of that job, its first line"),
    postgresql_with=BUSY,
)
Index("redrive_failure_pending", failure.c.pending, failure.c.last_at)
Index("redrive_failure_last", failure.c.last_at)

failure_slot = Table(
    "redrive_failure_slot",
    METADATA,
    Column("slot", BigInteger, comment="which ten minutes since 1970"),
    Column("kind", BYTES),
    Column("signature", BYTES),
    _count("tries"),
    _count("died"),
    PrimaryKeyConstraint("kind", "signature", "slot"),
    postgresql_with=BUSY,
    sqlite_with_rowid=False,  # a day of a group lies together
)
Index("redrive_failure_slot_when", failure_slot.c.slot)

# On Postgres, for the same reason as with the tallies.
failure_delta = Table(
    "redrive_failure_delta",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("kind", BYTES, nullable=False),
    Column("signature", BYTES, nullable=False),
    *map(_count, FAILURES),
    Column("at", Moment, nullable=False),
    Column("job_id", BigInteger, comment="none: nothing failed, dead letters were dealt with"),
    Column("error", Text),
    sqlite_autoincrement=True,
    postgresql_with=BUSY,
)
