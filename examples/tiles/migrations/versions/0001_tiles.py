"""Tiles, as they were before anything counted their uploads."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
STATES = "voting_status IN ('pending', 'trusted', 'rejected', 'uploaded')"


def upgrade() -> None:
    op.create_table(
        "tiles",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("flight_id", sa.Text, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("voting_status", sa.Text, nullable=False, server_default=sa.text("'pending'")),
        sa.CheckConstraint(STATES, name="ck_tiles_voting_status"),
    )


def downgrade() -> None:
    op.drop_table("tiles")
