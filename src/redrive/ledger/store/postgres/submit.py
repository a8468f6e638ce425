"""Submit on Postgres."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Float,
    Insert,
    Integer,
    Interval,
    LargeBinary,
    SmallInteger,
    Text,
    any_,
    bindparam,
    case,
    false,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.types import TypeEngine

from ...db.compiled import (
    Runner,
    bytes_array,
    compile_postgres,
    int_array,
    sql_int,
    sql_text,
    text_array,
    timestamp_array,
    unnest,
)
from ...db.job_tables import tag
from ...db.tables import CHANNEL, CURRENT, job, tally_delta
from ...model import CANCELLED, HELD, LEASED, READY, STATES, NewJob, State, Submitted
from ...tags import tags_of
from ...validation import to_json
from .sequences import lock_for_submit, mark, new_ids, release

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
_TENANT = _FULL | {"tenant": Text()}
_SEQUENCED = _TENANT | {"sequence": Text(), "id": BigInteger()}
_DUE: dict[str, TypeEngine[Any]] = {"delay": Float(53), "due": DateTime(timezone=True)}


def _submit(
    columns: dict[str, TypeEngine[Any]], *, scheduled: bool = True, tagged: bool = False
) -> str:
    is_sequenced = "sequence" in columns
    extra = (_DUE if scheduled else {}) | ({"first": Boolean()} if is_sequenced else {})
    new = unnest("new", **columns, **extra)
    due = func.coalesce(new.c.due, func.now() + new.c.delay * SECOND) if scheduled else func.now()
    names = [*columns, "created_at", "due_at"]
    values = select(*(new.c[name] for name in columns), func.now(), due)
    if is_sequenced:
        names.append("state")
        values = values.add_columns(case((_is_held(new), sql_int(HELD)), else_=sql_int(READY)))
    created = (
        upsert(job)
        .from_select(names, values)
        .on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
        .returning(job.c.id, job.c.kind, job.c.key, job.c.state)
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
    returned = [created.c[name] for name in ("id", "kind", "key")]
    returned += [created.c.state] if is_sequenced else []
    statement = select(*returned).add_cte(counted)
    if tagged:
        statement = statement.add_cte(insert_tags_of(created).cte("tags"))
    return compile_postgres(statement)


def insert_tags_of(created: CTE, /) -> Insert:
    """Return the INSERT of the tags of new jobs, which are passed as `tag_arrays`."""
    added = unnest("tag", kind=Text(), key=Text(), name=Text(), value=Text())
    is_of_job = (added.c.kind == created.c.kind) & (added.c.key == created.c.key)
    rows = select(added.c.name, added.c.value, created.c.id).join(created, is_of_job)
    return insert(tag).from_select(["name", "value", "job_id"], rows)


def _is_held(new: Any) -> ColumnElement[bool]:
    """Return whether an earlier job of the sequence has not ended, in the ledger or in the batch.

    An earlier job has a lower id. So two jobs that are submitted at the same time never wait for
    each other.
    """
    earlier = job.alias("earlier")
    in_ledger = (
        select(sql_int(1))
        .select_from(earlier)
        .where(earlier.c.kind == new.c.kind, earlier.c.sequence == new.c.sequence)
        .where(earlier.c.sequence.is_not(None), earlier.c.id < new.c.id)
        .where(earlier.c.state.in_((sql_int(READY), sql_int(LEASED), sql_int(HELD))))
        .offset(sql_int(0))
        .correlate(new)
    )
    return or_(~new.c.first, in_ledger.exists())


SUBMIT = _submit(_FULL)
SUBMIT_TAGGED = _submit(_FULL, tagged=True)
"""For jobs with tags or correlation ids."""
SUBMIT_TENANT = _submit(_TENANT, tagged=True)
SUBMIT_SEQUENCED = _submit(_SEQUENCED, tagged=True)
SUBMIT_PLAIN = _submit(_PLAIN, scheduled=False)
"""For jobs with only a type, a key and a payload. Most are. It has ten arrays less."""

_asked = unnest("asked", kind=Text(), key=Text())
KNOWN = compile_postgres(
    select(job.c.id, job.c.kind, job.c.key, job.c.state, job.c.request_hash)
    .add_columns((job.c.state == sql_int(LEASED)) & job.c.cancel_at.is_not(None))
    .join(_asked, (job.c.kind == _asked.c.kind) & (job.c.key == _asked.c.key))
    .where(CURRENT)
)
_ids = bindparam("ids", type_=ARRAY(BigInteger))
FREE_KEYS = compile_postgres(
    update(job)
    .values(current=false())
    .where(job.c.id == any_(_ids), job.c.state == sql_int(CANCELLED), CURRENT)
)
_DEFAULTS = NewJob("", "")[3:]
_NO_TAGS = dict.fromkeys(("tag_kind", "tag_key", "tag_name", "tag_value"), "{}")


def submit(run: Runner, jobs: Sequence[NewJob], /) -> list[Submitted]:
    """Insert new jobs in one statement, and look up the others.

    The jobs are sorted by key, unless one has a sequence. Then `run` has an open transaction.
    """
    if not has_sequence(jobs):
        return _submit_sorted(run, jobs, _statement)
    pairs = {(new.kind, new.sequence) for new in jobs if new.sequence is not None}
    sees_commits = lock_for_submit(run, pairs)
    numbered = _Numbered(jobs, new_ids(run, len(jobs)))
    ordered = sorted(jobs, key=lambda new: new[:2])
    by_key = {each[1:3]: each for each in _submit_sorted(run, ordered, numbered.statement)}
    submitted = [by_key[new[:2]] for new in jobs]
    sequences = {new[:2]: new.sequence for new in jobs}
    held = {
        (each.kind, sequence)
        for each in submitted
        if each.created and each.state == "held" and (sequence := sequences[each.kind, each.key])
    }
    if held and not sees_commits:
        mark(run, held)
    elif held and not all(each.created for each in submitted):
        # The first of a sequence may be a duplicate that has ended.
        release(run, held, in_caller=True)
    return submitted


def has_sequence(jobs: Sequence[NewJob], /) -> bool:
    """Return whether a job has a sequence, so that `submit` needs a transaction."""
    return any(new.sequence is not None for new in jobs)


class _Numbered:
    """Jobs with ids in the order of submission. They are inserted in the order of their keys."""

    def __init__(self, jobs: Sequence[NewJob], ids: Sequence[int]) -> None:
        self._ids = {new[:2]: id_ for new, id_ in zip(jobs, ids, strict=True)}
        firsts: dict[tuple[str, str | None], tuple[str, str]] = {}
        for new in jobs:
            firsts.setdefault((new.kind, new.sequence), new[:2])
        self._firsts = set(firsts.values())

    def statement(self, jobs: Sequence[NewJob], /) -> tuple[str, dict[str, str]]:
        is_first = (new.sequence is None or new[:2] in self._firsts for new in jobs)
        return SUBMIT_SEQUENCED, _full(jobs) | (_tags(jobs) or _NO_TAGS) | {
            "new_tenant": text_array(new.tenant for new in jobs),
            "new_sequence": text_array(new.sequence for new in jobs),
            "new_id": int_array(self._ids[new[:2]] for new in jobs),
            "new_first": int_array(is_first),
        }


def _submit_sorted(
    run: Runner,
    jobs: Sequence[NewJob],
    statement: Callable[[Sequence[NewJob]], tuple[str, dict[str, str]]],
) -> list[Submitted]:
    submitted: dict[tuple[str, str], Submitted] = {}
    missing = jobs
    for _round in range(MAX_ROUNDS):
        hashes = {(new.kind, new.key): new.request_hash for new in missing}
        for id_, kind, key, *held in run.execute(*statement(missing)).fetchall():
            first_state: State = STATES[held[0]] if held else "ready"
            submitted[kind, key] = Submitted(id_, kind, key, first_state, True, hashes[kind, key])
        missing = [new for new in missing if (new.kind, new.key) not in submitted]
        if not missing:
            break
        keys = {
            "asked_kind": text_array(new.kind for new in missing),
            "asked_key": text_array(new.key for new in missing),
        }
        keeps = {(new.kind, new.key) for new in missing if new.keeps_cancelled}
        cancelled = []
        for id_, kind, key, state, request_hash, stops in run.execute(KNOWN, keys).fetchall():
            if state == CANCELLED and (kind, key) not in keeps:
                cancelled.append(id_)
                continue
            known_as = (id_, kind, key, STATES[state], False, request_hash)
            submitted[kind, key] = Submitted(*known_as, bool(stops))
        if cancelled:  # their keys are free for new jobs
            run.execute(FREE_KEYS, {"ids": int_array(sorted(cancelled))})
        # A key may have expired between the two statements. Then the job is new after all.
        missing = [new for new in missing if (new.kind, new.key) not in submitted]
        if not missing:
            break
    return [submitted[new.kind, new.key] for new in jobs]


def _statement(jobs: Sequence[NewJob]) -> tuple[str, dict[str, str]]:
    if all(new[3:] == _DEFAULTS for new in jobs):
        return SUBMIT_PLAIN, _plain(jobs)
    full, tags = _full(jobs), _tags(jobs)
    if any(new.tenant is not None for new in jobs):
        full["new_tenant"] = text_array(new.tenant for new in jobs)
        return SUBMIT_TENANT, full | (tags or _NO_TAGS)
    return (SUBMIT_TAGGED, full | tags) if tags else (SUBMIT, full)


def _plain(jobs: Sequence[NewJob]) -> dict[str, str]:
    return {
        "new_kind": text_array(new.kind for new in jobs),
        "new_key": text_array(new.key for new in jobs),
        "new_payload": bytes_array(new.payload for new in jobs),
    }


def _full(jobs: Sequence[NewJob]) -> dict[str, str]:
    return _plain(jobs) | {
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


def _tags(jobs: Sequence[NewJob]) -> dict[str, str]:
    return tag_arrays([(new.kind, new.key, *each) for new in jobs for each in tags_of(new)])


def tag_arrays(tags: Sequence[tuple[str, str, str, str]], /) -> dict[str, str]:
    """Return the parameters of tags: job type and key, name and value. Empty if there are none."""
    if not tags:
        return {}
    columns = map(text_array, zip(*tags, strict=True))
    return dict(zip(_NO_TAGS, columns, strict=True))
