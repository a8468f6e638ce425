"""Failures by what they are alike in, counted; and indexes for who looks at a large ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.05",
}
TRIED = sa.text("state = 0 AND (attempts > 0 OR reason IS NOT NULL)")
PENDING = sa.text("status = 'pending'")


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


def upgrade() -> None:
    op.create_table(
        "redrive_failure",
        sa.Column("kind", BYTES, primary_key=True),
        sa.Column("signature", BYTES, primary_key=True, comment="of nothing known: '', never null"),
        _count("tries"),
        _count("died"),
        _count("pending"),
        _count("blocked"),
        sa.Column("first_at", MOMENT, nullable=False),
        sa.Column("last_at", MOMENT, nullable=False),
        sa.Column("job_id", sa.BigInteger, comment="the last one that failed so"),
        sa.Column("error", sa.Text, comment="of that job, its first line"),
        postgresql_with=BUSY,
    )
    op.create_table(
        "redrive_failure_slot",
        sa.Column("slot", sa.BigInteger, primary_key=True, autoincrement=False, comment="which ten minutes since 1970"),
        sa.Column("kind", BYTES, primary_key=True),
        sa.Column("signature", BYTES, primary_key=True),
        _count("tries"),
        _count("died"),
        postgresql_with=BUSY,
    )
    op.create_table(
        "redrive_failure_delta",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("kind", BYTES, nullable=False),
        sa.Column("signature", BYTES, nullable=False),
        _count("tries"),
        _count("died"),
        _count("pending"),
        _count("blocked"),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("job_id", sa.BigInteger, comment="none: nothing failed, dead letters were dealt with"),
        sa.Column("error", sa.Text),
        sqlite_autoincrement=True,
        postgresql_with=BUSY,
    )
    op.execute("UPDATE redrive_dead SET signature = substr(signature, 1, 300) WHERE length(signature) > 300")
    op.execute(FILL)
    sqlite = op.get_bind().dialect.name == "sqlite"
    op.execute(FILL_SLOTS.format(slot="created_at / 600000000" if sqlite else "floor(extract(epoch FROM created_at) / 600)"))
    op.execute(FILL_WHOLE)
    # After they were filled: one by one costs several times as much.
    op.create_index("redrive_failure_pending", "redrive_failure", ["pending", "last_at"])
    op.create_index("redrive_failure_last", "redrive_failure", ["last_at"])
    op.create_index("redrive_failure_slot_group", "redrive_failure_slot", ["kind", "signature", "slot"])
    op.create_index("redrive_job_tried", "redrive_job", ["kind", "due_at", "id"], postgresql_where=TRIED, sqlite_where=TRIED)
    op.create_index("redrive_attempt_ended", "redrive_attempt", ["ended_at", "job_id", "fence"])
    op.create_index(
        "redrive_dead_group", "redrive_dead", ["kind", "signature", "id"], postgresql_where=PENDING, sqlite_where=PENDING
    )


# What died before is known by its dead letter; attempts that failed and were not the last left no signature.
FILL = """
INSERT INTO redrive_failure (kind, signature, tries, died, pending, blocked, first_at, last_at, job_id, error)
SELECT kind, coalesce(signature, ''), sum(CASE WHEN signature IS NULL THEN 0 ELSE 1 END), count(*),
    sum(CASE WHEN status = 'pending' THEN 1 ELSE 0 END), sum(CASE WHEN status = 'pending' AND blocked THEN 1 ELSE 0 END),
    min(created_at), max(created_at), max(job_id), max(substr(error, 1, 300))
FROM redrive_dead GROUP BY kind, coalesce(signature, '')
"""
FILL_SLOTS = """
INSERT INTO redrive_failure_slot (slot, kind, signature, tries, died)
SELECT {slot}, kind, coalesce(signature, ''), sum(CASE WHEN signature IS NULL THEN 0 ELSE 1 END), count(*)
FROM redrive_dead GROUP BY {slot}, kind, coalesce(signature, '')
"""
# And all of a kind together, under a signature that no error has.
FILL_WHOLE = """
INSERT INTO redrive_failure_slot (slot, kind, signature, tries, died)
SELECT slot, kind, '\x01', sum(tries), sum(died) FROM redrive_failure_slot GROUP BY slot, kind
"""


def downgrade() -> None:
    op.drop_index("redrive_dead_group", "redrive_dead")
    op.drop_index("redrive_attempt_ended", "redrive_attempt")
    op.drop_index("redrive_job_tried", "redrive_job")
    op.drop_table("redrive_failure_delta")
    op.drop_table("redrive_failure_slot")
    op.drop_table("redrive_failure")
