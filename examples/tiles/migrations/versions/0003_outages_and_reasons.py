"""How often each tile was rejected in an outage, and why a tile was given up. On top of the second, which stays as it is."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("tiles") as tiles:
        tiles.add_column(sa.Column("upload_uncharged", sa.Integer, nullable=False, server_default=sa.text("0")))
        tiles.add_column(sa.Column("upload_reason", sa.Text))


def downgrade() -> None:
    with op.batch_alter_table("tiles") as tiles:
        tiles.drop_column("upload_reason")
        tiles.drop_column("upload_uncharged")
