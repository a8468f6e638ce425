"""SharedPoller: one loop that asks a server for what many waiters wait for, so that no waiter polls by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from ...backoff import doubling
from ...core.classify import classify
from ...core.context import CELL, IDS
from ...core.policy import RetryPolicy
from ...core.seconds import Seconds, positive, whole
from ...engine.codes import CLAIMED, Claim
from ...engine.owner import Behind, codes_of, owner
from ...engine.retry import DEFAULT, Retry, RetryLike
from ...errors import PollerClosed
from ...journal.bus import emit
from ..buffer.answer import each
from ..buffer.layer import ATTEMPTS, BASE, CAP, TIMEOUT
from .pace import Pace
from .waiters import Delivery, Waiters

Id = TypeVar("Id", bound=Hashable)
Signal = TypeVar("Signal")
Waiter: TypeAlias = "asyncio.Future[tuple[Any, Exception | None]]"
"""Holds (signal, None) or (None, error). The error is part of the result: an abandoned future logs nothing."""


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
        attempt_timeout: Seconds | None = TIMEOUT,
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
            raise TypeError(f"a SharedPoller takes an async function of a list of ids, not {fetch!r}")
        self._fetch = fetch
        self._pace = Pace.of(positive("min_interval", min_interval), positive("max_interval", max_interval))
        self._max_ids = whole("max_ids", max_ids)
        self._max_waiting = whole("max_waiting", max_waiting)
        self._patience = positive("patience", patience)
        self.__redrive__ = _layer(retry, behind, codes, attempt_timeout, fetch)
        rule = codes_of(self.__redrive__)
        self._codes = frozenset(rule.codes if rule else ())
        self._poll_once = self.__redrive__(self._attempt)
        self._waiters: Waiters[Waiter, Id, Signal] = Waiters(whole("max_kept", max_kept, least=0), identity)
        self._context = _neutral()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._polled_at = float("-inf")
        self._failing_since: float | None = None
        self._closed = False

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
        self._pace = self._pace.quick()
        if self._wake is not None:
            self._wake.set()

    @property
    def waiting(self) -> int:
        """Number of waiters."""
        return len(self._waiters)

    async def aclose(self) -> None:
        """Stop polling. Every waiter gets `PollerClosed`. You may close it twice."""
        self._closed = True
        task, self._task = self._task, None
        self._answer_all(_closed())
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def __aenter__(self) -> Self:
        self._bind(asyncio.get_running_loop())
        return self

    async def __aexit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /) -> None:
        await self.aclose()

    async def _next(self, id_: Id) -> Signal:
        waiter = self._enter(id_)
        try:
            signal, error = await waiter
        except BaseException:
            self._waiters.withdraw(waiter)
            if waiter.done() and not waiter.cancelled():  # answered, and cancelled before it could take the answer
                signal, error = waiter.result()
                if error is None:
                    self._deliver([self._waiters.returned(id_, signal)])
            if not self._waiters and self._wake is not None:
                self._wake.set()  # there is nothing left to ask for
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error, waiter  # both know the error, which knows this frame
        found: Signal = signal
        return found

    def _enter(self, id_: Id) -> Waiter:
        loop = asyncio.get_running_loop()
        self._bind(loop)
        if self._closed:
            raise _closed()
        if len(self._waiters) >= self._max_waiting:
            raise RuntimeError(f"SharedPoller: {self._max_waiting} waiters at once; raise max_waiting=, or wait for fewer ids")
        waiter: Waiter = loop.create_future()
        self._deliver([self._waiters.enter(waiter, id_)])
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
            raise RuntimeError("this SharedPoller belongs to another event loop: make one for each loop")

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"redrive poll of {self.__redrive__.operation}"
        self._task = loop.create_task(self._run(), name=name, context=self._context.copy())
        # Here and not in the task: one that is cancelled before its first step never runs at all.
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return  # closed
        self._task = None
        if task.cancelled() or task.exception() is not None:  # the loop is being shut down, or Ctrl+C has left it
            self._closed = True
            self._answer_all(_closed())
        elif self._waiters and self._loop is not None:
            self._start(self._loop)

    async def _run(self) -> None:
        """Poll until there is no waiter."""
        assert self._wake is not None
        CLAIMED.set(Claim(self._codes))
        while self._waiters:
            # However many come and call, polls are never closer together than the shortest interval.
            await asyncio.sleep(self._polled_at + self._pace.fast - self._now())
            self._wake.clear()
            found = await self._polled()
            self._polled_at = self._now()
            self._pace = self._pace.quick() if self._wake.is_set() else self._pace.after(found)
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

    async def _polled(self) -> bool:
        """Ask for all ids; whether something was found. Errors go to the waiters, at once or when patience is over."""
        ids, found = self._waiters.ids, False
        for start in range(0, len(ids), self._max_ids):
            some = ids[start : start + self._max_ids]
            try:
                signals = await self._poll_once(some)
                for id_, arrived in signals.items():
                    deliveries = self._waiters.arrived(id_, arrived)
                    found = found or bool(deliveries)
                    self._deliver(deliveries)
            except Exception as error:
                self._failed(error)
                return False
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                self._failed(ConnectionError("what fetched the signals was cancelled from inside"))
                return False
        self._failing_since = None
        self._tell_dropped()
        return found

    async def _attempt(self, ids: list[Id]) -> Mapping[Id, Iterable[Signal]]:
        said: Any = self._fetch(list(ids))
        if not hasattr(type(said), "__await__"):
            raise TypeError("the fetch of a SharedPoller is async: `async def`, or asyncio.to_thread inside one")
        signals = await said
        if not isinstance(signals, Mapping):
            raise TypeError(f"the fetch of a SharedPoller returns signals by id, a mapping, not {type(signals).__name__}")
        return signals

    def _failed(self, error: Exception) -> None:
        now = self._now()
        if self._failing_since is None:
            self._failing_since = now
        if self.__redrive__.settings.judge(error).retryable and now - self._failing_since < self._patience:
            return
        self._failing_since = None
        self._answer_all(error)

    def _answer_all(self, error: Exception) -> None:
        left = self._waiters.clear()
        for waiter, own in zip(left, each(error, len(left)) if left else (), strict=True):
            if not waiter.done():
                waiter.set_result((None, own))

    def _deliver(self, deliveries: Iterable[Delivery[Waiter, Id, Signal] | None]) -> None:
        for delivery in deliveries:
            while delivery is not None and delivery.ticket.done():  # cancelled, and not resumed since: the next one's
                delivery = self._waiters.returned(delivery.id, delivery.signal)
            if delivery is not None:
                delivery.ticket.set_result((delivery.signal, None))

    def _tell_dropped(self) -> None:
        dropped, self._waiters.dropped = self._waiters.dropped, 0
        if dropped:
            emit("undelivered", {"operation": self.__redrive__.operation, "items": dropped, "reason": "no waiter took them"})


def _layer(given: RetryLike | None, behind: Behind, codes: Sequence[str] | None, limit: Seconds | None, fetch: Any) -> Retry:
    """What retries one fetch: the send buffer's numbers, and beside gRPC's codes the standard rule."""
    if isinstance(given, Retry):
        if behind or codes is not None:
            raise TypeError(
                "a Retry has a rule of its own: leave behind= and codes= out, or give them to redrive.grpc.retry(...)"
            )
        layer = given
    else:
        rules = (owner(behind, codes, claims=True), classify)
        layer = DEFAULT.using(RetryPolicy(ATTEMPTS, BASE, CAP, jitter=0.0), on=rules, attempt_timeout=limit)
        layer = layer.using(backoff=doubling(BASE, cap=CAP)) if given is None else layer.using(given, backoff=None)
    return layer if layer.operation else layer.using(operation=f"{fetch.__module__}.{getattr(fetch, '__qualname__', 'fetch')}")


def _closed() -> PollerClosed:
    return PollerClosed("the SharedPoller was closed before a signal arrived")


def _neutral() -> Context:
    """What polls run in: nothing of the waiter that happens to start them, its deadline and its ids least of all."""
    context = copy_context()
    context.run(CELL.set, None)
    context.run(IDS.set, {})
    return context
