"""How often each tile was rejected, and a state for those that are sent no more. On top of the first, which stays as it is."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
BEFORE = "voting_status IN ('pending', 'trusted', 'rejected', 'uploaded')"
AFTER = "voting_status IN ('pending', 'trusted', 'rejected', 'uploaded', 'upload_giveup')"


def upgrade() -> None:
    with op.batch_alter_table("tiles") as tiles:
        tiles.add_column(sa.Column("upload_attempts", sa.Integer, nullable=False, server_default=sa.text("0")))
        tiles.drop_constraint("ck_tiles_voting_status", type_="check")
        tiles.create_check_constraint("ck_tiles_voting_status", AFTER)


def downgrade() -> None:
    op.execute("UPDATE tiles SET voting_status = 'pending' WHERE voting_status = 'upload_giveup'")  # the only place it came from
    with op.batch_alter_table("tiles") as tiles:
        tiles.drop_constraint("ck_tiles_voting_status", type_="check")
        tiles.create_check_constraint("ck_tiles_voting_status", BEFORE)
        tiles.drop_column("upload_attempts")
