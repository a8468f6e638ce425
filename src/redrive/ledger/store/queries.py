"""Queries that differ between the databases: a lookup for each job type or group, in one statement.

The callers are in `ledger.queries` and `ledger.stats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, Select, TextClause, select, text

from ...core.lazy import deferred
from ..db.compiled import sql_int
from ..db.session import on_sqlite
from ..db.tables import job
from ..model import READY
from ..stats.failure_groups import SLOTS_PER_HOUR, FailureGroup

if TYPE_CHECKING:
    from .postgres import queries as postgres
    from .sqlite import queries as sqlite
else:  # each builds its statements when it is imported
    postgres, sqlite = deferred(__package__, "postgres.queries", "sqlite.queries")


class LookupQueries(Protocol):
    """The queries on one database."""

    def first_of_kinds(
        self, ids: Select[Any], kinds: Sequence[str], limit: int, newest: bool, /
    ) -> Any:
        """Return a subquery with the ids of the first dead letters of each job type, merged."""

    def next_due(
        self, connection: Connection, lookups: Sequence[tuple[str, int]], /
    ) -> datetime | None:
        """Return the earliest due time of ready jobs, by job type and priority."""

    def failures_by_hour(
        self,
        connection: Connection,
        times: dict[str, object],
        groups: Sequence[FailureGroup],
        by_kind: bool,
        /,
    ) -> Sequence[Any]:
        """Return failures within an hour, with the place of their group."""

    def failures_by_step(
        self, connection: Connection, times: dict[str, object], groups: Sequence[FailureGroup], /
    ) -> Sequence[Any]:
        """Return failures by steps of a chart, with the place of their group."""

    def ends_of_groups_by_place(
        self, connection: Connection, groups: Sequence[FailureGroup], /
    ) -> Sequence[Any]:
        """Return the place of each group, with its newest and oldest pending dead letter."""


def queries_of(connection: Connection, /) -> LookupQueries:
    """Return the queries for the database of this connection."""
    return sqlite if on_sqlite(connection) else postgres


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
