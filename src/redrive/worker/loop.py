"""Loop: the event loop on which async functions run, in a thread of its own."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from ..ledger.crashpoint import crash_point
from ..ledger.record import Lease, lease_name
from .finished import Finished
from .kind import Kind
from .pool import timed_out
from .scope import Around, enter


class Loop:
    """One event loop, in one thread. Threads may share it."""

    def __init__(self, around: Around, told: Callable[[list[Finished]], None], name: str) -> None:
        self._around = around
        self._told = told
        self._tasks: dict[tuple[int, ...], asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        try:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def give(self, jobs: Iterable[tuple[Kind, Lease]], /) -> None:
        """Run these."""
        self._loop.call_soon_threadsafe(self._begin, list(jobs))

    def _begin(self, jobs: Sequence[tuple[Kind, Lease]]) -> None:
        for kind, lease in jobs:
            task = self._loop.create_task(self._attempt(kind, lease), context=self._around.context.copy())
            self._tasks[lease_name(lease)] = task

    def cancel(self, leases: Iterable[Lease] | None = None, /) -> None:
        """Stop these, or all."""
        self._loop.call_soon_threadsafe(self._cancel, None if leases is None else [lease_name(lease) for lease in leases])

    def _cancel(self, these: list[tuple[int, ...]] | None) -> None:
        for each in list(self._tasks) if these is None else these:
            if task := self._tasks.get(each):
                task.cancel()

    def close(self) -> None:
        """End; what still runs is cancelled, and not waited for much longer."""
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(2)

    def _end(self) -> None:
        self._cancel(None)
        self._loop.call_soon(self._loop.call_soon, self._loop.stop)  # what was cancelled gets its turn before

    async def _attempt(self, kind: Kind, lease: Lease) -> None:
        began = monotonic()
        seconds = self._around.seconds(kind, lease)
        if seconds <= 0:
            finished = Finished(kind, lease, None, None, 0.0, unstarted=True)
        else:
            enter(kind, lease, seconds)
            try:
                result = await (kind.run(lease) if seconds == math.inf else _within(kind, lease, seconds))
                finished = Finished(kind, lease, result, None, monotonic() - began)
            except BaseException as error:  # SystemExit too: it ends this job, not the loop
                finished = Finished(kind, lease, None, error, monotonic() - began)
            crash_point("worker.ran")
        self._tasks.pop(lease_name(lease), None)
        self._told([finished])


async def _within(kind: Kind, lease: Lease, seconds: float) -> bytes | None:
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            result: bytes | None = await kind.run(lease)
            return result
    except TimeoutError as error:
        if timer.expired():
            raise timed_out(kind, lease, seconds) from error
        raise
