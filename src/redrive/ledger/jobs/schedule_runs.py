"""Runs of schedules: the stored next run of a command is held while its schedule is paused.

The job key of a run has its planned time. So a run that is held can return to its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from sqlalchemy import exists, select, update

from .. import audit
from ..db.compiled import sql_int
from ..db.connections import Connections
from ..db.job_tables import step
from ..db.session import Session
from ..db.tables import CURRENT, job, kind
from ..model import READY, NewJob, Submitted
from .parking import ensure_kind_row

RUN_TIME = "%Y%m%dT%H%M%SZ"
"""The time of a scheduled run in its job key."""
UNTIL_RESUMED = datetime(9999, 12, 31, tzinfo=timezone.utc)
"""Due time of a stored run of a schedule that is paused without an end."""


def lock_schedules(session: Session, names: Iterable[str], /) -> None:
    """Lock the rows of these job types, in the open transaction.

    The task that stores the next run and an operator who pauses the schedule then follow each
    other: a stored run is either held, or its schedule was not paused.
    """
    for name in sorted(names):
        ensure_kind_row(session, name)
        row = select(kind.c.kind).where(kind.c.kind == name)
        session.core.execute(row.with_for_update())


def hold_runs(
    session: Session, name: str, until: datetime | None, /, *, is_released: bool = False
) -> None:
    """Move stored runs that have not started to the end of the pause, or back to their time."""
    is_run = (job.c.kind == name, job.c.key >= "cron::", job.c.key < "cron:;", CURRENT)
    # A run that sleeps or waits has started, and counts no attempt.
    has_slept = exists().where(step.c.job_id == job.c.id)
    is_unstarted = (job.c.state == sql_int(READY), job.c.attempts == 0, ~has_slept)
    query = select(job.c.id, job.c.key).where(*is_run, *is_unstarted)
    for job_id, key in session.core.execute(query.with_for_update()).all():
        planned_at = run_time(key)
        if planned_at is None:
            continue
        due_at = planned_at
        if not is_released:
            due_at = max(planned_at, UNTIL_RESUMED if until is None else until)
        change = update(job).where(job.c.id == job_id, job.c.state == sql_int(READY))
        session.core.execute(change.values(due_at=due_at))


def run_time(key: str, /) -> datetime | None:
    """Return the planned time of a scheduled run, from its job key. None: it was fired by hand."""
    parts: Sequence[str] = key.split(":", 3)
    try:
        return datetime.strptime(parts[2], RUN_TIME).replace(tzinfo=timezone.utc)
    except (ValueError, IndexError):
        return None


def fire(connections: Connections, run: NewJob, /, *, actor: str, because: str) -> Submitted:
    """Submit a run that an operator fires by hand, with its audit entry.

    Args:
        connections: The connections of the ledger.
        run: The job. Its key has a text beside the time, which keys of planned runs have not.
        actor: Who does this, for the audit log.
        because: Why.
    """
    audit.check_actor(actor, because)
    with connections.write.use() as session, session.transaction("fire"):
        (submitted,) = connections.store.submit_in(session.run, [run])
        what = {"schedule": run.kind, "job": submitted.id}
        audit.write(session, actor=actor, action="schedule.fire", because=because, what=what)
    return submitted
