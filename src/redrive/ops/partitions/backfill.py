"""Backfills and other sweeps over partitions: plan, carry out and follow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...core.text import pluralise
from ...errors import NotAllowed
from ...ledger.sweep import Sweep
from ...partitions.control.plane import ControlPlane
from ...partitions.control.sweeps import Grid, SweepProgress
from ...partitions.key import Day
from ...partitions.model import SourceView
from ...partitions.queries import PartitionQueries
from ...partitions.retry_schedule import check_share
from ..context import OperatorContext
from ..plans.plan import Plan, PlanOptions
from ..project.target import Operated, ledger_of
from ..project.user_code import suggest
from ..sweeps import PARTITIONED, Applied, SweepOptions, count_sweeps, require_sweep
from . import datasets
from . import plan as plans
from .datasets import Named, find_extraction, label, terms_of

MAX_CHECKED_CUSTOMERS = 500
"""Customers that are compared with the known ones. A longer list was generated, not typed."""
MAX_NAMED_CUSTOMERS = 5
"""Customers that a message names."""
MIN_ENDED = 20
"""Partitions that must have ended before the time that is left is estimated."""


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """The progress of a sweep over partitions. Immutable."""

    sweep: Sweep
    progress: SweepProgress
    left: timedelta | None
    """Time for the rest at the current pace. None: nothing is left, or it is not known."""
    reasons: Mapping[str, int]
    """Why partitions of the sweep fail, the most frequent reason first."""
    now: datetime
    paused: Sequence[SourceView] = ()
    """Paused sources of its datasets."""

    @property
    def said(self) -> str:
        """The datasets, customers and days, in one line."""
        names = ", ".join(label(*dataset) for dataset in self.progress.datasets) or "nothing"
        total, since, until = self.sweep.total, self.progress.since, self.progress.until
        if since is None or until is None:
            return f"{names}: {pluralise(total, 'partition')}"
        customers = pluralise(total // ((until - since).days + 1), "customer")
        return f"{names} × {customers} × {since} to {until} = {total:,}"


@dataclass(frozen=True, slots=True)
class BackfillOperations:
    """Operations on sweeps over partitions, as `Operator.backfills`. Threads may share one."""

    _context: OperatorContext

    def plan(
        self,
        dataset: Named,
        since: Day,
        until: Day,
        /,
        *,
        customers: Collection[str] | None = None,
        share: float | None = None,
        newest: bool = True,
        again: bool = False,
        clear_terminal: bool = False,
    ) -> Plan:
        """Plan to extract a range of days.

        Args:
            dataset: A dataset, or its name such as `"crm/orders"`.
            since: First day.
            until: Last day, inclusive.
            customers: Only these customers. Default: all of the dataset.
            share: Part of all work while other work is queued too. Default: 0.15.
            newest: Start with the last day.
            again: Include accepted partitions.
            clear_terminal: Include partitions that gave up.

        Returns:
            The plan.

        Raises:
            NotAllowed: Another backfill has some of these partitions.
            ValueError: A customer is unknown to the app, or the last day has not begun in the time
                zone of the dataset's schedule (without a schedule: in UTC+14).
        """
        self._context.require("partition")
        app = self._context.app
        source, query = datasets.resolve_dataset(app, dataset)
        self._context.require("partition", label(source, query))
        named = _customers(app, source, query) if customers is None else customers
        grid = Grid.of(source, query, named, since, until, newest=newest)
        unknown = {} if customers is None else _unknown_customers(app, grid)
        options = PlanOptions(share=share, again=again, clear_terminal=clear_terminal)
        return self._context.require_plan(plans.plan_backfill(app, grid, options, unknown))

    def begin(self, plan: Plan, /, *, because: str, options: SweepOptions) -> Sweep:
        """Store a plan for partitions as a sweep. `Operator.begin` calls this.

        Args:
            plan: The plan.
            because: Why, for the audit log.
            options: Rate, canary and limits.

        Returns:
            The sweep.
        """
        actor = self._context.actor
        sweep_id = plans.begin(self._context.app, plan, options, actor=actor, because=because)
        return self._load(sweep_id)

    def carry_out(self, sweep_id: int, /) -> Iterator[Applied]:
        """Queue the partitions of a sweep, until all are queued or it waits for workers.

        `Operator.carry_out` calls this.

        Args:
            sweep_id: Id of the sweep.

        Yields:
            The steps.
        """
        control = self._control()
        while True:
            step = control.requeue_next(sweep_id)
            yield Applied({}, {}, self._load(sweep_id))
            if step.wait or step.sweep.state != "running":
                return

    def find(self, *, limit: int = 100, acts: Collection[str] = ("backfill",)) -> list[Sweep]:
        """Return backfills, newest first.

        Args:
            limit: Maximum number.
            acts: Other kinds of sweeps over partitions, such as `"retry"`.

        Returns:
            The sweeps.
        """
        return self._context.ledger.sweeps.list(acts=tuple(acts), limit=limit)

    def count(self, *, acts: Collection[str] = ("backfill",)) -> int:
        """Return the number of backfills, counted up to 100,001.

        Args:
            acts: Other kinds of sweeps over partitions, such as `"retry"`.

        Returns:
            The number.
        """
        return count_sweeps(self._context.ledger, acts)

    def progress(self, sweep_id: int, /) -> BackfillReport | None:
        """Return the progress of a sweep over partitions, and the time that is left.

        Args:
            sweep_id: Id of the sweep.

        Returns:
            The report, or None.

        Raises:
            NotAllowed: The sweep is about dead letters.
        """
        ledger = self._context.ledger
        sweep = ledger.sweeps.get(sweep_id)
        if sweep is None:
            return None
        if sweep.act not in PARTITIONED:
            raise NotAllowed(
                f"sweep {sweep_id} is for dead letters; run `redrive sweeps show {sweep_id}`"
            )
        now = ledger.now()
        queries = PartitionQueries(ledger)
        progress = queries.progress(sweep_id)
        assert progress is not None
        reasons: Counter[str] = Counter()
        if progress.rejected:
            for source, query in progress.datasets:
                reasons.update(queries.reasons(source=source, query_name=query, sweep_id=sweep_id))
        names = {source for source, _ in progress.datasets}
        paused = [
            source for source in queries.sources() if source.paused and source.source in names
        ]
        return BackfillReport(
            sweep=sweep,
            progress=progress,
            left=_time_left(sweep, progress, now),
            reasons=dict(reasons.most_common()),
            now=now,
            paused=tuple(paused) if sweep.state == "running" else (),
        )

    def set_share(self, sweep_id: int, share: float, /, *, because: str) -> Sweep:
        """Change the part of all work that a backfill has, from the next claim.

        Args:
            sweep_id: Id of the sweep.
            share: Part of all work while other work is queued too.
            because: Why, for the audit log.

        Returns:
            The sweep.
        """
        require_sweep(self._context, sweep_id)
        share, actor = check_share("share", share), self._context.actor
        self._control().set_share(sweep_id, share, actor=actor, because=because)
        return self._load(sweep_id)

    def _control(self) -> ControlPlane:
        return ControlPlane(self._context.ledger, terms_of(self._context.app))

    def _load(self, sweep_id: int) -> Sweep:
        sweep = self._context.ledger.sweeps.get(sweep_id)
        assert sweep is not None
        return sweep


def _customers(app: Operated, source: str, query: str) -> Collection[str]:
    """Return all customers of a dataset. Raise ValueError if only its app knows them."""
    registered = find_extraction(app, source, query)
    if registered is None:
        raise ValueError(
            f"customers of {source}/{query} are unknown to the ledger; name them, or name the "
            "app that "
            "knows them (--ledger module:app; in code: Operator(app, ...))"
        )
    return registered.current_customers()


def _unknown_customers(app: Operated, grid: Grid) -> dict[str, str]:
    """Return named customers without a partition, each with a similar known name.

    They may be new or misspelt. If misspelt, all of their days would fail.

    Raises:
        ValueError: The app knows its customers, and they are not among them.
    """
    registered = find_extraction(app, grid.source, grid.query_name)
    everyone = [] if registered is None else registered.current_customers()
    known = set(everyone)
    unregistered = [customer for customer in grid.customers if customer not in known]
    if not 0 < len(unregistered) <= MAX_CHECKED_CUSTOMERS:
        return {}
    queries = PartitionQueries(ledger_of(app))
    stored = queries.customers(grid.source, grid.query_name, among=unregistered)
    unknown = {
        customer: suggest(customer, everyone) for customer in unregistered if customer not in stored
    }
    if unknown and registered is not None:
        raise ValueError(_describe_unknown(registered.name, unknown, everyone))
    return unknown


def _describe_unknown(dataset: str, unknown: Mapping[str, str], known: Sequence[str]) -> str:
    shown = MAX_NAMED_CUSTOMERS
    names = ", ".join(f"{name!r}{similar}" for name, similar in [*unknown.items()][:shown])
    more = f" and {len(unknown) - shown:,} more" if len(unknown) > shown else ""
    noun = "customer" if len(unknown) == 1 else "customers"
    examples = ", ".join(known[:shown]) + (", …" if len(known) > shown else "") if known else "none"
    fix = "add new customers to customers= of the dataset first"
    return f"unknown {noun} {names}{more} of {dataset}; known: {examples}; {fix}"


def _time_left(sweep: Sweep, progress: SweepProgress, now: datetime) -> timedelta | None:
    """Estimate the rest by the partitions that ended. Skipped ones took no time."""
    ended = progress.ok + progress.failed
    if not progress.untouched and not progress.active:
        return None  # All that is left waits for a retry, whose time does not depend on the pace.
    rest = sweep.total - sweep.skipped - ended
    if sweep.state != "running" or ended < MIN_ENDED or rest <= 0:
        return None
    return rest * ((now - sweep.created_at) / ended)
