"""Queue: jobs that wait, in the order they are due, whatever else there is: the first of each kind and priority, put together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, TextClause, select, text

from ..db.compiled import number
from ..db.tables import TRIED, job
from ..record import Job
from ..state import LEASED, PRIORITIES, QUARANTINE
from ..stats.counters import counts
from . import jobs
from .gauges import ON_POSTGRES, ON_SQLITE

Waits: TypeAlias = Literal["queued", "retry_wait"]
_FRESH = "state = 0 AND attempts = 0 AND reason IS NULL AND dead_id IS NULL AND kind = look.kind AND priority = ?"
_AGAIN = f"kind = look.kind AND {TRIED.text}"
_WHERE: dict[Waits, tuple[str, ...]] = {
    "queued": tuple(_FRESH.replace("?", str(priority)) for priority in (*PRIORITIES, QUARANTINE)),
    "retry_wait": (_AGAIN,),
}
_ONE = "SELECT due_at, id FROM redrive_job WHERE ? ORDER BY due_at, id LIMIT :most"
_SQLITE = "(SELECT json_group_array(json_array(due_at, id)) FROM (?))"
_POSTGRES = "(SELECT json_agg(json_build_array(extract(epoch FROM due_at), id)) FROM (?) AS few)"


def _statement(name: Waits, one: str, kinds: str) -> TextClause:
    firsts = ", ".join(one.replace("?", _ONE.replace("?", where)) for where in _WHERE[name])
    return text("SELECT ? FROM ".replace("?", firsts) + kinds)


_STATEMENTS = {
    (name, on_sqlite): _statement(name, _SQLITE if on_sqlite else _POSTGRES, ON_SQLITE if on_sqlite else ON_POSTGRES)
    for name in _WHERE
    for on_sqlite in (True, False)
}


def waiting(connection: Connection, name: Waits, /, *, kind: str | None, limit: int) -> list[Job]:
    """The first of those that wait for their first attempt, or for another one."""
    kinds = [kind] if kind is not None else [each for each, tally in counts(connection).items() if tally.ready]
    on_sqlite = connection.dialect.name == "sqlite"
    given: Any = json.dumps(kinds) if on_sqlite else kinds
    rows: Sequence[Sequence[Any]] = connection.execute(_STATEMENTS[name, on_sqlite], {"kinds": given, "most": limit}).all()
    found = [pair for row in rows for some in row if some for pair in (json.loads(some) if isinstance(some, str) else some)]
    there = jobs.lines(connection, [each for _due, each in sorted(found)[:limit]] + _taken(connection, kind, limit))
    return sorted((one for one in there.values() if one.shown == name), key=lambda one: (one.due_at, one.id))[:limit]


def _taken(connection: Connection, kind: str | None, limit: int) -> list[int]:
    """Those that a worker has, and has not begun: they wait too."""
    query = select(job.c.id).where(job.c.state == number(LEASED), job.c.started_at.is_(None)).order_by(job.c.lease_until)
    return list(connection.execute((query if kind is None else query.where(job.c.kind == kind)).limit(limit)).scalars())
