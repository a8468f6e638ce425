"""Marking: what a person decides about partitions beside their outcomes: given up, or put aside for now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select

from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import partition
from ...ledger.db.session import Session
from ..model import Act, Kind
from ..status import requeued
from ..store.rows import Changes, Mark, Row, Work, chunks, hold_sources, locked, marks, works
from .max_age import CLEARED, UNPAUSED

LISTED = 100


def mark_terminal(session: Session, ids: Collection[int], actor: str, because: str, /) -> Act:
    """Not tried any more, until somebody clears it. What is running now goes on, and may still be accepted."""

    def one(changes: Changes, row: Row, mine: Work | None, marked: Mapping[str, Mark], now: datetime) -> str | None:
        if row.status == "success":
            return "accepted already"
        if "terminal" in marked:
            return "terminal already"
        changes.mark(Mark(row.id, "terminal", "manual", actor, because, now, row.attempt_count, None))
        _out(changes, row, mine)
        status = "failed" if row.last_verdict == "rejected" and not (mine and mine.leased) else row.status
        changes.rows[row.id] = row._replace(status=status, updated_at=now).shaded(True)
        return None

    return _each(session, "partition.mark_terminal", ids, actor, because, one)


def clear_terminal(
    session: Session, ids: Collection[int], actor: str, because: str, grant: int | None, draw: Callable[[], float], /
) -> Act:
    """Tried again, now, with a new budget: what was spent stays counted, and counts no more against it."""

    def one(changes: Changes, row: Row, mine: Work | None, marked: Mapping[str, Mark], now: datetime) -> str | None:
        if "terminal" not in marked:
            return "not terminal"
        changes.unmark(row.id, "terminal")
        changes.mark(Mark(row.id, "grant", CLEARED, actor, because, now, row.attempt_count, grant))
        if mine is None and "paused" not in marked:
            changes.new_work[row.id] = _queued(row, draw(), now, actor)
        changes.rows[row.id] = row._replace(status=requeued(row.status), updated_at=now).shaded(False)
        return None

    return _each(session, "partition.clear_terminal", ids, actor, because, one, grant=grant)


def pause(session: Session, ids: Collection[int], actor: str, because: str, /) -> Act:
    """Put aside: not tried until somebody says so. What is running now goes on."""

    def one(changes: Changes, row: Row, mine: Work | None, marked: Mapping[str, Mark], now: datetime) -> str | None:
        if "paused" in marked:
            return "paused already"
        changes.mark(Mark(row.id, "paused", "manual", actor, because, now, row.attempt_count, None))
        _out(changes, row, mine)
        if row.last_verdict == "rejected" and row.status == "pending" and not (mine and mine.leased):
            changes.rows[row.id] = row._replace(status="failed", updated_at=now).shaded("terminal" in marked)
        return None

    return _each(session, "partition.pause", ids, actor, because, one)


def unpause(session: Session, ids: Collection[int], actor: str, because: str, draw: Callable[[], float], /) -> Act:
    """Queue it now, exempt from `max_age`. Its number of attempts stays as it was."""

    def one(changes: Changes, row: Row, mine: Work | None, marked: Mapping[str, Mark], now: datetime) -> str | None:
        if "paused" not in marked:
            return "not paused"
        changes.unmark(row.id, "paused")
        if "terminal" in marked or row.status == "success":
            return None
        grant = marked.get("grant") or Mark(row.id, "grant", UNPAUSED, actor, because, now, 0, None)
        changes.mark(grant._replace(cause=CLEARED if grant.cause == CLEARED else UNPAUSED))
        if mine is None:
            changes.new_work[row.id] = _queued(row, draw(), now, actor)
            changes.rows[row.id] = row._replace(status="pending", updated_at=now).shaded(False)
        return None

    return _each(session, "partition.unpause", ids, actor, because, one)


def _each(
    session: Session, action: str, ids: Collection[int], actor: str, because: str, one: Callable[..., str | None], **more: Any
) -> Act:
    audit.check_actor(actor, because)
    now = now_on(session)
    asked = sorted(set(ids))
    names: set[str] = set()
    for some in chunks(asked):
        names |= set(session.core.execute(select(partition.c.source).where(partition.c.id.in_(some)).distinct()).scalars())
    hold_sources(session, names, now)
    was = locked(session.core, asked)
    waiting, marked = works(session.core, asked), marks(session.core, asked)
    changes = Changes(was)
    skipped: dict[str, str] = {}
    done: list[str] = []
    for id_, row in was.items():
        why = one(changes, row, waiting.get(id_), marked.get(id_, {}), now)
        if why is None:
            done.append(str(row.partition))
        else:
            skipped[str(row.partition)] = why
    if not done:
        return Act(0, skipped)
    changes.write(session)
    what = {"count": len(done), "partitions": done[:LISTED], **{name: value for name, value in more.items() if value is not None}}
    return Act(len(done), skipped, audit.write(session, actor=actor, action=action, because=because, what=what).number)


def _out(changes: Changes, row: Row, mine: Work | None) -> None:
    """Out of the queue, unless somebody has it."""
    if mine is not None and not mine.leased:
        changes.idle.add(row.id)
        changes.ranges[mine.sweep_id, "failed"] += 1


def _queued(row: Row, seed: float, now: datetime, actor: str) -> Work:
    kind: Kind = "retry" if row.attempt_count else "initial"
    return Work(
        row.id, row.source, row.query_name, 1, 0, now, now, kind, None, seed, f"asked for by {actor}", 0, None, None, None, None
    )
