"""Kinds: since when one is parked and for what, and what is left of its rate."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.add_column("redrive_kind", sa.Column("parked_at", MOMENT, comment="null: it is not parked"))
    op.add_column("redrive_kind", sa.Column("signature", sa.Text, comment="of the errors that it is parked for"))
    op.add_column("redrive_kind", sa.Column("probes", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.add_column("redrive_kind", sa.Column("tokens", sa.Float(53), comment="starts that its rate still allows, at filled_at"))
    op.add_column("redrive_kind", sa.Column("filled_at", MOMENT))


def downgrade() -> None:
    for name in ("filled_at", "tokens", "probes", "signature", "parked_at"):
        op.drop_column("redrive_kind", name)
