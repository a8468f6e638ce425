"""Access to the console: named tokens and sessions that can be revoked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
TIMESTAMP = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "redrive_access_token",
        sa.Column("name", BYTES, primary_key=True),
        sa.Column("digest", BYTES, nullable=False, comment="SHA-256 of the token"),
        sa.Column("role", sa.Text, nullable=False, comment="viewer or operator"),
        sa.Column("acts", sa.Text, comment="JSON; null: all"),
        sa.Column("job_types", sa.Text, comment="JSON; null: all"),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("expires_at", TIMESTAMP, comment="null: never"),
        sa.Column("revoked_at", TIMESTAMP),
    )
    op.create_index("redrive_access_token_digest", "redrive_access_token", ["digest"], unique=True)
    op.create_table(
        "redrive_session",
        sa.Column("id", BYTES, primary_key=True, comment="SHA-256 of the cookie"),
        sa.Column("name", BYTES, nullable=False, comment="of the person"),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("acts", sa.Text, comment="JSON; null: all"),
        sa.Column("job_types", sa.Text, comment="JSON; null: all"),
        sa.Column("via", sa.Text, nullable=False, comment="how the person signed in"),
        sa.Column("started_at", TIMESTAMP, nullable=False),
        sa.Column("expires_at", TIMESTAMP, nullable=False),
        sa.Column("revoked_at", TIMESTAMP),
    )
    op.create_index("redrive_session_name", "redrive_session", ["name"])


def downgrade() -> None:
    op.drop_table("redrive_session")
    op.drop_table("redrive_access_token")
