"""Changes of jobs that have not ended: cancel, run now, reschedule and reprioritise them.

A queued job is cancelled at once. A running job is asked to stop: its worker reads the request
within a second, and the end of the attempt decides. A failed attempt makes it cancelled, and a
successful one makes it done.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import bindparam, func, literal, null, select, update

from .. import audit
from ..db.clock import now_on
from ..db.compiled import sql_int
from ..db.connections import Connections
from ..db.job_tables import step
from ..db.session import Session
from ..db.tables import CHANNEL, dead, job
from ..model import CANCELLED, HELD, LEASED, PRIORITIES, QUARANTINE, READY, STATES, Job
from ..stats.counters import add, add_failures
from ..stats.failure_groups import FailureDelta, merge_deltas
from ..store import sequences
from ..sweep import JobChange
from ..timestamps import to_micros

STOPPING = "stopping"
"""What became of a running job: its worker was asked to stop it."""
_ENDED = {
    "done": "done",
    "dropped": "discarded",
    "pruned": "done",
    "cancelled": "cancelled already",
}
_COLUMNS = (
    *("id", "kind", "state", "current", "priority", "due_at", "deadline", "started_at", "worker"),
    *("dead_id", "cancel_at", "waits_for", "sequence"),
)


class ControlResult(NamedTuple):
    """The result of an action on jobs."""

    done: dict[int, str]
    """By job id: what became of it."""
    skipped: dict[int, str]
    """By job id: why nothing changed."""


Refusal: TypeAlias = Callable[[Any, datetime], str | None]
"""Takes a queued job and the time. Returns why an action does not apply, or None."""


class JobControl:
    """Changes of jobs that have not ended, as `Ledger.control`.

    Each call is one transaction with its audit entry. Threads and forked children may share one.
    """

    def __init__(self, connections: Connections, notify: Callable[[], None]) -> None:
        self._write = connections.write
        self._notify = notify

    def cancel(self, ids: Sequence[int], /, *, actor: str, because: str) -> ControlResult:
        """Cancel jobs: queued ones at once, running ones as soon as their workers know.

        The key of a cancelled job is free: submitting it again creates a new job.

        Args:
            ids: Ids of jobs.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            What became of each job, and the jobs that were skipped with the reason.
        """
        return self._do(JobChange("cancel"), ids, actor=actor, because=because)

    def run_now(self, ids: Sequence[int], /, *, actor: str, because: str) -> ControlResult:
        """Make queued jobs due now. A sleep ends.

        Args:
            ids: Ids of jobs.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            What became of each job, and the jobs that were skipped with the reason.
        """
        return self._do(JobChange("run_now"), ids, actor=actor, because=because)

    def reschedule(
        self, ids: Sequence[int], due: datetime, /, *, actor: str, because: str
    ) -> ControlResult:
        """Change when queued jobs are due. A sleep, or the wait for a signal, ends then.

        Args:
            ids: Ids of jobs.
            due: The time.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            What became of each job, and the jobs that were skipped with the reason.
        """
        to_micros(due)
        return self._do(JobChange("reschedule", due=due), ids, actor=actor, because=because)

    def prioritise(
        self, ids: Sequence[int], priority: int, /, *, actor: str, because: str
    ) -> ControlResult:
        """Change the priority of queued jobs.

        Args:
            ids: Ids of jobs.
            priority: From -2 (first) to 2 (last).
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            What became of each job, and the jobs that were skipped with the reason.
        """
        check_priority(priority)
        change = JobChange("prioritise", priority=priority)
        return self._do(change, ids, actor=actor, because=because)

    def _do(
        self, change: JobChange, ids: Sequence[int], /, *, actor: str, because: str
    ) -> ControlResult:
        audit.check_actor(actor, because)
        with self._write.use() as session:
            if change.act == "cancel":
                with session.transaction("cancel"):
                    result = _apply_audited(session, ids, change, actor=actor, because=because)
            else:
                with session.transaction("reschedule"):
                    result = _apply_audited(session, ids, change, actor=actor, because=because)
        self._notify()
        return result


def _apply_audited(
    session: Session, ids: Sequence[int], change: JobChange, /, *, actor: str, because: str
) -> ControlResult:
    """Apply a change in the open transaction, with its audit entry."""
    result = apply_in(session, ids, change)
    if result.done:
        jobs = {str(id_): outcome for id_, outcome in result.done.items()}
        what = {"jobs": jobs, **change.arguments}
        audit.write(session, actor=actor, action=f"job.{change.act}", because=because, what=what)
    return result


def apply_in(session: Session, ids: Sequence[int], change: JobChange, /) -> ControlResult:
    """Apply a change in the open transaction. The caller writes to the audit log."""
    if change.act == "cancel":
        return cancel_in(session, ids)
    if change.act == "prioritise":
        check_priority(change.priority)
        values: dict[str, Any] = {"priority": change.priority}
        return _change(session, ids, change, values, f"priority {change.priority}")
    is_now = change.act == "run_now"
    values = {"due_at": now_on(session) if is_now else change.due}
    return _change(session, ids, change, values, "due now" if is_now else "rescheduled")


# --- Cancel


def cancel_in(session: Session, ids: Sequence[int], /) -> ControlResult:
    """Cancel jobs in the open transaction. The caller writes to the audit log."""
    rows, skipped = _lock(session, ids, "cancel")
    now = now_on(session)
    queued, running = [], []
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.state in (READY, HELD) or (row.state == LEASED and row.started_at is None):
            queued.append(row)
            bucket = "leased" if row.state == LEASED else "ready"
            changes[row.kind].update({bucket: -1, "cancelled": 1})
        elif row.cancel_at is None:
            running.append(row)
        else:
            skipped[row.id] = "asked to stop already"
    add(session, changes)
    end_cancelled(session, queued, now)
    if running:
        asked = update(job).where(job.c.id.in_([row.id for row in running]))
        session.core.execute(asked.values(cancel_at=now))
    done = {row.id: "cancelled" for row in queued} | {row.id: STOPPING for row in running}
    return ControlResult(dict(sorted(done.items())), skipped)


def end_cancelled(session: Session, rows: Sequence[Any], now: datetime, /) -> None:
    """Write that jobs are cancelled. The caller has locked them, and updates their counters.

    Args:
        session: A session with a transaction.
        rows: The jobs, with their ids, job types, sequences and dead letters.
        now: The time.
    """
    if not rows:
        return
    values = {
        "state": CANCELLED,
        "ended_at": now,
        "cancel_at": func.coalesce(job.c.cancel_at, literal(now, job.c.cancel_at.type)),
        "lease_until": null(),
        "waits_for": null(),
    }
    session.core.execute(update(job).where(job.c.id.in_([row.id for row in rows])).values(values))
    sequences.release(session, rows)
    letters = {row.dead_id: row.id for row in rows if row.dead_id is not None}
    return_letters(session, letters, now)


def return_letters(session: Session, replays: Mapping[int, int], now: datetime, /) -> None:
    """Make dead letters pending again, because their replays were cancelled.

    Args:
        session: A session with a transaction.
        replays: The cancelled job, by dead letter.
        now: The time.
    """
    if not replays:
        return
    values = {"status": "pending", "job_id": bindparam("to_job"), "updated_at": now}
    returned = update(dead).where(dead.c.id == bindparam("of_id")).values(values)
    parameters = [{"of_id": id_, "to_job": job_id} for id_, job_id in sorted(replays.items())]
    session.core.execute(returned, parameters)
    letters = select(dead.c.kind, dead.c.signature).where(dead.c.id.in_(list(replays)))
    groups = [
        ((kind, signature or ""), FailureDelta(pending=1))
        for kind, signature in session.core.execute(letters)
    ]
    add_failures(session, merge_deltas(groups), now)


def cancel_requests(session: Session, worker: str, /) -> list[tuple[int, int, int]]:
    """Return the running jobs of a worker that were asked to stop: id, fence and token."""
    query = select(job.c.id, job.c.fence, job.c.token).where(
        job.c.state == sql_int(LEASED), job.c.cancel_at.is_not(None), job.c.worker == worker
    )
    return [(row[0], row[1], row[2]) for row in session.core.execute(query)]


# --- Run now, reschedule, reprioritise


def _refusal(change: JobChange) -> Refusal:
    """Return the function that says why a queued job is not changed."""
    if change.act == "run_now":
        return _refuse_run_now
    if change.act == "reschedule":
        assert change.due is not None
        return partial(_refuse_reschedule, change.due)
    return _refuse_priority


def _refuse_run_now(row: Any, now: datetime) -> str | None:
    if STATES[_state_of(row)] == "held":
        return "held: an earlier job of its sequence has not ended"
    if row.waits_for:
        return (
            f"waits for the signal {row.waits_for!r}; send the signal, "
            "or reschedule the job to end the wait"
        )
    return "due already" if row.due_at <= now else None


def _refuse_reschedule(due: datetime, row: Any, _now: datetime) -> str | None:
    if row.deadline is not None and due >= row.deadline:
        return f"its deadline, {row.deadline.isoformat(timespec='seconds')}, is before that"
    return None


def _refuse_priority(row: Any, _now: datetime) -> str | None:
    if row.priority == QUARANTINE:
        return "quarantined: it was running when its worker died, and runs alone"
    return None


def _state_of(row: Any) -> int:
    """Return the stored state of a row, or of a job."""
    return int(row.state_stored if isinstance(row, Job) else row.state)


def _describe_lease(row: Any) -> str:
    return "running" if row.started_at is not None else f"claimed by {row.worker}, about to start"


def check_priority(priority: object, /) -> None:
    """Reject a priority that does not exist."""
    if isinstance(priority, bool) or priority not in PRIORITIES:
        raise ValueError(
            f"invalid priority {priority!r}: use a whole number from {PRIORITIES[0]} (first) "
            f"to {PRIORITIES[-1]} (last)"
        )


def _change(
    session: Session,
    ids: Sequence[int],
    change: JobChange,
    values: Mapping[str, Any],
    outcome: str,
) -> ControlResult:
    """Change queued jobs in the open transaction.

    Args:
        session: A session with a transaction.
        ids: The jobs.
        change: The change.
        values: New values of columns.
        outcome: What becomes of a changed job.
    """
    rows, skipped = _lock(session, ids, change.act)
    now, refuse = now_on(session), _refusal(change)
    changed = []
    for row in rows:
        if row.state == LEASED:
            problem: str | None = _describe_lease(row)
        else:
            problem = refuse(row, now)
        if problem is None:
            changed.append(row)
        else:
            skipped[row.id] = problem
    if changed:
        of_changed = job.c.id.in_([row.id for row in changed])
        session.core.execute(update(job).where(of_changed).values(values))
        waiting = [row.id for row in changed if row.waits_for is not None]
        if waiting and "due_at" in values:
            # A sleep ends then. A wait for a signal keeps its timeout.
            is_open = (step.c.job_id.in_(waiting), step.c.act == "sleep")
            moved = update(step).where(*is_open, step.c.ended_at.is_(None))
            session.core.execute(moved.values(wake_at=values["due_at"]))
        session.notify(CHANNEL)
    return ControlResult({row.id: outcome for row in changed}, skipped)


def _lock(session: Session, ids: Iterable[int], act: str) -> tuple[list[Any], dict[int, str]]:
    """Return the jobs that have not ended, locked in one order, and why others are skipped."""
    columns = (job.c[name] for name in _COLUMNS)
    query = select(*columns).where(job.c.id.in_(list(ids))).order_by(job.c.id)
    rows = session.core.execute(query.with_for_update()).all()
    skipped = dict.fromkeys(ids, "not found")
    alive = []
    for row in rows:
        if row.state in (READY, LEASED, HELD):
            alive.append(row)
            skipped.pop(row.id, None)
        else:
            skipped[row.id] = _describe_end(act, row.state, row.current)
    return alive, skipped


def _describe_end(act: str, state: int, current: bool) -> str:
    if not current and STATES[state] == "dropped":
        return "replaced by a replay"
    if STATES[state] == "dead":
        verb = "discard" if act == "cancel" else "replay"
        return f"a dead letter; {verb} it instead with `redrive dead {verb}`"
    return _ENDED[STATES[state]]


def why_unchanged(row: Job, change: JobChange, now: datetime, /) -> str | None:
    """Return why a change does not apply to a job, or None if it does.

    Args:
        row: The job.
        change: The change.
        now: The time.
    """
    if row.state_stored not in (READY, LEASED, HELD):
        return _describe_end(change.act, row.state_stored, row.current)
    if change.act == "cancel":
        return "asked to stop already" if row.cancel_at is not None else None
    if row.state_stored == LEASED:
        return _describe_lease(row)
    return _refusal(change)(row, now)
