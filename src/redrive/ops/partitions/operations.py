"""Operations on partitions and their sources: find, retry, mark, roll back and pause them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from ...ledger.jobs import pauses
from ...partitions.control.plane import ControlPlane
from ...partitions.key import Day, Partition, check_name, parse_day
from ...partitions.model import (
    Act,
    DisplayStatus,
    Explanation,
    LaneName,
    PartitionFilter,
    PartitionView,
    SourceView,
)
from ...partitions.queries import PartitionQueries
from ..context import OperatorContext
from ..deprecated import deprecated_partition_method
from ..plans.plan import Plan, PlanOptions
from . import calendar as calendars
from . import datasets, markers, raw_data
from . import history as lookup
from . import plan as plans
from .backfill import BackfillOperations
from .calendar import Calendar, CustomerGrid
from .datasets import Named
from .history import Explained, History
from .markers import MarkerPlan, Steer
from .plan import PickingAct
from .raw_data import Lost, RawState
from .selection import FilterOptions, select_partitions

__all__ = [
    "Act",
    "Explanation",
    "MarkerPlan",
    "PartitionOperations",
    "PartitionView",
    "SourceOperations",
    "SourceView",
]

FAILED: tuple[DisplayStatus, ...] = ("failed", "terminal", "refresh_failed")


@dataclass(frozen=True, slots=True)
class PartitionOperations:
    """Operations on partitions, as `Operator.partitions`. Threads may share one."""

    _context: OperatorContext

    @staticmethod
    def selection(*words: str, **narrowed: Unpack[FilterOptions]) -> PartitionFilter:
        """Return a selection of partitions.

        Args:
            words: Partitions in full, or one short form such as `"crm/orders"` or
                `"crm/acme/orders/2026-06-01..2026-06-30"`, with `*` for any.
            narrowed: `source`, `query`, `customers`, `since`, `until`, `status`, `error`,
                `min_attempts`, `lane`.

        Returns:
            The selection.
        """
        return select_partitions(words, **narrowed)

    # --- Find

    def datasets(self) -> list[tuple[str, str]]:
        """Return source and query of every dataset that is registered or has partitions.

        Returns:
            The datasets.
        """
        return datasets.known_datasets(self._context.app)

    def inspect(
        self, selection: PartitionFilter | None = None, /, *, after: int = 0, limit: int = 100
    ) -> list[PartitionView]:
        """Return partitions, page by page.

        A partition that was never requested is not stored, and not returned.

        Args:
            selection: Which partitions. Default: all.
            after: Only partitions with a higher id.
            limit: Maximum number.

        Returns:
            The partitions.
        """
        return self._queries().find(self._check_selection(selection), after=after, limit=limit)

    def lost(
        self, selection: PartitionFilter | None = None, /, *, after: int = 0, limit: int = 100
    ) -> list[Lost]:
        """Return accepted partitions whose raw data is missing or has another size.

        It checks the files of every selected partition, which takes time.

        Args:
            selection: Which partitions. Default: all.
            after: Only partitions with a higher id.
            limit: Maximum number.

        Returns:
            The partitions.

        Raises:
            NotAllowed: The store is not known, or not reachable.
        """
        which = self._check_selection(selection)
        return raw_data.find_lost(
            self._context.app, self._queries(), which, after=after, limit=limit
        )

    def raw_states(self, facts: Sequence[PartitionView], /) -> list[RawState]:
        """Check that the files of partitions exist, without reading their bytes.

        Args:
            facts: The partitions.

        Returns:
            The state of each, in the same order.
        """
        return raw_data.raw_states(self._context.app, facts)

    def failures(
        self,
        selection: PartitionFilter | None = None,
        /,
        *,
        terminal: bool = False,
        limit: int = 100,
    ) -> list[PartitionView]:
        """Return partitions that failed, or whose newer run was rejected. Latest first.

        Args:
            selection: Which partitions. Default: all.
            terminal: Only partitions that gave up.
            limit: Maximum number.

        Returns:
            The partitions.
        """
        which = self._check_selection(selection)
        shades = which.shades or (("terminal",) if terminal else FAILED)
        return self._queries().newest(replace(which, shades=shades), limit=limit)

    def reasons(self, *, source: str | None = None, query: str | None = None) -> dict[str, int]:
        """Return why partitions failed, the most frequent reason first.

        Args:
            source: Only this source.
            query: Only this query.

        Returns:
            The number of partitions by reason.
        """
        return self._queries().reasons(source=source, query_name=query)

    def describe_no_match(self, selection: PartitionFilter, /) -> str:
        """Return the text for a selection without a partition.

        Args:
            selection: The selection.

        Returns:
            `No partition matches.`, or which customers are unknown, with a similar name.
        """
        return datasets.describe_no_match(self._context.app, selection)

    def history(self, partition: Partition | str, /) -> History | None:
        """Return every attempt at a partition with its verdict, newest first.

        Args:
            partition: The partition.

        Returns:
            The history. None: nothing is stored of it.
        """
        return lookup.history(self._context, self._key(partition))

    def explain(self, partition: Partition | str, /) -> Explained:
        """Return the state of a partition, why it is not running now, and what can be done.

        Args:
            partition: The partition.

        Returns:
            The explanation, also for a partition that was never requested.
        """
        return lookup.explain(self._context.app, self._key(partition))

    def counts(
        self,
        *,
        source: str | None = None,
        query: str | None = None,
        since: Day | None = None,
        until: Day | None = None,
    ) -> dict[tuple[str, str], Mapping[DisplayStatus, int]]:
        """Return the number of partitions of each dataset, by state.

        Args:
            source: Only this source.
            query: Only this query.
            since: First day.
            until: Last day, inclusive.

        Returns:
            The numbers by dataset.
        """
        first = None if since is None else parse_day("since", since)
        last = None if until is None else parse_day("until", until)
        counts = self._queries().counts(source=source, query_name=query, since=first, until=last)
        return dict(counts)

    def calendar(
        self,
        since: Day | None = None,
        until: Day | None = None,
        /,
        *,
        source: str | None = None,
        query: str | None = None,
    ) -> Calendar:
        """Return the state of every day of the datasets.

        Args:
            since: First day. Default: eight weeks before the last.
            until: Last day, inclusive. Default: today.
            source: Only this source.
            query: Only this query.

        Returns:
            The calendar.
        """
        self._check_selection(PartitionFilter(source=source, query_name=query))
        return calendars.calendar(self._context.app, since, until, source=source, query=query)

    def customers(
        self,
        source: str,
        query: str,
        since: Day | None = None,
        until: Day | None = None,
        /,
        *,
        after: str = "",
        limit: int = 50,
    ) -> CustomerGrid:
        """Return the state of each customer of a dataset on each day, by pages.

        Args:
            source: Source of the dataset.
            query: Query of the dataset.
            since: First day. Default: eight weeks before the last.
            until: Last day, inclusive. Default: today.
            after: Only customers after this name, in the order of their bytes.
            limit: Maximum number of customers.

        Returns:
            The grid. Its cost does not grow with the number of customers.

        Raises:
            ValueError: The range is reversed, or longer than 100 days.
        """
        self._check_selection(PartitionFilter(source=source, query_name=query))
        return calendars.customer_grid(
            self._context.app, (source, query), since, until, after=after, limit=limit
        )

    # --- Plan

    def retry(
        self,
        dataset: Named | PartitionFilter,
        since: Day | None = None,
        until: Day | None = None,
        /,
        *,
        customers: Collection[str] | None = None,
        grant: int = 0,
        clear_terminal: bool = False,
        include_marked: bool = False,
        lane: LaneName | None = None,
    ) -> Plan:
        """Plan to extract failed partitions again.

        Nothing is changed or recorded before `Operator.apply`. Partitions with accepted data are
        not retried. Use `reprocess` for them.

        Args:
            dataset: A dataset, its name such as `"crm/orders"`, or a `PartitionFilter`.
            since: First day.
            until: Last day, inclusive. Default: one day.
            customers: Only these customers.
            grant: New attempts for each partition. It includes partitions that gave up. 0: as many
                as the policy has.
            clear_terminal: Include partitions that gave up.
            include_marked: Include those that an operator marked as given up, too. Otherwise only
                marked partitions that the selection names one by one are included.
            lane: The lane to queue them in. None: the one of this operation.

        Returns:
            The plan.
        """
        includes_terminal = clear_terminal or include_marked or grant > 0
        options = PlanOptions(includes_terminal, grant or None, lane, include_marked=include_marked)
        return self._plan("retry", dataset, (since, until), customers, options)

    def reprocess(
        self,
        dataset: Named | PartitionFilter,
        since: Day | None = None,
        until: Day | None = None,
        /,
        *,
        customers: Collection[str] | None = None,
        lane: LaneName | None = None,
    ) -> Plan:
        """Plan to extract accepted partitions again.

        The current run stays readable until a newer one is accepted.

        Args:
            dataset: A dataset, its name such as `"crm/orders"`, or a `PartitionFilter`.
            since: First day.
            until: Last day, inclusive. Default: one day.
            customers: Only these customers.
            lane: The lane to queue them in. None: the one of this operation.

        Returns:
            The plan.
        """
        return self._plan("reprocess", dataset, (since, until), customers, PlanOptions(lane=lane))

    def revalidate(
        self,
        dataset: Named | PartitionFilter,
        since: Day | None = None,
        until: Day | None = None,
        /,
        *,
        customers: Collection[str] | None = None,
        lane: LaneName | None = None,
    ) -> Plan:
        """Plan to validate existing raw data with the current checks. Nothing is extracted.

        Args:
            dataset: A dataset, its name such as `"crm/orders"`, or a `PartitionFilter`.
            since: First day.
            until: Last day, inclusive. Default: one day.
            customers: Only these customers.
            lane: The lane to queue them in. None: the one of this operation.

        Returns:
            The plan.
        """
        return self._plan("revalidate", dataset, (since, until), customers, PlanOptions(lane=lane))

    # --- Mark and roll back

    def chosen(
        self,
        act: Steer,
        selection: PartitionFilter,
        /,
        *,
        most: int = markers.MOST,
        include_marked: bool = False,
        without_raw: bool = False,
    ) -> MarkerPlan:
        """Plan to mark, clear, pause or unpause partitions. Nothing is changed before `steer`.

        Args:
            act: `"mark_terminal"`, `"clear_terminal"`, `"pause"` or `"unpause"`.
            selection: Which partitions.
            most: Maximum number. More are an error.
            include_marked: For `clear_terminal`: include partitions that an operator marked as
                given up. Otherwise only those that the selection names one by one are included.
            without_raw: For `clear_terminal`: include partitions without raw data, as in a retry.

        Returns:
            The plan.
        """
        self._context.require("partition")
        return markers.plan_markers(
            self._context.app,
            act,
            selection,
            most,
            include_marked=include_marked,
            without_raw=without_raw,
        )

    def steer(self, plan: MarkerPlan, /, *, because: str, grant: int | None = None) -> Act:
        """Carry out a plan of `chosen`.

        Args:
            plan: The plan.
            because: Why, for the audit log.
            grant: For `clear_terminal`: number of new attempts. None: as many as the policy has.

        Returns:
            What was changed.
        """
        self._context.require("partition", *plan.datasets)
        actor = self._context.actor
        return markers.apply_markers(
            self._control(), plan, actor=actor, because=because, grant=grant
        )

    def rollback(
        self, partition: Partition | str, run_id: str | None = None, /, *, because: str
    ) -> PartitionView:
        """Make an earlier accepted run the current one, after its raw data was verified.

        Args:
            partition: The partition.
            run_id: Id of the run. None: the last accepted run before the current one.
            because: Why, for the audit log.

        Returns:
            The partition.

        Raises:
            NotAllowed: There is no such run, or its raw data cannot be verified.
        """
        self._context.require("partition")
        app, actor, key = self._context.app, self._context.actor, self._key(partition)
        self._context.require("partition", datasets.label(key.source, key.query_name))
        return markers.roll_back(app, key, run_id, actor=actor, because=because)

    def _plan(
        self,
        act: PickingAct,
        dataset: Named | PartitionFilter,
        days: tuple[Day | None, Day | None],
        customers: Collection[str] | None,
        options: PlanOptions,
    ) -> Plan:
        self._context.require("partition")
        app, (since, until) = self._context.app, days
        if isinstance(dataset, PartitionFilter):
            if since is not None or customers is not None:
                problem = "a PartitionFilter already has days and customers"
                raise TypeError(f"{problem}; pass them only there")
            return self._context.require_plan(plans.plan_selection(app, act, dataset, options))
        if since is None:
            raise TypeError(
                f"{act}: no first day; pass since= (both ends are included, and without until= "
                "it is one day)"
            )
        if isinstance(customers, str):
            raise TypeError(
                f"customers= must be a collection of ids, not one text; pass [{customers!r}]"
            )
        source, query = datasets.resolve_dataset(app, dataset)
        last = parse_day("since", since) if until is None else until
        which = select_partitions(
            source=source, query=query, customers=customers or (), since=since, until=last
        )
        return self._context.require_plan(plans.plan_selection(app, act, which, options))

    def _check_selection(self, selection: PartitionFilter | None) -> PartitionFilter:
        """Return the selection. Raise ValueError if it names an unknown source or query."""
        return datasets.check_selection(self._context.app, selection or PartitionFilter())

    def _key(self, partition: Partition | str) -> Partition:
        key = Partition.parse(partition) if isinstance(partition, str) else partition
        self._check_selection(PartitionFilter(keys=(key,)))
        return key

    def _queries(self) -> PartitionQueries:
        return PartitionQueries(self._context.ledger)

    if not TYPE_CHECKING:  # Type checkers report old names, which work at run time.

        def __getattr__(self, name: str) -> Any:
            parts = (BackfillOperations, SourceOperations)
            backfills, sources = (part(self._context) for part in parts)
            return deprecated_partition_method({"backfills": backfills, "sources": sources}, name)

    def _control(self) -> ControlPlane:
        return ControlPlane(self._context.ledger, datasets.terms_of(self._context.app))


@dataclass(frozen=True, slots=True)
class SourceOperations:
    """Operations on the sources of datasets, as `Operator.sources`. Threads may share one."""

    _context: OperatorContext

    def find(self) -> list[SourceView]:
        """Return the sources: which are paused, by whom, until when.

        Returns:
            The sources.
        """
        return PartitionQueries(self._context.ledger).sources()

    def pause(self, source: str, /, *, because: str, until: datetime | None = None) -> SourceView:
        """Stop leasing partitions of a source.

        Args:
            source: The source.
            because: Why, for the audit log.
            until: When the pause ends. None: until `unpause`.

        Returns:
            The source.
        """
        self._context.require("pause", None)
        control, actor = self._control(source), self._context.actor
        return control.pause_source(source, until=until, actor=actor, because=because)

    def unpause(self, source: str, /, *, because: str) -> SourceView:
        """Lease partitions of a paused source again.

        It also ends a pause by `Operator.pauses.pause("source", ...)`.

        Args:
            source: The source.
            because: Why, for the audit log.

        Returns:
            The source.
        """
        self._context.require("pause", None)
        control, actor = self._control(source), self._context.actor
        with self._context.ledger.connections.write.use() as session:
            pauses.resume(session, "source", source, actor=actor, because=because)
        return control.unpause_source(source, actor=actor, because=because)

    def _control(self, source: str) -> ControlPlane:
        """Return the control plane. Raise ValueError if the source is unknown."""
        datasets.check_selection(
            self._context.app, PartitionFilter(source=check_name("source", source))
        )
        return ControlPlane(self._context.ledger, datasets.terms_of(self._context.app))
