"""Submit on Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import DateTime, Float, Integer, Interval, LargeBinary, SmallInteger, Text, func, insert, literal_column, select
from sqlalchemy.dialects.postgresql import insert as upsert

from ..limits import mapping
from ..record import NewJob, Submitted
from ..state import STATES
from ..statement import Runner, postgres, rows, words
from ..tables import CHANNEL, CURRENT, job, tally_delta

SECOND = literal_column("interval '1 second'", Interval())

_new = rows(
    "new", kind=Text(), key=Text(), payload=LargeBinary(), priority=SmallInteger(), delay=Float(53),
    due=DateTime(timezone=True), max_attempts=Integer(), keep=Float(53), deadline=DateTime(timezone=True), ids=Text(),
    headers=Text(), request_hash=LargeBinary(), version=SmallInteger(),
)  # fmt: skip
_SAME = ("kind", "key", "payload", "priority", "max_attempts", "keep", "deadline", "ids", "headers", "request_hash", "version")
_created = (
    upsert(job)
    .from_select(
        [*_SAME, "created_at", "due_at"],
        select(*(_new.c[name] for name in _SAME), func.now(), func.coalesce(_new.c.due, func.now() + _new.c.delay * SECOND)),
    )
    .on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
    .returning(job.c.id, job.c.kind, job.c.key)
    .cte("created")
)
_counted = (
    insert(tally_delta)
    .from_select(
        ["kind", "submitted", "ready"],
        select(_created.c.kind, func.count(), func.count()).group_by(_created.c.kind),
    )
    .cte("counted")
)
SUBMIT = postgres(
    # Equal notifications of one transaction are one.
    select(_created.c.id, _created.c.kind, _created.c.key, func.pg_notify(words(CHANNEL), _created.c.kind)).add_cte(_counted)
).text

_asked = rows("asked", kind=Text(), key=Text())
KNOWN = postgres(
    select(job.c.id, job.c.kind, job.c.key, job.c.state, job.c.request_hash)
    .join(_asked, (job.c.kind == _asked.c.kind) & (job.c.key == _asked.c.key))
    .where(CURRENT)
).text
ROUNDS = 5


def submit(run: Runner, jobs: Sequence[NewJob], /) -> list[Submitted]:
    """Insert what is new in one statement; what is known already is looked up. The jobs are sorted, their keys differ."""
    found: dict[tuple[str, str], Submitted] = {}
    missing = jobs
    for _round in range(ROUNDS):
        hashes = {(new.kind, new.key): new.request_hash for new in missing}
        for id_, kind, key, _ in run.execute(SUBMIT, _arrays(missing)).fetchall():
            found[kind, key] = Submitted(id_, kind, key, "ready", True, hashes[kind, key])
        missing = [new for new in missing if (new.kind, new.key) not in found]
        if not missing:
            break
        known = {"asked_kind": [new.kind for new in missing], "asked_key": [new.key for new in missing]}
        for id_, kind, key, state, request_hash in run.execute(KNOWN, known).fetchall():
            found[kind, key] = Submitted(id_, kind, key, STATES[state], False, request_hash)
        # A key may have expired between the two statements: then it is free, and the job is new after all.
        missing = [new for new in missing if (new.kind, new.key) not in found]
        if not missing:
            break
    return [found[new.kind, new.key] for new in jobs]


def _arrays(jobs: Sequence[NewJob]) -> dict[str, list[object]]:
    return {
        "new_kind": [new.kind for new in jobs],
        "new_key": [new.key for new in jobs],
        "new_payload": [new.payload for new in jobs],
        "new_priority": [new.priority for new in jobs],
        "new_delay": [float(new.delay) for new in jobs],
        "new_due": [new.due for new in jobs],
        "new_max_attempts": [new.max_attempts for new in jobs],
        "new_keep": [None if new.keep is None else float(new.keep) for new in jobs],
        "new_deadline": [new.deadline for new in jobs],
        "new_ids": [mapping("ids", new.ids) for new in jobs],
        "new_headers": [mapping("headers", new.headers) for new in jobs],
        "new_request_hash": [new.request_hash for new in jobs],
        "new_version": [new.version for new in jobs],
    }
