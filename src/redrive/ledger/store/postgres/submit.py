"""Submit on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import DateTime, Float, Integer, Interval, LargeBinary, SmallInteger, Text, func, insert, literal_column, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.types import TypeEngine

from ...db.compiled import Runner, postgres, rows, words
from ...db.tables import CHANNEL, CURRENT, job, tally_delta
from ...record import NewJob, Submitted
from ...state import STATES
from ...validation import mapping
from .arrays import blobs, moments, plain, texts

SECOND = literal_column("interval '1 second'", Interval())

_PLAIN: dict[str, TypeEngine[Any]] = {"kind": Text(), "key": Text(), "payload": LargeBinary()}
_FULL = _PLAIN | {
    "priority": SmallInteger(), "max_attempts": Integer(), "keep": Float(53), "deadline": DateTime(timezone=True), "ids": Text(),
    "headers": Text(), "request_hash": LargeBinary(), "version": SmallInteger(),
}  # fmt: skip


def _submit(columns: dict[str, TypeEngine[Any]], *, later: bool) -> str:
    when: dict[str, TypeEngine[Any]] = {"delay": Float(53), "due": DateTime(timezone=True)}
    new = rows("new", **columns, **(when if later else {}))
    due = func.coalesce(new.c.due, func.now() + new.c.delay * SECOND) if later else func.now()
    created = (
        upsert(job)
        .from_select([*columns, "created_at", "due_at"], select(*(new.c[name] for name in columns), func.now(), due))
        .on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
        .returning(job.c.id, job.c.kind, job.c.key)
        .cte("created")
    )
    counted = (
        insert(tally_delta)
        .from_select(["kind", "submitted", "ready"], select(created.c.kind, func.count(), func.count()).group_by(created.c.kind))
        .returning(func.pg_notify(words(CHANNEL), tally_delta.c.kind))  # once for each kind, where it costs least
        .cte("counted")
    )
    return postgres(select(created.c.id, created.c.kind, created.c.key).add_cte(counted)).text


SUBMIT = _submit(_FULL, later=True)
SUBMIT_PLAIN = _submit(_PLAIN, later=False)
"""For jobs with nothing but a kind, a key and a payload, which most are: ten arrays less."""

_asked = rows("asked", kind=Text(), key=Text())
KNOWN = postgres(
    select(job.c.id, job.c.kind, job.c.key, job.c.state, job.c.request_hash)
    .join(_asked, (job.c.kind == _asked.c.kind) & (job.c.key == _asked.c.key))
    .where(CURRENT)
).text
ROUNDS = 5
_DEFAULTS = NewJob("", "")[3:]


def submit(run: Runner, jobs: Sequence[NewJob], /) -> list[Submitted]:
    """Insert what is new in one statement; what is known already is looked up. The jobs are sorted, their keys differ."""
    found: dict[tuple[str, str], Submitted] = {}
    missing = jobs
    for _round in range(ROUNDS):
        hashes = {(new.kind, new.key): new.request_hash for new in missing}
        for id_, kind, key in run.execute(*_statement(missing)).fetchall():
            found[kind, key] = Submitted(id_, kind, key, "ready", True, hashes[kind, key])
        missing = [new for new in missing if (new.kind, new.key) not in found]
        if not missing:
            break
        known = {"asked_kind": texts(new.kind for new in missing), "asked_key": texts(new.key for new in missing)}
        for id_, kind, key, state, request_hash in run.execute(KNOWN, known).fetchall():
            found[kind, key] = Submitted(id_, kind, key, STATES[state], False, request_hash)
        # A key may have expired between the two statements: then it is free, and the job is new after all.
        missing = [new for new in missing if (new.kind, new.key) not in found]
        if not missing:
            break
    return [found[new.kind, new.key] for new in jobs]


def _statement(jobs: Sequence[NewJob]) -> tuple[str, dict[str, str]]:
    given = {
        "new_kind": texts(new.kind for new in jobs),
        "new_key": texts(new.key for new in jobs),
        "new_payload": blobs(new.payload for new in jobs),
    }
    if all(new[3:] == _DEFAULTS for new in jobs):
        return SUBMIT_PLAIN, given
    return SUBMIT, given | {
        "new_priority": plain(new.priority for new in jobs),
        "new_delay": plain(new.delay for new in jobs),
        "new_due": moments(new.due for new in jobs),
        "new_max_attempts": plain(new.max_attempts for new in jobs),
        "new_keep": plain(new.keep for new in jobs),
        "new_deadline": moments(new.deadline for new in jobs),
        "new_ids": texts(mapping("ids", new.ids) for new in jobs),
        "new_headers": texts(mapping("headers", new.headers) for new in jobs),
        "new_request_hash": blobs(new.request_hash for new in jobs),
        "new_version": plain(new.version for new in jobs),
    }
