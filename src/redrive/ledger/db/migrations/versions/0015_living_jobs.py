"""Living jobs: cancelled and held jobs, tenants, sequences, steps, signals, pauses and limits."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# Written out, not taken from tables.py: a migration stays as it was when it was made.
BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
TIMESTAMP = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ZERO = sa.text("0")
BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.05",
}
TALLIES = ("redrive_tally", "redrive_tally_delta")


def _where(condition: str) -> dict[str, Any]:
    return {"postgresql_where": sa.text(condition), "sqlite_where": sa.text(condition)}


INDEXES: dict[str, tuple[list[str], str]] = {
    "redrive_job_tenant": (
        ["kind", "priority", "tenant", "due_at", "id"],
        "state = 0 AND tenant IS NOT NULL",
    ),
    "redrive_job_sequence": (
        ["kind", "sequence", "id"],
        "sequence IS NOT NULL AND state IN (0, 1, 7)",
    ),
    "redrive_job_sequence_leased": (["kind", "sequence"], "state = 1 AND sequence IS NOT NULL"),
    "redrive_job_signature": (
        ["kind", "signature", "id"],
        "signature IS NOT NULL AND state IN (0, 1, 3)",
    ),
    "redrive_job_stopping": (["worker"], "state = 1 AND cancel_at IS NOT NULL"),
    "redrive_job_waiting": (["kind", "id"], "state = 0 AND waits_for IS NOT NULL"),
    "redrive_job_cancelled": (["ended_at", "id"], "state = 6"),
}
JOB_COLUMNS: list[tuple[str, Any, str]] = [
    ("tenant", BYTES, "shares the job type fairly with other tenants"),
    ("sequence", BYTES, "jobs of one sequence run one after another"),
    ("signature", BYTES, "of the last error"),
    ("cancel_at", TIMESTAMP, "when the running job was asked to stop"),
    ("waits_for", sa.Text, "the signal that it waits for; empty: it sleeps"),
]


def upgrade() -> None:
    for name, type_, comment in JOB_COLUMNS:
        op.add_column("redrive_job", sa.Column(name, type_, comment=comment))
    op.add_column("redrive_sweep", sa.Column("arguments", sa.Text, comment="of an action on jobs, JSON"))
    _allow_items_without_letter(True)
    _allow_states(7)
    for index, (columns, condition) in INDEXES.items():
        op.create_index(index, "redrive_job", columns, **_where(condition))
    op.create_index("redrive_attempt_worker", "redrive_attempt", ["worker", "ended_at"])
    for table in TALLIES:
        cancelled = sa.Column("cancelled", sa.BigInteger, nullable=False, server_default=ZERO)
        op.add_column(table, cancelled)
    fresh = sa.Column(
        "fresh",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="a replay repeats finished steps",
    )
    op.add_column("redrive_sweep", fresh)
    op.create_table(
        "redrive_tag",
        sa.Column("name", BYTES),
        sa.Column("value", BYTES),
        sa.Column("job_id", sa.BigInteger),
        sa.PrimaryKeyConstraint("name", "value", "job_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("redrive_tag_job", "redrive_tag", ["job_id"])
    op.create_table(
        "redrive_step",
        sa.Column("job_id", sa.BigInteger),
        sa.Column("act", BYTES, comment="step, sleep or wait"),
        sa.Column("name", BYTES),
        sa.Column("arguments", sa.LargeBinary, comment="digest of the arguments"),
        sa.Column("result", sa.LargeBinary),
        sa.Column("error", sa.Text, comment="of the last attempt of the step"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=ZERO),
        sa.Column("wake_at", TIMESTAMP, comment="when a sleep or a wait ends"),
        sa.Column("started_at", TIMESTAMP, nullable=False),
        sa.Column("ended_at", TIMESTAMP, comment="null: not finished"),
        sa.PrimaryKeyConstraint("job_id", "act", "name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "redrive_signal",
        sa.Column("job_id", sa.BigInteger),
        sa.Column("name", BYTES),
        sa.Column("payload", sa.LargeBinary),
        sa.Column("created_at", TIMESTAMP, comment="null: a job waits, and it was not sent"),
        sa.PrimaryKeyConstraint("job_id", "name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "redrive_progress",
        sa.Column("job_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("fence", sa.Integer, nullable=False, comment="of the attempt that wrote it"),
        sa.Column("part", sa.Float(53), comment="from 0 to 1"),
        sa.Column("note", sa.Text),
        sa.Column("updated_at", TIMESTAMP),
        sa.Column("checkpoint", sa.LargeBinary),
        sa.Column("checkpoint_at", TIMESTAMP),
    )
    op.create_table(
        "redrive_pause",
        sa.Column("scope", sa.Text, comment="app, job type, source or schedule"),
        sa.Column("name", sa.Text, comment="of the app: an empty text"),
        sa.Column("paused_at", TIMESTAMP, nullable=False),
        sa.Column("paused_until", TIMESTAMP, comment="null: until it is resumed"),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("scope", "name"),
    )
    op.create_table(
        "redrive_limit",
        sa.Column("kind", BYTES, primary_key=True),
        sa.Column("concurrency", sa.Integer, comment="null: as in the code"),
        sa.Column("rate", sa.Float(53), comment="starts in a second; null: as in the code"),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("updated_at", TIMESTAMP, nullable=False),
    )
    op.create_table(
        "redrive_tenant",
        sa.Column("kind", BYTES),
        sa.Column("tenant", BYTES),
        sa.Column("tokens", sa.Float(53), comment="starts that its rate still allows, at filled_at"),
        sa.Column("filled_at", TIMESTAMP),
        sa.PrimaryKeyConstraint("kind", "tenant"),
    )
    op.create_table(
        "redrive_activity",
        sa.Column("kind", BYTES, comment="of all job types together: '', never null"),
        sa.Column("slot", sa.BigInteger, comment="its first minute since 1970"),
        sa.Column("span", sa.SmallInteger, comment="in minutes"),
        sa.Column("worker", BYTES, comment="summed up over workers: ''"),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, server_default=ZERO)
            for name in ("done", "failed", "dead", "cancelled")
        ),
        sa.Column("wait", sa.Text, nullable=False, comment="histogram, due to start"),
        sa.Column("run", sa.Text, nullable=False, comment="histogram, start to end"),
        sa.PrimaryKeyConstraint("kind", "slot", "span", "worker"),
        postgresql_with=BUSY,
        sqlite_with_rowid=False,
    )
    op.create_index("redrive_activity_when", "redrive_activity", ["span", "slot", "worker"])
    op.create_table(
        "redrive_sequence_mark",
        sa.Column("id", NUMBER, sa.Identity(), primary_key=True),
        sa.Column("kind", BYTES, nullable=False),
        sa.Column("sequence", BYTES, nullable=False),
        comment="sequences whose next job may still be held",
    )


_ITEM_COLUMN = "dead_id BIGINT"


def _allow_items_without_letter(allowed: bool) -> None:
    """Let a sweep be about jobs: its items have no dead letter."""
    bind = op.get_bind()
    if bind.dialect.name != "sqlite":
        op.alter_column("redrive_sweep_item", "dead_id", nullable=allowed)
        return
    before, after = f"{_ITEM_COLUMN} NOT NULL", _ITEM_COLUMN
    if not allowed:
        before, after = f"{_ITEM_COLUMN},", f"{_ITEM_COLUMN} NOT NULL,"
    _edit_table("redrive_sweep_item", before, after)


def _edit_table(name: str, before: str, after: str) -> None:
    """Change the text of a table on SQLite. No row changes."""
    bind = op.get_bind()
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    bind.exec_driver_sql(
        "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = ?",
        (before, after, name),
    )
    bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    bind.exec_driver_sql("PRAGMA writable_schema = OFF")


NEW_TABLES = (*("sequence_mark", "activity", "tenant", "limit", "pause", "progress", "signal", "step", "tag"),)


def downgrade() -> None:
    op.execute("DELETE FROM redrive_sweep WHERE id IN (SELECT sweep_id FROM redrive_sweep_item WHERE dead_id IS NULL)")
    op.execute("DELETE FROM redrive_sweep_item WHERE dead_id IS NULL")
    _allow_items_without_letter(False)
    op.drop_column("redrive_sweep", "arguments")
    for name in NEW_TABLES:
        op.drop_table(f"redrive_{name}")
    op.drop_column("redrive_sweep", "fresh")
    op.drop_index("redrive_attempt_worker", table_name="redrive_attempt")
    for index in INDEXES:
        op.drop_index(index, table_name="redrive_job")
    # The code before has no such states: a held job is queued, and a cancelled job is discarded.
    op.execute("UPDATE redrive_job SET state = 0 WHERE state = 7")
    op.execute("UPDATE redrive_job SET state = 4 WHERE state = 6")
    for table in TALLIES:
        counters = sa.table(table, sa.column("dropped"), sa.column("cancelled"))
        op.execute(counters.update().values(dropped=counters.c.dropped + counters.c.cancelled))
        op.drop_column(table, "cancelled")
    _allow_states(5)
    for name, _type, _comment in reversed(JOB_COLUMNS):
        op.drop_column("redrive_job", name)


def _allow_states(highest: int) -> None:
    """Change the check of the state: from 0 to `highest`.

    SQLite cannot change a check without a copy of the table. The text of the table is edited
    instead, as its documentation describes for checks: no row changes, and ids continue.
    """
    bind = op.get_bind()
    if bind.dialect.name != "sqlite":
        op.drop_constraint("redrive_job_state", "redrive_job", type_="check")
        op.create_check_constraint("redrive_job_state", "redrive_job", f"state BETWEEN 0 AND {highest}")
        return
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    bind.exec_driver_sql(
        "UPDATE sqlite_schema SET sql = replace(replace(sql, 'state BETWEEN 0 AND 5', ?), "
        "'state BETWEEN 0 AND 7', ?) WHERE type = 'table' AND name = 'redrive_job'",
        (f"state BETWEEN 0 AND {highest}",) * 2,
    )
    bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    bind.exec_driver_sql("PRAGMA writable_schema = OFF")
