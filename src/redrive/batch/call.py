"""One call of a retrying sender: send, settle the report, wait, send again.

`send_sync` and `send_async` are the loops. `BatchCall` settles each report in the store and in the
log before anything else happens, so that an interruption during a wait loses nothing. The decisions
are in `decision.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..core.context import clock_around, end_of, scope_around
from ..engine.run import random_draw
from ..errors import BadReport
from ..journal.bus import emit, is_wanted
from ..journal.redaction import redact_text
from ..journal.sinks.logging import DEBUG, INFO
from ..ledger.failpoint import crash_point
from . import decision
from .decision import BatchState, Split, is_rejected_as_whole
from .report import ItemStatus, Report, check_report, invalid_report_message
from .settings import BatchTerms
from .spill import SpillCommand, attach_report, spill, spill_async
from .store.protocol import (
    AcknowledgingItems,
    Items,
    SelfCheckingItems,
    SparingItems,
    acknowledged_items,
    count_rejections,
    give_up_items,
)

CURRENT_OPERATION: ContextVar[str | None] = ContextVar("redrive_batch", default=None)
"""The name of the sender that is running in this context."""


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What all calls of one retrying sender share. Threads and event loops may share it."""

    operation: str
    terms: BatchTerms
    items: Items
    log_fields: Mapping[str, Any]
    """The terms as fields of log records."""
    ids: Callable[..., Iterable[str]] | None = None
    spill: SpillCommand | None = None
    to_report: Callable[[Any], Report] | None = None
    from_report: Callable[[Report, Any], Any] | None = None
    split_argument: str | None = None
    """The keyword argument of the sender's method that takes the ids to send."""

    def start_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> BatchCall:
        """Start a call with the arguments of the sender's method."""
        return BatchCall(self, None if self.ids is None else list(self.ids(*args, **kwargs)))


def send_sync(spec: BatchSpec, send: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Send until no item is pending or the retries are used up. Errors of `send` are raised."""
    token = CURRENT_OPERATION.set(spec.operation)
    try:
        if isinstance(spec.items, SelfCheckingItems):
            spec.items.check()
        call = spec.start_call(args, kwargs)
        while True:
            try:
                report, split = _send_pass(call, send, args, kwargs)
            except Exception as error:
                earlier = call.end_by_error(error)
                if earlier is not None and spec.spill is not None:
                    spill(spec.operation, spec.spill, earlier, args, kwargs, error)
                raise
            settled = call.settle(report, split)
            if isinstance(settled, Report):
                if spec.spill is not None:
                    settled = spill(spec.operation, spec.spill, settled, args, kwargs)
                return call.result(settled)
            clock_around().sleep(settled)
    finally:
        CURRENT_OPERATION.reset(token)


def _send_pass(
    call: BatchCall, send: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Report, Split | None]:
    """Send once, and the groups of a batch that was rejected as a whole. Returns valid reports."""
    spec = call.spec
    result = send(*args, **kwargs)
    if hasattr(type(result), "__await__"):
        if hasattr(result, "close"):
            result.close()  # avoids a warning that it was never awaited
        raise TypeError(
            f"{spec.operation} returns an awaitable: declare it `async def`, so that it "
            "can be awaited"
        )
    report = call.check(result)
    split = call.start_split(report) if call.can_split(report) else None
    while split is not None and (group := call.next_group(split)) is not None:
        result = send(*args, **{**kwargs, str(spec.split_argument): group})
        call.settle_group(split, group, result)
    return report, split


async def send_async(
    spec: BatchSpec, send: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> Any:
    """Do the same as `send_sync` for an async sender. The store blocks, so it runs in a thread."""
    from asyncio import to_thread  # noqa: PLC0415  # 45 ms that sync programs need not pay

    token = CURRENT_OPERATION.set(spec.operation)
    try:
        if isinstance(spec.items, SelfCheckingItems):
            await to_thread(spec.items.check)
        call = spec.start_call(args, kwargs)
        while True:
            try:
                report, split = await _send_pass_async(call, send, args, kwargs)
            except Exception as error:
                earlier = call.end_by_error(error)
                if earlier is not None and spec.spill is not None:
                    await spill_async(spec.operation, spec.spill, earlier, args, kwargs, error)
                raise
            settled = await to_thread(call.settle, report, split)
            if isinstance(settled, Report):
                if spec.spill is not None:
                    settled = await spill_async(spec.operation, spec.spill, settled, args, kwargs)
                return call.result(settled)
            await clock_around().asleep(settled)
    finally:
        CURRENT_OPERATION.reset(token)


async def _send_pass_async(
    call: BatchCall,
    send: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[Report, Split | None]:
    """Do the same as `_send_pass` for an async sender."""
    from asyncio import to_thread  # noqa: PLC0415  # the caller has loaded it

    report = call.check(await send(*args, **kwargs))
    split = await to_thread(call.start_split, report) if call.can_split(report) else None
    while split is not None and (group := call.next_group(split)) is not None:
        result = await send(*args, **{**kwargs, str(call.spec.split_argument): group})
        await to_thread(call.settle_group, split, group, result)
    return report, split


class BatchCall:
    """The state of one call.

    It belongs to one call. The event loop and a thread may use it in turns.
    """

    def __init__(self, spec: BatchSpec, expected: Collection[str] | None) -> None:
        """Start a call. Its reports must contain the `expected` items. None: any items."""
        self.spec = spec
        self._expected = expected
        self._only_expected = expected is not None
        self._state = BatchState()
        self._last_result: Any = None
        self._split_sends = 0
        self._is_in_outage = False
        self._clock = clock_around()
        self._started = self._clock.monotonic()
        self._last_report: Report | None = None
        timeout = spec.terms.timeout
        own_deadline = float("inf") if timeout is None else self._started + timeout
        self._deadline = min(end_of(scope_around()), own_deadline)
        if is_wanted(INFO):
            emit("batch_started", {"operation": spec.operation, **spec.log_fields})

    def check(self, result: object) -> Report:
        """Return the report of a pass.

        Raises:
            BadReport: The report is not valid, or contradicts an earlier pass.
        """
        self._last_result = result
        number = self._state.passes + 1
        report = check_report(
            self._to_report(result),
            operation=self.spec.operation,
            expected=self._expected,
            only=self._only_expected and number == 1,
            number=number,
        )
        problem = self._contradiction(report) if number > 1 else None
        if problem is not None:
            message = invalid_report_message(self.spec.operation, number, problem)
            raise BadReport(message, report=report)
        return report

    def _to_report(self, result: object) -> object:
        return result if self.spec.to_report is None else self.spec.to_report(result)

    def _contradiction(self, report: Report) -> str | None:
        """Return how the report contradicts an earlier pass, if it does."""
        for item in report.items:
            before = self._state.items.get(item.id)
            if before is None and self._only_expected:
                return f"unexpected item {item.id!r}"
            was_acknowledged = (
                before is not None
                and before.status == "acknowledged"
                and item.id not in self._state.acknowledged_elsewhere
            )
            if was_acknowledged and item.status == "rejected":
                return f"item {item.id!r} was acknowledged in an earlier pass, and is rejected now"
        return None

    def can_split(self, report: Report) -> bool:
        """Return whether to search a rejected batch for its bad items."""
        is_enabled = self.spec.split_argument is not None and self.spec.terms.max_split_sends
        if not is_enabled or not is_rejected_as_whole(report):
            return False
        isolated = self._state.isolated
        return any(item.id not in isolated for item in report.items if item.status == "rejected")

    def start_split(self, report: Report) -> Split:
        """Start the search. The rejection of the whole batch is not charged to its items."""
        split = Split(report, self._state.isolated)
        if is_wanted(INFO):
            fields = {"items": len(report.items), "reason": report.items[0].reason}
            emit("batch_split", {"operation": self.spec.operation, **fields})
        self._count_group_rejection(split, split.suspects, report)
        return split

    def next_group(self, split: Split) -> list[str] | None:
        """Return the items to send next. None: all are decided, or sends or time are used up."""
        has_sends = self._split_sends < self.spec.terms.max_split_sends
        if not has_sends or self._clock.monotonic() >= self._deadline:
            return None
        group = split.next_group()
        if group is not None:
            self._split_sends += 1
        return group

    def settle_group(self, split: Split, group: list[str], result: object) -> None:
        """Settle the report on a group in the store, before the next group is sent."""
        self._last_result = result
        report = check_report(
            self._to_report(result),
            operation=self.spec.operation,
            expected=group,
            only=True,
            number=self._state.passes + 1,
        )
        self._acknowledge(report)
        if is_rejected_as_whole(report):
            self._count_group_rejection(split, group, report)
        at_fault = {item.id: item for item in split.add_report(group, report)}
        if at_fault:
            split.given_up.update(self._charge(list(at_fault), at_fault, report))

    def _count_group_rejection(self, split: Split, ids: Collection[str], report: Report) -> None:
        """Count the rejection of a group for each item. It is charged above the uncharged limit."""
        over_limit = self._count_uncharged(ids, report) if ids else []
        if over_limit:
            rejected = {item.id: item for item in report.items}
            split.given_up.update(self._charge(over_limit, rejected, report))

    def settle(self, report: Report, split: Split | None = None) -> float | Report:
        """Settle a pass, with the search for bad items if there was one, in the store and the log.

        Returns:
            Seconds until the next pass, or the report of the whole call.
        """
        if split is None:
            crash_point("batch.sent")
        else:
            report = split.merged_report()
            self._state.isolated |= split.isolated
        state = self._state
        report = self._with_permanent_giveups(report)
        self._acknowledge(report)
        has_items_to_settle = decision.has_items_to_settle(report, was_split=split is not None)
        # A failure with pending items is not retried, but its report has to say when to send them.
        has_unsent_items = report.outcome == "failure" and report.count("pending") > 0
        if not has_items_to_settle and not has_unsent_items and not state.passes:
            self._log("batch_ended", report, report.items, pending=0)
            return report
        state.add_pass(report)
        if split is not None:
            state.mark_given_up(split.given_up)
        if has_items_to_settle:
            self._count_rejections(report, already_counted=() if split is None else split.counted)
        pending = self._pending_items()
        self._log("batch_pass", report, state.items.values(), pending=len(pending))
        remaining = self._deadline - self._clock.monotonic()
        wait = decision.wait_before_next_pass(
            state, pending, self.spec.terms, draw=random_draw(), remaining=remaining
        )
        if wait is None or not has_items_to_settle:
            return self._end(report, pending)
        self._expected, self._last_report = pending, report
        if is_wanted(INFO):
            retries = {"retry": state.passes, "max_retries": self.spec.terms.retries}
            fields = {**retries, "wait": wait, "pending": len(pending)}
            emit("batch_retry", {"operation": self.spec.operation, **fields})
        return wait

    def _with_permanent_giveups(self, report: Report) -> Report:
        """Treat a sender's own `giveup` of a pending item as a permanent rejection.

        Otherwise the store would keep the item as pending for ever.
        """
        if report.outcome == "success":
            return report
        given_up = [item.id for item in report.items if item.status == "giveup"]
        pending = self.spec.items.pending(given_up) if given_up else ()
        self._find_acknowledged(item_id for item_id in given_up if item_id not in pending)
        return decision.reject_permanently(report, pending) if pending else report

    def _pending_items(self) -> set[str]:
        """Return the items to send again.

        Items that another sender settled meanwhile get their status in the store.
        """
        state = self._state
        unsettled = state.unsettled_ids()
        pending = self.spec.items.pending(unsettled) if unsettled else set()
        self._find_acknowledged(item_id for item_id in unsettled if item_id not in pending)
        state.mark_acknowledged(state.acknowledged_elsewhere)
        return pending - state.acknowledged_elsewhere

    def _find_acknowledged(self, ids: Iterable[str]) -> None:
        """Find the items that another sender acknowledged while they were rejected here."""
        acknowledged = acknowledged_items(self.spec.items, list(ids))
        self._state.acknowledged_elsewhere |= acknowledged

    def _acknowledge(self, report: Report) -> None:
        if isinstance(self.spec.items, AcknowledgingItems):
            is_success = report.outcome == "success"
            acknowledged = [
                item.id for item in report.items if is_success or item.status == "acknowledged"
            ]
            if acknowledged:
                self.spec.items.acknowledge_many(acknowledged)

    def _count_rejections(self, report: Report, already_counted: Collection[str]) -> None:
        """Count the rejections of a pass in the store."""
        state = self._state
        # An item that was given up in an earlier pass is not counted, even if it was sent again.
        rejected = [
            item
            for item in report.items
            if item.status == "rejected"
            and item.id not in already_counted
            and state.items[item.id].status == "rejected"
        ]
        charges = decision.decide_charges(rejected, in_outage=state.outage is not None)
        charged = list(charges.charged)
        if charges.uncharged:
            charged += self._count_uncharged(charges.uncharged, report)
            counts = {"items": len(charges.uncharged), "charged": len(charged)}
            fields = {"reason": state.outage, **counts, "begins": not self._is_in_outage or None}
            emit("batch_outage", {"operation": self.spec.operation, **fields})
        self._is_in_outage = bool(charges.uncharged)
        if charged:
            by_id = {item.id: item for item in rejected}
            state.mark_given_up(self._charge(charged, by_id, report))

    def _count_uncharged(self, ids: Collection[str], report: Report) -> list[str]:
        """Count rejections that are not attempts. Returns the items that are charged after all."""
        items, terms = self.spec.items, self.spec.terms
        counts: Mapping[str, int] = {}
        if terms.max_uncharged and isinstance(items, SparingItems):
            with self._unknown_items_as_bad_report(report):
                counts = items.spare_many(ids)
        return decision.over_uncharged_limit(ids, counts, terms)

    def _charge(
        self, ids: Collection[str], rejected: Mapping[str, ItemStatus], report: Report
    ) -> list[str]:
        """Count rejections as attempts and give up the items that have none left.

        Returns:
            The items that are not sent again: given up, or acknowledged by another sender.
        """
        spec = self.spec
        with self._unknown_items_as_bad_report(report):
            counts = count_rejections(spec.items, ids)
        crash_point("batch.counted")
        given_up = decision.items_to_give_up(counts, rejected.values(), spec.terms)
        if not given_up:
            return []
        reasons = {item_id: redact_text(rejected[item_id].reason) for item_id in given_up}
        newly_given_up = give_up_items(spec.items, reasons)
        crash_point("batch.given_up")
        # The store refuses to give up an item that another sender has settled in between.
        self._find_acknowledged(item_id for item_id in given_up if item_id not in newly_given_up)
        for item_id in given_up:
            if item_id in newly_given_up:
                item = rejected[item_id]
                fields = {"item": item_id, "attempts": counts[item_id], "reason": item.reason}
                permanent = {"permanent": item.permanent or None}
                emit("giveup", {"operation": spec.operation, **fields, **permanent})
        return given_up

    @contextmanager
    def _unknown_items_as_bad_report(self, report: Report) -> Iterator[None]:
        try:
            yield
        except KeyError as unknown:
            raise BadReport(
                f"the report of {self.spec.operation} names items that its store does not know: "
                f"{unknown}",
                report=report,
            ) from unknown

    def _end(self, last: Report, pending: Collection[str]) -> Report:
        now = self._clock.now()
        total = decision.total_report(self._state, last, pending, now, self.spec.terms)
        self._log("batch_ended", total, total.items, pending=len(pending))
        return total

    def end_by_error(self, error: Exception) -> Report | None:
        """End a call in which a pass raised. The error gets the report of the earlier passes.

        The store is not asked. Items that the failed pass settled are still pending in this report.

        Returns:
            The report, or None if the first pass raised.
        """
        if self._last_report is None:
            return None
        total = self._end(self._last_report, self._expected or ())
        elapsed = self._clock.monotonic() - self._started
        attach_report(error, self.spec.operation, total, elapsed)
        return total

    def result(self, report: Report) -> Any:
        """Return the caller's result for the report of all passes."""
        if self.spec.from_report is None:
            return report
        is_unchanged = not self._state.passes and not self._split_sends and report.job_id is None
        if is_unchanged:
            return self._last_result
        return self.spec.from_report(report, self._last_result)

    def _log(
        self, kind: str, report: Report, items: Collection[ItemStatus], *, pending: int
    ) -> None:
        if not is_wanted(INFO):
            return
        fields: dict[str, Any] = {
            "operation": self.spec.operation,
            "outcome": report.outcome,
            "passes": max(1, self._state.passes),
            "sent": len(items),
            "acknowledged": sum(item.status == "acknowledged" for item in items),
            "given_up": sum(item.status == "giveup" for item in items),
            "pending": pending,
        }
        if kind == "batch_ended" and report.next_retry_at is not None:
            fields["retry_at"] = report.next_retry_at
        emit(kind, fields)


def progress(done: int, total: int | None = None, /) -> None:
    """Report from inside a sender how far the current pass is.

    Progress bars and subscribers of log records see it.

    Args:
        done: Number of items that were handled.
        total: Number of all items, if it is known.
    """
    if is_wanted(DEBUG):
        emit("batch_step", {"operation": CURRENT_OPERATION.get(), "done": done, "total": total})
