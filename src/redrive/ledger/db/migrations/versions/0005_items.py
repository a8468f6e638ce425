"""Items of batches: how often each was rejected, and which were given up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
ZERO = sa.text("0")
BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.05",
}


def upgrade() -> None:
    op.create_table(
        "redrive_item",
        sa.Column("batch", BYTES, primary_key=True, comment="the name that app.items(...) was given"),
        sa.Column("item", BYTES, primary_key=True),
        sa.Column("status", sa.Text, nullable=False, server_default=sa.text("'open'")),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=ZERO, comment="rejections, ever; only grows"),
        sa.Column("forgiven", sa.Integer, nullable=False, server_default=ZERO, comment="of these, before it last began anew"),
        sa.Column("spared", sa.Integer, nullable=False, server_default=ZERO, comment="rejections in outages, not charged"),
        sa.Column("reopened", sa.Integer, nullable=False, server_default=ZERO, comment="how often, by a person"),
        sa.Column("reason", sa.Text, comment="for which it was given up"),
        sa.Column("given_up_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("status IN ('open', 'acknowledged', 'giveup')", name="redrive_item_status"),
        postgresql_with=BUSY,
    )
    op.create_index("redrive_item_standing", "redrive_item", ["batch", "status", "item"])


def downgrade() -> None:
    op.drop_table("redrive_item")
