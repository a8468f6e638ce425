"""Submit on SQLite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import BatchRunner, compile_sqlite
from ...db.tables import CURRENT, job
from ...model import STATES, NewJob, Submitted
from ...timestamps import MICROSECONDS, to_micros
from ...validation import to_json
from .counters import add

COLUMNS = (
    *("priority", "max_attempts", "due_at", "created_at", "deadline", "keep", "version"),
    *("kind", "key", "ids", "headers", "request_hash", "payload"),
)
_new = insert(job).values({name: bindparam(name) for name in COLUMNS})
_new = _new.on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
INSERT_RETURNING = compile_sqlite(_new.returning(job.c.id), *COLUMNS)
INSERT = compile_sqlite(_new, *COLUMNS)
_has_key = (job.c.kind == bindparam("kind"), job.c.key == bindparam("key"), CURRENT)
KNOWN = compile_sqlite(
    select(job.c.id, job.c.state, job.c.request_hash).where(*_has_key), "kind", "key"
)
LAST_ID = "SELECT last_insert_rowid()"


def to_row(new: NewJob, now: int, /) -> tuple[object, ...]:
    """Return the values of `COLUMNS`."""
    due = now + int(new.delay * MICROSECONDS) if new.delay else now
    if new.due is not None:
        due = to_micros(new.due)
    return (
        new.priority,
        new.max_attempts,
        due,
        now,
        None if new.deadline is None else to_micros(new.deadline),
        new.keep,
        new.version,
        new.kind,
        new.key,
        to_json("ids", new.ids) if new.ids else None,
        to_json("headers", new.headers) if new.headers else None,
        new.request_hash,
        new.payload,
    )


def submit(run: BatchRunner, jobs: Sequence[NewJob], now: int, /) -> list[Submitted]:
    """Insert new jobs one by one, and look up the others."""
    submitted = []
    created: Counter[str] = Counter()
    for new in jobs:
        row = run.execute(INSERT_RETURNING, to_row(new, now)).fetchone()
        if row is not None:
            created[new.kind] += 1
            submitted.append(Submitted(row[0], new.kind, new.key, "ready", True, new.request_hash))
        else:
            id_, state, request_hash = run.execute(KNOWN, (new.kind, new.key)).fetchone()
            submitted.append(Submitted(id_, new.kind, new.key, STATES[state], False, request_hash))
    for kind, count in created.items():
        add(run, kind, submitted=count, ready=count)
    return submitted


def submit_new(run: BatchRunner, jobs: Sequence[NewJob], now: int, /) -> list[Submitted] | None:
    """Insert a batch at once.

    Returns:
        None if a key existed. Then roll back and use `submit`.
    """
    cursor = run.executemany(INSERT, [to_row(new, now) for new in jobs])
    if cursor.rowcount != len(jobs):
        return None
    # AUTOINCREMENT: the ids of one transaction are consecutive.
    first = run.execute(LAST_ID).fetchone()[0] - len(jobs) + 1
    for kind, count in Counter(new.kind for new in jobs).items():
        add(run, kind, submitted=count, ready=count)
    return [
        Submitted(first + place, new.kind, new.key, "ready", True, new.request_hash)
        for place, new in enumerate(jobs)
    ]
