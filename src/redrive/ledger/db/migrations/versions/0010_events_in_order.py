"""Events are forgotten in the order they came, which their ids have: no index over the moment for each of them."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("redrive_event_received", table_name="redrive_event")


def downgrade() -> None:
    op.create_index("redrive_event_received", "redrive_event", ["received_at"])
