"""Erase: what the ledger knows of one user, taken out of it. Counts still balance; what was decided stays in the audit."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, null, or_, select, update

from .. import audit
from ..db.clock import now_on
from ..db.failure_tables import failure, failure_delta
from ..db.session import NO_LIMIT, Session
from ..db.tables import attempt, dead, event, job, key
from ..state import DEAD, DONE, LEASED, PRUNED, READY
from ..stats.counters import add
from . import dead_letters
from .user_mentions import audited, mentions, name_of, open_backfills, queued_partitions, replace, rewrite

STEP = 500
"""Jobs that are erased in one transaction."""


class Known(NamedTuple):
    """What the ledger knows of a user: numbers of rows. Immutable."""

    jobs: tuple[int, ...] = ()
    """That have ended, or are dead."""
    letters: tuple[int, ...] = ()
    events: tuple[int, ...] = ()
    keys: int = 0
    busy: tuple[int, ...] = ()
    """Jobs that wait or run: what they need cannot be taken from them."""
    held: int = 0
    """Idempotency keys that somebody is at right now."""
    mentions: int = 0
    """Other rows with the name in a text: errors, reasons, selections, partitions, the audit log."""
    partitions: int = 0
    """Partitions of theirs that are queued or running, and left."""
    backfills: int = 0
    """Backfills for them that have not ended, and are left."""


def known(connection: Connection, session: Session, user: str, /) -> Known:
    """Whatever has this user in its key, or as its correlation id `user_id`. Reads every key: for rare use."""
    jobs: list[int] = []
    busy: list[int] = []
    for row in _of(connection, user, job.c.key, job.c.ids, job.c.id, job.c.state):
        (busy if row.state in (READY, LEASED) else jobs).append(row.id)
    unended = set(busy)
    found = list(_of(connection, user, dead.c.key, dead.c.ids, dead.c.id, dead.c.job_id, dead.c.replay_job_id))
    free = [row.id for row in found if not {row.job_id, row.replay_job_id} & unended]
    events = [row.id for row in _of(connection, user, None, event.c.ids, event.c.id)]
    at_it = (key.c.user_id == user) & (key.c.status == "processing") & (key.c.lease_until >= now_on(session))
    keys = connection.execute(select(key.c.key).where(key.c.user_id == user)).all()
    held = connection.execute(select(key.c.key).where(at_it)).all()
    rows = {attempt: jobs, job: jobs, dead: free, event: events}
    theirs = {(table.name, one) for table, ids in rows.items() for one in ids}
    name = name_of(user)
    others = sum((table.name, row.get("id", row.get("job_id"))) not in theirs for table, row, _ in mentions(connection, name))
    others += sum(1 for _ in audited(connection, name))
    return Known(
        jobs=tuple(jobs),
        letters=tuple(free),
        events=tuple(events),
        keys=len(keys) - len(held),
        busy=tuple(busy),
        held=len(held),
        mentions=others,
        partitions=queued_partitions(connection, name),
        backfills=open_backfills(connection, name),
    )


def erase(session: Session, found: Known, user: str, /, *, actor: str, because: str) -> None:
    """Take it out, some at a time, each in one transaction with its entry in the audit. Pending dead letters are discarded."""
    audit.said(actor, because)
    whole = name_of(user)
    name, actor, because = whole.pseudonym, whole.replaced(actor), whole.replaced(because)
    if session.sqlite:
        session.raw.execute("PRAGMA secure_delete = ON")  # what is taken out is overwritten
    for letter_ids, job_ids in _steps(found):
        with session.transaction("discard", bound=NO_LIMIT) as connection:
            dead_letters.discarded(session, connection, letter_ids, actor=actor, because=because, audited=False)
            _jobs(session, connection, job_ids)
            emptied = {"payload": b"", "headers": null(), "ids": null(), "error": null(), "signature": null()}
            _rows(connection, dead, letter_ids, {**emptied, "updated_at": now_on(session)}, "key")
            what = {"user_hash": name, "jobs": len(job_ids), "letters": len(letter_ids)}
            audit.write(session, actor=actor, action=audit.ERASED, because=because, what=what)
    with session.transaction("discard", bound=NO_LIMIT) as connection:
        _rows(
            connection, event, found.events, {"payload": b"", "headers": null(), "ids": null(), "source_id": null()}, "event_id"
        )
        over = (key.c.status != "processing") | (key.c.lease_until < now_on(session))
        gone = connection.execute(delete(key).where(key.c.user_id == user, over)).rowcount
        what = {"user_hash": name, "events": len(found.events), "keys": gone}
        audit.write(session, actor=actor, action=audit.ERASED, because=because, what=what)
    with session.transaction("discard", bound=NO_LIMIT) as connection:
        if not session.sqlite:
            connection.execute(select(func.pg_advisory_xact_lock(audit.LOCK)))
        others = list(mentions(connection, whole))
        for table, row, changed in others:
            replace(connection, table, row, changed)
        digests = rewrite(connection, whole)
        if others or digests:
            what = {"user_hash": name, "mentions": len(others), "rewritten": digests}
            audit.write(session, actor=actor, action=audit.ERASED, because=because, what=what)


def compact(session: Session, /) -> str | None:
    """Leave nothing of what was erased in free pages and the write-ahead log of a SQLite file; what could not be done, if any."""
    if not session.sqlite:
        return None
    try:
        session.raw.execute("VACUUM")
        blocked = session.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.OperationalError:
        blocked = 1
    if blocked:
        return (
            "free pages and the write-ahead log of the SQLite file: another program has it open; repeat the erasure after it ends"
        )
    return None


def _jobs(session: Session, connection: Connection, ids: Sequence[int]) -> None:
    """Emptied as pruned ones are, and without their keys."""
    rows = connection.execute(select(job.c.id, job.c.kind, job.c.state).where(job.c.id.in_(ids)).with_for_update()).all()
    ended = [row for row in rows if row.state not in (READY, LEASED, DEAD)]
    emptied = {"payload": b"", "result": null(), "error": null(), "ids": null(), "headers": null(), "request_hash": null()}
    for row in ended:
        state = {"state": PRUNED, "expires_at": now_on(session)} if row.state == DONE else {}
        connection.execute(update(job).where(job.c.id == row.id).values(key=f"erased:{row.id}", **emptied, **state))
    these = [row.id for row in ended]
    connection.execute(delete(attempt).where(attempt.c.job_id.in_(these)))
    for table in (failure, failure_delta):
        connection.execute(update(table).where(table.c.job_id.in_(these)).values(error=null()))
    done = Counter(row.kind for row in ended if row.state == DONE)
    add(session, {kind: {"done": -many, "pruned": many} for kind, many in done.items()})


def _rows(connection: Connection, table: Any, ids: Sequence[int], values: dict[str, Any], name: str) -> None:
    for one in ids:
        connection.execute(update(table).where(table.c.id == one).values(**values, **{name: f"erased:{one}"}))


def _steps(found: Known) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Letters first: their jobs are dead until these are discarded."""
    for start in range(0, len(found.letters), STEP):
        yield found.letters[start : start + STEP], ()
    for start in range(0, len(found.jobs), STEP):
        yield (), found.jobs[start : start + STEP]


def _of(
    connection: Connection, user: str, keyed: ColumnElement[Any] | None, ids: ColumnElement[Any], *columns: ColumnElement[Any]
) -> Iterable[Any]:
    """Rows of this user: found by text, then looked at."""
    safe = user.replace("%", "%25").replace(":", "%3A")
    written = {json.dumps(user)[1:-1], json.dumps(user, ensure_ascii=False)[1:-1]}
    alike = [ids.contains(text, autoescape=True) for text in written]
    if keyed is not None:
        alike.append(keyed.contains(f":{safe}:", autoescape=True))
    shown = (*columns, ids.label("ids_"), *(() if keyed is None else (keyed.label("key_"),)))
    for row in connection.execute(select(*shown).where(or_(*alike)).order_by(columns[0])):
        parts = [] if keyed is None else row.key_.split(":")
        if (len(parts) >= 5 and parts[1] == safe) or (row.ids_ and json.loads(row.ids_).get("user_id") == user):
            yield row
