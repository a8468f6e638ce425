"""Events, and dead letters that are told to a stream."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
UNTOLD = sa.text("told_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "redrive_event",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("source", BYTES, nullable=False),
        sa.Column("event_id", BYTES, nullable=False, comment="its dedupe key, in its source"),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False, comment="as it came"),
        sa.Column("headers", sa.Text, comment="JSON"),
        sa.Column("ids", sa.Text, comment="correlation ids, JSON"),
        sa.Column("source_id", sa.Text, comment="its id there"),
        sa.Column("handlers", sa.Integer, nullable=False, comment="how many had it to handle"),
        sa.Column("at", MOMENT, comment="when it happened"),
        sa.Column("received_at", MOMENT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("redrive_event_key", "redrive_event", ["source", "event_id"], unique=True)
    op.create_index("redrive_event_received", "redrive_event", ["received_at"])
    op.add_column("redrive_dead", sa.Column("told_at", MOMENT, comment="when a stream was told of it"))
    op.create_index("redrive_dead_untold", "redrive_dead", ["id"], postgresql_where=UNTOLD, sqlite_where=UNTOLD)


def downgrade() -> None:
    op.drop_index("redrive_dead_untold", "redrive_dead")
    op.drop_column("redrive_dead", "told_at")
    op.drop_table("redrive_event")
