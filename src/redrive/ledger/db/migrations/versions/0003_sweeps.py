"""Sweeps: acts on many dead letters, that outlive who began them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "redrive_sweep",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("act", sa.Text, nullable=False, comment="replay or discard"),
        sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'running'")),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("selection", sa.Text, comment="what was asked for, JSON; what is done is in the items"),
        sa.Column("rate", sa.Float(53), comment="at most so many in a second"),
        sa.Column(
            "canary",
            sa.Integer,
            nullable=False,
            server_default=sa.text("0"),
            comment="so many first, and only if all end well the rest",
        ),
        sa.Column("passed", sa.Boolean, nullable=False, server_default=sa.false(), comment="the canary ended well"),
        sa.Column("max_replays", sa.Integer),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("made", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("skipped", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("reason", sa.Text, comment="why it was halted"),
        sa.Column("next_at", MOMENT, nullable=False, comment="not before: the rate is kept over all who carry it out"),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.CheckConstraint("state IN ('running', 'paused', 'halted', 'cancelled', 'done')", name="redrive_sweep_state"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "redrive_sweep_running",
        "redrive_sweep",
        ["next_at"],
        postgresql_where=sa.text("state = 'running'"),
        sqlite_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "redrive_sweep_item",
        sa.Column("sweep_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("dead_id", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.Text, comment="made or skipped; none: its turn has not come"),
        sa.Column("job_id", sa.BigInteger, comment="the new one of a replay, the dropped one of a discard"),
        sa.Column("note", sa.Text, comment="why it was skipped"),
        sa.Column("at", MOMENT),
    )
    op.create_index(
        "redrive_sweep_item_open",
        "redrive_sweep_item",
        ["sweep_id", "position"],
        postgresql_where=sa.text("outcome IS NULL"),
        sqlite_where=sa.text("outcome IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("redrive_sweep_item")
    op.drop_table("redrive_sweep")
