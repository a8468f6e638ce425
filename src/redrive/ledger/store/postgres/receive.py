"""Store events with their handlers' jobs on Postgres, and settle, in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from ...db.tables import CHANNEL, CURRENT, event, job, tally_delta
from ...events import (
    EventJob,
    IncomingEvent,
    StartQuota,
    StoreResult,
    deduplicate,
    event_tags,
    new_flags,
    started_leases,
)
from ...model import LEASED, Settlement
from .claim import LEASE_UNTIL, settle_successes
from .submit import insert_tags_of, tag_arrays

_new = unnest(
    "new",
    source=Text(),
    event_id=Text(),
    type=Text(),
    payload=LargeBinary(),
    headers=Text(),
    ids=Text(),
    source_id=Text(),
    handlers=Integer(),
    at=DateTime(timezone=True),
)
_stored = (
    upsert(event)
    .from_select([*(column.name for column in _new.c), "received_at"], select(*_new.c, func.now()))
    .on_conflict_do_nothing(index_elements=[event.c.source, event.c.event_id])
    .returning(event.c.source, event.c.event_id, event.c.payload)
    .cte("stored")
)
_part = unnest(
    "part",
    source=Text(),
    event_id=Text(),
    kind=Text(),
    key=Text(),
    max_attempts=Integer(),
    ids=Text(),
    headers=Text(),
    started=SmallInteger(),
)
_is_started = _part.c.started == sql_int(LEASED)
_columns = {
    "kind": _part.c.kind,
    "key": _part.c.key,
    "max_attempts": _part.c.max_attempts,
    "headers": _part.c.headers,
    "payload": _stored.c.payload,
    "ids": _part.c.ids,
    "created_at": func.now(),
    "due_at": func.now(),
    # READY is 0 and LEASED is 1, as are the fence and the attempts of a new job.
    "state": _part.c.started,
    "fence": _part.c.started,
    "attempts": _part.c.started,
    "started_at": case((_is_started, func.now())),
    "lease_until": case((_is_started, LEASE_UNTIL)),
    "worker": case((_is_started, bindparam("by", type_=Text()))),
    "token": case((_is_started, bindparam("drawn", type_=BigInteger()))),
}
_is_of_stored = (_part.c.event_id == _stored.c.event_id) & (_part.c.source == _stored.c.source)
_created = (
    upsert(job)
    .from_select(
        list(_columns), select(*_columns.values()).join_from(_part, _stored, _is_of_stored)
    )
    .on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
    .returning(job.c.id, job.c.kind, job.c.key, job.c.state, job.c.due_at)
    .cte("created")
)
_settled = settle_successes().cte("settled")
_BUCKETS = ("submitted", "ready", "leased", "done")
_settled_changes = (sql_int(0), sql_int(0), sql_int(-1), sql_int(1))
_moved = union_all(
    select(
        _settled.c.kind,
        *(value.label(name) for name, value in zip(_BUCKETS, _settled_changes, strict=True)),
    ),
    select(
        _created.c.kind, sql_int(1), sql_int(1) - _created.c.state, _created.c.state, sql_int(0)
    ),
).subquery()
_sums = select(_moved.c.kind, *(func.sum(_moved.c[name]) for name in _BUCKETS))
_counted = (
    insert(tally_delta)
    .from_select(["kind", *_BUCKETS], _sums.group_by(_moved.c.kind))
    # Notify idle workers of ready jobs only, not of jobs that are started at once.
    .returning(
        case(
            (
                tally_delta.c.ready > sql_int(0),
                func.pg_notify(sql_text(CHANNEL), tally_delta.c.kind),
            )
        )
    )
    .cte("counted")
)
_job = (_created.c.id, _created.c.kind, _created.c.key, _created.c.state, _created.c.due_at)
_arrays: tuple[TypeEngine[Any], ...] = (ARRAY(BigInteger), ARRAY(Text), ARRAY(Text))
_received = union_all(
    select(*_job, *(cast(null(), type_).label(f"array{at}") for at, type_ in enumerate(_arrays))),
    select(
        *(cast(null(), column.type) for column in _job),
        select(func.array_agg(_settled.c.id)).scalar_subquery(),
        select(func.array_agg(_stored.c.source)).scalar_subquery(),
        select(func.array_agg(_stored.c.event_id)).scalar_subquery(),
    ),
).add_cte(_counted)
RECEIVE = compile_postgres(_received)
"""Its rows are the new jobs, and a last row with the settled jobs and the new events."""
RECEIVE_TAGGED = compile_postgres(_received.add_cte(insert_tags_of(_created).cte("tags")))
"""For events with correlation ids."""


class EncodedEvents(NamedTuple):
    """Events as parameters of the statement."""

    events: Sequence[IncomingEvent]
    jobs: Mapping[tuple[str, str], EventJob]
    """By job type and key, in the order in which they are stored."""
    is_tagged: bool
    arrays: Mapping[str, str]


def encode(events: Sequence[IncomingEvent], /) -> EncodedEvents:
    """Return events as parameters."""
    new = deduplicate(events)
    parts: list[EventJob] = sorted(
        ((event, part) for event in new for part in event.jobs),
        key=lambda each: (each[1].kind, each[1].key),
    )
    tagged = [each for each in parts if each[0].extra_ids is not None]
    tags = [(part.kind, part.key, *tag) for each, part in tagged for tag in event_tags(each)]
    arrays = tag_arrays(tags) | {
        "new_source": text_array([event.source for event in new]),
        "new_event_id": text_array([event.event_id for event in new]),
        "new_type": text_array([event.type for event in new]),
        "new_payload": bytes_array([event.payload for event in new]),
        "new_headers": text_array([event.headers for event in new]),
        "new_ids": text_array([event.extra_ids for event in new]),
        "new_source_id": text_array([event.source_id for event in new]),
        "new_handlers": int_array([event.handlers for event in new]),
        "new_at": timestamp_array([event.at for event in new]),
        "part_source": text_array([event.source for event, _ in parts]),
        "part_event_id": text_array([event.event_id for event, _ in parts]),
        "part_kind": text_array([part.kind for _, part in parts]),
        "part_key": text_array([part.key for _, part in parts]),
        "part_max_attempts": int_array([part.max_attempts for _, part in parts]),
        "part_ids": text_array([event.ids for event, _ in parts]),
        "part_headers": text_array([event.job_headers for event, _ in parts]),
    }
    jobs = {(part.kind, part.key): (event, part) for event, part in parts}
    return EncodedEvents(events, jobs, bool(tags), arrays)


def receive(
    run: Runner, done: Sequence[Settlement], events: EncodedEvents, quota: StartQuota, /
) -> tuple[StoreResult, set[int]]:
    """Settle plain successes, store events, and start jobs within the quota.

    Returns:
        The result, and the ids of settled jobs.
    """
    left, started = dict(quota.kinds), []
    for kind, _ in events.jobs:
        started.append(min(1, left.get(kind, 0)))
        left[kind] = left.get(kind, 0) - started[-1]
    *created, (*_, settled_ids, sources, event_ids) = run.execute(
        RECEIVE_TAGGED if events.is_tagged else RECEIVE,
        {
            **events.arrays,
            "done_id": int_array([each.job_id for each in done]),
            "done_fence": int_array([each.fence for each in done]),
            "done_token": int_array([each.token for each in done]),
            "done_result": bytes_array([each.result for each in done]),
            "part_started": int_array(started),
            "seconds": quota.seconds,
            "by": quota.worker,
            "drawn": quota.token,
        },
    ).fetchall()
    leased = [
        (events.jobs[kind, key], id_, due)
        for id_, kind, key, state, due, *_ in created
        if state == LEASED
    ]
    leases = (
        started_leases(
            [job_ for job_, *_ in leased], [id_ for _, id_, _ in leased], leased[0][2], quota.token
        )
        if leased
        else []
    )
    stored = set(zip(sources or (), event_ids or (), strict=True))
    return StoreResult(new_flags(events.events, stored), leases), set(settled_ids or ())
