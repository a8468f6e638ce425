"""Tables of living jobs: tags, steps, signals, progress, pauses, limits and tenants.

Jobs that use none of these have no rows here, and cost nothing.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from .clock import UtcTimestamp
from .tables import BYTES, METADATA, NUMBER

tag = Table(
    "redrive_tag",
    METADATA,
    Column("name", BYTES),
    Column("value", BYTES),
    Column("job_id", BigInteger),
    PrimaryKeyConstraint("name", "value", "job_id"),
    sqlite_with_rowid=False,
)
Index("redrive_tag_job", tag.c.job_id)

step = Table(
    "redrive_step",
    METADATA,
    Column("job_id", BigInteger),
    Column("act", BYTES, comment="step, sleep or wait"),
    Column("name", BYTES),
    Column("arguments", LargeBinary, comment="digest of the arguments"),
    Column("result", LargeBinary),
    Column("error", Text, comment="of the last attempt of the step"),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("wake_at", UtcTimestamp, comment="when a sleep or a wait ends"),
    Column("started_at", UtcTimestamp, nullable=False),
    Column("ended_at", UtcTimestamp, comment="null: not finished"),
    PrimaryKeyConstraint("job_id", "act", "name"),
    sqlite_with_rowid=False,
)

signal = Table(
    "redrive_signal",
    METADATA,
    Column("job_id", BigInteger),
    Column("name", BYTES),
    Column("payload", LargeBinary),
    Column("created_at", UtcTimestamp, comment="null: a job waits, and it was not sent"),
    PrimaryKeyConstraint("job_id", "name"),
    sqlite_with_rowid=False,
)

progress = Table(
    "redrive_progress",
    METADATA,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("fence", Integer, nullable=False, comment="of the attempt that wrote it"),
    Column("part", Float(53), comment="from 0 to 1"),
    Column("note", Text),
    Column("updated_at", UtcTimestamp),
    Column("checkpoint", LargeBinary),
    Column("checkpoint_at", UtcTimestamp),
)

pause = Table(
    "redrive_pause",
    METADATA,
    Column("scope", Text, comment="app, job type, source or schedule"),
    Column("name", Text, comment="of the app: an empty text"),
    Column("paused_at", UtcTimestamp, nullable=False),
    Column("paused_until", UtcTimestamp, comment="null: until it is resumed"),
    Column("actor", Text, nullable=False),
    Column("because", Text, nullable=False),
    PrimaryKeyConstraint("scope", "name"),
)

limit = Table(
    "redrive_limit",
    METADATA,
    Column("kind", BYTES, primary_key=True),
    Column("concurrency", Integer, comment="null: as in the code"),
    Column("rate", Float(53), comment="starts in a second; null: as in the code"),
    Column("actor", Text, nullable=False),
    Column("because", Text, nullable=False),
    Column("updated_at", UtcTimestamp, nullable=False),
)

tenant = Table(
    "redrive_tenant",
    METADATA,
    Column("kind", BYTES),
    Column("tenant", BYTES),
    Column("tokens", Float(53), comment="starts that its rate still allows, at filled_at"),
    Column("filled_at", UtcTimestamp),
    PrimaryKeyConstraint("kind", "tenant"),
)

sequence_mark = Table(
    "redrive_sequence_mark",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("kind", BYTES, nullable=False),
    Column("sequence", BYTES, nullable=False),
    comment="sequences whose next job may still be held",
)
