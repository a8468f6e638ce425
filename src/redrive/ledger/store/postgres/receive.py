"""Events on Postgres: stored once each, with the jobs of their handlers, and what is done is settled; in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    bindparam,
    case,
    cast,
    func,
    insert,
    null,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.types import TypeEngine

from ...db.compiled import Runner, number, postgres, rows, words
from ...db.tables import CHANNEL, CURRENT, event, job, tally_delta
from ...events import Arriving, Grant, Received, Task, begun, distinct, marked
from ...record import Settlement
from ...state import LEASED
from .arrays import blobs, moments, plain, texts
from .claim import UNTIL, settled

_new = rows(
    "new", source=Text(), event_id=Text(), type=Text(), payload=LargeBinary(), headers=Text(), ids=Text(), source_id=Text(),
    handlers=Integer(), at=DateTime(timezone=True),
)  # fmt: skip
_stored = (
    upsert(event)
    .from_select([*(column.name for column in _new.c), "received_at"], select(*_new.c, func.now()))
    .on_conflict_do_nothing(index_elements=[event.c.source, event.c.event_id])
    .returning(event.c.source, event.c.event_id, event.c.payload)
    .cte("stored")
)
_part = rows(
    "part", source=Text(), event_id=Text(), kind=Text(), key=Text(), max_attempts=Integer(), ids=Text(), carried=Text(),
    begun=SmallInteger(),
)  # fmt: skip
_begun = _part.c.begun == number(LEASED)
_columns = {
    "kind": _part.c.kind,
    "key": _part.c.key,
    "max_attempts": _part.c.max_attempts,
    "headers": _part.c.carried,
    "payload": _stored.c.payload,
    "ids": _part.c.ids,
    "created_at": func.now(),
    "due_at": func.now(),
    "state": _part.c.begun,
    "fence": _part.c.begun,
    "attempts": _part.c.begun,
    "started_at": case((_begun, func.now())),
    "lease_until": case((_begun, UNTIL)),
    "worker": case((_begun, bindparam("by", type_=Text()))),
    "token": case((_begun, bindparam("drawn", type_=BigInteger()))),
}
_made = (
    upsert(job)
    .from_select(
        list(_columns),
        select(*_columns.values()).join_from(
            _part, _stored, (_part.c.event_id == _stored.c.event_id) & (_part.c.source == _stored.c.source)
        ),
    )
    .on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
    .returning(job.c.id, job.c.kind, job.c.key, job.c.state, job.c.due_at)
    .cte("made")
)
_settled = settled().cte("settled")
_moved = union_all(
    select(
        _settled.c.kind, number(0).label("submitted"), number(0).label("ready"), number(-1).label("leased"),
        number(1).label("done"),
    ),
    select(_made.c.kind, number(1), number(1) - _made.c.state, _made.c.state, number(0)),
).subquery()  # fmt: skip
_sums = [func.sum(_moved.c[name]) for name in ("submitted", "ready", "leased", "done")]
_counted = (
    insert(tally_delta)
    .from_select(["kind", "submitted", "ready", "leased", "done"], select(_moved.c.kind, *_sums).group_by(_moved.c.kind))
    # Whoever waits for work hears of what is ready, not of what was begun at once.
    .returning(case((tally_delta.c.ready > number(0), func.pg_notify(words(CHANNEL), tally_delta.c.kind))))
    .cte("counted")
)
_job = (_made.c.id, _made.c.kind, _made.c.key, _made.c.state, _made.c.due_at)
_arrays: tuple[TypeEngine[Any], ...] = (ARRAY(BigInteger), ARRAY(Text), ARRAY(Text))
RECEIVE = postgres(
    union_all(
        select(*_job, *(cast(null(), type_).label(f"array{at}") for at, type_ in enumerate(_arrays))),
        select(
            *(cast(null(), column.type) for column in _job),
            select(func.array_agg(_settled.c.id)).scalar_subquery(),
            select(func.array_agg(_stored.c.source)).scalar_subquery(),
            select(func.array_agg(_stored.c.event_id)).scalar_subquery(),
        ),
    ).add_cte(_counted)
).text


def receive(run: Runner, done: Sequence[Settlement], events: Sequence[Arriving], grant: Grant, /) -> tuple[Received, set[int]]:
    """Settle what is done and replays nothing, store events, begin jobs. What became of them, and the settled ids."""
    given = distinct(events)
    left = dict(grant.kinds)
    parts: list[Task] = sorted(((one, part) for one in given for part in one.parts), key=lambda each: (each[1].kind, each[1].key))
    leased = []
    for _, part in parts:
        now = left.get(part.kind, 0)
        leased.append(1 if now else 0)
        left[part.kind] = max(0, now - 1)
    *made, (*_, ids, sources, names) = run.execute(
        RECEIVE,
        {
            "done_id": plain([one.job_id for one in done]),
            "done_fence": plain([one.fence for one in done]),
            "done_token": plain([one.token for one in done]),
            "done_result": blobs([one.result for one in done]),
            "new_source": texts([one.source for one in given]),
            "new_event_id": texts([one.event_id for one in given]),
            "new_type": texts([one.type for one in given]),
            "new_payload": blobs([one.payload for one in given]),
            "new_headers": texts([one.headers for one in given]),
            "new_ids": texts([one.more for one in given]),
            "new_source_id": texts([one.source_id for one in given]),
            "new_handlers": plain([one.handlers for one in given]),
            "new_at": moments([one.at for one in given]),
            "part_source": texts([one.source for one, _ in parts]),
            "part_event_id": texts([one.event_id for one, _ in parts]),
            "part_kind": texts([part.kind for _, part in parts]),
            "part_key": texts([part.key for _, part in parts]),
            "part_max_attempts": plain([part.max_attempts for _, part in parts]),
            "part_ids": texts([one.ids for one, _ in parts]),
            "part_carried": texts([one.carried for one, _ in parts]),
            "part_begun": plain(leased),
            "seconds": grant.seconds,
            "by": grant.worker,
            "drawn": grant.token,
        },
    ).fetchall()
    by_key = {(part.kind, part.key): (one, part) for one, part in parts}
    held = [(by_key[kind, key], id_, due) for id_, kind, key, state, due, *_ in made if state == LEASED]
    leases = begun([task for task, *_ in held], [id_ for _, id_, _ in held], held[0][2], grant.token) if held else []
    fresh = marked(events, set(zip(sources or (), names or (), strict=True)))
    return Received(fresh, leases), set(ids or ())
