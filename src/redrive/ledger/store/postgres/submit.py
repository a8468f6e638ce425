"""Submit on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    DateTime,
    Float,
    Integer,
    Interval,
    LargeBinary,
    SmallInteger,
    Text,
    func,
    insert,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.types import TypeEngine

from ...db.compiled import (
    Runner,
    bytes_array,
    compile_postgres,
    int_array,
    sql_text,
    text_array,
    timestamp_array,
    unnest,
)
from ...db.tables import CHANNEL, CURRENT, job, tally_delta
from ...model import STATES, NewJob, Submitted
from ...validation import to_json

SECOND = literal_column("interval '1 second'", Interval())
MAX_ROUNDS = 5

_PLAIN: dict[str, TypeEngine[Any]] = {"kind": Text(), "key": Text(), "payload": LargeBinary()}
_FULL = _PLAIN | {
    "priority": SmallInteger(),
    "max_attempts": Integer(),
    "keep": Float(53),
    "deadline": DateTime(timezone=True),
    "ids": Text(),
    "headers": Text(),
    "request_hash": LargeBinary(),
    "version": SmallInteger(),
}
_DUE: dict[str, TypeEngine[Any]] = {"delay": Float(53), "due": DateTime(timezone=True)}


def _submit(columns: dict[str, TypeEngine[Any]], *, scheduled: bool) -> str:
    new = unnest("new", **columns, **(_DUE if scheduled else {}))
    due = func.coalesce(new.c.due, func.now() + new.c.delay * SECOND) if scheduled else func.now()
    values = select(*(new.c[name] for name in columns), func.now(), due)
    created = (
        upsert(job)
        .from_select([*columns, "created_at", "due_at"], values)
        .on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
        .returning(job.c.id, job.c.kind, job.c.key)
        .cte("created")
    )
    sums = select(created.c.kind, func.count(), func.count()).group_by(created.c.kind)
    counted = (
        insert(tally_delta)
        .from_select(["kind", "submitted", "ready"], sums)
        # Notify here, once for each job type, where it costs least.
        .returning(func.pg_notify(sql_text(CHANNEL), tally_delta.c.kind))
        .cte("counted")
    )
    return compile_postgres(select(created.c.id, created.c.kind, created.c.key).add_cte(counted))


SUBMIT = _submit(_FULL, scheduled=True)
SUBMIT_PLAIN = _submit(_PLAIN, scheduled=False)
"""For jobs with only a type, a key and a payload, as most are: ten arrays less."""

_asked = unnest("asked", kind=Text(), key=Text())
KNOWN = compile_postgres(
    select(job.c.id, job.c.kind, job.c.key, job.c.state, job.c.request_hash)
    .join(_asked, (job.c.kind == _asked.c.kind) & (job.c.key == _asked.c.key))
    .where(CURRENT)
)
_DEFAULTS = NewJob("", "")[3:]


def submit(run: Runner, jobs: Sequence[NewJob], /) -> list[Submitted]:
    """Insert new jobs in one statement, and look up the others. The jobs are sorted by key."""
    submitted: dict[tuple[str, str], Submitted] = {}
    missing = jobs
    for _round in range(MAX_ROUNDS):
        hashes = {(new.kind, new.key): new.request_hash for new in missing}
        for id_, kind, key in run.execute(*_statement(missing)).fetchall():
            submitted[kind, key] = Submitted(id_, kind, key, "ready", True, hashes[kind, key])
        missing = [new for new in missing if (new.kind, new.key) not in submitted]
        if not missing:
            break
        keys = {
            "asked_kind": text_array(new.kind for new in missing),
            "asked_key": text_array(new.key for new in missing),
        }
        for id_, kind, key, state, request_hash in run.execute(KNOWN, keys).fetchall():
            submitted[kind, key] = Submitted(id_, kind, key, STATES[state], False, request_hash)
        # A key may have expired between the two statements. Then the job is new after all.
        missing = [new for new in missing if (new.kind, new.key) not in submitted]
        if not missing:
            break
    return [submitted[new.kind, new.key] for new in jobs]


def _statement(jobs: Sequence[NewJob]) -> tuple[str, dict[str, str]]:
    plain = {
        "new_kind": text_array(new.kind for new in jobs),
        "new_key": text_array(new.key for new in jobs),
        "new_payload": bytes_array(new.payload for new in jobs),
    }
    if all(new[3:] == _DEFAULTS for new in jobs):
        return SUBMIT_PLAIN, plain
    return SUBMIT, plain | {
        "new_priority": int_array(new.priority for new in jobs),
        "new_delay": int_array(new.delay for new in jobs),
        "new_due": timestamp_array(new.due for new in jobs),
        "new_max_attempts": int_array(new.max_attempts for new in jobs),
        "new_keep": int_array(new.keep for new in jobs),
        "new_deadline": timestamp_array(new.deadline for new in jobs),
        "new_ids": text_array(to_json("ids", new.ids) for new in jobs),
        "new_headers": text_array(to_json("headers", new.headers) for new in jobs),
        "new_request_hash": bytes_array(new.request_hash for new in jobs),
        "new_version": int_array(new.version for new in jobs),
    }
