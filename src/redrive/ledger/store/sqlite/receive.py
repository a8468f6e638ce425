"""Events on SQLite: stored once each, with the jobs of their handlers, some of which are begun at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import compress
from operator import not_
from sqlite3 import Connection

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import insert

from ...db.compiled import Many, sqlite
from ...db.tables import CURRENT, event, job
from ...db.types import MICROSECONDS, micros
from ...events import Arriving, Grant, Received, Task, begun
from ...failpoint import crash_point
from ...record import Lease, Settlement
from ...state import LEASED, READY
from .bulk_insert import insert as insert_rows
from .bulk_insert import text
from .counters import add, add_all

_EVENT = ("source", "event_id", "type", "payload", "headers", "ids", "source_id", "handlers", "at", "received_at")
_event = insert(event).values({name: bindparam(name) for name in _EVENT})
_event = _event.on_conflict_do_nothing(index_elements=[event.c.source, event.c.event_id])
EVENTS = sqlite(_event, *_EVENT).text
EVENT = sqlite(_event.returning(event.c.id), *_EVENT).text
_JOB = (
    "state", "fence", "attempts", "max_attempts", "due_at", "lease_until", "created_at", "started_at", "kind", "key", "worker",
    "ids", "headers", "payload", "token",
)  # fmt: skip
_job = insert(job).values({name: bindparam(name) for name in _JOB})
_job = _job.on_conflict_do_nothing(index_elements=[job.c.kind, job.c.key], index_where=CURRENT)
JOBS = sqlite(_job, *_JOB).text
JOB = sqlite(_job.returning(job.c.id), *_JOB).text
_micros = lru_cache(maxsize=100)(micros)
"""Many events were sent in the same millisecond."""


class Share:
    """How many of each kind are still to be begun; and what all jobs that are begun have in common, or all that are ready."""

    def __init__(self, grant: Grant, now: int) -> None:
        self._left = dict(grant.kinds)
        both = {"due_at": now, "created_at": now}
        held = {
            "lease_until": now + int(grant.seconds * MICROSECONDS),
            "started_at": now,
            "worker": grant.worker,
            "token": grant.token,
        }
        self.begun: dict[str, object] = {"state": LEASED, "fence": 1, "attempts": 1, **both, **held}
        self.ready: dict[str, object] = {"state": READY, "fence": 0, "attempts": 0, **both, **dict.fromkeys(held)}

    def divided(self, jobs: list[Task], /) -> tuple[list[Task], list[Task]]:
        """Those that begin, and those that wait."""
        if all(self._left.get(kind, 0) >= many for kind, many in Counter([part.kind for _, part in jobs]).items()):
            return jobs, []
        starts = [self.begins(part.kind) for _, part in jobs]
        return list(compress(jobs, starts)), list(compress(jobs, map(not_, starts)))

    def begins(self, kind: str, /) -> bool:
        """Whether there is room for one more of this kind."""
        left = self._left.get(kind, 0)
        if left:
            self._left[kind] = left - 1
        return left > 0


def receive_fresh(
    run: Connection, events: Sequence[Arriving], grant: Grant, done: Sequence[Settlement], now: int, /
) -> Received | None:
    """All at once; jobs that are done, and are written as such, are counted with them.

    None, with the transaction spoilt, where some event or key was known: roll back, use `receive`.
    """
    if insert_rows(run, EVENTS, {"received_at": now}, _rows(events))[0] != len(events):
        return None
    crash_point("receive.between")
    share = Share(grant, now)
    begins, waits = share.divided([(one, part) for one in events for part in one.parts])
    inserted, last = insert_rows(run, JOBS, share.begun, _job_rows(begins))
    # AUTOINCREMENT within one transaction: the ids follow one another.
    first = last - len(begins) + 1
    if inserted + insert_rows(run, JOBS, share.ready, _job_rows(waits))[0] != len(begins) + len(waits):
        return None
    leases = begun(begins, range(first, last + 1), now, grant.token)
    leased, ready = Counter([part.kind for _, part in begins]), Counter([part.kind for _, part in waits])
    ended = Counter([one.kind for one in done])
    for kind in leased.keys() | ready.keys() | ended.keys():
        came = leased[kind] + ready[kind]
        add(run, kind, submitted=came, ready=ready[kind], leased=leased[kind] - ended[kind], done=ended[kind])
    return Received([True] * len(events), leases)


def receive(run: Many, events: Iterable[Arriving], grant: Grant, now: int, /) -> Received:
    """One by one: what is known already is left as it is."""
    fresh: list[bool] = []
    leases: list[Lease] = []
    share = Share(grant, now)
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for one in events:
        fresh.append(run.execute(EVENT, (*_rows((one,))[0], now)).fetchone() is not None)
        crash_point("receive.between")
        for part in one.parts if fresh[-1] else ():
            starts = share.begins(part.kind)
            alike = share.begun if starts else share.ready
            made = run.execute(text(JOB, tuple(alike)), (*alike.values(), *_job_rows(((one, part),))[0])).fetchone()
            if made is None:
                continue  # its event was forgotten, and came again; what its handler did was not
            changes[part.kind].update({"submitted": 1, "leased" if starts else "ready": 1})
            if starts:
                leases += begun(((one, part),), made, now, grant.token)
    add_all(run, changes)
    return Received(fresh, leases)


def _rows(events: Iterable[Arriving]) -> list[tuple[object, ...]]:
    return [
        (one.source, one.event_id, one.type, one.payload, one.headers, one.more, one.source_id, one.handlers,
         None if one.at is None else _micros(one.at))
        for one in events
    ]  # fmt: skip


def _job_rows(jobs: Iterable[Task]) -> list[tuple[object, ...]]:
    return [(part.max_attempts, part.kind, part.key, one.ids, one.carried, one.payload) for one, part in jobs]
