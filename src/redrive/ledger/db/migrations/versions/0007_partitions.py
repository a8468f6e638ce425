"""Partitions: outcomes, work, runs and verdicts, markers, rollups, and the ranges of sweeps over them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Written out, not taken from partition_tables.py: a migration stays as it was when it was made.
MOMENT = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
ZERO = sa.text("0")
TROUBLE = sa.text("shade > 1")
READY = sa.text("lease_until IS NULL")
LEASED = sa.text("lease_until IS NOT NULL")
SWEPT = sa.text("sweep_id > 0")
BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.05",
}
TABLES = (
    "redrive_partition",
    "redrive_partition_work",
    "redrive_partition_run",
    "redrive_partition_verdict",
    "redrive_partition_marker",
    "redrive_partition_source",
    "redrive_partition_dataset",
    "redrive_partition_rollup",
    "redrive_partition_range",
)


def upgrade() -> None:
    op.create_table(
        "redrive_partition",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("source", BYTES, nullable=False),
        sa.Column("query_name", BYTES, nullable=False),
        sa.Column("logical_date", sa.Date, nullable=False),
        sa.Column("customer_id", BYTES, nullable=False),
        sa.Column("status", sa.Text, nullable=False, server_default=sa.text("'pending'")),
        sa.Column("shade", sa.SmallInteger, nullable=False, server_default=sa.text("1"), comment="what the rollup counts it as"),
        sa.Column("current_run_id", sa.Text, comment="authority: what readers get"),
        sa.Column("current_raw_id", sa.Text, comment="the run whose raw data that is"),
        sa.Column("current_attempt_no", sa.Integer, nullable=False, server_default=ZERO),
        sa.Column("record_count", sa.BigInteger, comment="of the run in force"),
        sa.Column("attempt_count", sa.Integer, nullable=False, server_default=ZERO, comment="verdicts, ever; only grows"),
        sa.Column("dispatch_count", sa.Integer, nullable=False, server_default=ZERO, comment="runs, ever; the last attempt_no"),
        sa.Column("last_verdict", sa.Text),
        sa.Column("verdict_at", MOMENT),
        sa.Column("reason", sa.Text, comment="of the last rejection, in a word"),
        sa.Column("error", sa.Text, comment="of the last rejection, in its own words"),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("status IN ('pending', 'success', 'failed')", name="redrive_partition_status"),
        sa.CheckConstraint("(status = 'success') = (current_run_id IS NOT NULL)", name="redrive_partition_authority"),
        sqlite_autoincrement=True,
        postgresql_with=BUSY,
    )
    op.create_index(
        "redrive_partition_key", "redrive_partition", ["source", "query_name", "logical_date", "customer_id"], unique=True
    )
    op.create_index(
        "redrive_partition_trouble",
        "redrive_partition",
        ["source", "query_name", "id"],
        postgresql_where=TROUBLE,
        sqlite_where=TROUBLE,
    )
    op.create_table(
        "redrive_partition_work",
        sa.Column("partition_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("source", BYTES, nullable=False),
        sa.Column("query_name", BYTES, nullable=False),
        sa.Column("lane", sa.SmallInteger, nullable=False),
        sa.Column("sweep_id", sa.BigInteger, nullable=False, server_default=ZERO, comment="0: nobody's but the policy's"),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("queued_at", MOMENT, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("raw_run_id", sa.Text, comment="to be judged again, and not extracted"),
        sa.Column("seed", sa.Float(53), nullable=False, comment="of the waits: the time shown is the time used"),
        sa.Column("strategy", sa.Text, comment="how due_at came about"),
        sa.Column(
            "lost", sa.SmallInteger, nullable=False, server_default=ZERO, comment="runs in a row that nobody heard of again"
        ),
        sa.Column("attempt_no", sa.Integer, comment="of the run that has it now: the fence"),
        sa.Column("run_id", sa.Text),
        sa.Column("worker", sa.Text),
        sa.Column("lease_until", MOMENT),
        postgresql_with=BUSY,
    )
    op.create_index(
        "redrive_partition_work_ready",
        "redrive_partition_work",
        ["source", "query_name", "lane", "sweep_id", "due_at", "partition_id"],
        postgresql_where=READY,
        sqlite_where=READY,
    )
    op.create_index(
        "redrive_partition_work_leased",
        "redrive_partition_work",
        ["source", "query_name", "lease_until"],
        postgresql_where=LEASED,
        sqlite_where=LEASED,
    )
    op.create_index(
        "redrive_partition_work_sweep",
        "redrive_partition_work",
        ["sweep_id", "partition_id"],
        postgresql_where=SWEPT,
        sqlite_where=SWEPT,
    )
    op.create_table(
        "redrive_partition_run",
        sa.Column("partition_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt_no", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("run_id", BYTES, nullable=False),
        sa.Column(
            "raw_run_id", sa.Text, nullable=False, comment="where its raw data is: its own, or of the run that it judged again"
        ),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("lane", sa.SmallInteger, nullable=False),
        sa.Column("sweep_id", sa.BigInteger, nullable=False, server_default=ZERO),
        sa.Column("worker", sa.Text),
        sa.Column("leased_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.Column("note", sa.Text, comment="without a verdict: why it ended"),
        sa.CheckConstraint(
            "state IN ('leased', 'accepted', 'rejected', 'late', 'lost', 'returned')", name="redrive_partition_run_state"
        ),
    )
    op.create_index("redrive_partition_run_id", "redrive_partition_run", ["run_id"], unique=True)
    op.create_table(
        "redrive_partition_verdict",
        sa.Column("run_id", BYTES, primary_key=True, comment="said once: a repetition changes nothing"),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("validator", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("checks", sa.Text, nullable=False, comment="JSON: each with what was measured, and its limit"),
        sa.Column("record_count", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("message", sa.Text),
        sa.Column("manifest", sa.Text),
        sa.Column("at", MOMENT, nullable=False),
        sa.CheckConstraint("decision IN ('accepted', 'rejected')", name="redrive_partition_verdict_decision"),
    )
    op.create_table(
        "redrive_partition_marker",
        sa.Column("partition_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, comment="the partition's count when it was set"),
        sa.Column("amount", sa.Integer, comment="of a grant: new attempts; none: as many as the policy has"),
        sa.CheckConstraint("kind IN ('terminal', 'paused', 'grant')", name="redrive_partition_marker_kind"),
    )
    op.create_table(
        "redrive_partition_source",
        sa.Column("source", BYTES, primary_key=True, comment="locked by whoever hands out its work"),
        sa.Column("paused_at", MOMENT, comment="null: it is not paused"),
        sa.Column("paused_until", MOMENT, comment="when one probe is let through; none: until somebody says so"),
        sa.Column("because", sa.Text),
        sa.Column("actor", sa.Text),
        sa.Column("signature", sa.Text, comment="of the faults that it is paused for"),
        sa.Column("probes", sa.Integer, nullable=False, server_default=ZERO),
        sa.Column("updated_at", MOMENT, nullable=False),
    )
    op.create_table(
        "redrive_partition_dataset",
        sa.Column("source", BYTES, primary_key=True),
        sa.Column("query_name", BYTES, primary_key=True),
        sa.Column("cron", sa.Text),
        sa.Column("fired_at", MOMENT, comment="the last moment of its cron whose work is written down"),
    )
    op.create_table(
        "redrive_partition_rollup",
        sa.Column("source", BYTES, primary_key=True),
        sa.Column("query_name", BYTES, primary_key=True),
        sa.Column("logical_date", sa.Date, primary_key=True),
        sa.Column("shade", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        postgresql_with=BUSY,
    )
    op.create_table(
        "redrive_partition_range",
        sa.Column("sweep_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("lane", sa.SmallInteger, nullable=False),
        sa.Column("datasets", sa.Text, nullable=False, comment="JSON: sources and queries"),
        sa.Column("since", sa.Date, comment="of a grid: customers times days, in order"),
        sa.Column("until", sa.Date),
        sa.Column("customers", sa.Text, comment="JSON"),
        sa.Column("newest", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("picks", sa.LargeBinary, comment="else: the ids that were planned, in order"),
        sa.Column("cursor", sa.BigInteger, nullable=False, server_default=ZERO, comment="how many of them have had their turn"),
        sa.Column("share", sa.Float(53), nullable=False),
        sa.Column("halt_on", sa.Float(53), comment="part of its verdicts that may be rejections"),
        sa.Column("again", sa.Boolean, nullable=False, server_default=sa.false(), comment="what is accepted already too"),
        sa.Column("amount", sa.Integer, comment="new attempts that each is granted"),
        sa.Column("clear", sa.Boolean, nullable=False, server_default=sa.false(), comment="what is terminal too"),
        sa.Column("skips", sa.Text, nullable=False, server_default=sa.text("'{}'"), comment="JSON: how many for which reason"),
        sa.Column("ok", sa.BigInteger, nullable=False, server_default=ZERO, comment="ended accepted"),
        sa.Column("failed", sa.BigInteger, nullable=False, server_default=ZERO, comment="ended without"),
        sa.Column("accepted", sa.BigInteger, nullable=False, server_default=ZERO, comment="verdicts"),
        sa.Column("rejected", sa.BigInteger, nullable=False, server_default=ZERO),
        sa.Column("pardoned", sa.BigInteger, nullable=False, server_default=ZERO, comment="verdicts when somebody let it go on"),
        sa.Column("pardoned_rejected", sa.BigInteger, nullable=False, server_default=ZERO),
        sa.Column(
            "withdrawn",
            sa.Boolean,
            nullable=False,
            server_default=sa.false(),
            comment="cancelled, and what was queued taken back",
        ),
        postgresql_with=BUSY,
    )


def downgrade() -> None:
    for name in reversed(TABLES):
        op.drop_table(name)
