"""Call: one call of a retrying sender: what it knows so far, and what each report leads to in the store and in the journal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..core.context import clock_around, end_of, scope_around
from ..engine.run import drawn
from ..errors import BadReport
from ..journal.bus import emit, wanted
from ..journal.log import DEBUG, INFO
from ..journal.redaction import redacted_text
from ..ledger.crashpoint import crash_point
from . import decision
from .decision import Course
from .items import CheckedItems, Items, SparingItems, ToldItems, give_up, increment
from .report import ItemStatus, Report, checked, invalid
from .settings import Terms
from .split import Split, is_refused_whole

OPERATION: ContextVar[str | None] = ContextVar("redrive_batch", default=None)
"""The batch that is being sent in this context."""


@dataclass(frozen=True, slots=True)
class Work:
    """What every call of one retrying sender has in common. Threads and event loops may share it."""

    operation: str
    terms: Terms
    items: Items
    fields: Mapping[str, Any]
    """The settings, as the journal has them."""
    to_report: Callable[[Any], Report] | None = None
    from_report: Callable[[Report, Any], Any] | None = None
    split: str | None = None
    """The keyword argument of the sender's method that takes the ids to send."""

    @property
    def is_unchecked(self) -> bool:
        """Whether `check` has anything to do. The store itself remembers that it has passed."""
        return isinstance(self.items, CheckedItems)

    def check(self) -> None:
        """ValueError: the store is set up so that it cannot work."""
        if isinstance(self.items, CheckedItems):
            self.items.check()


class Call:
    """One call. Belongs to it alone; passed between the event loop and a thread, one at a time."""

    def __init__(self, work: Work, expected: Collection[str] | None) -> None:
        self.work = work
        self._expected = expected
        self._frozen = expected is not None
        self._course = Course()
        self._last: Any = None
        self._split_sends = 0
        self._is_in_outage = False
        self._clock = clock_around()
        limit = work.terms.timeout
        began = self._clock.monotonic()
        self._end = min(end_of(scope_around()), began + limit if limit is not None else float("inf"))
        if wanted(INFO):
            emit("batch_started", {"operation": work.operation, **work.fields})

    def checked(self, result: object) -> Report:
        """The report of a pass, if it makes sense: those that were pending must be in it."""
        self._last = result
        report = self._mapped(result)
        passes, by = self._course.passes, self.work.operation
        found = checked(report, by=by, expected=self._expected, only=self._frozen and not passes, number=passes + 1)
        wrong = self._contradicts(found) if passes else None
        if wrong is not None:
            raise BadReport(invalid(by, passes + 1, wrong), report=found)
        return found

    def _mapped(self, result: object) -> object:
        return result if self.work.to_report is None else self.work.to_report(result)

    def _contradicts(self, report: Report) -> str | None:
        """What a later pass says that the earlier ones do not let it say."""
        for item in report.items:
            before = self._course.known.get(item.id)
            if before is None and self._frozen:
                return f"unexpected item {item.id!r}"
            if before is not None and before.status == "acknowledged" and item.status == "rejected":
                return f"item {item.id!r} was acknowledged in an earlier pass, and is rejected now"
        return None

    def splits(self, report: Report) -> bool:
        """Whether this pass is halved until its bad items are found: it was refused as a whole, and the sender allows it."""
        if self.work.split is None or not self.work.terms.split_sends or not is_refused_whole(report):
            return False
        return any(item.id not in self._course.isolated for item in report.items if item.status == "rejected")

    def _may_split(self) -> bool:
        return self._split_sends < self.work.terms.split_sends and self._clock.monotonic() < self._end

    def begin_split(self, report: Report) -> Split:
        """Count a refusal of the whole pass, which is not charged to any of its items."""
        split = Split(report, self._course.isolated)
        if wanted(INFO):
            seen = {"items": len(report.items), "reason": report.items[0].reason}
            emit("batch_split", {"operation": self.work.operation, **seen})
        self._count_refusal(split, split.suspects, report)
        return split

    def next_group(self, split: Split) -> list[str] | None:
        """The items to send next; None: all are decided, or the call has no sends or no time left for it."""
        group = split.next_group() if self._may_split() else None
        self._split_sends += group is not None
        return group

    def settle_group(self, split: Split, group: list[str], result: object) -> None:
        """Write down what the report on a group means, before the next group is sent."""
        self._last = result
        report = self._mapped(result)
        found = checked(report, by=self.work.operation, expected=group, only=True, number=self._course.passes + 1)
        self._acknowledge(found)
        if is_refused_whole(found):
            self._count_refusal(split, group, found)
        own = split.hear(group, found)
        if own:
            rejected = {item.id: item for item in own}
            split.gone.update(self._charge(list(rejected), rejected, found))

    def _count_refusal(self, split: Split, ids: Collection[str], report: Report) -> None:
        """A group was refused as a whole: counted for each item, and charged only where its limit is reached."""
        rejected = {item.id: item for item in report.items}
        overdue = self._spare(ids, report) if ids else []
        if overdue:
            split.gone.update(self._charge(overdue, rejected, report))

    def _with_verdicts(self, report: Report) -> Report:
        """A sender's own `giveup` of an item that is still pending: a rejection for good. Or nothing would ever give it up."""
        named = [item.id for item in report.items if item.status == "giveup"] if report.outcome != "success" else []
        pending = self.work.items.pending(named) if named else ()
        return decision.rejected_for_good(report, pending) if pending else report

    def _acknowledge(self, report: Report) -> None:
        if isinstance(self.work.items, ToldItems):
            whole = report.outcome == "success"
            arrived = [item.id for item in report.items if whole or item.status == "acknowledged"]
            if arrived:
                self.work.items.acknowledge_many(arrived)

    def settle(self, report: Report, split: Split | None = None) -> float | Report:
        """Write down what the pass means, before anything else is done: seconds until the next one, or the report of them all.

        split: of a pass that was refused as a whole, when its groups have been sent.
        """
        if split is None:
            crash_point("batch.sent")
        else:
            report = split.merged()
            self._course.isolated |= split.isolated
        course, items = self._course, self.work.items
        report = self._with_verdicts(report)
        self._acknowledge(report)
        concerns = decision.concerns(report)
        if not concerns and not course.passes:
            self._told("batch_ended", report, report.items, pending=0)
            return report
        course.hear(report)
        if split is not None:
            course.given_up(split.gone)
        if concerns:
            counted = () if split is None else split.counted
            rejected = [item for item in report.items if item.status == "rejected" and item.id not in counted]
            self._count([item for item in rejected if _open(course, item)], report)
        unsettled = course.open()
        left = items.pending(unsettled) if unsettled else set()
        self._told("batch_pass", report, course.known.values(), pending=len(left))
        wait = decision.wait(course, left, self.work.terms, drawn(), self._end - self._clock.monotonic())
        if wait is None or not concerns:
            return self._ended(report, left)
        self._expected = left
        if wanted(INFO):
            retry = {"retry": course.passes, "max_retries": self.work.terms.retries, "wait": wait, "pending": len(left)}
            emit("batch_retry", {"operation": self.work.operation, **retry})
        return wait

    def _count(self, rejected: list[ItemStatus], report: Report) -> None:
        work, course = self.work, self._course
        charge = decision.charge(rejected, course.outage is not None)
        charged = list(charge.charged)
        if charge.spared:
            charged += self._spare(charge.spared, report)
            seen = {"reason": course.outage, "items": len(charge.spared), "charged": len(charged)}
            emit("batch_outage", {"operation": work.operation, **seen, "begins": not self._is_in_outage or None})
        self._is_in_outage = bool(charge.spared)
        if charged:
            course.given_up(self._charge(charged, {item.id: item for item in rejected}, report))

    def _spare(self, ids: Collection[str], report: Report) -> list[str]:
        """Count rejections that are not charged, in the store; the ones that are charged after all."""
        items, terms = self.work.items, self.work.terms
        with self._known_items(report):
            counts = items.spare_many(ids) if terms.uncharged and isinstance(items, SparingItems) else {}
        return decision.overdue(ids, counts, terms)

    def _charge(self, ids: Collection[str], rejected: Mapping[str, ItemStatus], report: Report) -> list[str]:
        """Count rejections as attempts, in the store, and give up the items that have none left: these are returned."""
        work = self.work
        with self._known_items(report):
            counts = increment(work.items, ids)
        crash_point("batch.counted")
        gone = decision.spent(counts, rejected.values(), work.terms)
        if not gone:
            return []
        new = give_up(work.items, {item_id: redacted_text(rejected[item_id].reason) for item_id in gone})
        crash_point("batch.given_up")
        for item_id in gone:
            if item_id in new:
                item = rejected[item_id]
                told = {"item": item_id, "attempts": counts[item_id], "reason": item.reason}
                emit("giveup", {"operation": work.operation, **told, "permanent": item.permanent or None})
        return gone

    @contextmanager
    def _known_items(self, report: Report) -> Iterator[None]:
        try:
            yield
        except KeyError as unknown:
            raise BadReport(
                f"the report of {self.work.operation} names items that its store does not know: {unknown}", report=report
            ) from unknown

    def result(self, report: Report) -> Any:
        """What the caller gets for the report of all passes."""
        if self.work.from_report is None:
            return report
        is_as_sent = not self._course.passes and not self._split_sends and report.job_id is None
        return self._last if is_as_sent else self.work.from_report(report, self._last)

    def _ended(self, last: Report, left: Collection[str]) -> Report:
        total = decision.summed(self._course, last, left, self._clock.now(), self.work.terms)
        self._told("batch_ended", total, total.items, pending=len(left))
        return total

    def _told(self, kind: str, report: Report, known: Collection[ItemStatus], *, pending: int) -> None:
        if not wanted(INFO):
            return
        told: dict[str, Any] = {
            "operation": self.work.operation,
            "outcome": report.outcome,
            "passes": max(1, self._course.passes),
            "sent": len(known),
            "acknowledged": sum(item.status == "acknowledged" for item in known),
            "given_up": sum(item.status == "giveup" for item in known),
            "pending": pending,
        }
        if kind == "batch_ended" and report.next_retry_at is not None:
            told["retry_at"] = report.next_retry_at
        emit(kind, told)


def _open(course: Course, item: ItemStatus) -> bool:
    """Not given up in an earlier pass: a sender that sends those all the same costs them nothing more."""
    return course.known[item.id].status == "rejected"


def progress(done: int, total: int | None = None, /) -> None:
    """Report from inside a sender how far the current pass is.

    Progress bars and subscribers of log records see it.

    Args:
        done: Number of items that were handled.
        total: Number of all items, if it is known.
    """
    if wanted(DEBUG):
        emit("batch_step", {"operation": OPERATION.get(), "done": done, "total": total})
