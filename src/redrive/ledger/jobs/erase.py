"""Erasure of a user: remove the user's data from the ledger.

The counters still balance, and the audit log keeps what was decided.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, delete, null, or_, select, update

from .. import audit
from ..db.clock import now_on
from ..db.job_tables import progress, step, tag, tenant
from ..db.session import NO_LIMIT, Session
from ..db.sqlite import overwrite_deleted
from ..db.tables import attempt, dead, event, failure, failure_delta, job, key
from ..mirrors import RUN_HEADER
from ..model import DEAD, DONE, HELD, LEASED, PRUNED, READY
from ..stats.counters import add
from ..store import steps
from . import dead_letters
from .retention import delete_tags
from .user_mentions import (
    audit_mentions,
    is_key_of,
    mentions,
    name_of,
    open_backfills,
    queued_partitions,
    replace,
    rewrite_audit,
)

MAX_STEP_ROWS = 500
"""Jobs or dead letters that are erased in one transaction."""


class UserData(NamedTuple):
    """What the ledger stores about a user: ids and numbers of rows. Immutable."""

    jobs: tuple[int, ...] = ()
    """Jobs that have ended, or are dead."""
    letters: tuple[int, ...] = ()
    events: tuple[int, ...] = ()
    keys: int = 0
    busy: tuple[int, ...] = ()
    """Jobs that are queued or running. They still need their data."""
    held: int = 0
    """Idempotency keys that are being processed."""
    mentions: int = 0
    """Other rows with the name in a text: errors, reasons, selections, partitions, the audit
    log."""
    partitions: int = 0
    """Partitions of the user that are queued or running. They are not changed."""
    backfills: int = 0
    """Backfills for the user that have not ended. They are not changed."""


def find_user_data(connection: Connection, session: Session, user: str, /) -> UserData:
    """Find rows with this user in the key, or as the correlation id `user_id`. Reads every key."""
    jobs: list[int] = []
    busy: list[int] = []
    for row in _rows_of(connection, user, job, job.c.id, job.c.state):
        (busy if row.state in (READY, LEASED, HELD) else jobs).append(row.id)
    columns = (dead.c.id, dead.c.job_id, dead.c.replay_job_id)
    letters = [
        row.id
        for row in _rows_of(connection, user, dead, *columns)
        if not {row.job_id, row.replay_job_id} & set(busy)
    ]
    events = [row.id for row in _rows_of(connection, user, event, event.c.id)]
    keys = select(key.c.key).where(key.c.user_id == user)
    is_held = (key.c.status == "processing") & (key.c.lease_until >= now_on(session))
    key_count = len(connection.execute(keys).all())
    held_count = len(connection.execute(keys.where(is_held)).all())
    own_rows = {
        **dict.fromkeys((attempt, job, tag, step, progress), jobs),
        dead: letters,
        event: events,
    }
    erased = {(table.name, id_) for table, ids in own_rows.items() for id_ in ids}
    name = name_of(user)
    mention_count = sum(
        (table.name, row.get("id", row.get("job_id"))) not in erased
        for table, row, _ in mentions(connection, name)
    )
    mention_count += sum(1 for _ in audit_mentions(connection, name))
    return UserData(
        jobs=tuple(jobs),
        letters=tuple(letters),
        events=tuple(events),
        keys=key_count - held_count,
        busy=tuple(busy),
        held=held_count,
        mentions=mention_count,
        partitions=queued_partitions(connection, name),
        backfills=open_backfills(connection, name),
    )


def erase(session: Session, data: UserData, user: str, /, *, actor: str, because: str) -> None:
    """Erase in several transactions, each with its audit entry.

    Pending dead letters are discarded.
    """
    audit.check_actor(actor, because)
    name = name_of(user)
    because = name.replaced(because)
    if isinstance(actor, audit.Actor):
        # The details of an erasure stay as they are. So they have no name, also not of a token.
        way = None if actor.via is None else actor.via.partition(" ")[0]
        actor = audit.Actor(name.replaced(actor), via=way, check=actor.check)
    else:
        actor = name.replaced(actor)

    def record(**counts: Any) -> None:
        what = {"user_hash": name.pseudonym, **counts}
        audit.write(session, actor=actor, action=audit.ERASED, because=because, what=what)

    overwrite_deleted(session)
    for letter_ids, job_ids in _steps(data):
        with session.transaction("discard", bound=NO_LIMIT) as connection:
            dead_letters.discard_in(
                session, letter_ids, actor=actor, because=because, audited=False
            )
            _erase_jobs(session, connection, job_ids)
            nulls = dict.fromkeys(("headers", "ids", "error", "signature"), null())
            values = {"payload": b"", "updated_at": now_on(session), **nulls}
            _erase_rows(connection, dead, letter_ids, values, "key")
            record(jobs=len(job_ids), letters=len(letter_ids))
    with session.transaction("discard", bound=NO_LIMIT) as connection:
        values = {"payload": b"", "headers": null(), "ids": null(), "source_id": null()}
        _erase_rows(connection, event, data.events, values, "event_id")
        is_free = (key.c.status != "processing") | (key.c.lease_until < now_on(session))
        keys = connection.execute(delete(key).where(key.c.user_id == user, is_free)).rowcount
        connection.execute(delete(tenant).where(tenant.c.tenant == user))
        record(events=len(data.events), keys=keys)
    with session.transaction("discard", bound=NO_LIMIT) as connection:
        session.lock(audit.LOCK)
        rows = list(mentions(connection, name))
        for table, row, texts in rows:
            replace(connection, table, row, texts)
        digests = rewrite_audit(connection, name)
        if rows or digests:
            record(mentions=len(rows), rewritten=digests)


def _erase_jobs(session: Session, connection: Connection, ids: Sequence[int]) -> None:
    """Empty jobs as pruned ones are, and replace their keys."""
    columns = (job.c.id, job.c.kind, job.c.state, job.c.headers)
    query = select(*columns).where(job.c.id.in_(ids)).with_for_update()
    rows = connection.execute(query).all()
    ended = [row for row in rows if row.state not in (READY, LEASED, HELD, DEAD)]
    names = ("result", "error", "signature", "ids", "headers", "request_hash", "tenant", "sequence")
    nulls = dict.fromkeys(names, null())
    for row in ended:
        state = {"state": PRUNED, "expires_at": now_on(session)} if row.state == DONE else {}
        values = {"key": f"erased:{row.id}", "payload": b"", **nulls, **state}
        if run := json.loads(row.headers or "{}").get(RUN_HEADER):
            values["headers"] = json.dumps({RUN_HEADER: run})  # else the engine brings it back
        connection.execute(update(job).where(job.c.id == row.id).values(values))
    ended_ids = [row.id for row in ended]
    connection.execute(delete(attempt).where(attempt.c.job_id.in_(ended_ids)))
    steps.delete_of_jobs(connection, ended_ids)
    delete_tags(connection, ended_ids)
    for table in (failure, failure_delta):
        samples = update(table).where(table.c.job_id.in_(ended_ids))
        connection.execute(samples.values(error=null()))
    done = Counter(row.kind for row in ended if row.state == DONE)
    add(session, {kind: {"done": -count, "pruned": count} for kind, count in done.items()})


def _erase_rows(
    connection: Connection, table: Any, ids: Sequence[int], values: dict[str, Any], name: str
) -> None:
    for id_ in ids:
        erased = {**values, name: f"erased:{id_}"}
        connection.execute(update(table).where(table.c.id == id_).values(erased))


def _steps(data: UserData) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield dead letters first: their jobs are dead until they are discarded."""
    for start in range(0, len(data.letters), MAX_STEP_ROWS):
        yield data.letters[start : start + MAX_STEP_ROWS], ()
    for start in range(0, len(data.jobs), MAX_STEP_ROWS):
        yield (), data.jobs[start : start + MAX_STEP_ROWS]


def _rows_of(
    connection: Connection, user: str, table: Table, *columns: ColumnElement[Any]
) -> Iterator[Any]:
    """Yield rows of this user: found by text, then checked."""
    ids = table.c.ids
    spellings = {json.dumps(user)[1:-1], json.dumps(user, ensure_ascii=False)[1:-1]}
    conditions = [ids.contains(text, autoescape=True) for text in spellings]
    selected = [*columns, ids.label("ids_")]
    if table is not event:
        conditions.append(is_key_of(table, user))
        selected.append(is_key_of(table, user).label("has_key_"))
    for row in connection.execute(select(*selected).where(or_(*conditions)).order_by(columns[0])):
        has_key = table is not event and row.has_key_
        if has_key or (row.ids_ and json.loads(row.ids_).get("user_id") == user):
            yield row
