"""Idempotency keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.05",
}


def upgrade() -> None:
    op.create_table(
        "redrive_key",
        sa.Column("domain", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, primary_key=True, comment="of nobody in particular: '', never null"),
        sa.Column("key", sa.Text, primary_key=True, comment="in full: domain:user:entity:operation:version"),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column(
            "fence",
            sa.BigInteger,
            nullable=False,
            comment="microseconds since 1970 when it was begun; grows, and never comes back",
        ),
        sa.Column("request_hash", sa.LargeBinary),
        sa.Column("response", sa.LargeBinary, comment="JSON"),
        sa.Column("error", sa.Text, comment="JSON"),
        sa.Column("holder", sa.Text, comment="who began it: host and process"),
        sa.Column(
            "lease_until", MOMENT, nullable=False, comment="of the holder, renewed; nothing to do with how long it is kept"
        ),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("status IN ('processing', 'completed', 'failed')", name="redrive_key_status"),
        postgresql_with=BUSY,
    )
    op.create_index("redrive_key_expires", "redrive_key", ["expires_at"])


def downgrade() -> None:
    op.drop_table("redrive_key")
