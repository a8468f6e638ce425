"""A random token for each claim of a job, beside its fence."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable and without a default: no table is rewritten. Leases of the code before run out by themselves.
    comment = "random for each claim: a fence that comes back after a failover is not the same lease"
    op.add_column("redrive_job", sa.Column("token", sa.BigInteger, comment=comment))


def downgrade() -> None:
    op.drop_column("redrive_job", "token")
