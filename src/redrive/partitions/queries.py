"""PartitionQueries: reads the state of partitions, for readers, operators and the console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, case, exists, func, select

from ..ledger.db.clock import now_on
from ..ledger.db.compiled import sql_int, sql_text
from ..ledger.db.partition_tables import TROUBLE, partition, rollup, run
from ..ledger.db.session import Session
from ..ledger.ledger import Ledger
from .control import backfill, explain, source_health, sweeps
from .control.sweeps import Grid, GridPlan, SweepProgress
from .key import Day, Partition, parse_range
from .model import (
    DISPLAY_STATUSES,
    Cell,
    DisplayStatus,
    Explanation,
    LaneName,
    Marker,
    PartitionFilter,
    PartitionRun,
    PartitionView,
    RunState,
    SourceView,
)
from .retry_schedule import DatasetLimits
from .store import frozen_selection, overview, queries
from .store.changes import ROLLUP
from .store.frozen_selection import FrozenSelection, Verb
from .store.queries import IS_MARKED, MARKED, StoredSchedule, in_range, of_dataset
from .store.rows import read_markers
from .store.sweeps import load_sweep

P = ParamSpec("P")
R = TypeVar("R")
_DATASETS = select(rollup.c.source, rollup.c.query_name).where(rollup.c.n > sql_int(0)).distinct()


class PartitionQueries:
    """Reads the state of partitions. Threads and forked children may share it. It blocks."""

    def __init__(self, ledger: Ledger, /) -> None:
        self._ledger = ledger

    def _session(self) -> AbstractContextManager[Session]:
        return self._ledger.connections.read.use()

    def _read(
        self,
        query: Callable[Concatenate[Connection, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        with self._session() as session:
            return query(session.core, *args, **kwargs)

    # ---- one partition ----

    def get(self, key: Partition, /) -> PartitionView | None:
        """Return a partition. None: nothing is stored of it."""
        return self._read(queries.load_view, key)

    def days(
        self, source: str, query_name: str, customer: str, since: Day, until: Day | None = None, /
    ) -> dict[date, PartitionView]:
        """Return the stored days of one customer, both ends included."""
        first, last = parse_range(since, until)
        return self._read(queries.load_days, source, query_name, customer, first, last)

    def history(
        self, key: Partition, /, *, before: int | None = None, limit: int = 100
    ) -> list[PartitionRun]:
        """Return the runs of a partition with their verdicts, the newest first.

        Args:
            before: Only runs before this attempt number.
            limit: Maximum number.
        """
        with self._session() as session:
            row = queries.load_row(session.core, key)
            if row is None:
                return []
            return queries.load_history(session.core, row.id, before=before, limit=limit)

    def run(self, run_id: str, /) -> PartitionRun | None:
        """Return a run with its verdict."""
        return self._read(queries.load_run, run_id)

    def states(self, run_ids: Sequence[str], /) -> dict[str, RunState]:
        """Return the states of runs. Unknown ones are omitted."""
        with self._session() as session:
            return {each.run_id: each.state for each in queries.load_runs(session.core, run_ids)}

    def markers(self, key: Partition, /) -> list[Marker]:
        """Return the markers of a partition, by kind."""
        with self._session() as session:
            row = queries.load_row(session.core, key)
            markers = {} if row is None else read_markers(session.core, [row.id]).get(row.id, {})
            return [marker for _, marker in sorted(markers.items())]

    def explain(self, key: Partition, limits: DatasetLimits | None = None, /) -> Explanation:
        """Explain why a partition is not running, when it will run, and what else delays it.

        Args:
            limits: Of its dataset. None: unknown.
        """
        with self._session() as session:
            return explain.explain_partition(session, key, limits)

    # ---- many partitions ----

    def find(
        self, selection: PartitionFilter, /, *, after: int = 0, limit: int = 100
    ) -> list[PartitionView]:
        """Return selected partitions by id, after the last id of the page before."""
        return self._read(queries.find_partitions, selection, after=after, limit=limit)

    def newest(self, selection: PartitionFilter, /, *, limit: int = 100) -> list[PartitionView]:
        """Return selected partitions, the newest verdict first."""
        return self._read(queries.find_newest, selection, limit=limit)

    def datasets(self) -> list[tuple[str, str]]:
        """Return source and query of every dataset with partitions."""
        with self._session() as session:
            return [(row[0], row[1]) for row in session.core.execute(_DATASETS).all()]

    def counts(
        self,
        *,
        source: str | None = None,
        query_name: str | None = None,
        since: date | None = None,
        until: date | None = None,
    ) -> dict[tuple[str, str], dict[DisplayStatus, int]]:
        """Count the partitions of each dataset by display status. Reads the rollup only."""
        counts: dict[tuple[str, str], dict[DisplayStatus, int]] = {}
        for name, query, shade, count in self._read(
            _load_rollup, False, source, query_name, since, until
        ):
            if count:
                counts.setdefault((name, query), {})[DISPLAY_STATUSES[shade]] = int(count)
        return counts

    def calendar(
        self,
        since: Day,
        until: Day | None = None,
        /,
        *,
        source: str | None = None,
        query_name: str | None = None,
    ) -> list[Cell]:
        """Count the partitions of each dataset and day by display status. Reads the rollup only."""
        cells: dict[tuple[str, str, date], dict[DisplayStatus, int]] = {}
        days = parse_range(since, until)
        rows = self._read(_load_rollup, True, source, query_name, *days)
        for name, query, shade, count, day in rows:
            if count:
                cells.setdefault((name, query, day), {})[DISPLAY_STATUSES[shade]] = int(count)
        return [Cell(*key, shades) for key, shades in sorted(cells.items())]

    def active_by_day(
        self, datasets: Sequence[tuple[str, str]], since: date, until: date, /
    ) -> dict[tuple[str, str, date], dict[LaneName, int]]:
        """Count queued and running partitions by day and lane, of the first of each dataset."""
        return self._read(overview.active_by_day, datasets, since, until)

    def customers_by_day(
        self, dataset: tuple[str, str], days: Sequence[date], /, *, after: str, limit: int
    ) -> dict[str, dict[date, DisplayStatus]]:
        """Return the first customers of a dataset after a name, with the state of each day."""
        return self._read(overview.customers_by_day, dataset, days, after=after, limit=limit)

    def reasons(
        self,
        *,
        source: str | None = None,
        query_name: str | None = None,
        sweep_id: int | None = None,
    ) -> dict[str, int]:
        """Count failing partitions by the reason of their rejection, the largest count first.

        Args:
            source: Only of this source.
            query_name: Only of this query.
            sweep_id: Only with runs of this sweep.
        """
        at = partition.c
        marked = case((at.reason.is_(None) & IS_MARKED, sql_text(MARKED)), else_=at.reason)
        query = select(marked.label("why"), func.count()).where(TROUBLE).group_by("why")
        query = of_dataset(query, partition, source, query_name)
        if sweep_id is not None:
            own = exists().where(run.c.partition_id == at.id, run.c.sweep_id == sweep_id)
            query = query.where(own)
        with self._session() as session:
            counts = {row[0] or "no verdict": row[1] for row in session.core.execute(query)}
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def schedules(self) -> dict[tuple[str, str], StoredSchedule]:
        """Return the schedules of datasets that workers stored, by source and query."""
        return self._read(queries.load_schedules)

    def sources(self) -> list[SourceView]:
        """Return the sources, and which of them are paused."""
        return self._read(source_health.list_sources)

    def customers(
        self,
        source: str | None,
        query_name: str | None,
        /,
        *,
        among: Sequence[str] | None = None,
    ) -> set[str]:
        """Return which of these customers have partitions of a dataset. Reads all its keys.

        Args:
            source: Only this source. None: any.
            query_name: Only this query. None: any.
            among: Only these customers. None: all.
        """
        query = select(partition.c.customer_id)
        if among is not None:
            query = query.where(partition.c.customer_id.in_(among))
        query = of_dataset(query, partition, source, query_name).distinct()
        with self._session() as session:
            return set(session.core.execute(query).scalars())

    # ---- plans ----

    def freeze(
        self,
        act: Verb,
        selection: PartitionFilter,
        /,
        *,
        clear_terminal: bool = False,
        include_marked: bool = False,
    ) -> FrozenSelection:
        """Return the partitions that an act would change. Nothing is changed.

        Args:
            act: What is done to them.
            selection: Which partitions.
            clear_terminal: Include partitions that gave up.
            include_marked: Include those that an operator marked as given up, too.

        Raises:
            ValueError: The selection has no condition.
        """
        if selection.everything:
            raise ValueError(
                "no partitions selected; pass source, query, customers, dates, status or error; "
                "an empty selection means all"
            )
        with self._session() as session, session.snapshot():
            return frozen_selection.freeze_selection(
                session.core,
                act,
                selection,
                clear_terminal=clear_terminal,
                include_marked=include_marked,
            )

    def plan_grid(self, grid: Grid, /) -> GridPlan:
        """Return what a backfill of a range would contain."""
        with self._session() as session, session.snapshot():
            overlaps = [sweep.id for sweep, _ in backfill.find_overlaps(session, grid)]
            return sweeps.plan_grid(session, grid, overlaps)

    def progress(self, sweep_id: int, /) -> SweepProgress | None:
        """Return the progress of a sweep over partitions. None: there is none of this id."""
        with self._session() as session:
            sweep = load_sweep(session.core, sweep_id)
            return None if sweep is None else sweeps.sweep_progress(session, sweep, now_on(session))

    # ---- health ----

    def imbalance(self) -> list[str]:
        """Return where the rollup and the rows differ. Reads every row."""
        keys = [partition.c[name] for name in ROLLUP[:-1]]
        with self._session() as session, session.snapshot():
            rows = session.core.execute(select(*keys, func.count()).group_by(*keys))
            difference = Counter({tuple(row[:4]): row[4] for row in rows})
            for row in session.core.execute(select(*(rollup.c[name] for name in ROLLUP))):
                difference[tuple(row[:4])] -= row[4]
        return [
            f"{source}/{query} of {day}: {DISPLAY_STATUSES[shade]} is counted "
            f"{abs(count)} too {'few' if count > 0 else 'many'}"
            for (source, query, day, shade), count in sorted(difference.items())
            if count
        ]


def _load_rollup(
    connection: Connection,
    by_day: bool,
    source: str | None,
    query_name: str | None,
    since: date | None,
    until: date | None,
) -> list[Any]:
    at = rollup.c
    keys = (at.source, at.query_name, at.shade)
    if by_day:  # a day and a status of a dataset are one row
        query = select(*keys, at.n, at.logical_date)
    else:
        query = select(*keys, func.sum(at.n)).group_by(*keys)
    query = of_dataset(query, rollup, source, query_name)
    query = in_range(query, at.logical_date, since, until)
    return list(connection.execute(query.order_by(at.source, at.query_name)))
