"""Submit on SQLite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import bindparam, false, select, update
from sqlalchemy import insert as plain_insert
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import BatchRunner, compile_sqlite, sql_int
from ...db.job_tables import tag
from ...db.tables import CURRENT, SEQUENCED, job
from ...model import CANCELLED, HELD, LEASED, READY, STATES, NewJob, Submitted
from ...tags import tags_of
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
LIVING_COLUMNS = ("state", *COLUMNS, "tenant", "sequence")
_living = insert(job).values({name: bindparam(name) for name in LIVING_COLUMNS})
_living = _living.on_conflict_do_nothing(
    index_elements=[job.c.kind, job.c.key], index_where=CURRENT
)
INSERT_LIVING_RETURNING = compile_sqlite(_living.returning(job.c.id), *LIVING_COLUMNS)
INSERT_LIVING = compile_sqlite(_living, *LIVING_COLUMNS)
"""For jobs with a tenant or a sequence. Other jobs have fewer parameters."""
_has_key = (job.c.kind == bindparam("kind"), job.c.key == bindparam("key"), CURRENT)
KNOWN = compile_sqlite(
    select(job.c.id, job.c.state, job.c.request_hash, job.c.cancel_at).where(*_has_key),
    "kind",
    "key",
)
_TAG_COLUMNS = ("name", "value", "job_id")
INSERT_TAG = compile_sqlite(
    plain_insert(tag).values({name: bindparam(name) for name in _TAG_COLUMNS}), *_TAG_COLUMNS
)
FREE_KEY = compile_sqlite(
    update(job)
    .values(current=false())
    .where(job.c.id == bindparam("of_id"), job.c.state == sql_int(CANCELLED)),
    "of_id",
)
LAST_ID = "SELECT last_insert_rowid()"
HAS_UNFINISHED = compile_sqlite(
    select(job.c.id)
    .where(job.c.kind == bindparam("kind"), job.c.sequence == bindparam("sequence"), SEQUENCED)
    .limit(sql_int(1))
    .offset(sql_int(0)),
    "kind",
    "sequence",
)


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


def _add_tags(run: BatchRunner, jobs: Iterable[tuple[int, NewJob]]) -> None:
    insert_tags(run, [(*each, job_id) for job_id, new in jobs for each in tags_of(new)])


def insert_tags(run: BatchRunner, rows: Sequence[tuple[str, str, int]], /) -> None:
    """Insert tags: name, value and job id."""
    if rows:
        run.executemany(INSERT_TAG, rows)


def submit(run: BatchRunner, jobs: Sequence[NewJob], now: int, /) -> list[Submitted]:
    """Insert new jobs one by one, and look up the others."""
    submitted = []
    created: Counter[str] = Counter()
    for new in jobs:
        first_state = _first_state(run, new)
        row = _insert(run, new, first_state, now)
        if row is None:
            known = run.execute(KNOWN, (new.kind, new.key)).fetchone()
            id_, state, request_hash, cancel_at = known
            if state != CANCELLED or new.keeps_cancelled:
                is_stopping = state == LEASED and cancel_at is not None
                known_as = (id_, new.kind, new.key, STATES[state], False, request_hash)
                submitted.append(Submitted(*known_as, is_stopping))
                continue
            run.execute(FREE_KEY, (id_,))
            row = _insert(run, new, first_state, now)
        created[new.kind] += 1
        created_as = (row[0], new.kind, new.key, STATES[first_state], True, new.request_hash)
        submitted.append(Submitted(*created_as))
        if new.tags or new.ids:
            _add_tags(run, ((row[0], new),))
    for kind, count in created.items():
        add(run, kind, submitted=count, ready=count)
    return submitted


def _insert(run: BatchRunner, new: NewJob, state: int, now: int) -> Any:
    """Insert a job. Returns a row with its id, or None if the key exists."""
    if new.tenant is None and new.sequence is None:
        return run.execute(INSERT_RETURNING, to_row(new, now)).fetchone()
    values = (state, *to_row(new, now), new.tenant, new.sequence)
    return run.execute(INSERT_LIVING_RETURNING, values).fetchone()


def _first_state(run: BatchRunner, new: NewJob) -> int:
    """Return the state of a new job: held while its sequence has an unfinished job."""
    if new.sequence is None:
        return READY
    has_unfinished = run.execute(HAS_UNFINISHED, (new.kind, new.sequence)).fetchone()
    return READY if has_unfinished is None else HELD


def submit_new(run: BatchRunner, jobs: Sequence[NewJob], now: int, /) -> list[Submitted] | None:
    """Insert a batch at once. None of the jobs has a sequence.

    Returns:
        None if a key existed. Then roll back and use `submit`.
    """
    if any(new.tenant is not None for new in jobs):
        living = [(READY, *to_row(new, now), new.tenant, None) for new in jobs]
        cursor = run.executemany(INSERT_LIVING, living)
    else:
        cursor = run.executemany(INSERT, [to_row(new, now) for new in jobs])
    if cursor.rowcount != len(jobs):
        return None
    # AUTOINCREMENT: the ids of one transaction are consecutive.
    first = run.execute(LAST_ID).fetchone()[0] - len(jobs) + 1
    for kind, count in Counter(new.kind for new in jobs).items():
        add(run, kind, submitted=count, ready=count)
    if any(new.tags or new.ids for new in jobs):
        _add_tags(run, enumerate(jobs, first))
    return [
        Submitted(first + place, new.kind, new.key, "ready", True, new.request_hash)
        for place, new in enumerate(jobs)
    ]
