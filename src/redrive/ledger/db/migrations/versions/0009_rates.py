"""Sources and datasets: what is left of their rates. Failures of partitions, the newest first; cancelled sweeps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
RATED = ("redrive_partition_source", "redrive_partition_dataset")
TROUBLE = sa.text("shade > 1")
CANCELLED = sa.text("state = 'cancelled'")


def upgrade() -> None:
    for table in RATED:
        op.add_column(table, sa.Column("tokens", sa.Float(53), comment="starts that its rate still allows, at filled_at"))
        op.add_column(table, sa.Column("filled_at", MOMENT))
    op.create_index(
        "redrive_partition_failed", "redrive_partition", ["source", "query_name", "verdict_at"],
        postgresql_where=TROUBLE, sqlite_where=TROUBLE,
    )  # fmt: skip
    op.create_index("redrive_sweep_cancelled", "redrive_sweep", ["id"], postgresql_where=CANCELLED, sqlite_where=CANCELLED)


def downgrade() -> None:
    op.drop_index("redrive_sweep_cancelled", table_name="redrive_sweep")
    op.drop_index("redrive_partition_failed", table_name="redrive_partition")
    for table in RATED:
        op.drop_column(table, "filled_at")
        op.drop_column(table, "tokens")
