"""Sweeps: bulk operations on dead letters, stored before they begin.

If a process is killed, another one continues. Bulk operations on partitions are sweeps, too. The
control plane of partitions runs them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from ...errors import NotAllowed
from .. import audit
from ..db.clock import now_on
from ..db.compiled import sql_int
from ..db.connections import Connections
from ..db.partition_tables import range_
from ..db.session import Session
from ..db.tables import attempt, job, sweep, sweep_item
from ..model import DEAD, DONE, DROPPED, FAILED, LEASED, PRUNED, READY
from .dead_letters import BulkResult, discard_in, replay_in
from .lease_recovery import REFUNDED_REASONS

Act: TypeAlias = Literal["replay", "discard"]
DEAD_LETTER_ACTS: tuple[Act, ...] = ("replay", "discard")
SweepState: TypeAlias = Literal["running", "paused", "halted", "cancelled", "done"]
MAX_STEP_ITEMS = 100
"""Dead letters in one transaction."""
MAX_AUDITED_IDS = 100
"""Up to this many dead letters are listed in the audit entry."""
CANARY_POLL_SECONDS = 1.0
CATCH_UP_SECONDS = 0.25
"""Time of the rate that a late step may make up for. More would cause a burst after every pause."""
NEUTRAL_REASONS = ("again", "released", *REFUNDED_REASONS)
"""Reasons of attempts that say nothing about the job: it asked to run later, its worker stopped, or
an outage of its service or of the ledger ended the attempt."""
MAX_ERROR_CHARS = 200
"""Characters of an error in the reason of a halt."""
MOVES: Mapping[str, tuple[frozenset[SweepState], SweepState]] = {
    "pause": (frozenset(("running",)), "paused"),
    # A running sweep can be resumed, because its process may be dead.
    "resume": (frozenset(("running", "paused", "halted")), "running"),
    "cancel": (frozenset(("running", "paused", "halted")), "cancelled"),
}
"""What an operator may do to a sweep: in which states, and the state afterwards."""
PAST_TENSE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


class Sweep(NamedTuple):
    """The progress of a bulk operation. Immutable."""

    id: int
    act: str
    state: SweepState
    actor: str
    because: str
    selection: str | None
    rate: float | None
    canary: int
    passed: bool
    max_replays: int | None
    total: int
    made: int
    skipped: int
    reason: str | None
    next_at: datetime
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None

    @property
    def left(self) -> int:
        """Number of items that are still to do."""
        return self.total - self.made - self.skipped

    @property
    def ended(self) -> bool:
        """Whether nothing more will be done."""
        return self.state in ("cancelled", "done")

    @property
    def halted_by_canary(self) -> bool:
        """Whether it stopped because its canary failed, and that was not accepted."""
        return self.state == "halted" and self.canary > 0 and not self.passed


class SweepItem(NamedTuple):
    """A dead letter of a sweep, with the result."""

    position: int
    dead_id: int
    outcome: str | None
    job_id: int | None
    note: str | None
    at: datetime | None
    job_state: int | None
    """Stored state of the job that a replay created. None: there is no such job any more."""
    attempts: int | None = None
    """Attempts of that job."""
    error: str | None = None
    """Error of that job's last attempt."""
    current: bool | None = None
    """False: a later replay has replaced that job."""


class Canary(NamedTuple):
    """The first jobs of a sweep. A job has failed with its first failed attempt."""

    size: int
    done: int
    failed: int
    """Jobs with a failed attempt that are not done, including dead ones."""
    dead: int
    error: str | None
    """First line of the last error."""

    @property
    def problem(self) -> str | None:
        """Why the rest must not follow. None: nothing has failed so far.

        It is stored, so it does not say which of the failed jobs are being retried.
        """
        if not self.failed:
            return None
        error = f": {self.error[:MAX_ERROR_CHARS]}" if self.error else ""
        return f"canary failed, {self.failed} of the first {self.size}{error}"


class SweepStep(NamedTuple):
    """The result of one step, and the sweep after it."""

    sweep: Sweep
    done: dict[int, int]
    skipped: dict[int, str]
    wait: float
    """Seconds until the next step."""


class StepPlan(NamedTuple):
    """What the next step may do: process items, wait or halt."""

    items: int
    wait: float = 0.0
    halt: str | None = None
    passed: bool = False
    """Whether the canary has passed."""


def plan_step(current: Sweep, canary: Canary, early: float, /) -> StepPlan:
    """Decide how many items may be processed now. Pure.

    Args:
        current: The sweep.
        canary: Its first jobs.
        early: Seconds until the rate allows more.
    """
    in_canary = bool(current.canary) and not current.passed and current.act != "discard"
    if in_canary and canary.problem is not None:
        return StepPlan(0, halt=canary.problem)
    if early > 0:
        polls = in_canary and current.made
        return StepPlan(0, wait=min(early, CANARY_POLL_SECONDS) if polls else early)
    most = MAX_STEP_ITEMS
    if current.rate is not None:
        most = max(1, min(MAX_STEP_ITEMS, int(current.rate)))
    most = min(most, current.left)
    if not in_canary:
        return StepPlan(most, passed=current.passed)
    if current.made < current.canary:
        return StepPlan(min(most, current.canary - current.made))
    if canary.done < current.canary:
        return StepPlan(0, wait=CANARY_POLL_SECONDS)
    return StepPlan(most, passed=True)


class Sweeps:
    """The sweeps of one ledger. Threads and forked children may share it.

    Args:
        connections: Connections of the ledger.
        notify: Wakes the workers of this process.
    """

    def __init__(self, connections: Connections, notify: Callable[[], object]) -> None:
        self._write = connections.write
        self._read = connections.read
        self._notify = notify

    def begin(
        self,
        act: Act,
        ids: Sequence[int],
        /,
        *,
        actor: str,
        because: str,
        rate: float | None = None,
        canary: int = 0,
        max_replays: int | None = None,
        selection: Mapping[str, Any] | None = None,
    ) -> Sweep:
        """Store a sweep. `step` carries it out.

        Args:
            act: What to do.
            ids: The dead letters, in this order.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.
            rate: Maximum number per second.
            canary: Number of items to process first. The rest follows only if all are done.
            max_replays: Skip dead letters that were replayed this often.
            selection: How the dead letters were selected.
        """
        audit.check_actor(actor, because)
        with self._write.use() as session, session.transaction("sweep") as connection:
            now = now_on(session)
            values: dict[str, Any] = {
                "act": act,
                "actor": actor,
                "because": because,
                "rate": rate,
                "canary": min(canary, len(ids)),
                "max_replays": max_replays,
                "total": len(ids),
                "selection": json.dumps(selection, default=str) if selection else None,
                **dict.fromkeys(("next_at", "created_at", "updated_at"), now),
            }
            if not ids:
                values |= {"state": "done", "ended_at": now}
            new = insert(sweep).values(values).returning(sweep.c.id)
            sweep_id = connection.execute(new).scalar_one()
            if ids:
                items = [
                    {"sweep_id": sweep_id, "position": position, "dead_id": dead_id}
                    for position, dead_id in enumerate(ids)
                ]
                connection.execute(insert(sweep_item), items)
            what = {
                "sweep": sweep_id,
                "count": len(ids),
                "letters": _ids_or_digest(ids),
                "rate": rate,
                "canary": canary,
            }
            audit.write(session, actor=actor, action=f"dead.{act}", because=because, what=what)
            return _require(connection, sweep_id)

    def step(self, sweep_id: int, /) -> SweepStep:
        """Process the next items. Processes may do this at once: each item is processed once."""
        with self._write.use() as session:
            result = _step(session, sweep_id)
        if result.done:
            self._notify()
        return result

    def move(
        self,
        sweep_id: int,
        verb: str,
        /,
        *,
        actor: str,
        because: str,
        accept_failed_canary: bool = False,
    ) -> Sweep:
        """Pause, resume or cancel a sweep.

        Args:
            sweep_id: Id of the sweep.
            verb: `pause`, `resume` or `cancel`.
            actor: Who does it.
            because: Why.
            accept_failed_canary: Resume a sweep whose canary failed, without another canary.

        Raises:
            NotAllowed: This is not possible in its state, or its canary failed.
        """
        audit.check_actor(actor, because)
        allowed, after = MOVES[verb]
        with self._write.use() as session, session.transaction("sweep") as connection:
            now = now_on(session)
            current = _require(connection, sweep_id, lock=True)
            if current.state not in allowed:
                problem = f"{current.state} and cannot be {PAST_TENSE[verb]}"
                if current.state == after:
                    problem = f"already {current.state}"
                name = "sweep" if current.act in DEAD_LETTER_ACTS else current.act
                raise NotAllowed(f"{name} {sweep_id} is {problem}; nothing was changed")
            if verb == "resume" and current.halted_by_canary and not accept_failed_canary:
                raise NotAllowed(_failed_canary(current))
            change: dict[str, Any] = {"state": after}
            if current.state == "halted" and verb == "resume":
                # The operator has seen the canary fail, and wants the rest all the same.
                change |= {"passed": True, "reason": None}
            if after == "cancelled":
                change["ended_at"] = now
            _update(connection, sweep_id, now, **change)
            if verb == "resume" and current.state != "running":
                accepted, rejected = range_.c.accepted, range_.c.rejected
                seen = {"pardoned": accepted + rejected, "pardoned_rejected": rejected}
                partitions = update(range_).where(range_.c.sweep_id == sweep_id)
                connection.execute(partitions.values(seen))
            what = {"sweep": sweep_id, "left": current.left}
            audit.write(session, actor=actor, action=f"sweep.{verb}", because=because, what=what)
            return _require(connection, sweep_id)

    def get(self, sweep_id: int, /) -> Sweep | None:
        """Return a sweep, or None."""
        with self._read.use() as session:
            row = session.core.execute(_SWEEP.where(sweep.c.id == sweep_id)).first()
        return None if row is None else Sweep._make(row)

    def list(
        self,
        *,
        state: SweepState | None = None,
        acts: Sequence[str] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> list[Sweep]:
        """Return sweeps, newest first.

        Args:
            state: Only in this state.
            acts: Only these actions.
            before: Only sweeps with a lower id.
            limit: Maximum number.
        """
        query = _SWEEP.order_by(sweep.c.id.desc()).limit(limit)
        if state is not None:
            query = query.where(sweep.c.state == state)
        if acts:
            query = query.where(sweep.c.act.in_(acts))
        if before is not None:
            query = query.where(sweep.c.id < before)
        with self._read.use() as session:
            return [Sweep._make(row) for row in session.core.execute(query)]

    def count(self, *, acts: Sequence[str] = (), most: int) -> int:
        """Return the number of sweeps with these actions, counted up to `most`."""
        ids = select(sweep.c.id).limit(sql_int(most))
        if acts:
            ids = ids.where(sweep.c.act.in_(acts))
        query = select(func.count()).select_from(ids.subquery())
        with self._read.use() as session:
            return int(session.core.execute(query).scalar_one())

    def items(
        self, sweep_id: int, /, *, outcome: str | None = None, after: int = -1, limit: int = 100
    ) -> Sequence[SweepItem]:
        """Return the items of a sweep in order, each with its job."""
        item = sweep_item.c
        names = ("position", "dead_id", "outcome", "job_id", "note", "at")
        query = (
            select(
                *(item[name] for name in names),
                *(job.c[name] for name in ("state", "attempts", "error", "current")),
            )
            .select_from(_ITEMS_WITH_JOBS)
            .where(item.sweep_id == sweep_id, item.position > after)
            .order_by(item.position)
            .limit(limit)
        )
        if outcome is not None:
            query = query.where(item.outcome == outcome)
        with self._read.use() as session:
            return [SweepItem._make(row) for row in session.core.execute(query)]

    def jobs(self, sweep_id: int, /) -> dict[int | None, int]:
        """Count the jobs that a sweep created, by stored state. None: pruned and deleted.

        Reads all items.
        """
        is_created = (sweep_item.c.sweep_id == sweep_id, sweep_item.c.outcome == "made")
        query = select(job.c.state, func.count()).select_from(_ITEMS_WITH_JOBS).where(*is_created)
        with self._read.use() as session:
            return {row[0]: row[1] for row in session.core.execute(query.group_by(job.c.state))}

    def canary(self, current: Sweep, /) -> Canary:
        """Return the progress of the first jobs of a sweep."""
        with self._read.use() as session:
            return _read_canary(session.core, current)


_SWEEP = select(*(sweep.c[name] for name in Sweep._fields))
_ITEMS_WITH_JOBS = sweep_item.outerjoin(job, job.c.id == sweep_item.c.job_id)


def _require(connection: Connection, sweep_id: int, *, lock: bool = False) -> Sweep:
    query = _SWEEP.where(sweep.c.id == sweep_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotAllowed(
            f"sweep {sweep_id}: not found; `redrive sweeps list` lists sweeps, "
            "`redrive backfill list --all` lists backfills"
        )
    return Sweep._make(row)


def _update(connection: Connection, sweep_id: int, now: datetime, **values: Any) -> None:
    values["updated_at"] = now
    connection.execute(update(sweep).where(sweep.c.id == sweep_id).values(values))


def _ids_or_digest(ids: Sequence[int]) -> list[int] | str:
    """Return the ids, or a digest of many ids. The rows of the sweep have them all."""
    if len(ids) <= MAX_AUDITED_IDS:
        return list(ids)
    return hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()


# --- Step


def _step(session: Session, sweep_id: int) -> SweepStep:
    """Process the next items, in one transaction with their outcomes."""
    with session.transaction("sweep") as connection:
        now = now_on(session)
        current = _require(connection, sweep_id, lock=True)
        if current.act not in DEAD_LETTER_ACTS:
            raise NotAllowed(
                f"sweep {sweep_id} is a {current.act} of partitions; a worker of partitions runs it"
            )
        if current.state != "running":
            return SweepStep(current, {}, {}, 0.0)
        early = (current.next_at - now).total_seconds()
        plan = plan_step(current, _read_canary(connection, current), early)
        if plan.halt is not None:
            _update(connection, sweep_id, now, state="halted", reason=plan.halt)
            audit.write_automatic(session, "sweep.halt", plan.halt, sweep=sweep_id)
            return SweepStep(_require(connection, sweep_id), {}, {}, 0.0)
        if not plan.items:
            return SweepStep(current, {}, {}, plan.wait)
        result = _process(session, connection, current, plan.items)
        next_at = now
        if current.rate is not None:
            # Counted from when this step was due. Counted from now, every delay would lower the
            # rate.
            due = max(current.next_at, now - timedelta(seconds=CATCH_UP_SECONDS))
            next_at = due + timedelta(seconds=plan.items / current.rate)
        made, skipped = current.made + len(result.done), current.skipped + len(result.skipped)
        is_done = made + skipped == current.total
        ended = {"state": "done", "ended_at": now} if is_done else {}
        values = {"made": made, "skipped": skipped, "passed": plan.passed, "next_at": next_at}
        _update(connection, sweep_id, now, **values, **ended)
        wait = 0.0 if is_done else max(0.0, (next_at - now).total_seconds())
        return SweepStep(_require(connection, sweep_id), result.done, result.skipped, wait)


def _process(session: Session, connection: Connection, current: Sweep, count: int) -> BulkResult:
    item = sweep_item.c
    is_open = (item.sweep_id == current.id, item.outcome.is_(None))
    query = select(item.position, item.dead_id).where(*is_open).order_by(item.position)
    rows = connection.execute(query.limit(count)).all()
    ids = [row.dead_id for row in rows]
    terms: dict[str, Any] = {"actor": current.actor, "because": current.because, "audited": False}
    if current.act == "replay":
        result = replay_in(session, ids, max_replays=current.max_replays, **terms)
    else:
        result = discard_in(session, ids, **terms)
    now = now_on(session)
    values = [
        {
            "of_position": row.position,
            "to_outcome": "made" if row.dead_id in result.done else "skipped",
            "to_job": result.done.get(row.dead_id),
            "to_note": result.skipped.get(row.dead_id),
            "to_at": now,
        }
        for row in rows
    ]
    outcomes = (
        update(sweep_item)
        .where(item.sweep_id == current.id, item.position == bindparam("of_position"))
        .values(
            outcome=bindparam("to_outcome"),
            job_id=bindparam("to_job"),
            note=bindparam("to_note"),
            at=bindparam("to_at"),
        )
    )
    connection.execute(outcomes, values)
    return result


_is_failure = and_(
    attempt.c.outcome == FAILED,
    or_(attempt.c.reason.is_(None), attempt.c.reason.not_in(NEUTRAL_REASONS)),
)


def _failed_canary(current: Sweep) -> str:
    """Return why a sweep cannot be resumed like a paused one, and the two ways to continue."""
    is_range = current.act not in DEAD_LETTER_ACTS
    name, verb = (current.act, "start") if is_range else ("sweep", "replay")
    return (
        f"{name} {current.id}: {current.reason}; to {verb} the other {current.left:,} without"
        f" another canary, accept the failed canary (accept_failed_canary=True), or cancel the"
        f" {name} and start a new {current.act} with a canary; nothing was changed"
    )


def _read_canary(connection: Connection, current: Sweep) -> Canary:
    if not current.canary or not current.made or current.act != "replay":
        return Canary(current.canary, 0, 0, 0, None)
    rows = connection.execute(_first_jobs(current)).all()
    dead = [row.job_id for row in rows if row.state in (DEAD, DROPPED)]
    retried = [row.job_id for row in rows if row.state in (READY, LEASED) and row.failed]
    failed = dead + retried
    error = _last_error(connection, failed) if failed else None
    done = sum(row.state in (DONE, PRUNED, None) for row in rows)
    return Canary(current.canary, done, len(failed), len(dead), error)


def _first_jobs(current: Sweep) -> Select[Any]:
    """Return the query of the first jobs: state, and whether an attempt has failed."""
    item = sweep_item.c
    failures = select(attempt.c.job_id).where(attempt.c.job_id == item.job_id, _is_failure)
    return (
        select(item.job_id, job.c.state, exists(failures).label("failed"))
        .select_from(_ITEMS_WITH_JOBS)
        .where(item.sweep_id == current.id, item.outcome == "made")
        .order_by(item.position)
        .limit(current.canary)
    )


def _last_error(connection: Connection, jobs: Sequence[int]) -> str | None:
    """Return the first line of the last error of these jobs."""
    query = (
        select(attempt.c.error)
        .where(attempt.c.job_id.in_(jobs), _is_failure, attempt.c.error.is_not(None))
        .order_by(attempt.c.ended_at.desc())
        .limit(1)
    )
    error = connection.execute(query).scalar()
    return None if error is None else str(error).partition("\n")[0]
