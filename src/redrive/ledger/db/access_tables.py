"""Tables of the access to the console: named tokens, and sessions of people."""

from __future__ import annotations

from sqlalchemy import Column, Index, Table, Text

from .clock import UtcTimestamp
from .tables import BYTES, METADATA

access_token = Table(
    "redrive_access_token",
    METADATA,
    Column("name", BYTES, primary_key=True),
    Column("digest", BYTES, nullable=False, comment="SHA-256 of the token"),
    Column("role", Text, nullable=False, comment="viewer or operator"),
    Column("acts", Text, comment="JSON; null: all"),
    Column("job_types", Text, comment="JSON; null: all"),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", UtcTimestamp, comment="null: never"),
    Column("revoked_at", UtcTimestamp),
    Index("redrive_access_token_digest", "digest", unique=True),
)

session = Table(
    "redrive_session",
    METADATA,
    Column("id", BYTES, primary_key=True, comment="SHA-256 of the cookie"),
    Column("name", BYTES, nullable=False, comment="of the person"),
    Column("role", Text, nullable=False),
    Column("acts", Text, comment="JSON; null: all"),
    Column("job_types", Text, comment="JSON; null: all"),
    Column("via", Text, nullable=False, comment="how the person signed in"),
    Column("started_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp, nullable=False),
    Column("revoked_at", UtcTimestamp),
    Index("redrive_session_name", "name"),
)
