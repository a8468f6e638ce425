"""SendBuffer: items of many senders, sent in few batches by tasks of its own, so that nobody is left waiting."""

from __future__ import annotations

import asyncio
import math
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from types import TracebackType
from typing import Generic, Self, TypedDict, TypeVar, Unpack

from ...core.context import CELL, IDS
from ...core.seconds import Seconds, seconds, whole
from ...engine.owner import Behind
from ...engine.retry import RetryLike
from ...errors import BufferClosed
from .answer import Said
from .delivery import Delivery
from .environment import numbers
from .layer import TIMEOUT, layer, sending, standard
from .pump import Pump, Waiter
from .spill import Submits, checked
from .stats import BufferStats
from .waiting import Limits, Waiting

Item = TypeVar("Item")
HASTE = 5.0
"""Seconds that closing may take at most where the block was left by a cancellation, or by Ctrl+C."""
One = TypeVar("One")
"""An item, where there is no buffer yet that knows its type."""


class Options(TypedDict, Generic[Item], total=False):
    """What `from_env` takes beside what the environment says; explained at `SendBuffer`."""

    max_waiting: int
    in_flight: int
    size: Callable[[Item], int] | None
    max_batch_bytes: int | None
    max_waiting_bytes: int | None
    behind: Behind
    codes: Sequence[str] | None
    spill: Submits[Item] | None
    drain: Seconds | None


class SendBuffer(Generic[Item]):
    """Collects items of many callers into batches and sends them.

        async with SendBuffer(send) as buffer:
            await buffer.send(signal)  # returns when the batch with this signal was accepted

    `send` returns or raises for each caller. No caller waits for ever.

    It belongs to the event loop that first uses it. The tasks of that loop may share it. Threads,
    other loops and forked children may not.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Said]],
        /,
        *,
        max_batch_size: int = 50,
        flush_interval: Seconds = 0.1,
        max_waiting: int = 10_000,
        in_flight: int = 4,
        size: Callable[[Item], int] | None = None,
        max_batch_bytes: int | None = None,
        max_waiting_bytes: int | None = None,
        retry: RetryLike | None = None,
        behind: Behind = (),
        codes: Sequence[str] | None = None,
        attempt_timeout: Seconds | None = TIMEOUT,
        spill: Submits[Item] | None = None,
        drain: Seconds | None = 60.0,
    ) -> None:
        """Create a buffer. It sends nothing before the first item.

        Args:
            send: Async function of a list of items. It returns True or None (accepted), False
                (rejected: `errors.Refused` for all, no retry), or a list with one of these or an
                error for each item.
            max_batch_size: Maximum number of items in a batch.
            flush_interval: Seconds after its first item at which a batch is sent, even if it is not
                full.
            max_waiting: Maximum number of items without a response. Further callers wait.
            in_flight: Maximum number of batches that are sent at the same time. 1 keeps the order.
            size: Function that returns the bytes of an item. Needed for the two limits below.
            max_batch_bytes: Maximum number of bytes in a batch.
            max_waiting_bytes: Maximum number of bytes without a response.
            retry: Policy of a batch. Default: 4 attempts, 100 ms doubling, plus up to half of the
                wait. A `Retry` brings its own rule for errors.
            behind: Options of the gRPC channel, as in `redrive.grpc.retry`.
            codes: gRPC status codes to retry, as in `redrive.grpc.retry`.
            attempt_timeout: Seconds for one attempt. Inside: `current().remaining`.
            spill: Where items go when the retries are used up. Their callers then return without an
                error.
            drain: Seconds that closing may take to send the queued items. None: no limit. At most 5
                if the block was left by a cancellation or Ctrl+C.

        Raises:
            ValueError: A number is out of range.
            TypeError: An option has the wrong type.
        """
        checked(spill)
        self._limits = Limits(
            whole("max_batch_size", max_batch_size),
            whole("max_waiting", max_waiting),
            _bytes("max_batch_bytes", max_batch_bytes, size),
            _bytes("max_waiting_bytes", max_waiting_bytes, size),
        )
        self._size = size
        self._interval = seconds("flush_interval", flush_interval)
        self._in_flight = whole("in_flight", in_flight)
        self._drain = None if drain is None else seconds("drain", drain)
        self.__redrive__, sends = sending(layer(retry, behind, codes, attempt_timeout), send)
        self._delivery = Delivery(self.__redrive__, sends, spill)
        self._context = _neutral()
        self._pump: Pump[Item] | None = None
        self._closing = False

    @staticmethod
    def from_env(
        send: Callable[[list[One]], Awaitable[Said]], /, environ: Mapping[str, str] = os.environ, **options: Unpack[Options[One]]
    ) -> SendBuffer[One]:
        """Create a buffer with numbers from the environment.

        It reads `REDRIVE_SIGNAL_SEND_RETRIES`, `REDRIVE_SIGNAL_SEND_BACKOFF_MS`,
        `REDRIVE_SIGNAL_MAX_BATCH_SIZE`, `REDRIVE_SIGNAL_FLUSH_INTERVAL` and `REDRIVE_GRPC_TIMEOUT`.
        A variable that is not set has its default.

        Args:
            send: Async function of a list of items, as of `SendBuffer(...)`.
            environ: The variables. Default: `os.environ`.
            options: Other options of `SendBuffer(...)`.

        Returns:
            The buffer.

        Raises:
            ValueError: A value is not valid. The message names the variable.
        """
        said = numbers(environ)
        behind, codes = options.pop("behind", ()), options.pop("codes", None)
        retry = standard(behind, codes, said.timeout, said.retries + 1, said.backoff)
        return SendBuffer(send, max_batch_size=said.max_batch_size, flush_interval=said.flush_interval, retry=retry, **options)

    async def send(self, item: Item, /) -> None:
        """Send one item, and return when its batch was accepted.

        If the caller is cancelled, the item is withdrawn unless it is already being sent.

        Args:
            item: The item.

        Raises:
            Refused: The receiver rejected the batch or the item.
            BufferClosed: The buffer is closed.
            Exception: The error of the batch after its retries.
        """
        waiter = self._enter(item)
        try:
            error = await waiter
        except BaseException:
            self._withdraw(waiter)
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error, waiter  # both know the error, which knows this frame

    async def send_all(self, items: Iterable[Item], /) -> None:
        """Send many items, and return when all were accepted.

        Args:
            items: The items. They are read as there is room.

        Raises:
            ExceptionGroup: The errors of items that were not accepted. All others were sent.
        """
        pump = self._bound(asyncio.get_running_loop())
        waiters: deque[Waiter] = deque()
        errors: list[Exception] = []
        count = 0

        async def oldest() -> None:
            if (error := await waiters[0]) is not None:
                errors.append(error)
            del waiters[0]

        try:
            for count, item in enumerate(items, 1):
                while waiters and (waiters[0].done() or pump.waiting.full):
                    pump.hurry_for(waiters[0])
                    await oldest()
                waiters.append(self._enter(item))
                if count % self._limits.batch == 0:
                    await asyncio.sleep(0)  # a batch may go, and so may everybody else
            while waiters:
                await oldest()
        except BaseException:
            for waiter in waiters:
                waiter.cancel()
                self._withdraw(waiter)
            raise
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {count} items were not accepted", errors)

    @property
    def stats(self) -> BufferStats:
        """Counters of this buffer so far."""
        return BufferStats() if self._pump is None else self._pump.stats()

    async def aclose(self) -> None:
        """Send the queued items and close the buffer.

        Items without a response in time fail with `BufferClosed`. You may close it twice.
        """
        await self._close(self._drain)

    async def _close(self, drain: float | None) -> None:
        first, self._closing = not self._closing, True
        if self._pump is None:
            return
        pump = self._bound(asyncio.get_running_loop())
        pump.waiting.closing = True
        pump.run()
        try:
            async with asyncio.timeout(drain if first else None):
                await pump.quiet.wait()
        except TimeoutError:
            await pump.cut_short()
        except asyncio.CancelledError:
            if first:
                pump.cut()
            raise

    async def __aenter__(self) -> Self:
        self._bound(asyncio.get_running_loop())
        return self

    async def __aexit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /) -> None:
        leaving = e is not None and not isinstance(e, Exception)
        await self._close(min(HASTE, self._drain or HASTE) if leaving else self._drain)

    def _enter(self, item: Item) -> Waiter:
        loop = asyncio.get_running_loop()
        pump = self._pump
        if pump is None or pump.loop is not loop:
            pump = self._bound(loop)
        if pump.waiting.closing:
            raise BufferClosed("this SendBuffer is closed: the item was not sent", sent=False)
        return pump.enter(item)

    def _withdraw(self, waiter: Waiter) -> None:
        if self._pump is not None:
            self._pump.withdraw(waiter)

    def _bound(self, loop: asyncio.AbstractEventLoop) -> Pump[Item]:
        if self._pump is None:
            waiting: Waiting[Waiter, Item] = Waiting(self._limits, self._size)
            waiting.closing = self._closing
            self._pump = Pump(loop, self._delivery, waiting, self._interval, self._in_flight, self._context)
        elif loop is not self._pump.loop:
            raise RuntimeError(
                "this SendBuffer belongs to another event loop: make one for each loop, and send from a task of it"
            )
        return self._pump


def _neutral() -> Context:
    """What flushes run in: nothing of the sender who happens to fill a batch, its deadline and its ids least of all."""
    context = copy_context()
    context.run(CELL.set, None)
    context.run(IDS.set, {})
    return context


def _bytes(name: str, limit: int | None, size: object) -> float:
    if limit is None:
        return math.inf
    if size is None:
        raise TypeError(f"{name} needs size=, a function that says how many bytes an item has")
    return whole(name, limit)
