"""Stored rows of partitions: their types, and how they are loaded and locked.

All transactions lock in the same order, so that they do not deadlock: sources, sweeps, partitions
by id, work, runs, verdicts, markers, ranges, rollups. Only the holder of the source row lock may
lease or withdraw queued work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, bindparam, select

from ...ledger.db.partition_tables import marker, partition, source, work
from ...ledger.db.session import Session
from ..key import Partition
from ..model import DISPLAY_STATUSES, Decision, DisplayStatus, Kind, Lane, Marker, Status
from ..model import display_status as derive_display_status
from .statements import InListStatement, upsert

POLICY = "redrive"
"""Actor of what the policy decides."""


class PartitionRow(NamedTuple):
    """The outcomes of a partition."""

    id: int
    source: str
    query_name: str
    logical_date: date
    customer_id: str
    status: Status
    shade: int
    current_run_id: str | None
    current_raw_id: str | None
    current_attempt_no: int
    record_count: int | None
    attempt_count: int
    dispatch_count: int
    last_verdict: Decision | None
    verdict_at: datetime | None
    reason: str | None
    error: str | None
    updated_at: datetime

    @property
    def partition(self) -> Partition:
        """Its key."""
        return Partition(self.source, self.customer_id, self.query_name, self.logical_date)

    @property
    def dataset(self) -> tuple[str, str]:
        """Its source and query."""
        return self.source, self.query_name

    @property
    def display_status(self) -> DisplayStatus:
        """Its status as people see it."""
        return DISPLAY_STATUSES[self.shade]

    def with_display_status(self, *, is_terminal: bool) -> PartitionRow:
        """Return the row with the display status that follows from its outcomes."""
        status = derive_display_status(self.status, self.last_verdict, is_terminal=is_terminal)
        return self._replace(shade=DISPLAY_STATUSES.index(status))


class PartitionWork(NamedTuple):
    """The queued or leased work on a partition."""

    partition_id: int
    source: str
    query_name: str
    lane: int
    sweep_id: int
    due_at: datetime
    queued_at: datetime
    kind: Kind
    raw_run_id: str | None
    seed: float
    strategy: str | None
    lost: int = 0
    attempt_no: int | None = None
    run_id: str | None = None
    worker: str | None = None
    lease_until: datetime | None = None

    @property
    def is_leased(self) -> bool:
        """Whether a worker has it."""
        return self.lease_until is not None

    def requeue(self, due_at: datetime, strategy: str, /) -> PartitionWork:
        """Return it without its lease."""
        return self._replace(
            due_at=due_at,
            strategy=strategy,
            attempt_no=None,
            run_id=None,
            worker=None,
            lease_until=None,
        )


def new_work(
    row: PartitionRow,
    kind: Kind,
    due_at: datetime,
    strategy: str,
    /,
    *,
    seed: float,
    lane: int = Lane.RETRY,
    sweep_id: int = 0,
    queued_at: datetime | None = None,
) -> PartitionWork:
    """Return new work on a partition."""
    return PartitionWork(
        row.id,
        row.source,
        row.query_name,
        int(lane),
        sweep_id,
        due_at,
        queued_at or due_at,
        kind,
        None,
        seed,
        strategy,
    )


class SourceRow(NamedTuple):
    """A source, as it is stored."""

    source: str
    paused_at: datetime | None
    paused_until: datetime | None
    because: str | None
    actor: str | None
    signature: str | None
    probes: int
    updated_at: datetime
    tokens: float | None
    filled_at: datetime | None

    @property
    def is_paused_by_policy(self) -> bool:
        """Whether it is paused because of an outage, not by an operator."""
        return self.paused_at is not None and self.actor == POLICY


VERDICT_FIELDS = (
    "decision",
    "validator",
    "version",
    "checks",
    "record_count",
    "reason",
    "message",
    "manifest",
    "at",
)
"""Columns of a verdict, without its run."""
MARKER_FIELDS = tuple(field.name for field in fields(Marker))
Markers: TypeAlias = Mapping[str, Marker]
"""The markers of a partition, by kind."""

PARTITION_COLUMNS = tuple(partition.c[name] for name in PartitionRow._fields)
SOURCE_COLUMNS = tuple(source.c[name] for name in SourceRow._fields)
_WORK_COLUMNS = tuple(work.c[name] for name in PartitionWork._fields)
_MARKER_COLUMNS = (marker.c.partition_id, *(marker.c[name] for name in MARKER_FIELDS))
_PARTITIONS = select(*PARTITION_COLUMNS).order_by(partition.c.id)
_READ_PARTITIONS = InListStatement(partition.c.id, _PARTITIONS.where)
_LOCK_PARTITIONS = InListStatement(partition.c.id, _PARTITIONS.with_for_update().where)
_READ_WORK = InListStatement(work.c.partition_id, select(*_WORK_COLUMNS).where)
_READ_MARKERS = InListStatement(marker.c.partition_id, select(*_MARKER_COLUMNS).where)
_LOCK_SOURCES = (
    select(*SOURCE_COLUMNS)
    .where(source.c.source.in_(bindparam("names", expanding=True)))
    .order_by(source.c.source)
    .with_for_update()
)


def lock_partitions(connection: Connection, ids: Iterable[int], /) -> dict[int, PartitionRow]:
    """Load partitions, and lock them until the transaction ends."""
    return _load(connection, _LOCK_PARTITIONS, ids, PartitionRow)


def read_partitions(connection: Connection, ids: Iterable[int], /) -> dict[int, PartitionRow]:
    """Load partitions."""
    return _load(connection, _READ_PARTITIONS, ids, PartitionRow)


def read_work(connection: Connection, ids: Iterable[int], /) -> dict[int, PartitionWork]:
    """Load the work on partitions. A partition that is neither queued nor running has none."""
    return _load(connection, _READ_WORK, ids, PartitionWork)


def _load(
    connection: Connection, statement: InListStatement, ids: Iterable[int], row_type: Any
) -> dict[int, Any]:
    return {row[0]: row_type._make(row) for row in statement.rows(connection, sorted(set(ids)))}


def read_markers(connection: Connection, ids: Iterable[int], /) -> dict[int, dict[str, Marker]]:
    """Load the markers of partitions, by id and kind."""
    markers: dict[int, dict[str, Marker]] = {}
    for row in _READ_MARKERS.rows(connection, sorted(set(ids))):
        markers.setdefault(row[0], {})[row[1]] = Marker(*row[1:])
    return markers


class LockedPartitions(NamedTuple):
    """Partitions that are locked until the transaction ends, with their work and markers."""

    rows: dict[int, PartitionRow]
    work: dict[int, PartitionWork]
    markers: dict[int, dict[str, Marker]]


def lock_with_work(connection: Connection, ids: Sequence[int], /) -> LockedPartitions:
    """Lock partitions, and load their work and markers.

    The work is read after the lock: on Postgres a joined row would be as old as the wait.
    """
    rows = lock_partitions(connection, ids)
    return LockedPartitions(rows, read_work(connection, ids), read_markers(connection, ids))


def lock_sources(session: Session, names: Iterable[str], now: datetime, /) -> dict[str, SourceRow]:
    """Load sources, and lock them until the transaction ends. Missing rows are inserted."""
    wanted = sorted(set(names))
    rows = _lock_sources(session, wanted)
    if missing := [name for name in wanted if name not in rows]:
        statement = upsert(session, source).on_conflict_do_nothing(index_elements=[source.c.source])
        new = [{"source": name, "updated_at": now} for name in missing]
        session.core.execute(statement, new)
        rows |= _lock_sources(session, missing)
    return rows


def _lock_sources(session: Session, names: list[str]) -> dict[str, SourceRow]:
    rows = session.core.execute(_LOCK_SOURCES, {"names": names})
    return {row[0]: SourceRow._make(row) for row in rows}
