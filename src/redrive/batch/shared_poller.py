"""SharedPoller: polls a server once for many waiters, so that no waiter polls on its own.

`Waiters` decides which signal goes to which waiter. It is pure: no clock, no loop.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

from ..analysis.grpc import CLAIMED_CODES, Behind, CodeClaim
from ..core.seconds import Seconds, positive, whole_number
from ..engine.retry import Retry, RetryLike
from ..errors import PollerClosed
from ..journal.bus import emit
from .background import ATTEMPT_SECONDS, claimed_codes, copies_of, fetch_retry, neutral_context

Id = TypeVar("Id", bound=Hashable)
Signal = TypeVar("Signal")
Ticket = TypeVar("Ticket", bound=Hashable)
MAX_REMEMBERED_SIGNALS = 10_000
"""Signals whose identity is remembered, so that a repeated signal is delivered once."""


class SignalDelivery(NamedTuple, Generic[Ticket, Id, Signal]):
    """One signal for one waiter."""

    ticket: Ticket
    id: Id
    signal: Signal


class Waiters(Generic[Ticket, Id, Signal]):
    """The waiters of each id in the order of their arrival, and the signals without a waiter.

    A ticket stands for one waiter. Belongs to one event loop.
    """

    def __init__(self, max_kept: int, identity: Callable[[Signal], Hashable] | None = None) -> None:
        """Create an empty collection.

        At most `max_kept` signals are kept for ids without a waiter. The oldest are dropped.
        `identity` returns what identifies a signal.
        """
        self._max_kept = max_kept
        self._identity = identity
        self._queues: OrderedDict[Id, deque[Ticket]] = OrderedDict()
        self._id_of: dict[Ticket, Id] = {}
        self._kept: OrderedDict[Id, deque[Signal]] = OrderedDict()
        self._remembered: OrderedDict[Hashable, None] = OrderedDict()
        self.kept = 0
        """Number of signals that are kept."""
        self.dropped = 0
        """Number of signals that were dropped because no waiter took them in time."""

    def __len__(self) -> int:
        """Number of waiters."""
        return len(self._id_of)

    @property
    def ids(self) -> list[Id]:
        """The ids of the next poll, the one that has waited longest first."""
        return list(self._queues)

    def add(self, ticket: Ticket, id_: Id) -> SignalDelivery[Ticket, Id, Signal] | None:
        """Add a waiter. Returns the delivery if a signal of its id is kept."""
        kept = self._kept.get(id_)
        if kept:
            signal = kept.popleft()
            self.kept -= 1
            if not kept:
                del self._kept[id_]
            return SignalDelivery(ticket, id_, signal)
        self._queues.setdefault(id_, deque()).append(ticket)
        self._id_of[ticket] = id_
        return None

    def remove(self, ticket: Ticket) -> None:
        """Remove a waiter, unless it has got its signal."""
        id_ = self._id_of.pop(ticket, None)
        if id_ is None:
            return
        queue = self._queues[id_]
        queue.remove(ticket)
        if not queue:
            del self._queues[id_]

    def deliver(
        self, id_: Id, signals: Iterable[Signal]
    ) -> list[SignalDelivery[Ticket, Id, Signal]]:
        """Give each waiter of an id one signal, and keep the rest for later waiters."""
        deliveries = []
        for signal in signals:
            if self._is_new(id_, signal):
                delivery = self._give(id_, signal)
                if delivery is not None:
                    deliveries.append(delivery)
        return deliveries

    def redeliver(self, id_: Id, signal: Signal) -> SignalDelivery[Ticket, Id, Signal] | None:
        """Give the signal of a cancelled waiter to the next one, before all other signals."""
        return self._give(id_, signal, first=True)

    def take_all(self) -> list[Ticket]:
        """Remove and return all waiters."""
        tickets = list(self._id_of)
        self._id_of.clear()
        self._queues.clear()
        return tickets

    def _give(
        self, id_: Id, signal: Signal, first: bool = False
    ) -> SignalDelivery[Ticket, Id, Signal] | None:
        queue = self._queues.get(id_)
        if queue:
            ticket = queue.popleft()
            del self._id_of[ticket]
            if not queue:
                del self._queues[id_]
            return SignalDelivery(ticket, id_, signal)
        kept = self._kept.setdefault(id_, deque())
        if first:
            kept.appendleft(signal)
        else:
            kept.append(signal)
        self.kept += 1
        while self.kept > self._max_kept:
            self._drop_oldest()
        return None

    def _drop_oldest(self) -> None:
        id_ = next(iter(self._kept))
        signal = self._kept[id_].popleft()
        if self._identity is not None:
            # It was not delivered. If the server sends it again, it is new.
            self._remembered.pop((id_, self._identity(signal)), None)
        if not self._kept[id_]:
            del self._kept[id_]
        self.kept -= 1
        self.dropped += 1

    def _is_new(self, id_: Id, signal: Signal) -> bool:
        if self._identity is None:
            return True
        key = (id_, self._identity(signal))
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return False
        self._remembered[key] = None
        if len(self._remembered) > MAX_REMEMBERED_SIGNALS:
            self._remembered.popitem(last=False)
        return True


Waiter: TypeAlias = "asyncio.Future[tuple[Any, Exception | None]]"
"""Holds (signal, None) or (None, error).

The error is part of the result: an abandoned future logs nothing.
"""
MAX_JITTER = 0.25
"""Maximum share by which a wait is shortened, so that processes do not poll in step."""


class Pace(NamedTuple):
    """The interval between polls in seconds. Pure and immutable.

    It doubles while no signal arrives, and is the shortest again after a signal.
    """

    min_interval: float
    max_interval: float
    interval: float

    @classmethod
    def fastest(cls, min_interval: float, max_interval: float) -> Pace:
        """Return the pace of a new poller.

        Raises:
            ValueError: `max_interval` is shorter than `min_interval`.
        """
        if max_interval < min_interval:
            raise ValueError(
                f"max_interval={max_interval:g} is shorter than min_interval={min_interval:g}; "
                "the poller slows down to it"
            )
        return cls(min_interval, max_interval, min_interval)

    def after_poll(self, *, has_signals: bool) -> Pace:
        """Return the pace after a poll."""
        if has_signals:
            return self.reset()
        return self._replace(interval=min(self.max_interval, 2 * self.interval))

    def reset(self) -> Pace:
        """Return the pace with the shortest interval."""
        return self._replace(interval=self.min_interval)

    def wait(self, draw: float) -> float:
        """Return the seconds before the next poll, with jitter. draw: random number from 0 to 1."""
        return self.interval * (1 - MAX_JITTER * draw)


class SharedPoller(Generic[Id, Signal]):
    """Polls once for all waiters: one loop asks for all their ids.

        async with SharedPoller(fetch) as poller:
            signal = await poller.wait(task_id)

    It belongs to the event loop that first uses it. The tasks of that loop may share it. Threads,
    other loops and forked children may not.
    """

    def __init__(
        self,
        fetch: Callable[[list[Id]], Awaitable[Mapping[Id, Iterable[Signal]]]],
        /,
        *,
        min_interval: Seconds = 0.1,
        max_interval: Seconds = 1.0,
        max_ids: int = 1_000,
        max_waiting: int = 10_000,
        max_kept: int = 10_000,
        identity: Callable[[Signal], Hashable] | None = None,
        retry: RetryLike | None = None,
        behind: Behind = (),
        codes: Sequence[str] | None = None,
        attempt_timeout: Seconds | None = ATTEMPT_SECONDS,
        patience: Seconds = 60.0,
    ) -> None:
        """Create a poller. It polls while there are waiters.

        Args:
            fetch: Async function of a list of ids. It returns the signals by id, for the ids that
                have any.
            min_interval: Seconds between polls after a signal, a new waiter or `wake()`.
            max_interval: Maximum number of seconds between polls. Without signals, the interval
                doubles up to it.
            max_ids: Maximum number of ids in one fetch. More ids are fetched one group after the
                other.
            max_waiting: Maximum number of waiters. One more is rejected.
            max_kept: Maximum number of signals that are kept for ids without a waiter. The oldest
                are dropped, counted and recorded (`undelivered`).
            identity: Function that returns what identifies a signal. Use it if the server repeats a
                signal until it is acknowledged. Each one is then delivered once.
            retry: Policy of a fetch. Default: 4 attempts, 100 ms doubling, by gRPC code or the
                standard rule.
            behind: Options of the gRPC channel, as in `redrive.grpc.retry`.
            codes: gRPC status codes to retry, as in `redrive.grpc.retry`.
            attempt_timeout: Seconds for one fetch.
            patience: Seconds without a successful fetch after which all waiters get the error. An
                error that is not retryable is raised at once.

        Raises:
            TypeError: `fetch` is not a function.
            ValueError: A number is out of range.
        """
        if not callable(fetch):
            raise TypeError(
                f"a SharedPoller takes an async function of a list of ids, not {fetch!r}"
            )
        self._fetch = fetch
        self._pace = Pace.fastest(
            positive("min_interval", min_interval), positive("max_interval", max_interval)
        )
        self._max_ids = whole_number("max_ids", max_ids)
        self._max_waiting = whole_number("max_waiting", max_waiting)
        self._patience = positive("patience", patience)
        self.__redrive__ = _with_name_of(fetch, fetch_retry(retry, behind, codes, attempt_timeout))
        self._codes = claimed_codes(self.__redrive__)
        self._poll_once = self.__redrive__(self._attempt)
        self._waiters: Waiters[Waiter, Id, Signal] = Waiters(
            whole_number("max_kept", max_kept, least=0), identity
        )
        self._context = neutral_context()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._polled_at = float("-inf")
        self._failing_since: float | None = None
        self._is_closed = False

    async def wait(self, id_: Id, /, *, timeout: Seconds | None = None) -> Signal:
        """Return the next signal of an id.

        If the waiter is cancelled, its signal goes to the next waiter.

        Args:
            id_: The id.
            timeout: Seconds to wait, or a `timedelta`. None: no limit.

        Returns:
            The signal.

        Raises:
            TimeoutError: `timeout` seconds have passed.
            PollerClosed: The poller was closed.
            RuntimeError: There are `max_waiting` waiters already.
        """
        if timeout is None:
            return await self._next(id_)
        async with asyncio.timeout(positive("timeout", timeout)):
            return await self._next(id_)

    async def signals(self, id_: Id, /) -> AsyncIterator[Signal]:
        """Yield the signals of an id until the poller is closed.

        Args:
            id_: The id.

        Yields:
            The signals, as they arrive.
        """
        while True:
            try:
                signal = await self._next(id_)
            except PollerClosed:
                return
            yield signal

    def wake(self) -> None:
        """Poll now, and use the short interval again."""
        self._pace = self._pace.reset()
        if self._wake is not None:
            self._wake.set()

    @property
    def waiting(self) -> int:
        """Number of waiters."""
        return len(self._waiters)

    async def aclose(self) -> None:
        """Stop polling. Every waiter gets `PollerClosed`. You may close it twice."""
        self._is_closed = True
        task, self._task = self._task, None
        self._fail_all(_closed_error())
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def __aenter__(self) -> Self:
        self._bind(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _next(self, id_: Id) -> Signal:
        waiter = self._add_waiter(id_)
        try:
            signal, error = await waiter
        except BaseException:
            self._waiters.remove(waiter)
            # Cancelled after it got a signal and before it could take it: pass the signal on.
            if waiter.done() and not waiter.cancelled():
                signal, error = waiter.result()
                if error is None:
                    self._deliver([self._waiters.redeliver(id_, signal)])
            if not self._waiters and self._wake is not None:
                self._wake.set()  # ends the poll loop
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error, waiter  # breaks a reference cycle: the error refers to this frame
        result: Signal = signal
        return result

    def _add_waiter(self, id_: Id) -> Waiter:
        loop = asyncio.get_running_loop()
        self._bind(loop)
        if self._is_closed:
            raise _closed_error()
        if len(self._waiters) >= self._max_waiting:
            raise RuntimeError(
                f"SharedPoller: {self._max_waiting} waiters at once; raise max_waiting=, or wait "
                "for fewer ids"
            )
        waiter: Waiter = loop.create_future()
        self._deliver([self._waiters.add(waiter, id_)])
        if not waiter.done():
            self.wake()
            if self._task is None:
                self._start(loop)
        return waiter

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is None:
            self._loop = loop
            self._wake = asyncio.Event()
        elif self._loop is not loop:
            raise RuntimeError(
                "this SharedPoller belongs to another event loop: make one for each loop"
            )

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"redrive poll of {self.__redrive__.operation}"
        self._task = loop.create_task(self._run(), name=name, context=self._context.copy())
        # A callback and not code in the task: a task that is cancelled before its first step
        # never runs.
        self._task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return  # the poller was closed
        self._task = None
        if task.cancelled() or task.exception() is not None:
            # The loop is being shut down, or Ctrl+C has left it.
            self._is_closed = True
            self._fail_all(_closed_error())
        elif self._waiters and self._loop is not None:
            self._start(self._loop)

    async def _run(self) -> None:
        """Poll while there are waiters."""
        assert self._wake is not None
        CLAIMED_CODES.set(CodeClaim(self._codes))
        while self._waiters:
            # `wake` may not shorten the time between two polls below the shortest interval.
            await asyncio.sleep(self._polled_at + self._pace.min_interval - self._now())
            self._wake.clear()
            has_signals = await self._poll()
            self._polled_at = self._now()
            if self._wake.is_set():
                self._pace = self._pace.reset()
            else:
                self._pace = self._pace.after_poll(has_signals=has_signals)
            if not self._waiters:
                return
            try:
                async with asyncio.timeout(self._pace.wait(random.random())):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    async def _poll(self) -> bool:
        """Fetch the signals of all ids. Returns whether any was delivered.

        An error goes to all waiters, at once or when the patience is over.
        """
        ids, has_signals = self._waiters.ids, False
        for start in range(0, len(ids), self._max_ids):
            group = ids[start : start + self._max_ids]
            try:
                signals = await self._poll_once(group)
                for id_, arrived in signals.items():
                    deliveries = self._waiters.deliver(id_, arrived)
                    has_signals = has_signals or bool(deliveries)
                    self._deliver(deliveries)
            except Exception as error:
                self._on_error(error)
                return False
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Something that `fetch` awaited was cancelled, not this task.
                self._on_error(
                    ConnectionError("what fetched the signals was cancelled from inside")
                )
                return False
        self._failing_since = None
        self._log_dropped()
        return has_signals

    async def _attempt(self, ids: list[Id]) -> Mapping[Id, Iterable[Signal]]:
        awaitable: Any = self._fetch(list(ids))
        if not hasattr(type(awaitable), "__await__"):
            raise TypeError(
                "the fetch of a SharedPoller is async: `async def`, or asyncio.to_thread inside one"
            )
        signals = await awaitable
        if not isinstance(signals, Mapping):
            raise TypeError(
                "the fetch of a SharedPoller returns signals by id, a mapping, not "
                f"{type(signals).__name__}"
            )
        return signals

    def _on_error(self, error: Exception) -> None:
        now = self._now()
        if self._failing_since is None:
            self._failing_since = now
        is_retryable = self.__redrive__.settings.classify(error).retryable
        if is_retryable and now - self._failing_since < self._patience:
            return
        self._failing_since = None
        self._fail_all(error)

    def _fail_all(self, error: Exception) -> None:
        waiters = self._waiters.take_all()
        errors = copies_of(error, len(waiters)) if waiters else []
        for waiter, own_error in zip(waiters, errors, strict=True):
            if not waiter.done():
                waiter.set_result((None, own_error))

    def _deliver(self, deliveries: Iterable[SignalDelivery[Waiter, Id, Signal] | None]) -> None:
        for delivery in deliveries:
            # A waiter that was cancelled and has not run since: the next waiter gets the signal.
            while delivery is not None and delivery.ticket.done():
                delivery = self._waiters.redeliver(delivery.id, delivery.signal)
            if delivery is not None:
                delivery.ticket.set_result((delivery.signal, None))

    def _log_dropped(self) -> None:
        dropped, self._waiters.dropped = self._waiters.dropped, 0
        if dropped:
            fields = {"items": dropped, "reason": "no waiter took them"}
            emit("undelivered", {"operation": self.__redrive__.operation, **fields})


def _with_name_of(fetch: Any, retry: Retry) -> Retry:
    if retry.operation:
        return retry
    name = getattr(fetch, "__qualname__", "fetch")
    return retry.using(operation=f"{fetch.__module__}.{name}")


def _closed_error() -> PollerClosed:
    return PollerClosed("the SharedPoller was closed before a signal arrived")
