"""Split: a batch that is refused as a whole is halved until the bad items are found. Pure: no clock, no store.

Group testing: of n items with b bad ones, at most about 2 * b * log2(n) groups are sent. Depth first: also
where the number of sends runs out, some items are decided in each call, and the next call has fewer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..core.outage import verdict_of
from .decision import fault_of
from .report import ItemStatus, Outcome, Report


def is_refused_whole(report: Report, /) -> bool:
    """Whether a report says of several items only that all of them were rejected, for one reason.

    A transient reason is the receiver's own, and `permanent=True` is a verdict on each item: neither
    makes it worthwhile to look for bad items.
    """
    sent = [item for item in report.items if item.status != "pending"]
    if report.outcome != "failure" or len(sent) < 2:
        return False
    first = sent[0]
    alike = all(item.status == "rejected" and item.reason == first.reason for item in sent)
    declared = any(item.permanent for item in sent)
    return alike and not declared and all(verdict_of(fault_of(item)) == "charged" for item in sent)


class Split:
    """The groups of one refused batch that are still to be sent. Belongs to one pass of one call."""

    def __init__(self, report: Report, known_bad: Collection[str], /) -> None:
        """known_bad: items that were refused alone, earlier in this call."""
        self._report = report
        self._statuses = {item.id: item for item in report.items}
        rejected = [item.id for item in report.items if item.status == "rejected"]
        suspects = [item_id for item_id in rejected if item_id not in known_bad]
        # Without the items that are known to be bad, the others may well be accepted together.
        self._groups = [suspects] if len(suspects) < len(rejected) else _halves(suspects)
        self.suspects: Collection[str] = suspects
        self.isolated: set[str] = set()
        """Items that were refused alone."""
        self.counted: set[str] = set(suspects)
        """Items whose rejection in this pass is in the store already."""
        self.gone: set[str] = set()
        """Items that were given up on the way."""

    def next_group(self) -> list[str] | None:
        """The next items to send; None: every item is accepted, refused alone, or undecidable."""
        while self._groups:
            group = [item_id for item_id in self._groups.pop() if item_id not in self.gone]
            if group:
                return group
        return None

    def hear(self, group: Sequence[str], report: Report, /) -> list[ItemStatus]:
        """Take the report on a group; the items whose rejection is now their own, and is not counted yet."""
        self._statuses.update((item.id, item) for item in report.items)
        if is_refused_whole(report):
            self._groups.extend(_halves(group))
            return []
        rejected = [item for item in report.items if item.status == "rejected"]
        own = [item for item in rejected if verdict_of(fault_of(item)) == "charged"]
        self.isolated.update(item.id for item in own)
        # A transient rejection is counted with the whole pass, which may show an outage.
        self.counted.difference_update(item.id for item in rejected)
        self.counted.update(item.id for item in own)
        return own

    def merged(self) -> Report:
        """One report for the pass: the last word on each item."""
        items = list(self._statuses.values())
        statuses = {item.status for item in items}
        outcome: Outcome = "partial" if "acknowledged" in statuses else "failure"
        return replace(self._report, outcome="success" if statuses == {"acknowledged"} else outcome, items=items)


def _halves(group: Sequence[str]) -> list[list[str]]:
    """Both halves, as a stack: the first one is taken first."""
    middle = len(group) // 2
    return [half for half in (list(group[middle:]), list(group[:middle])) if half]
