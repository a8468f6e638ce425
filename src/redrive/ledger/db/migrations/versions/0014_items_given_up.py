"""Given-up items by time: the overview counts those of the last hour."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

GIVEN_UP = sa.text("status = 'giveup'")


def upgrade() -> None:
    op.create_index("redrive_item_given_up", "redrive_item", ["given_up_at"], postgresql_where=GIVEN_UP, sqlite_where=GIVEN_UP)


def downgrade() -> None:
    op.drop_index("redrive_item_given_up", table_name="redrive_item")
