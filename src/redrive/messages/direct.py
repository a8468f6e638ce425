"""Direct calls: handlers with `persist="failures"`, run straight off a source.

A call that fails, or that does not start in time, becomes a job in the ledger. The failed call is
the first attempt of that job.
"""

from __future__ import annotations

import asyncio
import math
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import monotonic
from typing import Any, Final, NamedTuple

from ..core.context import IDS, SLOT, ContextSlot, Scope
from ..core.event_loop_thread import EventLoopThread
from ..journal.bus import HANDLER_WRAPPERS
from ..worker.attempt import run_in_time
from .event import NO_HEADERS, trusted_event
from .handlers import Handler
from .stored_event import StoredEvent

START_SECONDS = 5.0
"""Time in which the calls of a batch start. Calls that have not started become jobs."""
FAST_CALL_SECONDS = 50e-6
"""Calls of this average duration run in one thread. To wake up more would take longer."""
MAX_TASKS = 100
"""Async calls that run at the same time."""


class TypePlan(NamedTuple):
    """What becomes of the events of one type."""

    direct: Sequence[Handler]
    """Handlers that are called."""
    stored: Sequence[Handler]
    """Handlers that get a job."""


class DirectLayer:
    """The handler, as retries and `current()` inside a direct call see it. Threads may share it.

    Each call reads the other attributes here, where this takes less time than in the handler.
    """

    __slots__ = ("decode", "fn", "handler", "max_attempts", "name", "operation", "seconds")
    job_id: Final = None

    def __init__(self, handler: Handler, attributes: Mapping[str, str]) -> None:
        """Create the layer. `attributes`: of the source, for traces."""
        self.handler, self.name, self.fn = handler, handler.name, handler.fn
        for wrap in list(HANDLER_WRAPPERS):
            self.fn = wrap(self.name, self.is_async, self.fn, attributes)
        self.operation: str | None = handler.name
        self.max_attempts: int | None = handler.settings.max_attempts
        self.seconds = handler.settings.attempt_timeout or math.inf
        self.decode = handler.decode_payload

    @property
    def is_async(self) -> bool:
        """Whether the calls run in the event loop."""
        return self.handler.execution == "async"


class HandlerCall(NamedTuple):
    """The call of one handler with one event."""

    layer: DirectLayer
    event: StoredEvent
    place: int
    """Place of the event in its batch."""

    def keep_error(self, error: BaseException, /) -> None:
        """Keep the error of the call for the first attempt of its job."""
        key = self.event.job_key(self.layer.name)
        self.layer.handler.first_failures.add(key, error)


class DirectRunner:
    """Runs direct calls. Belongs to the thread of a reader."""

    def __init__(self, threads: int, attributes: Mapping[str, str] = NO_HEADERS) -> None:
        """Create a runner.

        Args:
            threads: Sync calls that run at the same time.
            attributes: Of the source, for traces.
        """
        self._threads = threads
        self._attributes = attributes
        self._pool: ThreadPoolExecutor | None = None
        self._loop = EventLoopThread("redrive-handlers")
        self._layers: dict[str, DirectLayer] = {}
        self._are_fast = False
        """Whether sync calls were fast in the last batch."""

    def handlers_to_store(
        self, events: Sequence[StoredEvent], plan: Callable[[str], TypePlan], /
    ) -> dict[int, Sequence[Handler]]:
        """Call direct handlers. Return the handlers that get a job, by the place of their event.

        Events that are not in the result are handled. They are not stored.

        Args:
            events: A batch of events.
            plan: Returns what becomes of the events of a type.
        """
        plans: dict[str, tuple[Sequence[DirectLayer], Sequence[Handler]]] = {}
        results: dict[int, Sequence[Handler]] = {}
        calls: list[HandlerCall] = []
        for place, event in enumerate(events):
            known = plans.get(event.type)
            if known is None:
                direct, stored = plan(event.type)
                known = plans[event.type] = ([self._layer_of(each) for each in direct], stored)
            layers, stored = known
            if stored or not layers:
                results[place] = stored
            # Half the time of a call of the class, for every message.
            calls += [tuple.__new__(HandlerCall, (layer, event, place)) for layer in layers]
        for call in self.run(calls):
            results[call.place] = [*results.get(call.place, ()), call.layer.handler]
        return results

    def _layer_of(self, handler: Handler) -> DirectLayer:
        layer = self._layers.get(handler.name)
        if layer is None or layer.handler is not handler:
            layer = self._layers[handler.name] = DirectLayer(handler, self._attributes)
        return layer

    def run(self, calls: Sequence[HandlerCall], /) -> list[HandlerCall]:
        """Run calls, and return those that must become jobs.

        The error of a failed call is kept for the first attempt of its job.
        """
        left: list[HandlerCall] = []
        tasks: Sequence[HandlerCall] = ()
        if any(layer.is_async for layer in {call[0] for call in calls}):
            tasks = [call for call in calls if call.layer.is_async]
            calls = [call for call in calls if not call.layer.is_async]
        todo = deque(calls)
        start, count = monotonic(), len(todo)
        others: list[Any] = []
        if tasks:
            others.append(self._loop.submit(lambda: self._run_async(tasks, left, start)))
        if count > 1 and not self._are_fast:
            self._pool = self._pool or ThreadPoolExecutor(self._threads - 1 or 1, "redrive-direct")
            others += [
                self._pool.submit(copy_context().run, self._drain, todo, left, start)
                for _ in range(min(self._threads, count) - 1)
            ]
        if todo:
            copy_context().run(self._drain, todo, left, start)
        for other in others:
            other.result()
        if count:
            self._are_fast = (monotonic() - start) / count < FAST_CALL_SECONDS
        return [*left, *todo]

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()
        self._loop.close()

    def _drain(self, todo: deque[HandlerCall], left: list[HandlerCall], start: float) -> None:
        """Run calls until there are none. Several threads do it at once."""
        thread, end = get_ident(), start + START_SECONDS
        while todo and (now := monotonic()) < end:
            try:
                call = todo.popleft()
            except IndexError:  # another thread has the last one
                return
            layer = call[0]
            try:
                result = layer.fn(_enter(call, thread, now))
                if result is not None:
                    layer.handler.reject_awaitable(result)
            except BaseException as error:  # SystemExit too: it ends this call, not the worker
                call.keep_error(error)
                left.append(call)

    async def _run_async(
        self, calls: Sequence[HandlerCall], left: list[HandlerCall], start: float
    ) -> None:
        limit = asyncio.Semaphore(MAX_TASKS)

        async def run(call: HandlerCall) -> None:
            async with limit:
                now = monotonic()
                if now - start >= START_SECONDS:
                    left.append(call)
                    return
                try:
                    layer, event = call.layer, _enter(call, get_ident(), now)
                    await run_in_time(layer.fn(event), layer.seconds, layer.name, 1)
                except asyncio.CancelledError:
                    left.append(call)
                    raise
                except BaseException as error:
                    call.keep_error(error)
                    left.append(call)

        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(run(call))


def _enter(call: HandlerCall, thread: int, now: float) -> Any:
    """Set the deadline, layer, key and correlation ids of a call in the current context.

    Return its event, with the decoded payload.
    """
    layer, stored, _ = call
    source, event_id, type_, payload, headers, at, _, _ = stored
    scope: Scope = (now + layer.seconds, 1, layer, stored.job_key(layer.name), None)
    SLOT.set(ContextSlot(scope, thread))
    IDS.set(stored.own_ids())
    return trusted_event(type_, layer.decode(payload), event_id, source, headers, at)
