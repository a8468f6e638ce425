"""AsyncLedger: the ledger for event loops, through one thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from . import limits
from .gathering import Entry
from .ledger import Ledger
from .record import NewJob, Submitted

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLedger:
    """A ledger that doesn't block the event loop. Event loops and threads may share one; a forked child may not.

    A cancelled call is not undone: what it asked for may still be written.
    """

    def __init__(self, ledger: Ledger, /) -> None:
        self.ledger = ledger
        self._thread = ThreadPoolExecutor(1, "redrive-ledger")

    async def run(self, verb: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Any method of the ledger: `await aio.run(ledger.find, kind, key)`."""
        call = partial(copy_context().run, verb, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def submit(self, job: NewJob, /, *, tx: Any = None) -> Submitted:
        """As `Ledger.submit`; `tx` may be an AsyncConnection or AsyncSession."""
        return (await self.submit_many((job,), tx=tx))[0]

    async def submit_many(self, jobs: Iterable[NewJob], /, *, tx: Any = None) -> list[Submitted]:
        """As `Ledger.submit_many`. What many tasks submit at the same time is written together."""
        given = list(jobs)
        if tx is not None:
            if not hasattr(tx, "run_sync"):
                raise TypeError(f"tx is an AsyncConnection or an AsyncSession here, not {type(tx).__name__}")
            return await tx.run_sync(lambda connection: self.ledger.submit_many(given, tx=connection))  # type: ignore[no-any-return]
        checked = [limits.checked(job, self.ledger.max_payload) for job in given]
        if not checked:
            return []
        loop = asyncio.get_running_loop()
        gathering = self.ledger.gathering
        done = loop.create_future()

        def finish() -> None:
            if not done.done():  # the caller may have been cancelled meanwhile
                done.set_result(None)

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(finish)
            except RuntimeError:
                pass  # the loop is closed: nobody is left to be told, and the others still have to be

        context = copy_context()  # a test's clock is in it

        def lead() -> None:
            try:
                context.run(gathering.lead, entry)
            finally:
                tell()

        def woken() -> None:
            if entry.settled:
                tell()
                return
            gathering.look(entry)
            if entry.leads:
                self._thread.submit(lead)

        # Who is to write for all does so even if its own caller has been cancelled: the others wait for it.
        entry = Entry(checked, woken)
        gathering.join(entry)
        if entry.leads:
            self._thread.submit(lead)
        await done
        return entry.result()

    def close(self) -> None:
        """End the thread; the ledger itself stays open."""
        self._thread.shutdown(wait=False)
