"""What follows from a report: what is charged, which items give up, whether this is an outage, what comes next.

Pure: no clock, no store. A rejection is charged to its item, which gives up after a number of them. A rejection in an outage
is not charged: the rule is in core/outage.py. Rejections that are not charged have a limit too, so that every item ends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter

from ..core.fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from ..core.known.grpc import by_name
from ..core.known.status import by_status
from ..core.outage import End, Parking, find_outage, verdict_of
from ..core.signature import signature_of
from .report import ItemStatus, Outcome, Report, Status
from .settings import OUTAGE_ITEMS, OUTAGE_SHARE, Terms

STATUS = re.compile(r"\s*(?:HTTP(?:/\d(?:\.\d)?)?\s+)?([1-5]\d\d)(?![\w.,/-]\w)(?!\w)", re.IGNORECASE)
"""The HTTP status that a reason begins with: `503`, `503 overloaded`, `HTTP 503: overloaded`."""
GRPC_CODE = re.compile(r"\s*(?:StatusCode\.)?([A-Z]+(?:_[A-Z]+)*)\s*(?:$|[:;,.()-])")
"""The gRPC status that a reason begins with: `UNAVAILABLE`, `StatusCode.UNAVAILABLE`, `UNAVAILABLE: no route to host`."""
SETTLED = frozenset(("acknowledged", "giveup"))
PARKING = Parking(least=OUTAGE_ITEMS, share=OUTAGE_SHARE)
_status = attrgetter("status")


@dataclass(frozen=True, slots=True)
class Charge:
    """Whose rejection counts, and whose does not."""

    charged: tuple[str, ...]
    spared: tuple[str, ...]
    """Refused in an outage."""


@dataclass(slots=True)
class Course:
    """What is known of one call so far: the last word on each item. Belongs to the call."""

    known: dict[str, ItemStatus] = field(default_factory=dict)
    passes: int = 0
    only_failures: bool = True
    isolated: set[str] = field(default_factory=set)
    """Items that were refused alone, after a batch was refused as a whole."""
    outage: str | None = None
    """The reason of an outage: from the pass that shows one until a pass in which an item is acknowledged."""

    def hear(self, report: Report, /) -> None:
        """One more pass. What was acknowledged stays so; what was given up too, unless it arrives after all."""
        self.passes += 1
        self._recognise([item for item in report.items if not self._arrived(item.id)] if self.known else report.items)
        self.only_failures = self.only_failures and report.outcome == "failure"
        if not self.known:
            self.known = {item.id: item for item in report.items}
            return
        for item in report.items:
            before = self.known.get(item.id)
            if before is None or before.status not in SETTLED or item.status == "acknowledged":
                self.known[item.id] = item

    def _recognise(self, news: Sequence[ItemStatus]) -> None:
        found = outage(news)
        if found is not None or any(item.status == "acknowledged" for item in news):
            self.outage = found

    def _arrived(self, item_id: str) -> bool:
        before = self.known.get(item_id)
        return before is not None and before.status == "acknowledged"

    def given_up(self, ids: Collection[str], /) -> None:
        """These are sent no more."""
        for item_id in ids:
            self.known[item_id] = replace(self.known[item_id], status="giveup")

    def open(self) -> list[str]:
        """Items that are neither acknowledged nor given up."""
        return [item.id for item in self.known.values() if item.status not in SETTLED]


def concerns(report: Report, /) -> bool:
    """Whether there is anything to do: success is passed on, and so is a failure that says nothing of items."""
    if report.outcome == "failure":
        return any(item.status == "rejected" for item in report.items)
    return report.outcome == "partial"


def rejected_for_good(report: Report, ids: Collection[str], /) -> Report:
    """The report, with a permanent rejection of these items."""
    items = [
        replace(item, status="rejected", permanent=True, transient=None) if item.id in ids else item for item in report.items
    ]
    return replace(report, items=items)


def fault_of(item: ItemStatus, /) -> Fault:
    """What a rejection means: as the sender declares it, or by the HTTP or gRPC status that its reason begins with."""
    if item.permanent:
        return PERMANENT
    if item.transient is not None:
        return TRANSIENT if item.transient else UNKNOWN
    status = STATUS.match(item.reason)
    if status is not None:
        return by_status(int(status[1]))
    code = GRPC_CODE.match(item.reason)
    return UNKNOWN if code is None else by_name(code[1]) or UNKNOWN


def outage(items: Sequence[ItemStatus], /) -> str | None:
    """The most common reason of the outage that the items of one pass are evidence of, or None."""
    statuses = Counter(map(_status, items))
    rejected = statuses["rejected"]
    if rejected < PARKING.least or rejected < PARKING.share * (rejected + statuses["acknowledged"]):
        return None  # at a glance: most passes have few rejections
    ends = [_end(item) for item in items if item.status in ("acknowledged", "rejected")]
    found = find_outage(ends, PARKING, last=len(ends))
    if found is None:
        return None
    victims = {end.key for end in found.ends}
    return Counter(item.reason for item in items if item.id in victims).most_common(1)[0][0]


def _end(item: ItemStatus) -> End:
    if item.status == "acknowledged":
        return End(item.id, "success")
    fault = fault_of(item)
    return End(item.id, verdict_of(fault), _cause(item, fault))


def _cause(item: ItemStatus, fault: Fault) -> str:
    if fault.status is not None:
        return f"HTTP {fault.status}"
    code = GRPC_CODE.match(item.reason)
    if code is not None and by_name(code[1]) is not None:
        return f"gRPC {code[1]}"
    return signature_of("rejected", item.reason)


def charge(rejected: Sequence[ItemStatus], in_outage: bool, /) -> Charge:
    """Which rejections count: in an outage all but the transient ones."""
    spared = {item.id for item in rejected if in_outage and verdict_of(fault_of(item)) == "evidence"}
    return Charge(tuple(item.id for item in rejected if item.id not in spared), tuple(spared))


def overdue(spared: Collection[str], counts: Mapping[str, int], terms: Terms, /) -> list[str]:
    """The ones that are charged after all: spared often enough, or their store cannot count that."""
    return [item_id for item_id in spared if not 0 < counts.get(item_id, 0) <= terms.uncharged]


def spent(counts: Mapping[str, int], rejected: Collection[ItemStatus], terms: Terms, /) -> list[str]:
    """The ones that give up: rejected often enough, or rejected for good."""
    permanent = {item.id for item in rejected if item.permanent}
    return [item_id for item_id, count in counts.items() if count >= terms.item_attempts or item_id in permanent]


def wait(course: Course, pending: Collection[str], terms: Terms, draw: float, left: float, /) -> float | None:
    """Seconds until the next pass; None: no more passes in this call. left: seconds that the call still has."""
    if not pending or course.passes > terms.retries:
        return None
    seconds = max(0.0, terms.backoff(course.passes, draw))
    return seconds if seconds <= left else None


def summed(course: Course, last: Report, pending: Collection[str], now: datetime, terms: Terms, /) -> Report:
    """The report of the whole call: all passes together. acknowledged + given up + pending = sent."""
    items = [item if item.status in SETTLED else _final(item, pending) for item in course.known.values()]
    left = "pending" in map(_status, items)
    return replace(
        last,
        outcome=_outcome(items, course),
        items=items,
        retry_count=course.passes - 1,
        next_retry_at=now + timedelta(seconds=terms.cap) if left else None,
    )


def _final(item: ItemStatus, pending: Collection[str]) -> ItemStatus:
    # Not pending in the store, and not acknowledged here: somebody else has settled it meanwhile, it is sent no more.
    status: Status = "pending" if item.id in pending else "giveup"
    return replace(item, status=status)


def _outcome(items: Sequence[ItemStatus], course: Course) -> Outcome:
    if set(map(_status, items)) <= {"acknowledged"}:
        return "success"
    return "failure" if course.only_failures else "partial"
