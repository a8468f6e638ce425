"""Sweeps: bulk operations on dead letters and jobs, stored before they begin.

If a process is killed, another one continues. Bulk operations on partitions are sweeps, too. The
control plane of partitions runs them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

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
    union,
    update,
)

from ...core.job_reasons import UNCOUNTED_REASONS
from ...errors import NotAllowed
from .. import audit
from ..db.clock import now_on
from ..db.compiled import sql_int
from ..db.connections import Connections
from ..db.partition_tables import range_
from ..db.session import Session
from ..db.tables import attempt, dead, job, sweep, sweep_item
from ..model import CANCELLED, DEAD, DONE, DROPPED, FAILED, LEASED, PRUNED, READY
from ..sweep import (
    DEAD_LETTER_ACTS,
    ITEM_ACTS,
    MOVES,
    SWEEP_COLUMNS,
    Act,
    Canary,
    DeadLetterChange,
    JobChange,
    Sweep,
    SweepItem,
    SweepState,
    SweepStep,
    plan_step,
    sweep_from_row,
)
from .dead_letters import BulkResult, ReplayOptions, discard_in, replay_in
from .job_changes import apply_in

MAX_AUDITED_IDS = 100
"""Up to this many dead letters are listed in the audit entry."""
MAX_INSERTED_ITEMS = 10_000
"""Items that are inserted at once. Of a million, all together would take 460 MB."""
CATCH_UP_SECONDS = 0.25
"""Time of the rate that a late step may make up for. More would cause a burst after every pause."""
NEUTRAL_REASONS = ("again", "released", *UNCOUNTED_REASONS)
"""Reasons of attempts that say nothing about the job: it asked to run later, its worker stopped, or
an outage of its service or of the ledger ended the attempt."""
PAST_TENSE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


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
        act: Act | DeadLetterChange | JobChange,
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
            ids: The dead letters or jobs, in this order.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.
            rate: Maximum number per second.
            canary: Number of items to process first. The rest follows only if all are done.
            max_replays: Skip dead letters that were replayed this often.
            selection: How the dead letters were selected.
        """
        audit.check_actor(actor, because)
        change = act if isinstance(act, JobChange) else None
        name = act if isinstance(act, str) else act.act
        fresh = isinstance(act, DeadLetterChange) and act.fresh
        with self._write.use() as session, session.transaction("sweep") as connection:
            now = now_on(session)
            values: dict[str, Any] = {
                "act": name,
                "arguments": json.dumps(change.arguments) if change else None,
                "actor": actor,
                "because": because,
                "rate": rate,
                "canary": min(canary, len(ids)),
                "max_replays": max_replays,
                "fresh": fresh,
                "total": len(ids),
                "selection": json.dumps(selection, default=str) if selection else None,
                **dict.fromkeys(("next_at", "created_at", "updated_at"), now),
            }
            if not ids:
                values |= {"state": "done", "ended_at": now}
            new = insert(sweep).values(values).returning(sweep.c.id)
            sweep_id = connection.execute(new).scalar_one()
            column = "dead_id" if change is None else "job_id"
            items = (
                {"sweep_id": sweep_id, "position": position, column: id_}
                for position, id_ in enumerate(ids)
            )
            while part := list(islice(items, MAX_INSERTED_ITEMS)):
                connection.execute(insert(sweep_item), part)
            what: dict[str, Any] = {"sweep": sweep_id, "count": len(ids)}
            if change is None:
                what |= {"letters": _ids_or_digest(ids), "rate": rate, "canary": canary}
                what |= {"as": selection["as"]} if selection and "as" in selection else {}
            else:
                what |= {"jobs": _ids_or_digest(ids), "rate": rate, **change.arguments}
            what |= {"fresh": True} if fresh else {}
            action = f"dead.{name}" if change is None else f"job.{name}"
            audit.write(session, actor=actor, action=action, because=because, what=what)
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
                name = "sweep" if current.act in ITEM_ACTS else current.act
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
        return None if row is None else sweep_from_row(row)

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
            return [sweep_from_row(row) for row in session.core.execute(query)]

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

    def kinds(self, sweep_id: int, /) -> Sequence[str]:
        """Return the job types of the dead letters or jobs of a sweep. Reads all items."""
        letters = sweep_item.join(dead, dead.c.id == sweep_item.c.dead_id)
        jobs = sweep_item.join(job, job.c.id == sweep_item.c.job_id)
        queries = [
            select(kind).select_from(items).where(sweep_item.c.sweep_id == sweep_id)
            for kind, items in ((dead.c.kind, letters), (job.c.kind, jobs))
        ]
        with self._read.use() as session:
            return sorted(session.core.execute(union(*queries)).scalars())

    def canary(self, current: Sweep, /) -> Canary:
        """Return the progress of the first jobs of a sweep."""
        with self._read.use() as session:
            return _read_canary(session.core, current)


_SWEEP = select(*(sweep.c[name] for name in SWEEP_COLUMNS))
_ITEMS_WITH_JOBS = sweep_item.outerjoin(job, job.c.id == sweep_item.c.job_id)


def _require(connection: Connection, sweep_id: int, *, lock: bool = False) -> Sweep:
    query = _SWEEP.where(sweep.c.id == sweep_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotAllowed(
            f"sweep {sweep_id}: not found; `redrive sweeps list` lists sweeps, "
            "`redrive backfill list --all` lists backfills"
        )
    return sweep_from_row(row)


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
        if current.act not in ITEM_ACTS:
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
    query = (
        select(
            *(item.position, item.dead_id, item.job_id),
            *(sweep.c.max_replays, sweep.c.fresh, sweep.c.arguments),
        )
        .join(sweep, sweep.c.id == item.sweep_id)
        .where(*is_open)
        .order_by(item.position)
    )
    rows = connection.execute(query.limit(count)).all()
    if current.act not in DEAD_LETTER_ACTS:
        return _change_jobs(session, connection, current, rows)
    ids = [row.dead_id for row in rows]
    terms: dict[str, Any] = {"actor": current.actor, "because": current.because, "audited": False}
    if current.act == "replay":
        max_replays = rows[0].max_replays if rows else None
        fresh, as_kind = bool(rows) and rows[0].fresh, current.selection.get("as")
        options = ReplayOptions(max_replays, as_kind=as_kind, fresh=fresh)
        result = replay_in(session, ids, options=options, **terms)
    else:
        result = discard_in(session, ids, **terms)
    values = [
        {
            "of_position": row.position,
            "to_outcome": "made" if row.dead_id in result.done else "skipped",
            "to_job": result.done.get(row.dead_id),
            "to_note": result.skipped.get(row.dead_id),
        }
        for row in rows
    ]
    _write_outcomes(session, connection, current.id, values)
    return result


def _change_jobs(
    session: Session, connection: Connection, current: Sweep, rows: Sequence[Any]
) -> BulkResult:
    """Change the jobs of these items. The result is by job."""
    change = JobChange.from_arguments(current.act, rows[0].arguments if rows else None)
    result = apply_in(session, [row.job_id for row in rows], change)
    values = [
        {
            "of_position": row.position,
            "to_outcome": "made" if row.job_id in result.done else "skipped",
            "to_job": row.job_id,
            "to_note": result.done.get(row.job_id) or result.skipped.get(row.job_id),
        }
        for row in rows
    ]
    _write_outcomes(session, connection, current.id, values)
    return BulkResult({id_: id_ for id_ in result.done}, result.skipped)


def _write_outcomes(
    session: Session, connection: Connection, sweep_id: int, values: Sequence[dict[str, Any]]
) -> None:
    item = sweep_item.c
    outcomes = (
        update(sweep_item)
        .where(item.sweep_id == sweep_id, item.position == bindparam("of_position"))
        .values(
            outcome=bindparam("to_outcome"),
            job_id=bindparam("to_job"),
            note=bindparam("to_note"),
            at=now_on(session),
        )
    )
    connection.execute(outcomes, values)


_is_failure = and_(
    attempt.c.outcome == FAILED,
    or_(attempt.c.reason.is_(None), attempt.c.reason.not_in(NEUTRAL_REASONS)),
)


def _failed_canary(current: Sweep) -> str:
    """Return why a sweep cannot be resumed like a paused one, and the two ways to continue."""
    is_range = current.act not in ITEM_ACTS
    name, verb = (current.act, "start") if is_range else ("sweep", "replay")
    return (
        f"{name} {current.id}: {current.reason}; to {verb} the other {current.left:,} without"
        f" another canary, accept the failed canary (accept_failed_canary=True), or cancel the"
        f" {name} and start a new {current.act} with a canary; nothing was changed"
    )


def _read_canary(connection: Connection, current: Sweep) -> Canary:
    if not current.canary or not current.made or current.act != "replay":
        return Canary.of(current, error=None)
    rows = connection.execute(_first_jobs(current)).all()
    dead = [row.job_id for row in rows if row.state in (DEAD, DROPPED, CANCELLED)]
    retried = [row.job_id for row in rows if row.state in (READY, LEASED) and row.failed]
    failed = dead + retried
    error = _last_error(connection, failed) if failed else None
    done = sum(row.state in (DONE, PRUNED, None) for row in rows)
    return Canary.of(current, done=done, failed=len(failed), dead=len(dead), error=error)


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
