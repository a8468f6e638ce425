"""Register: what is known of partitions. It only reads: for readers, operators and the console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from sqlalchemy import exists, func, select

from ..ledger.db.clock import now_on
from ..ledger.db.compiled import sql_int
from ..ledger.db.partition_tables import TROUBLE, partition, rollup, run
from .control import backfill, explain, progress, source_health, sweeps
from .control.progress import GridPlan, Progress
from .control.sweeps import Grid
from .key import Day, Partition, span
from .model import SHADES, Cell, Explanation, Facts, Lane, Marker, Run, RunState, Selection, Shade, Source
from .retry_schedule import Terms
from .store import frozen_selection, overview, queries, schedule_runs
from .store.frozen_selection import Picked, Verb
from .store.queries import known
from .store.rows import Opened, marks, opened
from .store.schedule_runs import Fired

_DATASETS = select(rollup.c.source, rollup.c.query_name).where(rollup.c.n > sql_int(0)).distinct()


class Register:
    """What is known of partitions. Threads may share one, and so may forked children. Its methods block."""

    def __init__(self, ledger: Opened, /) -> None:
        self._ledger = opened(ledger)

    def _reading(self) -> Any:
        return self._ledger().connections.read.use()

    # ---- one ----

    def get(self, partition: Partition, /) -> Facts | None:
        """All that is known of one; None: nothing is stored of it."""
        with self._reading() as session:
            row = known(session.core, partition)
            return None if row is None else next(iter(queries.facts(session.core, [row.id])), None)

    def days(self, source: str, query_name: str, customer: str, since: Day, until: Day | None = None, /) -> dict[date, Facts]:
        """One customer's days, both ends in it; those of which nothing is stored are left out."""
        with self._reading() as session:
            return queries.of_days(session.core, source, query_name, customer, *span(since, until))

    def history(self, partition: Partition, /, *, before: int | None = None, limit: int = 100) -> list[Run]:
        """Its runs with their verdicts, the newest first. before: an attempt_no."""
        with self._reading() as session:
            row = known(session.core, partition)
            return [] if row is None else queries.history(session.core, row.id, before=before, limit=limit)

    def run(self, run_id: str, /) -> Run | None:
        """One run with its verdict; None: there is none of that name."""
        with self._reading() as session:
            return queries.whole(session.core, run_id)

    def states(self, run_ids: Sequence[str], /) -> dict[str, RunState]:
        """How these runs stand; those that the ledger does not know are left out."""
        with self._reading() as session:
            return {one.run_id: one.state for one in queries.found(session.core, run_ids)}

    def markers(self, partition: Partition, /) -> list[Marker]:
        """What was decided about it beside its outcomes."""
        with self._reading() as session:
            row = known(session.core, partition)
            found = {} if row is None else marks(session.core, [row.id]).get(row.id, {})
            return [Marker(*mark[1:]) for _, mark in sorted(found.items())]  # type: ignore[arg-type]  # its kinds are checked

    def explain(self, partition: Partition, terms: Terms | None = None, /) -> Explanation:
        """Why it is not running now, when it will, and what else stands in its way. terms: of its dataset, where known."""
        with self._reading() as session:
            return explain.explained(session, partition, terms)

    # ---- many ----

    def find(self, selection: Selection, /, *, after: int = 0, limit: int = 100) -> list[Facts]:
        """Those that are asked for, in the order of their ids. after: the id of the last one of the page before."""
        with self._reading() as session:
            return queries.selected(session.core, selection, after=after, limit=limit)

    def newest(self, selection: Selection, /, *, limit: int = 100) -> list[Facts]:
        """Those that are asked for, the one that was judged last first."""
        with self._reading() as session:
            return queries.newest(session.core, selection, limit=limit)

    def datasets(self) -> list[tuple[str, str]]:
        """Source and query of every one that has partitions."""
        with self._reading() as session:
            return [(row[0], row[1]) for row in session.core.execute(_DATASETS).all()]

    def counts(
        self, *, source: str | None = None, query_name: str | None = None, since: date | None = None, until: date | None = None
    ) -> dict[tuple[str, str], dict[Shade, int]]:
        """How many of each dataset stand how. From the rollup: as fast at ten million."""
        found: dict[tuple[str, str], dict[Shade, int]] = {}
        for of, query, shade, many in self._rolled((), source, query_name, since, until):
            if many:
                found.setdefault((of, query), {})[SHADES[shade]] = int(many)
        return found

    def calendar(
        self, since: Day, until: Day | None = None, /, *, source: str | None = None, query_name: str | None = None
    ) -> list[Cell]:
        """Day by day, how many of each dataset stand how. From the rollup."""
        cells: dict[tuple[str, str, date], dict[Shade, int]] = {}
        for of, query, shade, many, on in self._rolled((rollup.c.logical_date,), source, query_name, *span(since, until)):
            if many:
                cells.setdefault((of, query, on), {})[SHADES[shade]] = int(many)
        return [Cell(*key, shades) for key, shades in sorted(cells.items())]

    def under_way(
        self, datasets: Sequence[tuple[str, str]], since: date, until: date, /
    ) -> dict[tuple[str, str, date], dict[Lane, int]]:
        """Day by day, what of these is queued or running, in which lane; where there is much, of the first of it."""
        with self._reading() as session:
            return overview.days(session.core, datasets, since, until)

    def _rolled(
        self, by: Iterable[Any], source: str | None, query_name: str | None, since: date | None, until: date | None
    ) -> list[Any]:
        at = rollup.c
        query = select(at.source, at.query_name, at.shade, func.sum(at.n), *by).group_by(at.source, at.query_name, at.shade, *by)
        for column, value in ((at.source, source), (at.query_name, query_name)):
            query = query if value is None else query.where(column == value)
        query = query if since is None else query.where(at.logical_date >= since)
        query = query if until is None else query.where(at.logical_date <= until)
        with self._reading() as session:
            return list(session.core.execute(query.order_by(at.source, at.query_name)))

    def reasons(self, *, source: str | None = None, query_name: str | None = None, sweep_id: int | None = None) -> dict[str, int]:
        """How many failed, or could not be refreshed, for what; the most first. Reads those alone. sweep_id: of its runs only."""
        at = partition.c
        query = select(at.reason, func.count()).where(TROUBLE).group_by(at.reason)
        for column, value in ((at.source, source), (at.query_name, query_name)):
            query = query if value is None else query.where(column == value)
        if sweep_id is not None:
            query = query.where(exists().where(run.c.partition_id == at.id, run.c.sweep_id == sweep_id))
        with self._reading() as session:
            found = {row[0] or "no verdict": row[1] for row in session.core.execute(query)}
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    def schedules(self) -> dict[tuple[str, str], Fired]:
        """Return the schedules of datasets that workers stored, by source and query."""
        with self._reading() as session:
            return schedule_runs.schedules(session.core)

    def sources(self) -> list[Source]:
        """The sources, and which of them are paused."""
        with self._reading() as session:
            return source_health.listed(session.core)

    def customers(self, source: str, query_name: str, /, *, among: Sequence[str]) -> set[str]:
        """Which of these have partitions of a dataset. Reads all of its keys."""
        at = partition.c
        query = select(at.customer_id).where(at.source == source, at.query_name == query_name, at.customer_id.in_(among))
        with self._reading() as session:
            return set(session.core.execute(query.distinct()).scalars())

    # ---- plans ----

    def pick(self, act: Verb, selection: Selection, /, *, clear_terminal: bool = False) -> Picked:
        """The partitions that an act would be for. Nothing is changed. ValueError: nothing at all was asked for."""
        if selection.everything:
            raise ValueError(
                "no partitions selected; pass source, query, customers, dates, status or error; an empty selection means all"
            )
        with self._reading() as session, session.snapshot():
            return frozen_selection.pick(session.core, act, selection, clear_terminal=clear_terminal)

    def grid_counts(self, grid: Grid, /) -> GridPlan:
        """What a backfill of this range would find."""
        with self._reading() as session, session.snapshot():
            return progress.planned(session, grid, [one.sweep_id for one in backfill.overlaps(session, grid)])

    def progress(self, sweep_id: int, /) -> Progress | None:
        """How far a sweep over partitions is; None: there is none of that number."""
        with self._reading() as session:
            one = sweeps.get(session.core, sweep_id)
            return None if one is None else progress.of(session, one, now_on(session))

    # ---- health ----

    def imbalance(self) -> list[str]:
        """Where the rollup and the rows differ, in words. Reads every row: for `redrive doctor` and for tests."""
        at = partition.c
        with self._reading() as session, session.snapshot():
            rows = select(at.source, at.query_name, at.logical_date, at.shade, func.count())
            stood = session.core.execute(rows.group_by(at.source, at.query_name, at.logical_date, at.shade))
            counted = Counter({tuple(row[:4]): row[4] for row in stood})
            for row in session.core.execute(
                select(*(rollup.c[name] for name in ("source", "query_name", "logical_date", "shade", "n")))
            ):
                counted[tuple(row[:4])] -= row[4]
        return [
            f"{source}/{query} of {on}: {SHADES[shade]} is counted {abs(many)} too {'few' if many > 0 else 'many'}"
            for (source, query, on, shade), many in sorted(counted.items())
            if many
        ]
