"""Partitioning: what an operator may plan for partitions, and the desk where they are looked at and steered."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from ...core.lazy import deferred

if TYPE_CHECKING:
    from ...partitions.key import Day
    from ...partitions.model import Lane, Selection
    from ..plans import options as chosen
    from ..plans.options import Wish
    from ..plans.plan import Plan
    from ..sweep import Applied, Sweep
    from ..target.target import Operated
    from . import backfill, datasets, selection
    from . import operator as desk
    from . import plan as partition_plan
    from .datasets import Named
    from .operator import Desk
    from .plan import PickingAct
else:  # as operator.py has it
    backfill, chosen, datasets, desk, partition_plan, selection = deferred(
        "redrive.ops",
        "partitions.backfill",
        "plans.options",
        "partitions.datasets",
        "partitions.operator",
        "partitions.plan",
        "partitions.selection",
    )


class Partitioning:
    """Partitions. A facet of Operator, which says who may share it."""

    actor: str
    _app: Operated

    @property
    def partitions(self) -> Desk:
        """Operations on single partitions."""
        return desk.Desk(self._app, self.actor)

    def retry(
        self, dataset: Named | Selection, since: Day | None = None, until: Day | None = None, /, *,
        customers: Collection[str] | None = None, grant: int = 0, clear_terminal: bool = False, lane: Lane | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to extract failed partitions again. Nothing is changed or recorded before `apply`.

        Partitions with accepted data are not retried. Use `reprocess` for them.

        Args:
            dataset: A dataset, its name such as `"crm/orders"`, or a `Selection`.
            since: First day.
            until: Last day, inclusive. Default: one day.
            customers: Only these customers.
            grant: New attempts for each partition. It includes partitions that gave up. 0: as many
                as the policy has.
            clear_terminal: Include partitions that gave up.
            lane: Only partitions of this lane.

        Returns:
            The plan.
        """
        wish = chosen.Wish(clear_terminal=clear_terminal or grant > 0, grant=grant or None, lane=lane)
        return self._picked("retry", dataset, since, until, customers, wish)

    def reprocess(
        self, dataset: Named | Selection, since: Day | None = None, until: Day | None = None, /, *,
        customers: Collection[str] | None = None, lane: Lane | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to extract accepted partitions again.

        The current run stays readable until a newer one is accepted.

        Args:
            dataset: A dataset, its name such as `"crm/orders"`, or a `Selection`.
            since: First day.
            until: Last day, inclusive. Default: one day.
            customers: Only these customers.
            lane: Only partitions of this lane.

        Returns:
            The plan.
        """
        return self._picked("reprocess", dataset, since, until, customers, chosen.Wish(lane=lane))

    def revalidate(
        self, dataset: Named | Selection, since: Day | None = None, until: Day | None = None, /, *,
        customers: Collection[str] | None = None, lane: Lane | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to validate existing raw data with the current checks. Nothing is extracted.

        Args:
            dataset: A dataset, its name such as `"crm/orders"`, or a `Selection`.
            since: First day.
            until: Last day, inclusive. Default: one day.
            customers: Only these customers.
            lane: Only partitions of this lane.

        Returns:
            The plan.
        """
        return self._picked("revalidate", dataset, since, until, customers, chosen.Wish(lane=lane))

    def backfill(
        self, dataset: Named, since: Day, until: Day, /, *, customers: Collection[str] | None = None, share: float | None = None,
        newest: bool = True, again: bool = False, clear_terminal: bool = False,
    ) -> Plan:  # fmt: skip
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
        source, query = datasets.named(self._app, dataset)
        days = backfill.grid(self._app, source, query, customers, since, until, newest=newest)
        unknown = {} if customers is None else backfill.strangers(self._app, days)
        plan = partition_plan.ranged(self._app, days, chosen.Wish(share=share, again=again, clear_terminal=clear_terminal))
        return partition_plan.stranger(plan, unknown)

    def _begun(self, what: Plan, /, **how: Any) -> Sweep:
        return backfill.written(self._app, partition_plan.begun(self._app, what, actor=self.actor, **how))

    def _requeued(self, sweep_id: int) -> Iterator[Applied]:
        return backfill.steps(self._app, sweep_id)

    def _picked(
        self, act: PickingAct, dataset: Named | Selection, since: Day | None, until: Day | None,
        customers: Collection[str] | None, wish: Wish,
    ) -> Plan:  # fmt: skip
        from ...partitions.key import day  # noqa: PLC0415
        from ...partitions.model import Selection  # noqa: PLC0415

        if isinstance(dataset, Selection):
            if since is not None or customers is not None:
                raise TypeError("a Selection already has days and customers; pass them only there")
            return partition_plan.picked(self._app, act, dataset, wish)
        if since is None:
            raise TypeError(f"{act}: no first day; pass since= (both ends are included, and without until= it is one day)")
        if isinstance(customers, str):
            raise TypeError(f"customers= must be a collection of ids, not one text; pass [{customers!r}]")
        source, query = datasets.named(self._app, dataset)
        last = day("since", since) if until is None else until
        some = selection.selected(source=source, query=query, customers=customers or (), since=since, until=last)
        return partition_plan.picked(self._app, act, some, wish)
