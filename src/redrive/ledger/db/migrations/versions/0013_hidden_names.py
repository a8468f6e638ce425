"""Names of secret fields, which every program on the ledger hides."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "redrive_hidden_name", sa.Column("name", sa.Text, primary_key=True, comment="of a secret field, as App(secrets=) has it")
    )


def downgrade() -> None:
    op.drop_table("redrive_hidden_name")
