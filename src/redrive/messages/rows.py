"""Rows: the statements that store events, each once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, DateTime, Integer, LargeBinary, Text, bindparam, delete, func, select
from sqlalchemy.dialects.postgresql import insert as on_postgres
from sqlalchemy.dialects.sqlite import insert as on_sqlite

from ..ledger.limits import mapping
from ..ledger.moment import micros
from ..ledger.now import micros_now
from ..ledger.postgres.literal import blobs, moments, plain, texts
from ..ledger.statement import Many, postgres, rows, sqlite
from ..ledger.tables import event
from .stored import Stored

COLUMNS = ("source", "event_id", "type", "payload", "headers", "ids", "source_id", "handlers", "at", "received_at")
_one = on_sqlite(event).values({name: bindparam(name) for name in COLUMNS})
_one = _one.on_conflict_do_nothing(index_elements=[event.c.source, event.c.event_id])
ONE = sqlite(_one.returning(event.c.id), *COLUMNS).text

_new = rows(
    "new", source=Text(), event_id=Text(), type=Text(), payload=LargeBinary(), headers=Text(), ids=Text(), source_id=Text(),
    handlers=Integer(), at=DateTime(timezone=True),
)  # fmt: skip
MANY = postgres(
    on_postgres(event)
    .from_select(list(COLUMNS), select(*_new.c, func.now()))
    .on_conflict_do_nothing(index_elements=[event.c.source, event.c.event_id])
    .returning(event.c.source, event.c.event_id)
).text


class Found(NamedTuple):
    """An event that was received, as an operator looks at it."""

    id: int
    source: str
    event_id: str
    type: str
    payload: bytes
    headers: str | None
    ids: str | None
    source_id: str | None
    handlers: int
    at: Any
    received_at: Any


def store(run: Many, on_sqlite_: bool, events: Sequence[tuple[Stored, int]], /) -> list[bool]:
    """Store these, each with how many have it to handle; which of them are new. Of two that are the same the first is."""
    if not on_sqlite_:
        return _on_postgres(run, events)
    now = micros_now()
    return [run.execute(ONE, _row(one, handlers, now)).fetchone() is not None for one, handlers in events]


def _row(one: Stored, handlers: int, now: int) -> tuple[object, ...]:
    at = None if one.at is None else micros(one.at)
    return (
        one.source, one.event_id, one.type, one.payload, mapping("headers", one.headers), mapping("ids", one.ids()),
        one.source_id, handlers, at, now,
    )  # fmt: skip


def _on_postgres(run: Many, events: Sequence[tuple[Stored, int]]) -> list[bool]:
    # In one order for everybody, so that two who receive the same never wait for each other.
    given = [each for _, each in sorted({(one.source, one.event_id): (one, many) for one, many in reversed(events)}.items())]
    found = run.execute(
        MANY,
        {
            "new_source": texts(one.source for one, _ in given),
            "new_event_id": texts(one.event_id for one, _ in given),
            "new_type": texts(one.type for one, _ in given),
            "new_payload": blobs(one.payload for one, _ in given),
            "new_headers": texts(mapping("headers", one.headers) for one, _ in given),
            "new_ids": texts(mapping("ids", one.ids()) for one, _ in given),
            "new_source_id": texts(one.source_id for one, _ in given),
            "new_handlers": plain(many for _, many in given),
            "new_at": moments(one.at for one, _ in given),
        },
    )
    created = {(row[0], row[1]) for row in found.fetchall()}
    fresh = []
    for one, _ in events:
        fresh.append((one.source, one.event_id) in created)
        created.discard((one.source, one.event_id))
    return fresh


def find(
    connection: Connection,
    /,
    *,
    event_id: str | None = None,
    source: str | None = None,
    type_: str | None = None,
    limit: int = 100,
) -> list[Found]:
    """Events, the newest first."""
    query = select(*(event.c[name] for name in Found._fields)).order_by(event.c.id.desc()).limit(limit)
    for column, value in ((event.c.event_id, event_id), (event.c.source, source), (event.c.type, type_)):
        if value is not None:
            query = query.where(column == value)
    return [Found._make(row) for row in connection.execute(query)]


def forget(connection: Connection, before: Any, limit: int, /) -> int:
    """Forget events that were received before then; how many. Their handlers' jobs have what they need, and remember the keys."""
    old = select(event.c.id).where(event.c.received_at < before).order_by(event.c.received_at).limit(limit)
    return connection.execute(delete(event).where(event.c.id.in_(old.scalar_subquery()))).rowcount
