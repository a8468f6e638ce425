"""Direct calls: handlers with `persist="failures"`, run straight off a source.

A call that fails, or that does not start in time, becomes a job in the ledger. The failed call is
the first attempt of that job.
"""

from __future__ import annotations

import asyncio
import math
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import monotonic
from typing import Any, Final, NamedTuple

from ..core.context import IDS, SLOT, ContextSlot, Scope
from ..core.event_loop_thread import EventLoopThread
from ..worker.attempt import run_in_time
from .event import trusted_event
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


class HandlerCall(NamedTuple):
    """The call of one handler with one event."""

    handler: Handler
    event: StoredEvent
    place: int
    """Place of the event in its batch."""

    @property
    def key(self) -> str:
        """The key of the job, if the call becomes one."""
        return self.event.job_key(self.handler.name)


class DirectLayer:
    """The handler, as retries and `current()` inside a direct call see it. Threads may share it."""

    __slots__ = ("max_attempts", "operation")
    job_id: Final = None

    def __init__(self, handler: Handler) -> None:
        self.operation: str | None = handler.name
        self.max_attempts: int | None = handler.settings.max_attempts


class DirectRunner:
    """Runs direct calls. Belongs to the thread of a reader."""

    def __init__(self, threads: int) -> None:
        """Create a runner. `threads`: sync calls that run at the same time."""
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._loop = EventLoopThread("redrive-handlers")
        self._layers: dict[str, DirectLayer] = {}
        self._are_fast = False
        """Whether sync calls were fast in the last batch."""

    def handlers_to_store(
        self, events: Sequence[StoredEvent], plan: Callable[[str], TypePlan], /
    ) -> list[Sequence[Handler] | None]:
        """Call direct handlers. Return for each event the handlers that get a job.

        None: the event is handled and not stored.

        Args:
            events: A batch of events.
            plan: Returns what becomes of the events of a type.
        """
        plans: dict[str, TypePlan] = {}
        results: list[Sequence[Handler] | None] = []
        calls: list[HandlerCall] = []
        for place, event in enumerate(events):
            type_plan = plans.get(event.type)
            if type_plan is None:
                type_plan = plans[event.type] = plan(event.type)
            direct, stored = type_plan
            results.append(stored or (None if direct else ()))
            # Half the time of a call of the class, for every message.
            calls += [tuple.__new__(HandlerCall, (handler, event, place)) for handler in direct]
        for call in self.run(calls):
            results[call.place] = [*(results[call.place] or ()), call.handler]
        return results

    def run(self, calls: Sequence[HandlerCall], /) -> list[HandlerCall]:
        """Run calls, and return those that must become jobs.

        The error of a failed call is kept for the first attempt of its job.
        """
        left: list[HandlerCall] = []
        tasks = [call for call in calls if call.handler.execution == "async"]
        todo = deque(call for call in calls if call.handler.execution != "async")
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
            handler = call[0]
            try:
                result = handler.fn(self._enter(call, thread, now))
                if result is not None:
                    handler.reject_awaitable(result)
            except BaseException as error:  # SystemExit too: it ends this call, not the worker
                call.handler.first_failures.add(call.key, error)
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
                    handler, event = call.handler, self._enter(call, get_ident(), now)
                    seconds = handler.settings.attempt_timeout or math.inf
                    await run_in_time(handler.fn(event), seconds, handler.name, 1)
                except asyncio.CancelledError:
                    left.append(call)
                    raise
                except BaseException as error:
                    call.handler.first_failures.add(call.key, error)
                    left.append(call)

        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(run(call))

    def _enter(self, call: HandlerCall, thread: int, now: float) -> Any:
        """Set the deadline, layer, key and correlation ids of a call in the current context.

        Return its event, with the decoded payload.
        """
        handler, stored, _ = call
        source, event_id, type_, payload, headers, at, _, _ = stored
        layer = self._layers.get(handler.name)
        if layer is None:
            layer = self._layers[handler.name] = DirectLayer(handler)
        timeout = handler.settings.attempt_timeout
        end = math.inf if timeout is None else now + timeout
        scope: Scope = (end, 1, layer, stored.job_key(handler.name), None)
        SLOT.set(ContextSlot(scope, thread))
        IDS.set(stored.own_ids())
        return trusted_event(type_, handler.decode_payload(payload), event_id, source, headers, at)
