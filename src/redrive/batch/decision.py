"""Decisions on a report: which rejections count, which items give up, when to send again. Pure.

A rejection counts as an attempt of its item. An item is given up after a number of attempts. A
rejection in an outage does not count as an attempt (`core/outage.py` has the rule). The number of
such uncharged rejections is limited as well, so that every item ends.

A batch that is rejected as a whole is split in halves until the bad items are found. This is group
testing: of n items with b bad ones, at most about 2 * b * log2(n) groups are sent. The search is
depth first. If the limit of sends is reached, each call still decides some items, and the next call
has fewer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter

from ..core.classification.known.grpc import fault_of_code_name
from ..core.classification.known.http_responses import fault_of_status
from ..core.classification.signature import signature_of
from ..core.fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from ..core.outage import End, Parking, find_outage, verdict_of
from .report import ItemStatus, Outcome, Report, Status
from .settings import OUTAGE_ITEMS, OUTAGE_SHARE, BatchTerms

HTTP_STATUS = re.compile(
    r"\s*(?:HTTP(?:/\d(?:\.\d)?)?\s+)?([1-5]\d\d)(?![\w.,/-]\w)(?!\w)", re.IGNORECASE
)
"""The HTTP status at the start of a reason: `503`, `503 overloaded`, `HTTP 503: overloaded`."""
GRPC_CODE = re.compile(r"\s*(?:StatusCode\.)?([A-Z]+(?:_[A-Z]+)*)\s*(?:$|[:;,.()-])")
"""The gRPC status at the start of a reason: `UNAVAILABLE`, `StatusCode.UNAVAILABLE: no route`."""
SETTLED = frozenset(("acknowledged", "giveup"))
OUTAGE_RULE = Parking(least=OUTAGE_ITEMS, share=OUTAGE_SHARE)
_status = attrgetter("status")


@dataclass(frozen=True, slots=True)
class Charges:
    """The rejected items of a pass, by whether the rejection counts as an attempt."""

    charged: tuple[str, ...]
    uncharged: tuple[str, ...]
    """Rejected in an outage."""


@dataclass(slots=True)
class BatchState:
    """The state of one call: the last status of each item. Belongs to the call."""

    items: dict[str, ItemStatus] = field(default_factory=dict)
    passes: int = 0
    only_failures: bool = True
    isolated: set[str] = field(default_factory=set)
    """Items that were rejected alone, after a batch was rejected as a whole."""
    outage: str | None = None
    """The reason of an outage, until a pass in which an item is acknowledged."""
    acknowledged_elsewhere: set[str] = field(default_factory=set)
    """Items that were rejected here, and that the store has as acknowledged by another sender."""

    def add_pass(self, report: Report, /) -> None:
        """Add the report of a pass.

        An acknowledged item stays acknowledged. A given-up item stays given up, unless it is
        acknowledged after all.
        """
        self.passes += 1
        if not self.items:
            self._update_outage(report.items)
        else:
            self._update_outage(
                [item for item in report.items if not self._is_acknowledged(item.id)]
            )
        self.only_failures = self.only_failures and report.outcome == "failure"
        if not self.items:
            self.items = {item.id: item for item in report.items}
            return
        for item in report.items:
            before = self.items.get(item.id)
            if before is None or before.status not in SETTLED or item.status == "acknowledged":
                self.items[item.id] = item

    def _update_outage(self, items: Sequence[ItemStatus]) -> None:
        reason = outage_reason(items)
        if reason is not None or any(item.status == "acknowledged" for item in items):
            self.outage = reason

    def _is_acknowledged(self, item_id: str) -> bool:
        before = self.items.get(item_id)
        return before is not None and before.status == "acknowledged"

    def mark_given_up(self, ids: Collection[str], /) -> None:
        """Set the status of items to `giveup`."""
        for item_id in ids:
            self.items[item_id] = replace(self.items[item_id], status="giveup")

    def mark_acknowledged(self, ids: Collection[str], /) -> None:
        """Set the status of items that another sender sent to `acknowledged`."""
        for item_id in ids:
            self.items[item_id] = ItemStatus(item_id, "acknowledged")
        self.only_failures = self.only_failures and not ids

    def unsettled_ids(self) -> list[str]:
        """Return the items that are neither acknowledged nor given up."""
        return [item.id for item in self.items.values() if item.status not in SETTLED]


def has_items_to_settle(report: Report, /, *, was_split: bool = False) -> bool:
    """Return False for a success, and for a failure without a rejected item.

    A split began with a rejection of all items, so items that it left pending count too.
    """
    if report.outcome == "failure":
        unsettled = ("rejected", "pending") if was_split else ("rejected",)
        return any(item.status in unsettled for item in report.items)
    return report.outcome == "partial"


def reject_permanently(report: Report, ids: Collection[str], /) -> Report:
    """Return the report with a permanent rejection of these items."""
    items = [
        replace(item, status="rejected", permanent=True, transient=None) if item.id in ids else item
        for item in report.items
    ]
    return replace(report, items=items)


def fault_of(item: ItemStatus, /) -> Fault:
    """Classify a rejection by its flags, or by the status at the start of its reason."""
    if item.permanent:
        return PERMANENT
    if item.transient is not None:
        return TRANSIENT if item.transient else UNKNOWN
    status = HTTP_STATUS.match(item.reason)
    if status is not None:
        return fault_of_status(int(status[1]))
    code = GRPC_CODE.match(item.reason)
    return UNKNOWN if code is None else fault_of_code_name(code[1]) or UNKNOWN


def outage_reason(items: Sequence[ItemStatus], /) -> str | None:
    """Return the most common reason if the items of a pass show an outage, else None."""
    statuses = Counter(map(_status, items))
    rejected = statuses["rejected"]
    total = rejected + statuses["acknowledged"]
    if rejected < OUTAGE_RULE.least or rejected < OUTAGE_RULE.share * total:
        return None  # The fast path: most passes have few rejections.
    ends = [_end_of(item) for item in items if item.status in ("acknowledged", "rejected")]
    outage = find_outage(ends, OUTAGE_RULE, last=len(ends))
    if outage is None:
        return None
    victims = {end.key for end in outage.ends}
    reasons = Counter(item.reason for item in items if item.id in victims)
    return reasons.most_common(1)[0][0]


def _end_of(item: ItemStatus) -> End:
    if item.status == "acknowledged":
        return End(item.id, "success")
    fault = fault_of(item)
    verdict = verdict_of(fault)
    return End(item.id, verdict, _cause_of(item, fault) if verdict == "evidence" else "")


def _cause_of(item: ItemStatus, fault: Fault) -> str:
    if fault.status is not None:
        return f"HTTP {fault.status}"
    code = GRPC_CODE.match(item.reason)
    if code is not None and fault_of_code_name(code[1]) is not None:
        return f"gRPC {code[1]}"
    return signature_of("rejected", item.reason)


def decide_charges(rejected: Sequence[ItemStatus], /, *, in_outage: bool) -> Charges:
    """Decide which rejections count as attempts: in an outage, the transient ones do not."""
    uncharged = {
        item.id for item in rejected if in_outage and verdict_of(fault_of(item)) == "evidence"
    }
    charged = tuple(item.id for item in rejected if item.id not in uncharged)
    return Charges(charged, tuple(uncharged))


def over_uncharged_limit(
    uncharged: Collection[str], counts: Mapping[str, int], terms: BatchTerms, /
) -> list[str]:
    """Return the uncharged items that are charged after all.

    They have reached the limit of uncharged rejections, or their store does not count them.
    """
    return [
        item_id for item_id in uncharged if not 0 < counts.get(item_id, 0) <= terms.max_uncharged
    ]


def items_to_give_up(
    counts: Mapping[str, int], rejected: Collection[ItemStatus], terms: BatchTerms, /
) -> list[str]:
    """Return the items that have used up their attempts, or were rejected permanently."""
    permanent = {item.id for item in rejected if item.permanent}
    return [
        item_id
        for item_id, count in counts.items()
        if count >= terms.item_attempts or item_id in permanent
    ]


def wait_before_next_pass(
    state: BatchState, pending: Collection[str], terms: BatchTerms, *, draw: float, remaining: float
) -> float | None:
    """Return the seconds before the next pass. None: this call makes no more passes.

    `draw` is a random number from 0 to 1. `remaining` is the time until the deadline in seconds.
    """
    if not pending or state.passes > terms.retries:
        return None
    seconds = max(0.0, terms.backoff(state.passes, draw))
    return seconds if seconds <= remaining else None


def total_report(
    state: BatchState, last: Report, pending: Collection[str], now: datetime, terms: BatchTerms, /
) -> Report:
    """Return the report over all passes of a call: acknowledged + given up + pending = sent."""
    items = [
        item if item.status in SETTLED else _with_final_status(item, pending)
        for item in state.items.values()
    ]
    has_pending = "pending" in map(_status, items)
    return replace(
        last,
        outcome=_outcome(items, state),
        items=items,
        retry_count=state.passes - 1,
        next_retry_at=now + timedelta(seconds=terms.backoff_cap) if has_pending else None,
    )


def _with_final_status(item: ItemStatus, pending: Collection[str]) -> ItemStatus:
    # An item that the store no longer has as pending was given up by another process meanwhile.
    status: Status = "pending" if item.id in pending else "giveup"
    return replace(item, status=status)


def _outcome(items: Sequence[ItemStatus], state: BatchState) -> Outcome:
    if set(map(_status, items)) <= {"acknowledged"}:
        return "success"
    return "failure" if state.only_failures else "partial"


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
