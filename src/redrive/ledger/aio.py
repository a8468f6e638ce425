"""AsyncLedger: the ledger for event loops, through one thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from . import validation
from .jobs.group_commit import Entry
from .ledger import Ledger
from .record import NewJob, Submitted

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLedger:
    """A ledger for async code: its methods run in a thread and do not block the event loop.

    A cancelled call is not undone: it may still be written.

    Event loops and threads may share one. A forked child may not.

    Args:
        ledger: The ledger to use.
    """

    def __init__(self, ledger: Ledger, /) -> None:
        self.ledger = ledger
        self._thread = ThreadPoolExecutor(1, "redrive-ledger")

    async def run(self, verb: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run any method of the ledger: `await aio.run(ledger.find, kind, key)`.

        Args:
            verb: The method.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            The result of the method.
        """
        call = partial(copy_context().run, verb, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def submit(self, job: NewJob, /, *, tx: Any = None) -> Submitted:
        """Submit a job, once for its job key. See `Ledger.submit`.

        Args:
            job: The job.
            tx: Your open transaction. It may be an `AsyncConnection` or `AsyncSession`.

        Returns:
            The job that the key has now.
        """
        return (await self.submit_many((job,), tx=tx))[0]

    async def submit_many(self, jobs: Iterable[NewJob], /, *, tx: Any = None) -> list[Submitted]:
        """Submit many jobs: all of them or none. See `Ledger.submit_many`.

        Jobs that many tasks submit at the same time are written together.

        Args:
            jobs: The jobs.
            tx: Your open transaction. It may be an `AsyncConnection` or `AsyncSession`.

        Returns:
            The jobs that the keys have now, in the same order.
        """
        given = list(jobs)
        if tx is not None:
            if not hasattr(tx, "run_sync"):
                raise TypeError(f"tx must be an AsyncConnection or an AsyncSession here, not {type(tx).__name__}")
            return await tx.run_sync(lambda connection: self.ledger.submit_many(given, tx=connection))  # type: ignore[no-any-return]
        checked = [validation.checked(job, self.ledger.max_payload) for job in given]
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
        """End the thread. The ledger itself stays open."""
        self._thread.shutdown(wait=False)
