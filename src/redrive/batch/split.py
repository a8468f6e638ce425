"""Split: halves a batch that is rejected as a whole until the bad items are found. Pure.

This is group testing: of n items with b bad ones, at most about 2 * b * log2(n) groups are sent.
The search is depth first. If the limit of sends is reached, each call still decides some items, and
the next call has fewer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..core.outage import verdict_of
from .decision import fault_of
from .report import ItemStatus, Outcome, Report


def is_rejected_as_whole(report: Report, /) -> bool:
    """Return whether all of several items were rejected for one and the same reason.

    A transient reason is a fault of the receiver, and `permanent=True` is a verdict on each item.
    In both cases a search for bad items is useless, and the result is False.
    """
    sent = [item for item in report.items if item.status != "pending"]
    if report.outcome != "failure" or len(sent) < 2:
        return False
    reason = sent[0].reason
    have_one_reason = all(item.status == "rejected" and item.reason == reason for item in sent)
    has_permanent = any(item.permanent for item in sent)
    return (
        have_one_reason
        and not has_permanent
        and all(verdict_of(fault_of(item)) == "charged" for item in sent)
    )


class Split:
    """The search for bad items in one rejected batch. Belongs to one pass of one call."""

    def __init__(self, report: Report, isolated: Collection[str], /) -> None:
        """Start a search. `isolated` items were rejected alone, earlier in this call."""
        self._report = report
        self._statuses = {item.id: item for item in report.items}
        rejected = [item.id for item in report.items if item.status == "rejected"]
        suspects = [item_id for item_id in rejected if item_id not in isolated]
        # Without the items that are known to be bad, the others may be accepted together.
        has_known_bad = len(suspects) < len(rejected)
        self._groups = [suspects] if has_known_bad else _halves(suspects)
        self.suspects: Collection[str] = suspects
        self.isolated: set[str] = set()
        """Items that were rejected alone."""
        self.counted: set[str] = set(suspects)
        """Items whose rejection in this pass is already counted in the store."""
        self.given_up: set[str] = set()
        """Items that were given up during the search."""

    def next_group(self) -> list[str] | None:
        """Return the next items to send. None: every item is decided."""
        while self._groups:
            group = [item_id for item_id in self._groups.pop() if item_id not in self.given_up]
            if group:
                return group
        return None

    def add_report(self, group: Sequence[str], report: Report, /) -> list[ItemStatus]:
        """Add the report on a group.

        Returns:
            Items whose rejection is their own and is not counted yet.
        """
        self._statuses.update((item.id, item) for item in report.items)
        if is_rejected_as_whole(report):
            self._groups.extend(_halves(group))
            return []
        rejected = [item for item in report.items if item.status == "rejected"]
        at_fault = [item for item in rejected if verdict_of(fault_of(item)) == "charged"]
        self.isolated.update(item.id for item in at_fault)
        # A transient rejection is counted with the whole pass, which may show an outage.
        self.counted.difference_update(item.id for item in rejected)
        self.counted.update(item.id for item in at_fault)
        return at_fault

    def merged_report(self) -> Report:
        """Return one report for the pass, with the last status of each item."""
        items = list(self._statuses.values())
        statuses = {item.status for item in items}
        outcome: Outcome = "partial" if "acknowledged" in statuses else "failure"
        if statuses == {"acknowledged"}:
            outcome = "success"
        return replace(self._report, outcome=outcome, items=items)


def _halves(group: Sequence[str]) -> list[list[str]]:
    """Return both halves as a stack: the first half is on top."""
    middle = len(group) // 2
    return [half for half in (list(group[middle:]), list(group[:middle])) if half]
