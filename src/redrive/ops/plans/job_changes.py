"""Plans for jobs that have not ended: cancel, run now, reschedule, reprioritise."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, func, select

from ...errors import NotAllowed
from ...ledger.db.compiled import sql_int
from ...ledger.db.tables import job
from ...ledger.filters import JobFilter
from ...ledger.jobs.job_changes import why_unchanged
from ...ledger.ledger import Ledger
from ...ledger.model import HELD, LEASED, READY, Job
from ...ledger.queries import jobs
from ...ledger.queries.job_search import conditions
from ...ledger.sweep import JobChange
from .plan import Plan

PAGE = 1000
"""Jobs that are read at once."""
MOST_BEYOND = 1_000_000
"""Jobs beyond the limit of a plan are counted up to this number."""

_is_unfinished = job.c.state.in_([sql_int(state) for state in (READY, LEASED, HELD)])


def plan_change(
    ledger: Ledger, change: JobChange, wanted: JobFilter, /, *, limit: int | None = None
) -> Plan:
    """Return what a change would do. Nothing is changed.

    Args:
        ledger: The ledger.
        change: The change.
        wanted: Which jobs. Jobs that the change does not apply to are left out.
        limit: Maximum number of jobs. None: no limit.

    Raises:
        NotAllowed: The filter selects all jobs.
    """
    if wanted.selects_all:
        raise NotAllowed(
            f"{change.act.replace('_', ' ')}: select jobs by id, or by a filter such as the job "
            "type; nothing was changed"
        )
    ids: list[int] = []
    kinds: Counter[str] = Counter()
    states: Counter[str] = Counter()
    skipped: dict[int, str] = {}
    beyond = after = 0
    with ledger.reading() as connection:
        now = ledger.now()
        while limit is None or len(ids) < limit:
            page = _read_page(connection, wanted, after)
            for each in page:
                problem = why_unchanged(each, change, now)
                if problem is not None:
                    if wanted.ids:
                        skipped[each.id] = problem
                    continue
                if len(ids) == limit:
                    beyond += 1
                    continue
                ids.append(each.id)
                kinds[each.kind] += 1
                states[each.shown] += 1
            if len(page) < PAGE:
                break
            after = page[-1].id
        else:
            beyond += _count_rest(connection, wanted, after)
        if wanted.ids:
            known = jobs.lines(connection, wanted.ids)
            skipped |= _missing(wanted, change, known, {*ids, *skipped})
    return Plan(
        act=change.act,
        ids=tuple(ids),
        kinds=dict(kinds.most_common()),
        reasons=dict(states.most_common()),
        skipped=skipped,
        more=beyond > 0,
        selection=wanted,
        beyond=beyond,
        change=change,
    )


def _read_page(connection: Connection, wanted: JobFilter, after: int) -> list[Job]:
    """Return jobs that have not ended, with ids above `after`, without their content."""
    where = (*conditions(wanted), _is_unfinished, job.c.id > after)
    return jobs.read(connection, jobs.LINE.where(*where).order_by(job.c.id).limit(PAGE))


def _count_rest(connection: Connection, wanted: JobFilter, after: int) -> int:
    where = (*conditions(wanted), _is_unfinished, job.c.id > after)
    rows = select(job.c.id).where(*where).limit(MOST_BEYOND).subquery()
    return connection.scalar(select(func.count()).select_from(rows)) or 0


def _missing(
    wanted: JobFilter, change: JobChange, known: dict[int, Job], planned: set[int]
) -> dict[int, str]:
    """Return why jobs that were named are not in a plan."""
    reasons: dict[int, str] = {}
    for job_id in dict.fromkeys(wanted.ids):
        if job_id in planned:
            continue
        each = known.get(job_id)
        if each is None:
            reasons[job_id] = "not found"
        elif each.ended_at is None and each.state in ("ready", "leased", "held"):
            reasons[job_id] = "does not match"
        else:
            reasons[job_id] = why_unchanged(each, change, each.ended_at or each.due_at) or ""
    return reasons
