"""The tables of partitions. Each is written by one role.

The validator writes outcomes (partition, verdict), the control plane writes work and markers. A
work row exists only while there is something to do, so claims read a small table even beside ten
million partitions.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Float,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    false,
    text,
    true,
)

from .clock import UtcTimestamp
from .tables import BUSY, BYTES, METADATA, NUMBER, partial_index

ZERO = text("0")

partition = Table(
    "redrive_partition",
    METADATA,
    Column("id", NUMBER, Identity(), primary_key=True),
    Column("source", BYTES, nullable=False),
    Column("query_name", BYTES, nullable=False),
    Column("logical_date", Date, nullable=False),
    Column("customer_id", BYTES, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column(
        "shade",
        SmallInteger,
        nullable=False,
        server_default=text("1"),
        comment="what the rollup counts it as",
    ),
    Column("current_run_id", Text, comment="authority: what readers get"),
    Column("current_raw_id", Text, comment="the run whose raw data that is"),
    Column("current_attempt_no", Integer, nullable=False, server_default=ZERO),
    Column("record_count", BigInteger, comment="of the run in force"),
    Column(
        "attempt_count",
        Integer,
        nullable=False,
        server_default=ZERO,
        comment="verdicts, ever; only grows",
    ),
    Column(
        "dispatch_count",
        Integer,
        nullable=False,
        server_default=ZERO,
        comment="runs, ever; the last attempt_no",
    ),
    Column("last_verdict", Text),
    Column("verdict_at", UtcTimestamp),
    Column("reason", Text, comment="of the last rejection, in a word"),
    Column("error", Text, comment="of the last rejection, in its own words"),
    Column("updated_at", UtcTimestamp, nullable=False),
    CheckConstraint("status IN ('pending', 'success', 'failed')", name="redrive_partition_status"),
    CheckConstraint(
        "(status = 'success') = (current_run_id IS NOT NULL)", name="redrive_partition_authority"
    ),
    sqlite_autoincrement=True,
    postgresql_with=BUSY,
)
# The date before the customer: a day of the calendar is one range. The days of one customer are as
# many lookups.
Index(
    "redrive_partition_key",
    partition.c.source,
    partition.c.query_name,
    partition.c.logical_date,
    partition.c.customer_id,
    unique=True,
)
TROUBLE = text("shade > 1")
"""As in the index."""
partial_index(
    "redrive_partition_trouble", TROUBLE, partition.c.source, partition.c.query_name, partition.c.id
)

# By the time of the verdict, which changes only with the shade: an index over a column that every
# update changes would slow all of them down.
partial_index(
    "redrive_partition_failed",
    TROUBLE,
    partition.c.source,
    partition.c.query_name,
    partition.c.verdict_at,
)

work = Table(
    "redrive_partition_work",
    METADATA,
    Column("partition_id", BigInteger, primary_key=True, autoincrement=False),
    Column("source", BYTES, nullable=False),
    Column("query_name", BYTES, nullable=False),
    Column("lane", SmallInteger, nullable=False),
    Column(
        "sweep_id",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="0: nobody's but the policy's",
    ),
    Column("due_at", UtcTimestamp, nullable=False),
    Column("queued_at", UtcTimestamp, nullable=False),
    Column("kind", Text, nullable=False),
    Column("raw_run_id", Text, comment="to be judged again, and not extracted"),
    Column(
        "seed", Float(53), nullable=False, comment="of the waits: the time shown is the time used"
    ),
    Column("strategy", Text, comment="how due_at came about"),
    Column(
        "lost",
        SmallInteger,
        nullable=False,
        server_default=ZERO,
        comment="runs in a row that nobody heard of again",
    ),
    Column("attempt_no", Integer, comment="of the run that has it now: the fence"),
    Column("run_id", Text),
    Column("worker", Text),
    Column("lease_until", UtcTimestamp),
    postgresql_with=BUSY,
)
_ready = text("lease_until IS NULL")
partial_index(
    "redrive_partition_work_ready",
    _ready,
    work.c.source,
    work.c.query_name,
    work.c.lane,
    work.c.sweep_id,
    work.c.due_at,
    work.c.partition_id,
)
_leased = text("lease_until IS NOT NULL")
partial_index(
    "redrive_partition_work_leased", _leased, work.c.source, work.c.query_name, work.c.lease_until
)
SWEPT = text("sweep_id > 0")
"""As in the index: the planner does not know that a parameter is above 0."""
partial_index("redrive_partition_work_sweep", SWEPT, work.c.sweep_id, work.c.partition_id)

run = Table(
    "redrive_partition_run",
    METADATA,
    Column("partition_id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt_no", Integer, primary_key=True, autoincrement=False),
    Column("run_id", BYTES, nullable=False),
    Column(
        "raw_run_id",
        Text,
        nullable=False,
        comment="where its raw data is: its own, or of the run that it judged again",
    ),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("lane", SmallInteger, nullable=False),
    Column("sweep_id", BigInteger, nullable=False, server_default=ZERO),
    Column("worker", Text),
    Column("leased_at", UtcTimestamp, nullable=False),
    Column("ended_at", UtcTimestamp),
    Column("note", Text, comment="without a verdict: why it ended"),
    CheckConstraint(
        "state IN ('leased', 'accepted', 'rejected', 'late', 'lost', 'returned')",
        name="redrive_partition_run_state",
    ),
)
Index("redrive_partition_run_id", run.c.run_id, unique=True)

verdict = Table(
    "redrive_partition_verdict",
    METADATA,
    Column("run_id", BYTES, primary_key=True, comment="said once: a repetition changes nothing"),
    Column("decision", Text, nullable=False),
    Column("validator", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column(
        "checks", Text, nullable=False, comment="JSON: each with what was measured, and its limit"
    ),
    Column("record_count", BigInteger),
    Column("reason", Text),
    Column("message", Text),
    Column("manifest", Text),
    Column("at", UtcTimestamp, nullable=False),
    CheckConstraint(
        "decision IN ('accepted', 'rejected')", name="redrive_partition_verdict_decision"
    ),
)

marker = Table(
    "redrive_partition_marker",
    METADATA,
    Column("partition_id", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("cause", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("because", Text, nullable=False),
    Column("at", UtcTimestamp, nullable=False),
    Column("attempts", Integer, nullable=False, comment="the partition's count when it was set"),
    Column("amount", Integer, comment="of a grant: new attempts; none: as many as the policy has"),
    CheckConstraint(
        "kind IN ('terminal', 'paused', 'grant')", name="redrive_partition_marker_kind"
    ),
)

source = Table(
    "redrive_partition_source",
    METADATA,
    Column("source", BYTES, primary_key=True, comment="locked by whoever hands out its work"),
    Column("paused_at", UtcTimestamp, comment="null: it is not paused"),
    Column(
        "paused_until",
        UtcTimestamp,
        comment="when one probe is let through; none: until somebody says so",
    ),
    Column("because", Text),
    Column("actor", Text),
    Column("signature", Text, comment="of the faults that it is paused for"),
    Column("probes", Integer, nullable=False, server_default=ZERO),
    Column("updated_at", UtcTimestamp, nullable=False),
    Column("tokens", Float(53), comment="starts that its rate still allows, at filled_at"),
    Column("filled_at", UtcTimestamp),
)

dataset = Table(
    "redrive_partition_dataset",
    METADATA,
    Column("source", BYTES, primary_key=True),
    Column("query_name", BYTES, primary_key=True),
    Column("cron", Text),
    Column(
        "fired_at", UtcTimestamp, comment="the last moment of its cron whose work is written down"
    ),
    Column("tokens", Float(53), comment="starts that its rate still allows, at filled_at"),
    Column("filled_at", UtcTimestamp),
)

rollup = Table(
    "redrive_partition_rollup",
    METADATA,
    Column("source", BYTES, primary_key=True),
    Column("query_name", BYTES, primary_key=True),
    Column("logical_date", Date, primary_key=True),
    Column("shade", SmallInteger, primary_key=True, autoincrement=False),
    Column("n", BigInteger, nullable=False),
    postgresql_with=BUSY,
)

range_ = Table(
    "redrive_partition_range",
    METADATA,
    Column("sweep_id", BigInteger, primary_key=True, autoincrement=False),
    Column("lane", SmallInteger, nullable=False),
    Column("datasets", Text, nullable=False, comment="JSON: sources and queries"),
    Column("since", Date, comment="of a grid: customers times days, in order"),
    Column("until", Date),
    Column("customers", Text, comment="JSON"),
    Column("newest", Boolean, nullable=False, server_default=true()),
    Column("picks", LargeBinary, comment="else: the ids that were planned, in order"),
    Column(
        "cursor",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="how many of them have had their turn",
    ),
    Column("share", Float(53), nullable=False),
    Column("halt_on", Float(53), comment="part of its verdicts that may be rejections"),
    Column(
        "again",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="what is accepted already too",
    ),
    Column("amount", Integer, comment="new attempts that each is granted"),
    Column(
        "clear", Boolean, nullable=False, server_default=false(), comment="what is terminal too"
    ),
    Column(
        "skips",
        Text,
        nullable=False,
        server_default=text("'{}'"),
        comment="JSON: how many for which reason",
    ),
    Column("ok", BigInteger, nullable=False, server_default=ZERO, comment="ended accepted"),
    Column("failed", BigInteger, nullable=False, server_default=ZERO, comment="ended without"),
    Column("accepted", BigInteger, nullable=False, server_default=ZERO, comment="verdicts"),
    Column("rejected", BigInteger, nullable=False, server_default=ZERO),
    Column(
        "pardoned",
        BigInteger,
        nullable=False,
        server_default=ZERO,
        comment="verdicts when somebody let it go on",
    ),
    Column("pardoned_rejected", BigInteger, nullable=False, server_default=ZERO),
    Column(
        "withdrawn",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="cancelled, and what was queued taken back",
    ),
    postgresql_with=BUSY,
)
