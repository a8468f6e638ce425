"""Partitioning: what an operator may plan for partitions, and the desk where they are looked at and steered."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from ..core.lazy import deferred

if TYPE_CHECKING:
    from ..partitions.partition import Day
    from ..partitions.record import Lane, Selection
    from . import backfill, chosen, datasets, desk, partition_plan, selection
    from .chosen import Wish
    from .datasets import Named
    from .desk import Desk
    from .partition_plan import PickingAct
    from .plan import Plan
    from .source import Operated
    from .sweep import Applied, Sweep
else:  # as operator.py has it
    backfill, chosen, datasets, desk, partition_plan, selection = deferred(
        __package__, "backfill", "chosen", "datasets", "desk", "partition_plan", "selection"
    )


class Partitioning:
    """Partitions. A facet of Operator, which says who may share it."""

    actor: str
    _app: Operated

    @property
    def partitions(self) -> Desk:
        """Where they are looked at and steered, one by one."""
        return desk.Desk(self._app, self.actor)

    def retry(
        self, dataset: Named | Selection, since: Day | None = None, until: Day | None = None, /, *,
        customers: Collection[str] | None = None, grant: int = 0, clear_terminal: bool = False, lane: Lane | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to have what failed extracted again, now. Nothing is changed and nothing is recorded before `apply`.

        dataset: one, or its name ("crm/orders"), with days, both ends in it (without the last: one day); or a Selection.
        clear_terminal: what is terminal too. grant: so many new attempts for each (that clears terminal ones too); 0: as many as
        the policy has. What is accepted is not retried: that is `reprocess`.
        """
        wish = chosen.Wish(clear_terminal=clear_terminal or grant > 0, grant=grant or None, lane=lane)
        return self._picked("retry", dataset, since, until, customers, wish)

    def reprocess(
        self, dataset: Named | Selection, since: Day | None = None, until: Day | None = None, /, *,
        customers: Collection[str] | None = None, lane: Lane | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to have what is accepted extracted once more; until a newer run is accepted, the one in force stays readable."""
        return self._picked("reprocess", dataset, since, until, customers, chosen.Wish(lane=lane))

    def revalidate(
        self, dataset: Named | Selection, since: Day | None = None, until: Day | None = None, /, *,
        customers: Collection[str] | None = None, lane: Lane | None = None,
    ) -> Plan:  # fmt: skip
        """Plan to have the raw data that is there judged once more, by the checks as they are now. Nothing is extracted."""
        return self._picked("revalidate", dataset, since, until, customers, chosen.Wish(lane=lane))

    def backfill(
        self, dataset: Named, since: Day, until: Day, /, *, customers: Collection[str] | None = None, share: float | None = None,
        newest: bool = True, again: bool = False, clear_terminal: bool = False,
    ) -> Plan:  # fmt: skip
        """Plan to have a range of days extracted, for these customers, or for all that the app's dataset has.

        share: its part of all work while others wait too (default 0.15). newest: the last day first. again: also what is
        accepted already. clear_terminal: also what is terminal. NotAllowed: another backfill has some of these.
        """
        source, query = datasets.named(self._app, dataset)
        days = backfill.grid(self._app, source, query, customers, since, until, newest=newest)
        plan = partition_plan.ranged(self._app, days, chosen.Wish(share=share, again=again, clear_terminal=clear_terminal))
        return plan if customers is None else partition_plan.stranger(plan, backfill.strangers(self._app, days))

    def _begun(self, what: Plan, /, **how: Any) -> Sweep:
        return backfill.written(self._app, partition_plan.begun(self._app, what, actor=self.actor, **how))

    def _requeued(self, sweep_id: int) -> Iterator[Applied]:
        return backfill.steps(self._app, sweep_id)

    def _picked(
        self, act: PickingAct, dataset: Named | Selection, since: Day | None, until: Day | None,
        customers: Collection[str] | None, wish: Wish,
    ) -> Plan:  # fmt: skip
        from ..partitions.partition import day  # noqa: PLC0415
        from ..partitions.record import Selection  # noqa: PLC0415

        if isinstance(dataset, Selection):
            if since is not None or customers is not None:
                raise TypeError("a Selection says its days and customers itself")
            return partition_plan.picked(self._app, act, dataset, wish)
        if since is None:
            raise TypeError(f"{act}: since which day? Both ends of a range are in it; without `until` it is that day")
        if isinstance(customers, str):
            raise TypeError(f"customers= is a collection of ids, not one text: [{customers!r}]")
        source, query = datasets.named(self._app, dataset)
        last = day("since", since) if until is None else until
        some = selection.selected(source=source, query=query, customers=customers or (), since=since, until=last)
        return partition_plan.picked(self._app, act, some, wish)
