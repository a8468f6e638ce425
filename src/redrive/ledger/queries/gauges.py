"""Look: how the ledger stands, at a cost that does not grow with what is in it: counts that are kept, and ends of indexes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, TextClause, select, text

from ..db.compiled import number
from ..db.tables import TRIED, job
from ..db.types import moment
from ..state import LEASED, PRIORITIES, QUARANTINE

ENOUGH = 1000
"""What waits for another attempt is counted so far, and no further."""


class Waiting(NamedTuple):
    """What waits of one kind."""

    oldest_due: datetime | None
    """The first one's moment; in the future where nothing is due yet."""
    tried: int
    """Waits for another attempt; beyond `ENOUGH`: more than that."""


class Held(NamedTuple):
    """A job in the hands of a worker."""

    id: int
    kind: str
    key: str
    worker: str
    attempts: int
    started_at: datetime | None
    lease_until: datetime


class Firing(NamedTuple):
    """A job that a schedule wrote down."""

    id: int
    kind: str
    key: str
    state: int
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    headers: str | None
    error: str | None


ON_SQLITE = "(SELECT value AS kind FROM json_each(:kinds)) AS look"
ON_POSTGRES = "unnest(CAST(:kinds AS text[])) AS look(kind)"
_FIRST = "(SELECT due_at FROM redrive_job WHERE state = 0 AND kind = look.kind AND priority = ? ORDER BY due_at, id LIMIT 1)"
_TRIED = "(SELECT count(*) FROM (SELECT 1 FROM redrive_job WHERE kind = look.kind AND ? LIMIT :most) AS few)"
_WAITING = "SELECT look.kind, ? FROM "


def _waiting(kinds: str) -> TextClause:
    firsts = [_FIRST.replace("?", str(priority)) for priority in (*PRIORITIES, QUARANTINE)]
    return text(_WAITING.replace("?", ", ".join((*firsts, _TRIED.replace("?", TRIED.text)))) + kinds)


_SQLITE, _POSTGRES = map(_waiting, (ON_SQLITE, ON_POSTGRES))


def waiting(connection: Connection, kinds: Sequence[str], /) -> dict[str, Waiting]:
    """What waits of each kind: seven looks into indexes for each, in one statement."""
    if not kinds:
        return {}
    on_sqlite = connection.dialect.name == "sqlite"
    given = json.dumps(list(kinds)) if on_sqlite else list(kinds)
    found: dict[str, Waiting] = {}
    for name, *dues, tried in connection.execute(_SQLITE if on_sqlite else _POSTGRES, {"kinds": given, "most": ENOUGH + 1}):
        found[name] = Waiting(moment(min((due for due in dues if due is not None), default=None)), int(tried))
    return found


def held(connection: Connection, limit: int, /) -> list[Held]:
    """Jobs in the hands of workers, those whose lease ends first."""
    columns = (job.c.id, job.c.kind, job.c.key, job.c.worker, job.c.attempts, job.c.started_at, job.c.lease_until)
    query = select(*columns).where(job.c.state == number(LEASED)).order_by(job.c.lease_until).limit(limit)
    return [Held._make(row) for row in connection.execute(query)]


def firings(connection: Connection, kinds: Sequence[str], limit: int, /) -> dict[str, list[Firing]]:
    """The last jobs that a schedule wrote down for each kind, the newest first: keys are in the order of their moments."""
    if not kinds:
        return {}
    on_sqlite = connection.dialect.name == "sqlite"
    given = json.dumps(list(kinds)) if on_sqlite else list(kinds)
    ids = connection.execute(_FIRED_SQLITE if on_sqlite else _FIRED_POSTGRES, {"kinds": given, "most": limit}).scalars().all()
    if on_sqlite:
        ids = [each for some in ids for each in json.loads(some)]
    columns = (job.c[name] for name in Firing._fields)
    found: dict[str, list[Firing]] = {}
    for row in connection.execute(select(*columns).where(job.c.id.in_(ids)).order_by(job.c.kind, job.c.key.desc())):
        found.setdefault(row.kind, []).append(Firing._make(row))
    return found


# The key of a firing begins with these six characters, and no other key does: `cron` is a domain of ours.
_FIRED = """SELECT id FROM redrive_job WHERE kind = look.kind AND key >= 'cron::' AND key < 'cron:;' AND current
    ORDER BY key DESC LIMIT :most"""
_FIRED_SQLITE = text("SELECT (SELECT json_group_array(id) FROM (?)) FROM ".replace("?", _FIRED) + ON_SQLITE)
_FIRED_POSTGRES = text("SELECT one.id FROM kinds, LATERAL (?) AS one".replace("?", _FIRED).replace("kinds", ON_POSTGRES, 1))
