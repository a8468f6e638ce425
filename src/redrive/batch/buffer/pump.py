"""Pump: starts a task for each batch that may go, and tells every sender what became of it, whatever happens."""

from __future__ import annotations

import asyncio
from contextvars import Context
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from ...errors import BufferClosed, Refused
from ...journal.bus import emit
from .delivery import Delivered, Delivery
from .stats import BufferStats
from .waiting import Batch, Waiting

Item = TypeVar("Item")
Waiter: TypeAlias = "asyncio.Future[Exception | None]"
"""Holds the error as a result: one whose sender has gone is no exception that was never retrieved."""
GRACE = 1.0
"""Seconds that flushes have to end after they were cancelled."""


class Pump(Generic[Item]):
    """The life of a buffer in one event loop, to which it belongs: its tasks, its timer, its counts.

    What waits is never forgotten: there is a timer, or all flushes that may run at once do, and the end of each looks again.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delivery: Delivery[Item], waiting: Waiting[Waiter, Item], interval: float,
        in_flight: int, context: Context,
    ) -> None:  # fmt: skip
        self.loop = loop
        self.waiting = waiting
        self.quiet = asyncio.Event()
        """Set while nothing waits and nothing is in flight."""
        self.quiet.set()
        self._delivery = delivery
        self._name = f"redrive flush of {delivery.retry.operation}"
        self._interval = interval
        self._in_flight = in_flight
        self._context = context
        self._timer: asyncio.TimerHandle | None = None
        self._flushes: dict[asyncio.Task[Delivered], Batch[Waiter, Item]] = {}
        self._counts = dict.fromkeys(("entered", "accepted", "refused", "failed", "spilled", "withdrawn", "batches"), 0)

    def enter(self, item: Item) -> Waiter:
        """Take an item in; the future that is returned is always answered."""
        waiter: Waiter = self.loop.create_future()
        full = self.waiting.enter(waiter, item)
        self._counts["entered"] += 1
        if full:
            if len(self._flushes) < self._in_flight:  # else the end of a flush sees to it
                self.run()
        elif self._timer is None:
            self._arm()
        return waiter

    def withdraw(self, waiter: Waiter) -> None:
        """Whoever waited has gone; its item with it, where no batch has taken it yet."""
        if self.waiting.withdraw(waiter):
            self._counts["withdrawn"] += 1
            self.run()  # its place may have let another one in

    def run(self) -> None:
        """Start what may go now. Called whenever something has changed that could let a batch go."""
        while len(self._flushes) < self._in_flight and (batch := self.waiting.take()) is not None:
            flush = self._delivery.deliver(batch.items, partial(_there, batch))
            task = self.loop.create_task(flush, name=self._name, context=self._context.copy())
            self._flushes[task] = batch
            self._counts["batches"] += 1
            # What became of it is read here and not in the task: one that is cancelled before its first step never runs at all.
            task.add_done_callback(self._flushed)
        if self.waiting and self._timer is None and not self.waiting.late:
            self._arm()
        if self.waiting or self._flushes:
            self.quiet.clear()
        else:
            self.quiet.set()

    def hurry_for(self, waiter: Waiter) -> None:
        """Its sender has more to send, and no room for it: what waits goes as soon as it can."""
        if not waiter.done():
            self._hurry()

    def stats(self) -> BufferStats:
        """What became of the items so far."""
        return BufferStats(**self._counts, waiting=len(self.waiting), in_flight=self.waiting.in_flight)

    def cut(self) -> None:
        """Close now: nothing more is sent, and everybody is told."""
        self.waiting.closing = True
        left = self.waiting.clear()
        self._stop(len(left.items))
        self._settle(left, Delivered([_closed(False) for _ in left.items]))

    async def cut_short(self) -> None:
        """The same when the time for closing is over: what was not sent is left behind, if there is a place for it."""
        left, flushes = self.waiting.clear(), list(self._flushes)
        self._stop(len(left.items))
        ended = Delivered([_closed(False) for _ in left.items])
        try:
            if left.items and self._delivery.spill is not None:
                ended = await self._delivery.leave(left.items, [_closed(False) for _ in left.items], partial(_there, left))
        finally:
            self._settle(left, ended)
        if flushes:
            await asyncio.wait(flushes, timeout=GRACE)

    def _arm(self) -> None:
        self.quiet.clear()
        self._timer = self.loop.call_later(self._interval, self._over, context=self._context)

    def _over(self) -> None:
        """The interval is over."""
        self._timer = None
        self._hurry()

    def _hurry(self) -> None:
        if self.waiting:
            self.waiting.late = True
            self.run()

    def _settle(self, batch: Batch[Waiter, Item], ended: Delivered) -> None:
        counts = self._counts
        if ended.errors is None:
            counts[ended.fate] += len(batch.items)
            for waiter in batch.tickets:
                if not waiter.done():
                    waiter.set_result(None)
            return
        for waiter, error in zip(batch.tickets, ended.errors, strict=True):
            counts[ended.fate if error is None else "refused" if isinstance(error, Refused) else "failed"] += 1
            if not waiter.done():
                waiter.set_result(error)

    def _flushed(self, task: asyncio.Task[Delivered]) -> None:
        batch = self._flushes.pop(task)
        self.waiting.answered(batch)
        if not task.cancelled() and task.exception() is None:
            self._settle(batch, task.result())
        else:  # cancelled; or Ctrl+C, which has left the loop by itself
            self._settle(batch, Delivered([_closed(True) for _ in batch.items]))
            if not self.waiting.closing:  # not by us: the loop is being shut down, or somebody cancels all there is
                self.cut()
        self.run()

    def _stop(self, left: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        flying = self.waiting.in_flight
        if left or flying:
            emit("undelivered", {"operation": self._delivery.retry.operation, "items": left, "in_flight": flying})
        for task in self._flushes:
            task.cancel()


def _there(batch: Batch[Waiter, Item]) -> list[int]:
    return [place for place, waiter in enumerate(batch.tickets) if not waiter.done()]


def _closed(sent: bool) -> BufferClosed:
    may = "it may have been sent, and was not answered" if sent else "it was not sent"
    return BufferClosed(f"the SendBuffer was closed before this item was answered: {may}", sent=sent)
