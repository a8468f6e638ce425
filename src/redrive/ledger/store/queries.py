"""Queries that differ between the databases: a lookup for each job type or group, in one statement.

The callers are in `ledger.queries` and `ledger.stats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, Select

from ...core.lazy import deferred
from ..db.session import on_sqlite
from ..stats.failure_groups import FailureGroup

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

    def failures_of_kinds_by_step(
        self, connection: Connection, times: dict[str, object], kinds: Sequence[str], /
    ) -> Sequence[Any]:
        """Return the steps of a chart, with the failures of all these job types."""

    def activity_of_kinds(
        self, connection: Connection, times: dict[str, object], kinds: Sequence[str], /
    ) -> Sequence[Any]:
        """Return the job types, with the sums of their activity between two minutes."""

    def ends_of_groups_by_place(
        self, connection: Connection, groups: Sequence[FailureGroup], /
    ) -> Sequence[Any]:
        """Return the place of each group, with its newest and oldest pending dead letter."""


def queries_of(connection: Connection, /) -> LookupQueries:
    """Return the queries for the database of this connection."""
    return sqlite if on_sqlite(connection) else postgres
