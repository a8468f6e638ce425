"""Markers: what an operator decides about partitions beside their outcomes: give up, or pause."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import select

from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import partition
from ...ledger.db.session import Session
from ..model import MANUAL, Act, Kind, Marker, status_when_requeued
from ..store.changes import Changes
from ..store.rows import (
    Markers,
    PartitionRow,
    PartitionWork,
    lock_sources,
    lock_with_work,
    new_work,
)
from ..store.statements import chunks
from .limits import CLEARED, UNPAUSED

MAX_AUDITED = 100
"""Partitions that an audit entry names."""
Verb: TypeAlias = Literal["mark_terminal", "clear_terminal", "pause", "unpause"]


@dataclass(frozen=True)
class MarkerChange:
    """A change of an operator to the markers of partitions.

    Its methods change one partition, or return why it is skipped.
    """

    changes: Changes
    actor: str
    because: str
    now: datetime
    draw: Callable[[], float]
    grant: int | None = None

    def mark_terminal(
        self, row: PartitionRow, work: PartitionWork | None, markers: Markers
    ) -> str | None:
        """Let a partition give up until it is cleared. A running run may still be accepted.

        A partition that gave up by itself then counts as given up by the operator. If a newer run
        of an accepted partition was rejected, the partition keeps its accepted run.
        """
        if row.status == "success" and row.last_verdict != "rejected":
            return "accepted already"
        if row.status == "success":
            self._dequeue(work)
            row = row._replace(
                last_verdict="accepted", reason=None, error=None, updated_at=self.now
            )
            self.changes.rows[row.id] = row.with_display_status(is_terminal=False)
            return None
        if "terminal" in markers and markers["terminal"].cause == MANUAL:
            return "marked as given up already"
        self._dequeue(work)
        if row.last_verdict == "rejected" and not (work and work.is_leased):
            row = row._replace(status="failed")
        self.changes.give_up(row, MANUAL, self.actor, self.because, self.now)
        return None

    def clear_terminal(
        self, row: PartitionRow, work: PartitionWork | None, markers: Markers
    ) -> str | None:
        """Queue a partition that gave up, with new attempts. The old ones stay counted."""
        if "terminal" not in markers:
            return "it did not give up"
        self.changes.delete_marker(row.id, "terminal")
        self._set("grant", CLEARED, row, self.grant)
        if work is None and "paused" not in markers:
            self._queue(row)
        row = row._replace(status=status_when_requeued(row.status), updated_at=self.now)
        self.changes.rows[row.id] = row.with_display_status(is_terminal=False)
        return None

    def pause(self, row: PartitionRow, work: PartitionWork | None, markers: Markers) -> str | None:
        """Do not start a partition until it is unpaused. A running run continues."""
        if "paused" in markers:
            return "paused already"
        self._set("paused", "manual", row)
        self._dequeue(work)
        is_leased = work is not None and work.is_leased
        if row.last_verdict == "rejected" and row.status == "pending" and not is_leased:
            row = row._replace(status="failed", updated_at=self.now)
            self.changes.rows[row.id] = row.with_display_status(is_terminal="terminal" in markers)
        return None

    def unpause(
        self, row: PartitionRow, work: PartitionWork | None, markers: Markers
    ) -> str | None:
        """Queue a paused partition now, exempt from `max_age`. Its attempts stay counted."""
        if "paused" not in markers:
            return "not paused"
        self.changes.delete_marker(row.id, "paused")
        if "terminal" in markers or row.status == "success":
            return None
        grant = markers.get("grant")
        if grant is None:
            grant = Marker("grant", UNPAUSED, self.actor, self.because, self.now, 0)
        cause = CLEARED if grant.cause == CLEARED else UNPAUSED
        self.changes.set_marker(row.id, replace(grant, cause=cause))
        if work is None:
            self._queue(row)
            row = row._replace(status="pending", updated_at=self.now)
            self.changes.rows[row.id] = row.with_display_status(is_terminal=False)
        return None

    def _set(
        self,
        kind: Literal["paused", "grant"],
        cause: str,
        row: PartitionRow,
        amount: int | None = None,
    ) -> None:
        request = (self.actor, self.because, self.now)
        self.changes.set_marker(row.id, Marker(kind, cause, *request, row.attempt_count, amount))

    def _dequeue(self, work: PartitionWork | None) -> None:
        if work is not None and not work.is_leased:
            self.changes.end_work(work)

    def _queue(self, row: PartitionRow) -> None:
        kind: Kind = "retry" if row.attempt_count else "initial"
        self.changes.work_inserted[row.id] = new_work(
            row, kind, self.now, f"asked for by {self.actor}", seed=self.draw()
        )


def change_markers(
    session: Session,
    verb: Verb,
    ids: Collection[int],
    actor: str,
    because: str,
    draw: Callable[[], float],
    grant: int | None = None,
    /,
) -> Act:
    """Change the markers of partitions.

    Args:
        session: The session, in a transaction.
        verb: A method of `MarkerChange`.
        actor: Who requested it.
        because: Why.
        draw: Returns a random number from 0 to 1.
        grant: New attempts. None: as many as the policy has.
    """
    audit.check_actor(actor, because)
    now = now_on(session)
    wanted = sorted(set(ids))
    sources: set[str] = set()
    for chunk in chunks(wanted):
        query = select(partition.c.source).where(partition.c.id.in_(chunk)).distinct()
        sources |= set(session.core.execute(query).scalars())
    lock_sources(session, sources, now)
    rows, work_by_id, markers = lock_with_work(session.core, wanted)
    changes = Changes(rows)
    change = getattr(MarkerChange(changes, actor, because, now, draw, grant), verb)
    skipped: dict[str, str] = {}
    changed: list[str] = []
    for row in rows.values():
        reason = change(row, work_by_id.get(row.id), markers.get(row.id, {}))
        if reason is None:
            changed.append(str(row.partition))
        else:
            skipped[str(row.partition)] = reason
    if not changed:
        return Act(0, skipped)
    changes.write(session)
    details: dict[str, Any] = {"count": len(changed), "partitions": changed[:MAX_AUDITED]}
    if grant is not None:
        details["grant"] = grant
    action = f"partition.{verb}"
    entry = audit.write(session, actor=actor, action=action, because=because, what=details)
    return Act(len(changed), skipped, entry.number)
