"""Submit on SQLite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import Many, sqlite
from ...db.tables import CURRENT, job
from ...db.types import MICROSECONDS, micros
from ...record import NewJob, Submitted
from ...state import STATES
from ...validation import mapping
from .counters import add

COLUMNS = (
    "priority", "max_attempts", "due_at", "created_at", "deadline", "keep", "version", "kind", "key", "ids", "headers",
    "request_hash", "payload",
)  # fmt: skip
_new = insert(job).values({name: bindparam(name) for name in COLUMNS})
_new = _new.on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
ONE = sqlite(_new.returning(job.c.id), *COLUMNS).text
MANY = sqlite(_new, *COLUMNS).text
KNOWN = sqlite(
    select(job.c.id, job.c.state, job.c.request_hash).where(
        job.c.kind == bindparam("kind"), job.c.key == bindparam("key"), CURRENT
    ),
    "kind",
    "key",
).text
LAST = "SELECT last_insert_rowid()"


def row(new: NewJob, now: int, /) -> tuple[object, ...]:
    """As it is inserted."""
    due = micros(new.due) if new.due is not None else now + int(new.delay * MICROSECONDS) if new.delay else now
    deadline = None if new.deadline is None else micros(new.deadline)
    ids = mapping("ids", new.ids) if new.ids else None
    headers = mapping("headers", new.headers) if new.headers else None
    return (
        new.priority, new.max_attempts, due, now, deadline, new.keep, new.version, new.kind, new.key, ids, headers,
        new.request_hash, new.payload,
    )  # fmt: skip


def submit(run: Many, jobs: Sequence[NewJob], now: int, /) -> list[Submitted]:
    """Insert what is new, one by one; what is known already is looked up."""
    found = []
    created: Counter[str] = Counter()
    for new in jobs:
        inserted = run.execute(ONE, row(new, now)).fetchone()
        if inserted is not None:
            created[new.kind] += 1
            found.append(Submitted(inserted[0], new.kind, new.key, "ready", True, new.request_hash))
        else:
            known = run.execute(KNOWN, (new.kind, new.key)).fetchone()
            found.append(Submitted(known[0], new.kind, new.key, STATES[known[1]], False, known[2]))
    for kind, count in created.items():
        add(run, kind, submitted=count, ready=count)
    return found


def submit_fresh(run: Many, jobs: Sequence[NewJob], now: int, /) -> list[Submitted] | None:
    """Insert a batch at once. None, with the transaction spoilt, where some key was known already: roll back, use `submit`."""
    cursor = run.executemany(MANY, [row(new, now) for new in jobs])
    if cursor.rowcount != len(jobs):
        return None
    # AUTOINCREMENT within one transaction: the ids follow one another.
    first = run.execute(LAST).fetchone()[0] - len(jobs) + 1
    for kind, count in Counter(new.kind for new in jobs).items():
        add(run, kind, submitted=count, ready=count)
    return [Submitted(first + at, new.kind, new.key, "ready", True, new.request_hash) for at, new in enumerate(jobs)]
