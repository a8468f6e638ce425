"""What failed slot by slot, of a group together: a day of it is read at once, and on SQLite from one place."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TOGETHER, IN_TIME = ("kind", "signature", "slot"), ("slot", "kind", "signature")


def upgrade() -> None:
    op.drop_index("redrive_failure_slot_group", table_name="redrive_failure_slot")
    _keyed(TOGETHER)
    op.create_index("redrive_failure_slot_when", "redrive_failure_slot", ["slot"])


def downgrade() -> None:
    op.drop_index("redrive_failure_slot_when", table_name="redrive_failure_slot")
    _keyed(IN_TIME)
    op.create_index("redrive_failure_slot_group", "redrive_failure_slot", list(TOGETHER))


def _keyed(by: tuple[str, str, str]) -> None:
    """Change the primary key. SQLite keeps the rows in its order: there the table is written anew."""
    if op.get_bind().dialect.name == "sqlite":
        _written_anew(by)
        return
    op.drop_constraint("redrive_failure_slot_pkey", "redrive_failure_slot")
    op.create_primary_key("redrive_failure_slot_pkey", "redrive_failure_slot", list(by))


def _written_anew(by: tuple[str, str, str]) -> None:
    op.create_table(
        "redrive_failure_slot_new",
        sa.Column("slot", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")) for name in ("tries", "died")),
        sa.PrimaryKeyConstraint(*by),
        sqlite_with_rowid=by is not TOGETHER,
    )
    op.execute("INSERT INTO redrive_failure_slot_new SELECT * FROM redrive_failure_slot ORDER BY kind, signature, slot")
    op.drop_table("redrive_failure_slot")
    op.rename_table("redrive_failure_slot_new", "redrive_failure_slot")
