"""Jobs, their attempts, dead letters, counts, workers and the audit."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
ZERO = sa.text("0")
BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.05",
}
BUCKETS = ("submitted", "ready", "leased", "done", "dead", "dropped", "pruned", "late")


def _where(condition: str) -> dict[str, Any]:
    return {"postgresql_where": sa.text(condition), "sqlite_where": sa.text(condition)}


def upgrade() -> None:
    op.create_table(
        "redrive_job",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("state", sa.SmallInteger, nullable=False, server_default=ZERO),
        sa.Column("priority", sa.SmallInteger, nullable=False, server_default=ZERO),
        sa.Column("fence", sa.Integer, nullable=False, server_default=ZERO, comment="grows with each claim"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=ZERO, comment="charged ones; grows when one starts"),
        sa.Column("crashes", sa.SmallInteger, nullable=False, server_default=ZERO),
        sa.Column("max_attempts", sa.Integer, comment="what a lost attempt is measured against; none: crashes alone"),
        sa.Column("current", sa.Boolean, nullable=False, server_default=sa.true(), comment="false once a replay took its place"),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("lease_until", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("started_at", MOMENT, comment="of the attempt under this lease; null while it is only claimed"),
        sa.Column("ended_at", MOMENT),
        sa.Column("deadline", MOMENT),
        sa.Column("expires_at", MOMENT, comment="of a pruned job: when its key is free again"),
        sa.Column("keep", sa.Float(53), comment="seconds for which the key stays done; none: for ever"),
        sa.Column("replay_of", sa.BigInteger, comment="the job in whose place this one is"),
        sa.Column("dead_id", sa.BigInteger, comment="the dead letter that this job replays"),
        sa.Column("version", sa.SmallInteger, nullable=False, server_default=sa.text("1"), comment="of the payload's envelope"),
        sa.Column("kind", BYTES, nullable=False),
        sa.Column("key", BYTES, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("ids", sa.Text, comment="correlation ids, JSON"),
        sa.Column("headers", sa.Text, comment="what came with the payload, JSON"),
        sa.Column("request_hash", sa.LargeBinary),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("result", sa.LargeBinary),
        sa.CheckConstraint("state BETWEEN 0 AND 5", name="redrive_job_state"),
        sa.CheckConstraint("(state = 1) = (lease_until IS NOT NULL)", name="redrive_job_lease"),
        sqlite_autoincrement=True,
        postgresql_with=BUSY,
    )
    op.create_index("redrive_job_key", "redrive_job", ["kind", "key"], unique=True, **_where("current"))
    op.create_index("redrive_job_ready", "redrive_job", ["kind", "priority", "due_at", "id"], **_where("state = 0"))
    op.create_index("redrive_job_leased", "redrive_job", ["lease_until"], **_where("state = 1"))
    op.create_index("redrive_job_done", "redrive_job", ["ended_at", "id"], **_where("state = 2"))
    op.create_index("redrive_job_pruned", "redrive_job", ["expires_at"], **_where("state = 5"))
    op.create_table(
        "redrive_attempt",
        sa.Column("job_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("fence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("started_at", MOMENT),
        sa.Column("ended_at", MOMENT, nullable=False),
    )
    op.create_table(
        "redrive_dead",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("job_id", sa.BigInteger, comment="the job that died, the last one of them"),
        sa.Column("replay_job_id", sa.BigInteger, comment="the job that replays it, or did"),
        sa.Column("status", sa.Text, nullable=False, server_default=sa.text("'pending'")),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("blocked", sa.Boolean, nullable=False, server_default=sa.false(), comment="waits for something outside"),
        sa.Column("blocked_until", MOMENT, comment="when it is replayed by itself"),
        sa.Column("error", sa.Text),
        sa.Column("signature", sa.Text, comment="equal for errors of one cause"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=ZERO),
        sa.Column("replay_count", sa.Integer, nullable=False, server_default=ZERO),
        sa.Column("version", sa.SmallInteger, nullable=False, server_default=sa.text("1")),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("headers", sa.Text),
        sa.Column("ids", sa.Text),
        sa.Column("source", sa.Text, comment="the stream it came from"),
        sa.Column("source_id", sa.Text, comment="its id there"),
        sa.Column("last_attempt_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("status IN ('pending', 'replaying', 'replayed', 'discarded')", name="redrive_dead_status"),
        sqlite_autoincrement=True,
    )
    op.create_index("redrive_dead_status", "redrive_dead", ["status", "kind", "id"])
    op.create_index("redrive_dead_job", "redrive_dead", ["job_id"])
    waiting = _where("blocked_until IS NOT NULL AND status = 'pending'")
    op.create_index("redrive_dead_blocked", "redrive_dead", ["blocked_until"], **waiting)
    op.create_table(
        "redrive_audit",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False, comment="without gaps"),
        sa.Column("at", sa.Text, nullable=False, comment="text, so that what was hashed is what is read"),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False, comment="JSON"),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    op.create_table(
        "redrive_tally",
        sa.Column("kind", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default=ZERO) for name in BUCKETS),
    )
    op.create_table(
        "redrive_tally_delta",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default=ZERO) for name in BUCKETS),
        sqlite_autoincrement=True,
        postgresql_with=BUSY,
    )
    op.create_table(
        "redrive_worker",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("host", sa.Text),
        sa.Column("pid", sa.Integer),
        sa.Column("info", sa.Text, comment="JSON"),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
    )
    op.create_table(
        "redrive_kind",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("parked_until", MOMENT),
        sa.Column("reason", sa.Text),
        sa.Column("updated_at", MOMENT, nullable=False),
    )


def downgrade() -> None:
    for table in ("kind", "worker", "tally_delta", "tally", "audit", "dead", "attempt", "job"):
        op.drop_table(f"redrive_{table}")
