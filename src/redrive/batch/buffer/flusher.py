"""Flusher: starts a task for each batch of a send buffer and tells every caller its result."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from ...errors import BufferClosed, Refused
from ...journal.bus import emit
from .delivery import Delivery, DeliveryResult
from .queue import QueuedBatch, SendQueue

Item = TypeVar("Item")
Waiter: TypeAlias = "asyncio.Future[Exception | None]"
"""The error is set as the result, so an abandoned future logs no unretrieved exception."""
CANCEL_GRACE_SECONDS = 1.0
"""Time that flushes have to end after they were cancelled."""


@dataclass(frozen=True, slots=True)
class BufferStats:
    """Counters of a send buffer. Immutable.

    `entered` is the sum of accepted, refused, failed, spilled, withdrawn, waiting and in flight.

    Attributes:
        entered: Items that were taken in.
        accepted: Items that the receiver accepted.
        refused: Items that the receiver rejected.
        failed: Items whose retries were used up, whose error is not retryable, or whose buffer was
            closed.
        spilled: Items that could not be delivered and were passed to `spill`.
        withdrawn: Items whose senders were cancelled before a batch took them.
        waiting: Items that are not in a batch yet.
        in_flight: Items in batches that are being sent.
        batches: Batches that were sent. Retries of a batch are not counted.
    """

    entered: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    spilled: int = 0
    withdrawn: int = 0
    waiting: int = 0
    in_flight: int = 0
    batches: int = 0


COUNTED = ("entered", "accepted", "refused", "failed", "spilled", "withdrawn", "batches")


class Flusher(Generic[Item]):
    """The tasks, the timer and the counters of a buffer in one event loop, to which it belongs.

    Invariant: while items are queued, the timer runs, or all permitted flushes run and the end of
    each starts the next one. No item is forgotten.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        delivery: Delivery[Item],
        queue: SendQueue[Waiter, Item],
        *,
        interval: float,
        max_in_flight: int,
        context: Context,
    ) -> None:
        """Create a flusher.

        A batch is sent when it is full, or `interval` seconds after its first item. At most
        `max_in_flight` batches are sent at the same time, in copies of `context`.
        """
        self.loop = loop
        self.queue = queue
        self.idle = asyncio.Event()
        """Set while no item is queued or in flight."""
        self.idle.set()
        self._delivery = delivery
        self._task_name = f"redrive flush of {delivery.retry.operation}"
        self._interval = interval
        self._max_in_flight = max_in_flight
        self._context = context
        self._timer: asyncio.TimerHandle | None = None
        self._flushes: dict[asyncio.Task[DeliveryResult], QueuedBatch[Waiter, Item]] = {}
        self._counts = dict.fromkeys(COUNTED, 0)

    def add(self, item: Item) -> Waiter:
        """Queue an item. The future that is returned always gets a result."""
        waiter: Waiter = self.loop.create_future()
        is_batch_ready = self.queue.add(waiter, item)
        self._counts["entered"] += 1
        if is_batch_ready:
            # If all permitted flushes run, the end of one of them takes the batch.
            if len(self._flushes) < self._max_in_flight:
                self.start_flushes()
        elif self._timer is None:
            self._start_timer()
        return waiter

    def withdraw(self, waiter: Waiter) -> None:
        """Remove the item of a cancelled caller, unless a batch has taken it."""
        if self.queue.withdraw(waiter):
            self._counts["withdrawn"] += 1
            self.start_flushes()  # the withdrawal may have admitted a blocked item

    def start_flushes(self) -> None:
        """Start a task for each batch that may go. Called after every change of the queue."""
        queue = self.queue
        while (
            len(self._flushes) < self._max_in_flight and (batch := queue.take_batch()) is not None
        ):
            flush = self._delivery.deliver(batch.items, partial(_waiting_places, batch))
            context = self._context.copy()
            task = self.loop.create_task(flush, name=self._task_name, context=context)
            self._flushes[task] = batch
            self._counts["batches"] += 1
            # A callback and not code in the task: a task that is cancelled before its first step
            # never runs.
            task.add_done_callback(self._on_flushed)
        if queue and self._timer is None and not queue.is_due:
            self._start_timer()
        if queue or self._flushes:
            self.idle.clear()
        else:
            self.idle.set()

    def flush_soon(self, waiter: Waiter) -> None:
        """Flush before the interval is over: the caller has more items, and the queue is full."""
        if not waiter.done():
            self._flush_due()

    def stats(self) -> BufferStats:
        """Return the counters."""
        queue = self.queue
        return BufferStats(**self._counts, waiting=len(queue), in_flight=queue.in_flight)

    def close_now(self) -> None:
        """Close without sending the queued items. Every caller gets `BufferClosed`."""
        self.queue.is_closing = True
        unsent = self.queue.take_all()
        self._stop(len(unsent.items))
        self._settle(unsent, DeliveryResult([_closed_error(sent=False) for _ in unsent.items]))

    async def close_after_timeout(self) -> None:
        """Close when the time to drain is over. Unsent items are spilled, if there is a target."""
        unsent, flushes = self.queue.take_all(), list(self._flushes)
        self._stop(len(unsent.items))
        result = DeliveryResult([_closed_error(sent=False) for _ in unsent.items])
        try:
            if unsent.items and self._delivery.spill is not None:
                errors = [_closed_error(sent=False) for _ in unsent.items]
                result = await self._delivery.spill_items(
                    unsent.items, errors, partial(_waiting_places, unsent)
                )
        finally:
            self._settle(unsent, result)
        if flushes:
            await asyncio.wait(flushes, timeout=CANCEL_GRACE_SECONDS)

    def _start_timer(self) -> None:
        self.idle.clear()
        self._timer = self.loop.call_later(self._interval, self._on_timer, context=self._context)

    def _on_timer(self) -> None:
        self._timer = None
        self._flush_due()

    def _flush_due(self) -> None:
        if self.queue:
            self.queue.is_due = True
            self.start_flushes()

    def _settle(self, batch: QueuedBatch[Waiter, Item], result: DeliveryResult) -> None:
        """Count the result of each item and pass it to the caller."""
        counts = self._counts
        if result.errors is None:
            counts[result.status] += len(batch.items)
            for waiter in batch.tickets:
                if not waiter.done():
                    waiter.set_result(None)
            return
        for waiter, error in zip(batch.tickets, result.errors, strict=True):
            if error is None:
                counts[result.status] += 1
            else:
                counts["refused" if isinstance(error, Refused) else "failed"] += 1
            if not waiter.done():
                waiter.set_result(error)

    def _on_flushed(self, task: asyncio.Task[DeliveryResult]) -> None:
        batch = self._flushes.pop(task)
        self.queue.finish(batch)
        if not task.cancelled() and task.exception() is None:
            self._settle(batch, task.result())
        else:  # cancelled, or Ctrl+C, which the loop raises itself
            self._settle(batch, DeliveryResult([_closed_error(sent=True) for _ in batch.items]))
            if not self.queue.is_closing:  # cancelled from outside: the loop is being shut down
                self.close_now()
        self.start_flushes()

    def _stop(self, unsent: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        in_flight = self.queue.in_flight
        if unsent or in_flight:
            counts = {"items": unsent, "in_flight": in_flight}
            emit("undelivered", {"operation": self._delivery.retry.operation, **counts})
        for task in self._flushes:
            task.cancel()


def _waiting_places(batch: QueuedBatch[Waiter, Item]) -> list[int]:
    return [place for place, waiter in enumerate(batch.tickets) if not waiter.done()]


def _closed_error(*, sent: bool) -> BufferClosed:
    state = "it may have been sent, and was not answered" if sent else "it was not sent"
    return BufferClosed(
        f"the SendBuffer was closed before this item was answered: {state}", sent=sent
    )
