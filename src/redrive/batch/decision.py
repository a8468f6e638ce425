"""What follows from a report: who is charged, who gives up, whether this is an outage, what comes next. Pure: no clock, no store.

A rejection is charged to its item: at so many of them it gives up, and stops holding the others up. Where nearly all are refused
for one reason, that is an outage, and no fault of theirs: they are not charged. The two meet in one pass: the poison among them
has a reason of its own. Uncharged rejections have a limit too, so that no item is sent for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter

from .report import ItemStatus, Outcome, Report, Status
from .settings import OUTAGE_ITEMS, OUTAGE_SHARE, Terms

SETTLED = frozenset(("acknowledged", "giveup"))
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
    outages: set[str] = field(default_factory=set)
    """Reasons for which an outage was recognised: they hold for the rest of the call, however few items are left."""

    def hear(self, report: Report, /) -> None:
        """One more pass. What was acknowledged stays so; what was given up too, unless it arrives after all."""
        self.passes += 1
        self.only_failures = self.only_failures and report.outcome == "failure"
        if not self.known:
            self.known = {item.id: item for item in report.items}
            return
        for item in report.items:
            before = self.known.get(item.id)
            if before is None or before.status not in SETTLED or item.status == "acknowledged":
                self.known[item.id] = item

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


def outage(report: Report, /) -> str | None:
    """The reason for which nearly all that were sent in this pass were refused."""
    statuses = Counter(map(_status, report.items))
    sent = statuses["acknowledged"] + statuses["rejected"]
    if sent < OUTAGE_ITEMS or statuses["rejected"] < OUTAGE_SHARE * sent:
        return None
    ((reason, many),) = Counter(item.reason for item in report.items if item.status == "rejected").most_common(1)
    return reason if many >= OUTAGE_SHARE * sent else None


def charge(rejected: Sequence[ItemStatus], outages: Collection[str], /) -> Charge:
    """Whose rejections count: all but those for the reason of an outage."""
    charged = tuple(item.id for item in rejected if item.reason not in outages)
    return Charge(charged, tuple(item.id for item in rejected if item.reason in outages))


def overdue(spared: Mapping[str, int], terms: Terms, /) -> list[str]:
    """Those that were spared often enough: they are charged after all."""
    return [item_id for item_id, times in spared.items() if times > terms.uncharged]


def spent(counts: Mapping[str, int], terms: Terms, /) -> list[str]:
    """Those that give up."""
    return [item_id for item_id, count in counts.items() if count >= terms.item_attempts]


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
