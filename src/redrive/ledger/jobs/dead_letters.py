"""Decisions about dead letters: replay or discard them. Also reruns of done jobs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, exists, insert, literal, null, select, update

from ...core.text import pluralise
from .. import audit
from ..db.clock import now_on, now_sql
from ..db.compiled import is_one_of, sql_int
from ..db.job_tables import tag
from ..db.session import Session
from ..db.tables import CHANNEL, CURRENT, dead, job
from ..model import CANCELLED, DEAD, DONE, DROPPED, STATES
from ..stats.counters import add, add_failures
from ..stats.failure_groups import no_longer_pending
from ..store import sequences, steps
from ..validation import to_json

EDITED_HEADER = "redrive-edited"
"""Header of a job whose payload was changed before the replay. Its value is the actor."""
COPIED_COLUMNS = (
    *("max_attempts", "keep", "deadline", "version", "request_hash", "ids", "headers"),
    *("tenant", "sequence"),
)
"""Columns that a replay takes over from its job."""


class BulkResult(NamedTuple):
    """The result of an action on dead letters."""

    done: dict[int, int]
    """Dead letter to job: the new one of a replay, the dropped one of a discard."""
    skipped: dict[int, str]
    """Dead letter to the reason."""


class ReplayOptions(NamedTuple):
    """How dead letters are replayed."""

    max_replays: int | None = None
    """Skip dead letters that were replayed this often."""
    edits: Mapping[int, bytes] = {}
    """New payloads, by dead letter."""
    fresh: bool = False
    """Repeat finished steps, instead of reusing their results."""
    as_kind: str | None = None
    """Job type of the new jobs, if the command or handler was renamed."""


DEFAULT_REPLAY = ReplayOptions()


class _Pending(NamedTuple):
    """A pending dead letter with its dead job."""

    letter: Any
    job: Any


def replay(
    session: Session,
    ids: Sequence[int],
    /,
    *,
    actor: str,
    because: str,
    options: ReplayOptions = DEFAULT_REPLAY,
) -> BulkResult:
    """Create a new job for each dead letter, under the same key.

    Args:
        session: A session without a transaction.
        ids: The dead letters.
        actor: Who does this, for the audit log.
        because: Why, for the audit log.
        options: How they are replayed.
    """
    audit.check_actor(actor, because)
    with session.transaction("replay"):
        return replay_in(session, ids, actor=actor, because=because, options=options)


def replay_in(
    session: Session,
    ids: Sequence[int],
    /,
    *,
    actor: str,
    because: str,
    audited: bool = True,
    options: ReplayOptions = DEFAULT_REPLAY,
) -> BulkResult:
    """Replay in the open transaction.

    Args:
        session: A session with a transaction.
        ids: The dead letters.
        actor: Who does this, for the audit log.
        because: Why, for the audit log.
        audited: False if the caller writes to the audit log.
        options: How they are replayed.
    """
    max_replays, edits, fresh, as_kind = options
    pending, skipped = _lock_pending(session.core, ids)
    now = now_on(session)
    taken = {} if as_kind is None else _taken_keys(session.core, pending, as_kind)
    replayed: list[_Pending] = []
    changes: list[dict[str, Any]] = []
    for letter, old in pending:
        if max_replays is not None and letter.replay_count >= max_replays:
            skipped[letter.id] = f"replayed {pluralise(letter.replay_count, 'time')} already"
            continue
        if not old.current:
            skipped[letter.id] = "its replay was cancelled, and its key has a newer job"
            continue
        if as_kind is not None and as_kind != old.kind:
            if old.key in taken:
                skipped[letter.id] = f"{as_kind} has a job with its key: {taken[old.key]}"
                continue
            taken[old.key] = f"the replay of dead letter {letter.id}"
        if letter.id in edits or EDITED_HEADER in (old.headers or ""):
            # A replay without edits has the original payload again.
            headers = json.loads(old.headers) if old.headers else {}
            headers.pop(EDITED_HEADER, None)
            headers |= {EDITED_HEADER: actor} if letter.id in edits else {}
            stored = to_json("headers", headers) if headers else None
            payload = edits.get(letter.id, letter.payload)
            changes.append({"letter": letter.id, "new_payload": payload, "new_headers": stored})
        replayed.append(_Pending(letter, old))
    if not replayed:
        return BulkResult({}, skipped)
    done = _insert_replays(session, replayed, changes, now, as_kind)
    if not fresh:
        steps.move_to_replays(session.core, [(old.id, done[letter.id]) for letter, old in replayed])
    session.notify(CHANNEL)
    _count_decisions(session, replayed, {"dropped": 1}, now)
    kinds = Counter(as_kind or old.kind for _, old in replayed)
    add(session, {kind: {"submitted": count, "ready": count} for kind, count in kinds.items()})
    if audited:
        changed = {
            str(letter.id): _describe_edit(letter.payload, edits[letter.id])
            for letter, _ in pending
            if letter.id in edits
        }
        what: dict[str, Any] = {"jobs": _by_text(done)}
        what |= ({"edited": changed} if changed else {}) | ({"fresh": True} if fresh else {})
        what |= {} if as_kind is None else {"as": as_kind}
        audit.write(session, actor=actor, action="dead.replay", because=because, what=what)
    return BulkResult(done, skipped)


def _taken_keys(connection: Connection, pending: Sequence[_Pending], kind: str) -> dict[str, str]:
    """Return the keys of dead letters that have a job of another type, with that job."""
    keys = [old.key for _letter, old in pending if old.kind != kind]
    query = select(job.c.key, job.c.id).where(job.c.kind == kind, job.c.key.in_(keys), CURRENT)
    return {row.key: f"job {row.id}" for row in connection.execute(query)}


def _insert_replays(
    session: Session,
    replayed: Sequence[_Pending],
    changes: Sequence[dict[str, Any]],
    now: datetime,
    as_kind: str | None,
) -> dict[int, int]:
    """Replace dead jobs by new ones, with the same few statements for any number of them.

    The database copies the jobs, because a driver takes longer to bind their columns.

    Args:
        session: A session with a transaction.
        replayed: The dead letters with their jobs.
        changes: New payloads and headers, by dead letter.
        now: By the ledger's clock.
        as_kind: Job type of the new jobs. None: that of the dead job.

    Returns:
        The new job of each dead letter.
    """
    connection = session.core
    old_jobs = is_one_of(job.c.id, (old.id for _, old in replayed))
    connection.execute(update(job).where(old_jobs).values(state=DROPPED, current=False))
    started = literal(now, job.c.due_at.type)
    values = {
        **{name: job.c[name] for name in ("key", *COPIED_COLUMNS)},
        "kind": job.c.kind if as_kind is None else literal(as_kind, job.c.kind.type),
        "replay_of": job.c.id,
        "dead_id": dead.c.id,
        "payload": dead.c.payload,
        "created_at": started.label("created_at"),
        "due_at": started.label("due_at"),
    }
    # Sorted, because the jobs of a sequence start in the order of their ids.
    copies = (
        select(*values.values())
        .join_from(dead, job, job.c.id == dead.c.job_id)
        .where(is_one_of(dead.c.id, (letter.id for letter, _ in replayed)))
        .order_by(dead.c.id)
    )
    new = insert(job).from_select(list(values), copies)
    returned = new.returning(job.c.dead_id, job.c.id, job.c.kind, job.c.sequence)
    inserted = connection.execute(returned).all()
    created = {row.dead_id: row.id for row in inserted}
    done: dict[int, int] = {letter.id: created[letter.id] for letter, _ in replayed}
    if changes:
        edited = update(job).where(job.c.id == bindparam("new_job"))
        edited = edited.values(payload=bindparam("new_payload"), headers=bindparam("new_headers"))
        connection.execute(edited, [{**each, "new_job": done[each["letter"]]} for each in changes])
    sequences.hold(session, inserted)
    _copy_tags(connection, {old.id: done[letter.id] for letter, old in replayed})
    letters = update(dead).where(is_one_of(job.c.id, done.values()), job.c.dead_id == dead.c.id)
    replaying = letters.values(
        status="replaying",
        replay_count=dead.c.replay_count + 1,
        replay_job_id=job.c.id,
        kind=job.c.kind,
        blocked=False,
        blocked_until=null(),
        updated_at=now,
    )
    connection.execute(replaying)
    return done


def _describe_edit(before: bytes, after: bytes) -> dict[str, Any]:
    """Return digests of both payloads for the audit log, which must not contain payloads."""
    return {
        "from": hashlib.sha256(before).hexdigest()[:16],
        "to": hashlib.sha256(after).hexdigest()[:16],
        "bytes": len(after),
    }


def discard(session: Session, ids: Sequence[int], /, *, actor: str, because: str) -> BulkResult:
    """Discard dead letters for good. Their keys stay taken, so a late duplicate has no effect."""
    audit.check_actor(actor, because)
    with session.transaction("discard"):
        return discard_in(session, ids, actor=actor, because=because)


def discard_in(
    session: Session,
    ids: Sequence[int],
    /,
    *,
    actor: str,
    because: str,
    audited: bool = True,
) -> BulkResult:
    """Discard in the open transaction. `audited` is False if the caller writes to the audit log."""
    pending, skipped = _lock_pending(session.core, ids)
    if not pending:
        return BulkResult({}, skipped)
    now = now_on(session)
    done = {letter.id: old.id for letter, old in pending}
    session.core.execute(
        update(job).where(is_one_of(job.c.id, done.values())).values(state=DROPPED)
    )
    values = {"status": "discarded", "blocked_until": null(), "updated_at": now}
    session.core.execute(update(dead).where(is_one_of(dead.c.id, done)).values(values))
    _count_decisions(session, pending, {"dropped": 1}, now)
    if audited:
        what = {"jobs": _by_text(done)}
        audit.write(session, actor=actor, action="dead.discard", because=because, what=what)
    return BulkResult(done, skipped)


def unblock(session: Session, limit: int, /) -> BulkResult:
    """Replay blocked dead letters whose time has come."""
    is_pending = dead.c.status == "pending"
    # Usually there are none.
    is_any_due = exists().where(dead.c.blocked_until <= now_sql(session), is_pending)
    if session.has_round_trips and not session.core.execute(select(is_any_due)).scalar():
        return BulkResult({}, {})
    with session.transaction("replay") as connection:
        due = (
            select(dead.c.id)
            .where(dead.c.blocked_until <= now_on(session), is_pending)
            .order_by(dead.c.blocked_until)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        ids = connection.execute(due).scalars().all()
        if not ids:
            return BulkResult({}, {})
        because = "it was blocked until a time that has come"
        return replay_in(session, ids, actor=audit.REDRIVE_ACTOR, because=because)


def _count_decisions(
    session: Session, pending: Sequence[_Pending], change: Mapping[str, int], now: datetime
) -> None:
    """Update the counters for dead letters that are no longer pending."""
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for _, old in pending:
        changes[old.kind].update({**change, STATES[old.state]: -1})
    add(session, changes)
    groups = ((letter.kind, letter.signature, letter.blocked) for letter, _ in pending)
    add_failures(session, no_longer_pending(groups), now)


def _by_text(done: Mapping[int, int]) -> dict[str, int]:
    return {str(id_): job_id for id_, job_id in done.items()}


_LETTER = (
    *(dead.c.id, dead.c.status, dead.c.job_id, dead.c.kind, dead.c.signature),
    *(dead.c.blocked, dead.c.replay_count, dead.c.payload),
)
_JOB = (job.c.id, job.c.kind, job.c.key, job.c.state, job.c.current, job.c.headers)


def _lock_pending(
    connection: Connection, ids: Sequence[int]
) -> tuple[list[_Pending], dict[int, str]]:
    """Return the pending dead letters with their jobs, and why the others are skipped.

    Rows are locked in one order, so that concurrent actions cannot deadlock.
    """
    letters = (
        select(*_LETTER).where(is_one_of(dead.c.id, ids)).order_by(dead.c.id).with_for_update()
    )
    rows = connection.execute(letters).all()
    skipped = dict.fromkeys(ids, "not found")
    skipped |= {row.id: str(row.status) for row in rows if row.status != "pending"}
    rows = [row for row in rows if row.status == "pending"]
    # The replay of a pending dead letter may have been cancelled.
    has_ended = job.c.state.in_((sql_int(DEAD), sql_int(CANCELLED)))
    jobs = select(*_JOB).where(is_one_of(job.c.id, (row.job_id for row in rows)), has_ended)
    by_id = {row.id: row for row in connection.execute(jobs.with_for_update())}
    pending = []
    for row in rows:
        if row.job_id in by_id:
            pending.append(_Pending(row, by_id[row.job_id]))
            skipped.pop(row.id, None)
        else:
            skipped[row.id] = "its job no longer exists"
    return pending, skipped


def rerun_done_jobs(
    session: Session, ids: Sequence[int], /, *, actor: str, because: str
) -> BulkResult:
    """Create a new job in the place of each done or cancelled job. The result is by job, not by
    dead letter.
    """
    audit.check_actor(actor, because)
    with session.transaction("replay") as connection:
        query = select(job).where(is_one_of(job.c.id, ids)).order_by(job.c.id).with_for_update()
        skipped = dict.fromkeys(ids, "not found")
        now = now_on(session)
        done: dict[int, int] = {}
        changes: dict[str, Counter[str]] = defaultdict(Counter)
        for old in connection.execute(query).all():
            if old.state not in (DONE, CANCELLED) or not old.current:
                skipped[old.id] = STATES[old.state] if old.current else "replaced by a replay"
                continue
            skipped.pop(old.id)
            dropped = update(job).where(job.c.id == old.id)
            connection.execute(dropped.values(state=DROPPED, current=False))
            names = ("kind", "key", "payload", *COPIED_COLUMNS)
            copied = {name: getattr(old, name) for name in names}
            new = insert(job).values(replay_of=old.id, created_at=now, due_at=now, **copied)
            columns = (job.c.id, job.c.kind, job.c.sequence)
            row = connection.execute(new.returning(*columns)).one()
            done[old.id] = row.id
            sequences.hold(session, (row,))
            changes[old.kind].update({"dropped": 1, "submitted": 1, "ready": 1})
            changes[old.kind][STATES[old.state]] -= 1
        if done:
            _copy_tags(connection, done)
            add(session, changes)
            what = {"jobs": _by_text(done)}
            audit.write(session, actor=actor, action="event.replay", because=because, what=what)
    return BulkResult(done, skipped)


def _copy_tags(connection: Connection, new_jobs: Mapping[int, int]) -> None:
    """Give jobs the tags of the jobs that they replay.

    Args:
        connection: A connection in a transaction.
        new_jobs: The new job of each replayed job.
    """
    is_replayed = is_one_of(tag.c.job_id, new_jobs)
    rows = connection.execute(select(tag).where(is_replayed)).mappings()
    copies = [{**row, "job_id": new_jobs[row["job_id"]]} for row in rows]
    if copies:
        connection.execute(insert(tag), copies)
