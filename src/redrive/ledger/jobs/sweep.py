"""Sweep: an act on many dead letters, written down before it begins. Whoever is killed, another goes on where it stood."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, Select, and_, bindparam, exists, func, insert, or_, select, update

from ...core.text import pluralise
from ...errors import NotAllowed
from .. import audit
from ..db.clock import now_on
from ..db.compiled import number
from ..db.partition_tables import range_
from ..db.session import Session
from ..db.tables import attempt, job, sweep, sweep_item
from ..state import DEAD, DONE, DROPPED, FAILED, LEASED, PRUNED, READY
from .dead_letters import Sorted, discarded, replayed
from .refunds import OF_LEDGER, UNCHARGED

Act: TypeAlias = Literal["replay", "discard"]
LETTERS: tuple[Act, ...] = ("replay", "discard")
"""Acts on dead letters. Those on partitions are sweeps too, and are carried out by their own control plane."""
Standing: TypeAlias = Literal["running", "paused", "halted", "cancelled", "done"]
STEP = 100
"""How many in one transaction."""
LISTED = 100
"""So many are named in the audit, one by one."""
LOOK = 1.0
"""Seconds between two looks at the canary's jobs."""
CATCH_UP = 0.25
"""Seconds of the rate that a late step may make up for. More would be a burst after every pause."""
CAME_BACK = ("again", "released", UNCHARGED, OF_LEDGER)
"""Reasons of attempts that say nothing about the job: it asked to run later, its worker stopped, or an outage (of its
service or of the ledger) ended an attempt that was not charged."""
SHOWN = 200
"""Characters of an error in the reason of a halt."""
MOVES: Mapping[str, tuple[frozenset[Standing], Standing]] = {
    "pause": (frozenset(("running",)), "paused"),
    "resume": (frozenset(("running", "paused", "halted")), "running"),  # running: whoever carried it out may be gone
    "cancel": (frozenset(("running", "paused", "halted")), "cancelled"),
}
"""What an operator may do to one, in which states, and what it is then."""
PAST = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


class Sweep(NamedTuple):
    """How far an act on many is. Immutable: anything may share it."""

    id: int
    act: str
    state: Standing
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
        """How many are still to come."""
        return self.total - self.made - self.skipped

    @property
    def ended(self) -> bool:
        """Whether nothing more will be done."""
        return self.state in ("cancelled", "done")


class Item(NamedTuple):
    """One dead letter of a sweep, and what became of it."""

    position: int
    dead_id: int
    outcome: str | None
    job_id: int | None
    note: str | None
    at: datetime | None
    job_state: int | None
    """Of the job that a replay made, as stored; none where there is no such job any more."""
    attempts: int | None = None
    """Of that job, so far."""
    error: str | None = None
    """Of that job's last attempt, if it failed."""


class Canary(NamedTuple):
    """The jobs that a sweep made first. A job fails with its first failed attempt."""

    size: int
    done: int
    failed: int
    """Those with a failed attempt that are not done, dead ones included."""
    dead: int
    error: str | None
    """Of the last failed attempt, its first line."""

    @property
    def problem(self) -> str | None:
        """Why the rest must not follow; None: nothing has failed so far."""
        if not self.failed:
            return None
        retried = self.failed - self.dead
        then = f"; {pluralise(retried, 'is', 'are')} still being retried" if retried else ""
        error = f": {self.error[:SHOWN]}" if self.error else ""
        return f"canary failed, {self.failed} of the first {self.size}{error}{then}"


class Step(NamedTuple):
    """What one step of a sweep did, and how the sweep stands after it."""

    sweep: Sweep
    done: dict[int, int]
    skipped: dict[int, str]
    wait: float
    """Seconds until another step makes sense."""


class Share(NamedTuple):
    """What the next step may do: so many, or wait, or halt because."""

    many: int
    wait: float = 0.0
    halt: str | None = None
    passed: bool = False


def share(now: Sweep, canary: Canary, early: float, /) -> Share:
    """How many may be done now.

    Args:
        now: The sweep as it stands.
        canary: The jobs that went first.
        early: Seconds before the rate allows more.
    """
    waits = bool(now.canary) and not now.passed and now.act != "discard"
    if waits and canary.problem is not None:
        return Share(0, halt=canary.problem)
    if early > 0:
        return Share(0, wait=min(early, LOOK) if waits and now.made else early)
    most = STEP if now.rate is None else max(1, min(STEP, int(now.rate)))
    if not waits:
        return Share(min(most, now.left), passed=now.passed)
    if now.made < now.canary:
        return Share(min(most, now.left, now.canary - now.made))
    if canary.done < now.canary:
        return Share(0, wait=LOOK)
    return Share(min(most, now.left), passed=True)


def begin(
    session: Session, act: Act, ids: Sequence[int], /, *, actor: str, because: str, rate: float | None = None, canary: int = 0,
    max_replays: int | None = None, selection: Mapping[str, Any] | None = None,
) -> Sweep:  # fmt: skip
    """Write down what shall be done, to which. From here on it is carried out, whoever lives or dies."""
    audit.said(actor, because)
    with session.transaction("sweep") as connection:
        now = now_on(session)
        new = insert(sweep).values(
            act=act, actor=actor, because=because, rate=rate, canary=min(canary, len(ids)), max_replays=max_replays,
            total=len(ids), next_at=now, created_at=now, updated_at=now,
            selection=json.dumps(selection, default=str) if selection else None,
            **({} if ids else {"state": "done", "ended_at": now}),
        )  # fmt: skip
        made = connection.execute(new.returning(sweep.c.id)).scalar_one()
        if ids:
            rows = [{"sweep_id": made, "position": at, "dead_id": one} for at, one in enumerate(ids)]
            connection.execute(insert(sweep_item), rows)
        what = {"sweep": made, "count": len(ids), "letters": _digest(ids), "rate": rate, "canary": canary}
        audit.write(session, actor=actor, action=f"dead.{act}", because=because, what=what)
        return _one(connection, made)


def step(session: Session, sweep_id: int, /) -> Step:
    """The next of them, in one transaction with their outcomes. Any number of processes may do this at once."""
    with session.transaction("sweep") as connection:
        now = now_on(session)
        found = _one(connection, sweep_id, lock=True)
        if found.act not in LETTERS:
            raise NotAllowed(f"sweep {sweep_id} is a {found.act} of partitions; a worker of partitions runs it")
        if found.state != "running":
            return Step(found, {}, {}, 0.0)
        may = share(found, canary(connection, found), (found.next_at - now).total_seconds())
        if may.halt is not None:
            _set(connection, sweep_id, now, state="halted", reason=may.halt)
            audit.write(session, actor="redrive", action="sweep.halt", because=may.halt, what={"sweep": sweep_id})
            return Step(_one(connection, sweep_id), {}, {}, 0.0)
        if not may.many:
            return Step(found, {}, {}, may.wait)
        acted = _act(session, connection, found, may.many)
        next_at = now
        if found.rate is not None:
            # Counted from when this step was due: counted from now, every delay would lower the rate.
            due = max(found.next_at, now - timedelta(seconds=CATCH_UP))
            next_at = due + timedelta(seconds=may.many / found.rate)
        made, skipped = found.made + len(acted.done), found.skipped + len(acted.skipped)
        ended = {"state": "done", "ended_at": now} if made + skipped == found.total else {}
        _set(
            connection,
            sweep_id,
            now,
            made=made,
            skipped=skipped,
            passed=may.passed,
            next_at=next_at,
            **ended,
        )
        wait = 0.0 if ended else max(0.0, (next_at - now).total_seconds())
        return Step(_one(connection, sweep_id), acted.done, acted.skipped, wait)


def move(session: Session, sweep_id: int, verb: str, /, *, actor: str, because: str) -> Sweep:
    """Pause, resume or cancel it. NotAllowed: it does not stand so that this is possible."""
    audit.said(actor, because)
    allowed, after = MOVES[verb]
    with session.transaction("sweep") as connection:
        now = now_on(session)
        found = _one(connection, sweep_id, lock=True)
        if found.state not in allowed:
            name = f"{'sweep' if found.act in LETTERS else found.act} {sweep_id}"
            already = f"is already {found.state}" if found.state == after else f"is {found.state} and cannot be {PAST[verb]}"
            raise NotAllowed(f"{name} {already}; nothing was changed")
        # Who resumes a halted one has seen the canary die, and wants the rest all the same.
        change: dict[str, Any] = {"passed": True, "reason": None} if found.state == "halted" and verb == "resume" else {}
        _set(connection, sweep_id, now, state=after, **change, **({"ended_at": now} if after == "cancelled" else {}))
        if verb == "resume" and found.state != "running":
            seen = {"pardoned": range_.c.accepted + range_.c.rejected, "pardoned_rejected": range_.c.rejected}
            connection.execute(update(range_).where(range_.c.sweep_id == sweep_id).values(seen))
        audit.write(session, actor=actor, action=f"sweep.{verb}", because=because, what={"sweep": sweep_id, "left": found.left})
        return _one(connection, sweep_id)


def sweeps(
    connection: Connection, /, *, state: Standing | None = None, acts: Sequence[str] = (), before: int | None = None,
    limit: int = 100,
) -> list[Sweep]:  # fmt: skip
    """Sweeps, the newest first. acts: those only."""
    query = select(*(sweep.c[name] for name in Sweep._fields)).order_by(sweep.c.id.desc()).limit(limit)
    if state is not None:
        query = query.where(sweep.c.state == state)
    if acts:
        query = query.where(sweep.c.act.in_(acts))
    if before is not None:
        query = query.where(sweep.c.id < before)
    return [Sweep._make(row) for row in connection.execute(query)]


def count(connection: Connection, /, *, acts: Sequence[str] = (), most: int) -> int:
    """Return the number of sweeps, counted up to `most`. acts: those only."""
    query = select(sweep.c.id).limit(number(most))
    limited = query.where(sweep.c.act.in_(acts)) if acts else query
    return int(connection.execute(select(func.count()).select_from(limited.subquery())).scalar_one())


def items(
    connection: Connection, sweep_id: int, /, *, outcome: str | None = None, after: int = -1, limit: int = 100
) -> list[Item]:
    """What became of each, in their order, with the job that it got."""
    of = sweep_item.c
    query = (
        select(of.position, of.dead_id, of.outcome, of.job_id, of.note, of.at, job.c.state, job.c.attempts, job.c.error)
        .select_from(sweep_item.outerjoin(job, job.c.id == of.job_id))
        .where(of.sweep_id == sweep_id, of.position > after)
        .order_by(of.position)
        .limit(limit)
    )
    if outcome is not None:
        query = query.where(of.outcome == outcome)
    return [Item._make(row) for row in connection.execute(query)]


def jobs(connection: Connection, sweep_id: int, /) -> dict[int | None, int]:
    """How many of the jobs that a sweep made are in each stored state; None: pruned and forgotten."""
    joined = sweep_item.outerjoin(job, job.c.id == sweep_item.c.job_id)
    query = select(job.c.state, func.count()).select_from(joined).group_by(job.c.state)
    made = sweep_item.c.outcome == "made"
    found = connection.execute(query.where(sweep_item.c.sweep_id == sweep_id, made)).all()
    return {row[0]: row[1] for row in found}


def get(connection: Connection, sweep_id: int, /) -> Sweep | None:
    """One of them; None: there is none of that number."""
    row = connection.execute(select(*(sweep.c[name] for name in Sweep._fields)).where(sweep.c.id == sweep_id)).first()
    return None if row is None else Sweep._make(row)


def _one(connection: Connection, sweep_id: int, *, lock: bool = False) -> Sweep:
    query = select(*(sweep.c[name] for name in Sweep._fields)).where(sweep.c.id == sweep_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotAllowed(
            f"sweep {sweep_id}: not found; `redrive sweeps list` lists sweeps, `redrive backfill list --all` lists backfills"
        )
    return Sweep._make(row)


def _set(connection: Connection, sweep_id: int, now: datetime, **values: Any) -> None:
    connection.execute(update(sweep).where(sweep.c.id == sweep_id).values(updated_at=now, **values))


def canary(connection: Connection, found: Sweep, /) -> Canary:
    """How the jobs that went first fare."""
    if not found.canary or not found.made or found.act != "replay":
        return Canary(found.canary, 0, 0, 0, None)
    rows = connection.execute(_first(found)).all()
    dead = [row.job_id for row in rows if row.state in (DEAD, DROPPED)]
    retried = [row.job_id for row in rows if row.state in (READY, LEASED) and row.failed]
    failed = dead + retried
    error = _last_error(connection, failed) if failed else None
    done = sum(row.state in (DONE, PRUNED, None) for row in rows)
    return Canary(found.canary, done, len(failed), len(dead), error)


def _last_error(connection: Connection, jobs: Sequence[int]) -> str | None:
    """The first line of the last error of these jobs."""
    query = (
        select(attempt.c.error)
        .where(attempt.c.job_id.in_(jobs), _FAILURE, attempt.c.error.is_not(None))
        .order_by(attempt.c.ended_at.desc())
        .limit(1)
    )
    found = connection.execute(query).scalar()
    return None if found is None else str(found).partition("\n")[0]


_FAILURE = and_(
    attempt.c.outcome == FAILED,
    or_(attempt.c.reason.is_(None), attempt.c.reason.not_in(CAME_BACK)),
)


def _first(found: Sweep) -> Select[Any]:
    """The jobs that the sweep made first: state, and whether an attempt has failed."""
    of = sweep_item.c
    tried = select(attempt.c.job_id).where(attempt.c.job_id == of.job_id, _FAILURE)
    failed = exists(tried).label("failed")
    return (
        select(of.job_id, job.c.state, failed)
        .select_from(sweep_item.outerjoin(job, job.c.id == of.job_id))
        .where(of.sweep_id == found.id, of.outcome == "made")
        .order_by(of.position)
        .limit(found.canary)
    )


def _act(session: Session, connection: Connection, found: Sweep, many: int) -> Sorted:
    of = sweep_item.c
    open_ = select(of.position, of.dead_id).where(of.sweep_id == found.id, of.outcome.is_(None)).order_by(of.position).limit(many)
    chosen = connection.execute(open_).all()
    ids = [row.dead_id for row in chosen]
    verb: Callable[..., Sorted] = replayed if found.act == "replay" else discarded
    more = {"max_replays": found.max_replays} if found.act == "replay" else {}
    acted = verb(session, connection, ids, actor=found.actor, because=found.because, audited=False, **more)
    now = now_on(session)
    rows = [
        {
            "at_position": row.position, "to": "made" if row.dead_id in acted.done else "skipped", "now": now,
            "job": acted.done.get(row.dead_id), "why": acted.skipped.get(row.dead_id),
        }
        for row in chosen
    ]  # fmt: skip
    written = (
        update(sweep_item)
        .where(of.sweep_id == found.id, of.position == bindparam("at_position"))
        .values(outcome=bindparam("to"), job_id=bindparam("job"), note=bindparam("why"), at=bindparam("now"))
    )
    connection.execute(written, rows)
    return acted


def _digest(ids: Sequence[int]) -> Any:
    """The numbers themselves where they are few, else what they come to: the sweep's own rows have them all."""
    return list(ids) if len(ids) <= LISTED else hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()
