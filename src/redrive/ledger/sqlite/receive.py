"""Events on SQLite: stored once each, with the jobs of their handlers, some of which are begun at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from sqlite3 import Connection

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import insert

from ..arrival import Arriving, Grant, Part, Received, begun
from ..crashpoint import crash_point
from ..moment import MICROSECONDS, micros
from ..record import Lease, Settlement
from ..statement import Many, sqlite
from ..tables import CURRENT, event, job
from .rows import insert as insert_rows
from .tally import add, add_all

_EVENT = ("source", "event_id", "type", "payload", "headers", "ids", "source_id", "handlers", "at", "received_at")
_event = insert(event).values({name: bindparam(name) for name in _EVENT})
_event = _event.on_conflict_do_nothing(index_elements=[event.c.source, event.c.event_id])
EVENTS = sqlite(_event, *_EVENT).text
EVENT = sqlite(_event.returning(event.c.id), *_EVENT).text
_JOB = (
    "state", "fence", "attempts", "max_attempts", "due_at", "lease_until", "created_at", "started_at", "kind", "key", "worker",
    "ids", "headers", "payload",
)  # fmt: skip
_job = insert(job).values({name: bindparam(name) for name in _JOB})
_job = _job.on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
JOBS = sqlite(_job, *_JOB).text
JOB = sqlite(_job.returning(job.c.id), *_JOB).text


class Share:
    """How many of each kind are still to be begun."""

    def __init__(self, grant: Grant, now: int) -> None:
        self._left = dict(grant.kinds)
        self._now = now
        self._begun = (1, 1, 1), now + int(grant.seconds * MICROSECONDS), now, grant.worker
        self._ready = (0, 0, 0), None, None, None

    def row(self, one: Arriving, part: Part) -> tuple[object, ...]:
        """A job as it is inserted: begun, where there is room for it."""
        left = self._left.get(part.kind, 0)
        if left:
            self._left[part.kind] = left - 1
        state, until, started, worker = self._begun if left else self._ready
        now = self._now
        return (
            *state, part.max_attempts, now, until, now, started, part.kind, part.key, worker, one.ids, one.carried, one.payload,
        )  # fmt: skip


def receive_fresh(
    run: Connection, events: Sequence[Arriving], grant: Grant, done: Sequence[Settlement], now: int, /
) -> Received | None:
    """All at once; jobs that are done, and are written as such, are counted with them.

    None, with the transaction spoilt, where some event or key was known: roll back, use `receive`.
    """
    if insert_rows(run, EVENTS, [_row(one, now) for one in events])[0] != len(events):
        return None
    crash_point("receive.between")
    share = Share(grant, now)
    parts = [(one, part) for one in events for part in one.parts]
    rows = [share.row(one, part) for one, part in parts]
    inserted, last = insert_rows(run, JOBS, rows)
    if inserted != len(rows):
        return None
    # AUTOINCREMENT within one transaction: the ids follow one another.
    first = last - len(rows) + 1
    leases = [begun(one, part, first + at, now) for at, (one, part) in enumerate(parts) if rows[at][0]]
    came, leased = Counter([part.kind for _, part in parts]), Counter([lease.kind for lease in leases])
    ended = Counter([one.kind for one in done])
    for kind in came.keys() | ended.keys():
        now_leased = leased[kind] - ended[kind]
        add(run, kind, submitted=came[kind], ready=came[kind] - leased[kind], leased=now_leased, done=ended[kind])
    return Received([True] * len(events), leases)


def receive(run: Many, events: Iterable[Arriving], grant: Grant, now: int, /) -> Received:
    """One by one: what is known already is left as it is."""
    fresh: list[bool] = []
    leases: list[Lease] = []
    share = Share(grant, now)
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for one in events:
        fresh.append(run.execute(EVENT, _row(one, now)).fetchone() is not None)
        crash_point("receive.between")
        for part in one.parts if fresh[-1] else ():
            row = share.row(one, part)
            made = run.execute(JOB, row).fetchone()
            if made is None:
                continue  # its event was forgotten, and came again; what its handler did was not
            changes[part.kind].update({"submitted": 1, "leased" if row[0] else "ready": 1})
            if row[0]:
                leases.append(begun(one, part, made[0], now))
    add_all(run, changes)
    return Received(fresh, leases)


def _row(one: Arriving, now: int) -> tuple[object, ...]:
    at = None if one.at is None else micros(one.at)
    return (
        one.source, one.event_id, one.type, one.payload, one.headers, one.ids, one.source_id, one.handlers, at, now,
    )  # fmt: skip
