"""Dead letters: found, replayed as new jobs, or discarded, always by somebody and for a reason."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, exists, func, insert, null, select, update

from ...core.text import pluralise
from .. import audit
from ..db.clock import now_on
from ..db.compiled import number
from ..db.session import Session
from ..db.tables import CHANNEL, dead, job
from ..queries.jobs import died_before, died_since
from ..record import DeadLetter
from ..state import DEAD, DROPPED, Status
from ..stats import failures
from ..stats.counters import add
from ..stats.failure_deltas import Alike, Failed, dealt_with
from ..validation import mapping

EDITED = "redrive-edited"
"""A header of a job whose payload somebody changed before the replay: who."""
CARRIED = ("max_attempts", "keep", "deadline", "version", "request_hash", "ids", "headers")


class Sorted(NamedTuple):
    """What an act on dead letters did: to these, and not to those, for these reasons."""

    done: dict[int, int]
    """Dead letter to the job it concerns: the new one of a replay, the dropped one of a discard."""
    skipped: dict[int, str]


def letters(
    connection: Connection, /, *, ids: Sequence[int] | None = None, status: Status | None = None, kind: str | None = None,
    reason: str | None = None, error: str | None = None, signature: str | None = None, job_id: int | None = None,
    since: datetime | None = None, until: datetime | None = None, source: str | None = None, after: int = 0, limit: int = 100,
    newest: bool = False,
) -> list[DeadLetter]:  # fmt: skip
    """Dead letters in the order they came, or the newest first. source: of messages of this source; "*": of any."""
    query = (
        select(*(dead.c[name.removesuffix("_stored")].label(name) for name in DeadLetter._fields))
        .where(dead.c.id > after)
        .order_by(dead.c.id.desc() if newest else dead.c.id)
        .limit(limit)
    )
    given = {"status": status, "kind": kind, "reason": reason, "signature": signature, "job_id": job_id}
    for name, value in given.items():
        if value is not None:
            query = query.where(dead.c[name] == value)
    if ids is not None:
        query = query.where(dead.c.id.in_(list(ids)))
    if error is not None:
        query = query.where(dead.c.error.icontains(error, autoescape=True) | (dead.c.signature == error))
    if since is not None:
        query = query.where(died_since(since))
    if until is not None:
        query = query.where(died_before(until))
    if source is not None:
        query = query.where(dead.c.source.is_not(None) if source == "*" else dead.c.source == source)
    return [DeadLetter._make(row) for row in connection.execute(query)]


def numbers(connection: Connection, jobs: Sequence[int], /) -> dict[int, int]:
    """The dead letters of these jobs: job to letter."""
    query = select(dead.c.job_id, dead.c.id).where(dead.c.job_id.in_(list(jobs)))
    return {row.job_id: row.id for row in connection.execute(query)}


def replay(
    session: Session, ids: Sequence[int], /, *, actor: str, because: str, max_replays: int | None = None,
    edits: Mapping[int, bytes] | None = None,
) -> Sorted:  # fmt: skip
    """Give each a new job in the old one's place, under the same key. edits: payloads that differ from the letter's own."""
    audit.said(actor, because)
    with session.transaction("replay") as connection:
        return replayed(session, connection, ids, actor=actor, because=because, max_replays=max_replays, edits=edits)


def replayed(
    session: Session, connection: Connection, ids: Sequence[int], /, *, actor: str, because: str, max_replays: int | None = None,
    audited: bool = True, edits: Mapping[int, bytes] | None = None,
) -> Sorted:  # fmt: skip
    """The same, in the transaction that is open. audited: False where the whole of which this is a part was."""
    edits = edits or {}
    found, skipped = _pending(connection, ids)
    now = now_on(session)
    rows = []
    for letter, old in found:
        if max_replays is not None and letter.replay_count >= max_replays:
            skipped[letter.id] = f"replayed {pluralise(letter.replay_count, 'time')} already"
            continue
        new = {name: getattr(old, name) for name in CARRIED} | {"payload": letter.payload}
        if letter.id in edits:
            new |= {"payload": edits[letter.id], "headers": _edited(old.headers, actor)}
        rows.append(new | {"kind": old.kind, "key": old.key, "replay_of": old.id, "dead_id": letter.id})
    done = _made(connection, rows, now) if rows else {}
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        changes[row["kind"]].update({"dead": -1, "dropped": 1, "submitted": 1, "ready": 1})
    if done:
        if not session.sqlite:
            connection.exec_driver_sql(f"NOTIFY {CHANNEL}")  # workers are told, as of anything that was submitted
        add(session, changes)
        failures.add(session, _over(found, done), now)
    if done and audited:
        changed = {str(letter.id): _difference(letter.payload, edits[letter.id]) for letter, _ in found if letter.id in edits}
        what = _jobs(done) | ({"edited": changed} if changed else {})
        audit.write(session, actor=actor, action="dead.replay", because=because, what=what)
    return Sorted(done, skipped)


def _made(connection: Connection, rows: Sequence[Mapping[str, Any]], now: datetime) -> dict[int, int]:
    """Put these jobs in the places of those that died; letter to job. A few statements, however many they are."""
    olds = [row["replay_of"] for row in rows]
    connection.execute(update(job).where(job.c.id.in_(olds)).values(state=DROPPED, current=False))
    new = insert(job).returning(job.c.dead_id, job.c.id)
    created = connection.execute(new, [{**row, "created_at": now, "due_at": now} for row in rows])
    made: dict[int, int] = {row.dead_id: row.id for row in created}
    done = {row["dead_id"]: made[row["dead_id"]] for row in rows}
    again = update(dead).where(dead.c.id == bindparam("letter"))
    again = again.values(
        status="replaying", replay_count=dead.c.replay_count + 1, replay_job_id=bindparam("made"), blocked=False,
        blocked_until=null(), updated_at=now,
    )  # fmt: skip
    connection.execute(again, [{"letter": letter, "made": job_id} for letter, job_id in done.items()])
    return done


def _edited(headers: str | None, actor: str) -> str | None:
    """The headers of a job whose payload is not the letter's own any more; the letter keeps that."""
    return mapping("headers", {**(json.loads(headers) if headers else {}), EDITED: actor})


def _difference(before: bytes, after: bytes) -> dict[str, Any]:
    """What the audit has of an edit: which payload it was, and which it became; not what is in them."""
    return {
        "from": hashlib.sha256(before).hexdigest()[:16], "to": hashlib.sha256(after).hexdigest()[:16], "bytes": len(after),
    }  # fmt: skip


def discard(session: Session, ids: Sequence[int], /, *, actor: str, because: str) -> Sorted:
    """Drop each for good. Its key stays taken: a duplicate that comes late does not bring the work back."""
    audit.said(actor, because)
    with session.transaction("discard") as connection:
        return discarded(session, connection, ids, actor=actor, because=because)


def discarded(
    session: Session, connection: Connection, ids: Sequence[int], /, *, actor: str, because: str, audited: bool = True
) -> Sorted:
    """The same, in the transaction that is open."""
    found, skipped = _pending(connection, ids)
    now = now_on(session)
    done = {letter.id: old.id for letter, old in found}
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for _letter, old in found:
        changes[old.kind].update({"dead": -1, "dropped": 1})
    if done:
        connection.execute(update(job).where(job.c.id.in_(list(done.values()))).values(state=DROPPED))
        dropped = {"status": "discarded", "blocked_until": null(), "updated_at": now}
        connection.execute(update(dead).where(dead.c.id.in_(list(done))).values(dropped))
        add(session, changes)
        failures.add(session, _over(found, done), now)
    if done and audited:
        audit.write(session, actor=actor, action="dead.discard", because=because, what=_jobs(done))
    return Sorted(done, skipped)


_UNBLOCKED = select(exists().where(dead.c.blocked_until <= func.clock_timestamp(), dead.c.status == "pending"))
"""Whether there is anything. On Postgres a look is one round trip, a transaction four."""


def unblock(session: Session, limit: int, /) -> Sorted:
    """Replay what was blocked until a moment that has come."""
    if not session.sqlite and not session.core.execute(_UNBLOCKED).scalar():
        return Sorted({}, {})
    with session.transaction("replay") as connection:
        due = (
            select(dead.c.id)
            .where(dead.c.blocked_until <= now_on(session), dead.c.status == "pending")
            .order_by(dead.c.blocked_until)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        ids = connection.execute(due).scalars().all()
        if not ids:
            return Sorted({}, {})
        return replayed(session, connection, ids, actor="redrive", because="it was blocked until a time that has come")


def _jobs(done: dict[int, int]) -> dict[str, Any]:
    return {"jobs": {str(letter): job_id for letter, job_id in done.items()}}


def _over(found: Sequence[tuple[Any, Any]], done: dict[int, int]) -> Mapping[Alike, Failed]:
    """What was done is pending no more."""
    return dealt_with((letter.kind, letter.signature, letter.blocked) for letter, _old in found if letter.id in done)


def _pending(connection: Connection, ids: Sequence[int]) -> tuple[list[tuple[Any, Any]], dict[int, str]]:
    """The letters that may be acted on, each with its job; and why not the others. Locked in one order."""
    rows = connection.execute(select(dead).where(dead.c.id.in_(list(ids))).order_by(dead.c.id).with_for_update()).all()
    skipped = dict.fromkeys(ids, "not found") | {row.id: str(row.status) for row in rows if row.status != "pending"}
    letters_ = [row for row in rows if row.status == "pending"]
    jobs = {
        row.id: row
        for row in connection.execute(
            select(job).where(job.c.id.in_([row.job_id for row in letters_]), job.c.state == number(DEAD)).with_for_update()
        )
    }
    found = []
    for row in letters_:
        if row.job_id in jobs:
            found.append((row, jobs[row.job_id]))
            skipped.pop(row.id, None)
        else:
            skipped[row.id] = "its job no longer exists"
    return found, skipped
