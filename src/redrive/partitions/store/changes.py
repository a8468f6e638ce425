"""Changes: what one transaction does to partitions, collected and written in a few statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, update

from ...ledger.db.partition_tables import marker, partition, range_, rollup, run, verdict, work
from ...ledger.db.session import Session
from ..model import Marker
from .rows import MARKER_FIELDS, VERDICT_FIELDS, PartitionRow, PartitionWork
from .statements import InListStatement, increment_rows, insert_rows, update_rows, upsert

STARTED_RUN = (
    "partition_id",
    "attempt_no",
    "run_id",
    "raw_run_id",
    "kind",
    "state",
    "lane",
    "sweep_id",
    "worker",
    "leased_at",
)
"""Columns of a run that starts."""
ENDED_RUN = ("state", "ended_at", "note")
"""Columns that change when a run ends."""
VERDICT = ("run_id", *VERDICT_FIELDS)
ROLLUP = ("source", "query_name", "logical_date", "shade", "n")
_DELETE_WORK = InListStatement(work.c.partition_id, delete(work).where)
_DELETE_MARKER = delete(marker).where(
    marker.c.partition_id == bindparam("at_id"), marker.c.kind == bindparam("at_kind")
)


class Changes:
    """The changes of one transaction to locked partitions.

    The rollup follows from the difference to the rows as they were loaded.
    """

    def __init__(
        self, before: Mapping[int, PartitionRow], inserted: Collection[int] = (), /
    ) -> None:
        """Prepare.

        Args:
            before: The rows as they were loaded.
            inserted: Ids that this transaction inserted, so that the rollup has not counted them.
        """
        self._before = before
        self._inserted = frozenset(inserted)
        self.rows: dict[int, PartitionRow] = {}
        self.work: dict[int, PartitionWork] = {}
        self.work_inserted: dict[int, PartitionWork] = {}
        self.work_deleted: set[int] = set()
        self.markers: dict[tuple[int, str], Marker] = {}
        self._markers_deleted: set[tuple[int, str]] = set()
        self.sweep_counts: Counter[tuple[int, str]] = Counter()
        """Added to the counts of sweeps, by sweep and column."""
        self.cursors: dict[int, dict[str, Any]] = {}
        """New values of sweeps that advanced."""

    def row(self, partition_id: int, /) -> PartitionRow:
        """Return a partition with its changes."""
        return self.rows.get(partition_id, self._before[partition_id])

    def set_marker(self, partition_id: int, new: Marker, /) -> None:
        """Set a marker."""
        self._markers_deleted.discard((partition_id, new.kind))
        self.markers[partition_id, new.kind] = new

    def delete_marker(self, partition_id: int, kind: str, /) -> None:
        """Delete a marker."""
        self.markers.pop((partition_id, kind), None)
        self._markers_deleted.add((partition_id, kind))

    def give_up(
        self, row: PartitionRow, cause: str, actor: str, because: str, now: datetime, /
    ) -> None:
        """Mark a partition as terminal."""
        self.set_marker(row.id, Marker("terminal", cause, actor, because, now, row.attempt_count))
        self.rows[row.id] = row._replace(updated_at=now).with_display_status(is_terminal=True)

    def end_work(self, ended: PartitionWork, /) -> None:
        """Delete work that ends without an accepted run, and count it as failed for its sweep."""
        self.work_deleted.add(ended.partition_id)
        self.sweep_counts[ended.sweep_id, "failed"] += 1

    def write(
        self,
        session: Session,
        /,
        *,
        started: Sequence[dict[str, Any]] = (),
        ended: Sequence[dict[str, Any]] = (),
        verdicts: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Write all changes, in the order in which all transactions lock.

        Args:
            session: The session, in a transaction.
            started: Runs that start.
            ended: Runs that end.
            verdicts: Verdicts on runs.
        """
        rows = [row._asdict() for _, row in sorted(self.rows.items())]
        update_rows(session, partition, "id", PartitionRow._fields[5:], rows)
        _DELETE_WORK.run(session.core, sorted(self.work_deleted))
        kept = [
            changed._asdict()
            for partition_id, changed in sorted(self.work.items())
            if partition_id not in self.work_deleted
        ]
        update_rows(session, work, "partition_id", PartitionWork._fields[3:], kept)
        queued = [new._asdict() for _, new in sorted(self.work_inserted.items())]
        insert_rows(session, work, PartitionWork._fields, queued)
        insert_rows(session, run, STARTED_RUN, started)
        by_run = sorted(ended, key=lambda row: str(row["run_id"]))
        update_rows(session, run, "run_id", ENDED_RUN, by_run)
        insert_rows(session, verdict, VERDICT, verdicts)
        self._write_markers(session)
        _write_sweeps(session.core, self.sweep_counts, self.cursors)
        self._write_rollup(session)

    def _write_markers(self, session: Session) -> None:
        if self._markers_deleted:
            session.core.execute(
                _DELETE_MARKER,
                [{"at_id": at, "at_kind": kind} for at, kind in sorted(self._markers_deleted)],
            )
        if self.markers:
            statement = upsert(session, marker)
            values = {name: statement.excluded[name] for name in MARKER_FIELDS[1:]}
            session.core.execute(
                statement.on_conflict_do_update(
                    index_elements=list(marker.primary_key), set_=values
                ),
                [
                    {"partition_id": partition_id, **asdict(new)}
                    for (partition_id, _), new in sorted(self.markers.items())
                ],
            )

    def _write_rollup(self, session: Session) -> None:
        moved: Counter[tuple[str, str, date, int]] = Counter()
        for partition_id, row in self.rows.items():
            if partition_id not in self._inserted:
                moved[*row[1:4], self._before[partition_id].shade] -= 1
            moved[*row[1:4], row.shade] += 1
        counts = [(*key, count) for key, count in sorted(moved.items()) if count]
        increment_rows(
            session, rollup, ROLLUP, [dict(zip(ROLLUP, row, strict=True)) for row in counts]
        )


def _write_sweeps(
    connection: Connection,
    counts: Counter[tuple[int, str]],
    cursors: Mapping[int, Mapping[str, Any]],
) -> None:
    values: dict[int, dict[str, Any]] = {sweep_id: dict(new) for sweep_id, new in cursors.items()}
    for (sweep_id, name), count in counts.items():
        if sweep_id and count:
            values.setdefault(sweep_id, {})[name] = range_.c[name] + count
    for sweep_id, new in sorted(values.items()):
        connection.execute(update(range_).where(range_.c.sweep_id == sweep_id).values(new))
