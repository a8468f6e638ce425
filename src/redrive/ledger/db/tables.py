"""The tables of the ledger. A test compares them with the result of the migrations.

One row is one job, from its submission to its end. The row also stores that its key is done, so no
second table can disagree. Partial indexes keep ended jobs out of the way of claims.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    TextClause,
    false,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import dialect as postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable

from .clock import UtcTimestamp

HEAD = "0016"
"""The revision that this code is written for."""
VERSION_TABLE = "redrive_version"
CHANNEL = "redrive_job"
"""Of Postgres' NOTIFY, for workers."""

METADATA = MetaData()
NUMBER = BigInteger().with_variant(Integer(), "sqlite")
BYTES = Text(collation="C").with_variant(Text(), "sqlite")
"""Text that is compared byte by byte, as SQLite does. The rules of a language cost ten times as
much."""
# Rows change a few times within seconds. By default, dead row versions would grow to a fifth of the
# table before a vacuum.
BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.05",
}

HAS_STORAGE_OPTIONS = "with" in dict(postgresql.construct_arguments or ())[Table]
"""Whether `Table` takes `postgresql_with`. SQLAlchemy 2.0 does not."""

if not HAS_STORAGE_OPTIONS:
    Table.argument_for("postgresql", "with", None)

    @compiles(CreateTable, "postgresql")
    def _create_with_storage_options(table: CreateTable, compiler: Any, **options: Any) -> str:
        statement: str = compiler.visit_create_table(table, **options)
        values = table.element.dialect_options["postgresql"]["with"] or {}
        written = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"{statement.rstrip()} WITH ({written})" if values else statement


def partial_index(
    name: str, where: TextClause, /, *columns: ColumnElement[Any], unique: bool = False
) -> None:
    """Add an index over the rows that match a condition."""
    Index(name, *columns, unique=unique, postgresql_where=where, sqlite_where=where)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


job = Table(
    "redrive_job",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("state", SmallInteger, nullable=False, server_default=text("0")),
    Column("priority", SmallInteger, nullable=False, server_default=text("0")),
    Column(
        "fence", Integer, nullable=False, server_default=text("0"), comment="grows with each claim"
    ),
    Column(
        "attempts",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="charged ones; grows when one starts",
    ),
    Column("crashes", SmallInteger, nullable=False, server_default=text("0")),
    Column(
        "max_attempts",
        Integer,
        comment="what a lost attempt is measured against; none: crashes alone",
    ),
    Column(
        "current",
        Boolean,
        nullable=False,
        server_default=true(),
        comment="false once a replay took its place",
    ),
    Column("due_at", UtcTimestamp, nullable=False),
    Column("lease_until", UtcTimestamp),
    Column("created_at", UtcTimestamp, nullable=False),
    Column(
        "started_at",
        UtcTimestamp,
        comment="of the attempt under this lease; null while it is only claimed",
    ),
    Column("ended_at", UtcTimestamp),
    Column("deadline", UtcTimestamp),
    Column("expires_at", UtcTimestamp, comment="of a pruned job: when its key is free again"),
    Column("keep", Float(53), comment="seconds for which the key stays done; none: for ever"),
    Column("replay_of", BigInteger, comment="the job in whose place this one is"),
    Column("dead_id", BigInteger, comment="the dead letter that this job replays"),
    Column(
        "version",
        SmallInteger,
        nullable=False,
        server_default=text("1"),
        comment="of the payload's envelope",
    ),
    Column("kind", BYTES, nullable=False),
    Column("key", BYTES, nullable=False),
    Column("worker", Text),
    Column("reason", Text),
    Column("error", Text),
    Column("ids", Text, comment="correlation ids, JSON"),
    Column("headers", Text, comment="what came with the payload, JSON"),
    Column("request_hash", LargeBinary),
    Column("payload", LargeBinary, nullable=False),
    Column("result", LargeBinary),
    Column(
        "token",
        BigInteger,
        comment="random for each claim: a fence that comes back after a failover "
        "is not the same lease",
    ),
    Column("tenant", BYTES, comment="shares the job type fairly with other tenants"),
    Column("sequence", BYTES, comment="jobs of one sequence run one after another"),
    Column("signature", BYTES, comment="of the last error"),
    Column("cancel_at", UtcTimestamp, comment="when the running job was asked to stop"),
    Column("waits_for", Text, comment="the signal that it waits for; empty: it sleeps"),
    CheckConstraint("state BETWEEN 0 AND 7", name="redrive_job_state"),
    CheckConstraint("(state = 1) = (lease_until IS NOT NULL)", name="redrive_job_lease"),
    sqlite_autoincrement=True,  # a pruned job's id never comes back
    postgresql_with=BUSY,
)
# Covers done and dead jobs too: an index over live jobs only would admit a second job while the end
# of the first one is not committed.
CURRENT = text("current")
"""As in the index. A database does not recognise `current = 1` as the same condition."""
partial_index("redrive_job_key", CURRENT, job.c.kind, job.c.key, unique=True)
_ready = text("state = 0")
partial_index("redrive_job_ready", _ready, job.c.kind, job.c.priority, job.c.due_at, job.c.id)
_leased = text("state = 1")
partial_index("redrive_job_leased", _leased, job.c.lease_until)
_done = text("state = 2")
partial_index("redrive_job_done", _done, job.c.ended_at, job.c.id)
_pruned = text("state = 5")
partial_index("redrive_job_pruned", _pruned, job.c.expires_at)
TRIED = text("state = 0 AND (attempts > 0 OR reason IS NOT NULL)")
"""Jobs that wait for another attempt."""
partial_index("redrive_job_tried", TRIED, job.c.kind, job.c.due_at, job.c.id)

_tenant = text("state = 0 AND tenant IS NOT NULL")
partial_index(
    "redrive_job_tenant", _tenant, job.c.kind, job.c.priority, job.c.tenant, job.c.due_at, job.c.id
)
SEQUENCED = text("sequence IS NOT NULL AND state IN (0, 1, 7)")
"""Jobs of sequences that have not ended."""
partial_index("redrive_job_sequence", SEQUENCED, job.c.kind, job.c.sequence, job.c.id)
FAILED_JOBS = text("signature IS NOT NULL AND state IN (0, 1, 3)")
"""Jobs that have not ended and have failed, and dead jobs."""
partial_index("redrive_job_signature", FAILED_JOBS, job.c.kind, job.c.signature, job.c.id)
_running_sequence = text("state = 1 AND sequence IS NOT NULL")
partial_index("redrive_job_sequence_leased", _running_sequence, job.c.kind, job.c.sequence)
_stopping = text("state = 1 AND cancel_at IS NOT NULL")
partial_index("redrive_job_stopping", _stopping, job.c.worker)
WAITING = text("state = 0 AND waits_for IS NOT NULL")
"""Jobs that sleep, or wait for a signal."""
partial_index("redrive_job_waiting", WAITING, job.c.kind, job.c.id)
_cancelled_job = text("state = 6")
partial_index("redrive_job_cancelled", _cancelled_job, job.c.ended_at, job.c.id)

attempt = Table(
    "redrive_attempt",
    METADATA,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("worker", Text),
    Column("reason", Text),
    Column("error", Text),
    Column("started_at", UtcTimestamp),
    Column("ended_at", UtcTimestamp, nullable=False),
)
Index("redrive_attempt_worker", attempt.c.worker, attempt.c.ended_at)
Index("redrive_attempt_ended", attempt.c.ended_at, attempt.c.job_id, attempt.c.fence)

dead = Table(
    "redrive_dead",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("job_id", BigInteger, comment="the job that died, the last one of them"),
    Column("replay_job_id", BigInteger, comment="the job that replays it, or did"),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("reason", Text, nullable=False),
    Column(
        "blocked",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="waits for something outside",
    ),
    Column("blocked_until", UtcTimestamp, comment="when it is replayed by itself"),
    Column("error", Text),
    Column("signature", Text, comment="equal for errors of one cause"),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("replay_count", Integer, nullable=False, server_default=text("0")),
    Column("version", SmallInteger, nullable=False, server_default=text("1")),
    Column("payload", LargeBinary, nullable=False),
    Column("headers", Text),
    Column("ids", Text),
    Column("source", Text, comment="the stream it came from"),
    Column("source_id", Text, comment="its id there"),
    Column("last_attempt_at", UtcTimestamp),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("updated_at", UtcTimestamp, nullable=False),
    Column("told_at", UtcTimestamp, comment="when a stream was told of it"),
    CheckConstraint(
        "status IN ('pending', 'replaying', 'replayed', 'discarded')", name="redrive_dead_status"
    ),
    sqlite_autoincrement=True,
)
Index("redrive_dead_status", dead.c.status, dead.c.kind, dead.c.id)
_untold = text("told_at IS NULL")
partial_index("redrive_dead_untold", _untold, dead.c.id)
Index("redrive_dead_job", dead.c.job_id)
_waiting = text("blocked_until IS NOT NULL AND status = 'pending'")
partial_index("redrive_dead_blocked", _waiting, dead.c.blocked_until)
_pending = text("status = 'pending'")
partial_index("redrive_dead_group", _pending, dead.c.kind, dead.c.signature, dead.c.id)

audit = Table(
    "redrive_audit",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=False, comment="without gaps"),
    Column("at", Text, nullable=False, comment="text, so that what was hashed is what is read"),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("because", Text, nullable=False),
    Column("what", Text, nullable=False, comment="JSON"),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
)

hidden_name = Table(
    "redrive_hidden_name",
    METADATA,
    Column("name", Text, primary_key=True, comment="of a secret field, as App(secrets=) has it"),
)

BUCKETS = ("submitted", "ready", "leased", "done", "dead", "dropped", "pruned", "late", "cancelled")
"""Columns of a tally. Always submitted = ready + leased + done + dead + dropped + pruned +
cancelled. Held jobs count as ready."""

tally = Table(
    "redrive_tally", METADATA, Column("kind", Text, primary_key=True), *map(_count, BUCKETS)
)

# On Postgres each change adds a row here: a tally row changed in a caller's open transaction would
# block all others.
tally_delta = Table(
    "redrive_tally_delta",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("kind", Text, nullable=False),
    *map(_count, BUCKETS),
    sqlite_autoincrement=True,
    postgresql_with=BUSY,
)

worker = Table(
    "redrive_worker",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("host", Text),
    Column("pid", Integer),
    Column("info", Text, comment="JSON"),
    Column("started_at", UtcTimestamp, nullable=False),
    Column("seen_at", UtcTimestamp, nullable=False),
    Column("ended_at", UtcTimestamp),
)

kind = Table(
    "redrive_kind",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("parked_until", UtcTimestamp),
    Column("reason", Text),
    Column("updated_at", UtcTimestamp, nullable=False),
    Column("parked_at", UtcTimestamp, comment="null: it is not parked"),
    Column("signature", Text, comment="of the errors that it is parked for"),
    Column("probes", Integer, nullable=False, server_default=text("0")),
    Column("tokens", Float(53), comment="starts that its rate still allows, at filled_at"),
    Column("filled_at", UtcTimestamp),
)

key = Table(
    "redrive_key",
    METADATA,
    Column("domain", Text, primary_key=True),
    Column("user_id", Text, primary_key=True, comment="of nobody in particular: '', never null"),
    Column("key", Text, primary_key=True, comment="in full: domain:user:entity:operation:version"),
    Column("status", Text, nullable=False),
    Column(
        "fence",
        BigInteger,
        nullable=False,
        comment="microseconds since 1970 when it was begun; grows, and never comes back",
    ),
    Column("request_hash", LargeBinary),
    Column("response", LargeBinary, comment="JSON"),
    Column("error", Text, comment="JSON"),
    Column("holder", Text, comment="who began it: host and process"),
    Column(
        "lease_until",
        UtcTimestamp,
        nullable=False,
        comment="of the holder, renewed; nothing to do with how long it is kept",
    ),
    Column("expires_at", UtcTimestamp, nullable=False),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("updated_at", UtcTimestamp, nullable=False),
    CheckConstraint("status IN ('processing', 'completed', 'failed')", name="redrive_key_status"),
    postgresql_with=BUSY,
)
Index("redrive_key_expires", key.c.expires_at)

sweep = Table(
    "redrive_sweep",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("act", Text, nullable=False, comment="replay or discard"),
    Column("state", Text, nullable=False, server_default=text("'running'")),
    Column("actor", Text, nullable=False),
    Column("because", Text, nullable=False),
    Column("selection", Text, comment="what was asked for, JSON; what is done is in the items"),
    Column("rate", Float(53), comment="at most so many in a second"),
    Column(
        "canary",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="so many first, and only if all end well the rest",
    ),
    Column(
        "passed", Boolean, nullable=False, server_default=false(), comment="the canary ended well"
    ),
    Column("max_replays", Integer),
    Column("total", Integer, nullable=False),
    Column("made", Integer, nullable=False, server_default=text("0")),
    Column("skipped", Integer, nullable=False, server_default=text("0")),
    Column("reason", Text, comment="why it was halted"),
    Column(
        "next_at",
        UtcTimestamp,
        nullable=False,
        comment="not before: the rate is kept over all who carry it out",
    ),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("updated_at", UtcTimestamp, nullable=False),
    Column("ended_at", UtcTimestamp),
    Column("arguments", Text, comment="of an action on jobs, JSON"),
    Column(
        "fresh",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="a replay repeats finished steps",
    ),
    CheckConstraint(
        "state IN ('running', 'paused', 'halted', 'cancelled', 'done')", name="redrive_sweep_state"
    ),
    sqlite_autoincrement=True,
)
_running = text("state = 'running'")
partial_index("redrive_sweep_running", _running, sweep.c.next_at)
_cancelled = text("state = 'cancelled'")
partial_index("redrive_sweep_cancelled", _cancelled, sweep.c.id)

sweep_item = Table(
    "redrive_sweep_item",
    METADATA,
    Column("sweep_id", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("dead_id", BigInteger),
    Column("outcome", Text, comment="made or skipped; none: its turn has not come"),
    Column("job_id", BigInteger, comment="the new one of a replay, the dropped one of a discard"),
    Column("note", Text, comment="why it was skipped"),
    Column("at", UtcTimestamp),
)
_open = text("outcome IS NULL")
partial_index("redrive_sweep_item_open", _open, sweep_item.c.sweep_id, sweep_item.c.position)

item = Table(
    "redrive_item",
    METADATA,
    Column("batch", BYTES, primary_key=True, comment="the name that app.items(...) was given"),
    Column("item", BYTES, primary_key=True),
    Column("status", Text, nullable=False, server_default=text("'open'")),
    Column(
        "attempts",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="rejections, ever; only grows",
    ),
    Column(
        "forgiven",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="of these, before it last began anew",
    ),
    Column(
        "spared",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="rejections in outages, not charged",
    ),
    Column(
        "reopened",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="how often, by a person",
    ),
    Column("reason", Text, comment="for which it was given up"),
    Column("given_up_at", UtcTimestamp),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("updated_at", UtcTimestamp, nullable=False),
    CheckConstraint("status IN ('open', 'acknowledged', 'giveup')", name="redrive_item_status"),
    postgresql_with=BUSY,
)
Index("redrive_item_standing", item.c.batch, item.c.status, item.c.item)
_given_up = text("status = 'giveup'")
partial_index("redrive_item_given_up", _given_up, item.c.given_up_at)

event = Table(
    "redrive_event",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("source", BYTES, nullable=False),
    Column("event_id", BYTES, nullable=False, comment="its dedupe key, in its source"),
    Column("type", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False, comment="as it came"),
    Column("headers", Text, comment="JSON"),
    Column("ids", Text, comment="correlation ids, JSON"),
    Column("source_id", Text, comment="its id there"),
    Column("handlers", Integer, nullable=False, comment="how many had it to handle"),
    Column("at", UtcTimestamp, comment="when it happened"),
    Column("received_at", UtcTimestamp, nullable=False),
    sqlite_autoincrement=True,
)
Index("redrive_event_key", event.c.source, event.c.event_id, unique=True)

FAILURES = ("tries", "died", "pending", "blocked")
"""Counters of a group of failures (same job type and signature): failed attempts and deaths since
it was first seen, dead letters that are pending now, and how many of these are blocked."""

failure = Table(
    "redrive_failure",
    METADATA,
    Column("kind", BYTES, primary_key=True),
    Column("signature", BYTES, primary_key=True, comment="of nothing known: '', never null"),
    *map(_count, FAILURES),
    Column("first_at", UtcTimestamp, nullable=False),
    Column("last_at", UtcTimestamp, nullable=False),
    Column("job_id", BigInteger, comment="the last one that failed so"),
    Column("error", Text, comment="of that job, its first line"),
    postgresql_with=BUSY,
)
Index("redrive_failure_pending", failure.c.pending, failure.c.last_at)
Index("redrive_failure_last", failure.c.last_at)

failure_slot = Table(
    "redrive_failure_slot",
    METADATA,
    Column("slot", BigInteger, comment="which ten minutes since 1970"),
    Column("kind", BYTES),
    Column("signature", BYTES),
    _count("tries"),
    _count("died"),
    PrimaryKeyConstraint("kind", "signature", "slot"),
    postgresql_with=BUSY,
    sqlite_with_rowid=False,  # the rows of one group are stored together
)
Index("redrive_failure_slot_when", failure_slot.c.slot)

# On Postgres each change adds a row here, for the same reason as with `tally_delta`.
failure_delta = Table(
    "redrive_failure_delta",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("kind", BYTES, nullable=False),
    Column("signature", BYTES, nullable=False),
    *map(_count, FAILURES),
    Column("at", UtcTimestamp, nullable=False),
    Column("job_id", BigInteger, comment="none: nothing failed, dead letters were dealt with"),
    Column("error", Text),
    sqlite_autoincrement=True,
    postgresql_with=BUSY,
)

ACTIVITY = ("done", "failed", "dead", "cancelled")
"""Counters of ended attempts, by outcome."""

activity = Table(
    "redrive_activity",
    METADATA,
    Column("kind", BYTES, comment="of all job types together: '', never null"),
    Column("slot", BigInteger, comment="its first minute since 1970"),
    Column("span", SmallInteger, comment="in minutes"),
    Column("worker", BYTES, comment="summed up over workers: ''"),
    *map(_count, ACTIVITY),
    Column("wait", Text, nullable=False, comment="histogram, due to start"),
    Column("run", Text, nullable=False, comment="histogram, start to end"),
    PrimaryKeyConstraint("kind", "slot", "span", "worker"),
    postgresql_with=BUSY,
    sqlite_with_rowid=False,  # the rows of one job type are stored together, by time
)
Index("redrive_activity_when", activity.c.span, activity.c.slot, activity.c.worker)
