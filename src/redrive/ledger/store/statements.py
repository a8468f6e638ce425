"""Parts of statements that both databases have."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, TextClause, select, text

from ..db.compiled import sql_int
from ..db.tables import ACTIVITY, job
from ..model import READY
from ..stats.failure_groups import SLOTS_PER_HOUR


def in_order(query: Select[Any], by: Any, limit: int, newest: bool, /) -> Select[Any]:
    """Return the first rows, or the last ones."""
    # Inline the LIMIT: under a generic plan Postgres would sort the whole range.
    return query.order_by(by.desc() if newest else by).limit(sql_int(limit))


def first_due(kind: Any, priority: Any, /) -> Select[Any]:
    """Return the due time of the first ready job of a type and priority."""
    return (
        select(job.c.due_at)
        .where(job.c.state == sql_int(READY), job.c.kind == kind, job.c.priority == priority)
        .order_by(job.c.due_at, job.c.id)
        .limit(sql_int(1))
        .offset(sql_int(0))
    )


def sum_by_hour(*slots: str) -> TextClause:
    """Return the statement that sums slots up by hour.

    As text, not as an expression: building and naming one for thirty groups takes longer than the
    query. The result is grouped by a number, because text takes twice as long.
    """
    hour = f"place * 1000 + (CAST(:now AS bigint) - slot) / {SLOTS_PER_HOUR}"
    return text(
        "SELECT min(place), min(slot), max(slot), CAST(sum(tries) AS bigint), "  # noqa: S608
        f"CAST(sum(died) AS bigint) FROM ({' UNION ALL '.join(slots)}) AS slots GROUP BY {hour}"
    )


def sum_by_step(*slots: str) -> TextClause:
    """Return the statement that sums slots up by steps of a chart, counted from :since.

    A chart has less than 1,000 steps.
    """
    step = "(slot - CAST(:since AS bigint)) / CAST(:step AS bigint)"
    return text(
        f"SELECT min(place), min({step}), CAST(sum(tries) AS bigint), "  # noqa: S608
        f"CAST(sum(died) AS bigint) FROM ({' UNION ALL '.join(slots)}) AS slots "
        f"WHERE slot >= :since AND slot < :until GROUP BY place * 1000 + {step}"
    )


def sum_kinds_by_step(*slots: str) -> TextClause:
    """Return the statement that sums the slots of job types up by steps, see `sum_by_step`.

    A job type without attempts in a step counts its dead letters.
    """
    step = "(slot - CAST(:since AS bigint)) / CAST(:step AS bigint)"
    by_kind = (
        f"SELECT {step} AS step, sum(tries) AS tries, sum(died) AS died "  # noqa: S608
        f"FROM ({' UNION ALL '.join(slots)}) AS slots "
        f"WHERE slot >= :since AND slot < :until GROUP BY kind, {step}"
    )
    failed = "sum(CASE WHEN tries > 0 THEN tries ELSE died END)"
    return text(
        f"SELECT step, CAST({failed} AS bigint) FROM ({by_kind}) AS kinds GROUP BY step"  # noqa: S608
    )


def sum_activity(of_kinds: str) -> TextClause:
    """Return the statement that sums the counts of activity up by job type."""
    sums = ", ".join(f"CAST(sum({name}) AS bigint)" for name in ACTIVITY)
    return text(
        f"SELECT kind, {sums} FROM redrive_activity "  # noqa: S608
        f"WHERE {of_kinds} AND slot >= :since AND slot < :until GROUP BY kind"
    )


def ends_of_groups(groups: str) -> TextClause:
    """Return the statement for the newest and oldest pending dead letter of each group.

    Args:
        groups: A subquery `look` with place, kind and signature.
    """
    ids = [
        "(SELECT id FROM redrive_dead WHERE status = 'pending' AND kind = look.kind "  # noqa: S608
        f"AND signature = look.signature ORDER BY id {order} LIMIT 1)"
        for order in ("DESC", "ASC")
    ]
    return text(f"SELECT look.place, {', '.join(ids)} FROM {groups}")  # noqa: S608
