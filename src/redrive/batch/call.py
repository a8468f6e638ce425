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
from .report import ItemStatus, Report, checked
from .settings import Terms

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
        self._clock = clock_around()
        limit = work.terms.timeout
        began = self._clock.monotonic()
        self._end = min(end_of(scope_around()), began + limit if limit is not None else float("inf"))
        if wanted(INFO):
            emit("batch_started", {"operation": work.operation, **work.fields})

    def checked(self, result: object) -> Report:
        """The report of a pass, if it makes sense: those that were pending must be in it."""
        self._last = result
        report = result if self.work.to_report is None else self.work.to_report(result)
        found = checked(report, by=self.work.operation, expected=self._expected, only=self._frozen and not self._course.passes)
        wrong = self._contradicts(found) if self._course.passes else None
        if wrong is not None:
            raise BadReport(f"the report of {self.work.operation} makes no sense, nothing was counted: {wrong}", report=found)
        return found

    def _contradicts(self, report: Report) -> str | None:
        """What a later pass says that the earlier ones do not let it say."""
        for item in report.items:
            before = self._course.known.get(item.id)
            if before is None and self._frozen:
                return f"{item.id!r} was not to be sent, and is in it"
            if before is not None and before.status == "acknowledged" and item.status == "rejected":
                return f"{item.id!r} was acknowledged in an earlier pass, and is rejected now"
        return None

    def settle(self, report: Report) -> float | Report:
        """Write down what the pass means, before anything else is done: seconds until the next one, or the report of them all."""
        crash_point("batch.sent")
        course, items = self._course, self.work.items
        if isinstance(items, ToldItems):
            whole = report.outcome == "success"
            arrived = [item.id for item in report.items if whole or item.status == "acknowledged"]
            if arrived:
                items.acknowledge_many(arrived)
        concerns = decision.concerns(report)
        if not concerns and not course.passes:
            self._told("batch_ended", report, report.items, pending=0)
            return report
        course.hear(report)
        if concerns:
            self._count([item for item in report.items if item.status == "rejected" and _open(course, item)], report)
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
            emit("batch_outage", {"operation": work.operation, **seen})
        if charged:
            self._charge(charged, {item.id: item for item in rejected}, report)

    def _spare(self, ids: Collection[str], report: Report) -> list[str]:
        """Count rejections that are not charged, in the store; the ones that are charged after all."""
        items, terms = self.work.items, self.work.terms
        with self._known_items(report):
            counts = items.spare_many(ids) if terms.uncharged and isinstance(items, SparingItems) else {}
        return decision.overdue(ids, counts, terms)

    def _charge(self, ids: Collection[str], rejected: Mapping[str, ItemStatus], report: Report) -> None:
        """Count rejections as attempts, in the store, and give up the items that have none left."""
        work = self.work
        with self._known_items(report):
            counts = increment(work.items, ids)
        crash_point("batch.counted")
        gone = decision.spent(counts, rejected.values(), work.terms)
        if not gone:
            return
        new = give_up(work.items, {item_id: redacted_text(rejected[item_id].reason) for item_id in gone})
        crash_point("batch.given_up")
        self._course.given_up(gone)
        for item_id in gone:
            if item_id in new:
                item = rejected[item_id]
                told = {"item": item_id, "attempts": counts[item_id], "reason": item.reason}
                emit("giveup", {"operation": work.operation, **told, "permanent": item.permanent or None})

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
        return self._last if not self._course.passes and report.job_id is None else self.work.from_report(report, self._last)

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
    """From inside a sender: how far it is with this pass. Heard by progress bars, and by whoever subscribes to the journal."""
    if wanted(DEBUG):
        emit("batch_step", {"operation": OPERATION.get(), "done": done, "total": total})
