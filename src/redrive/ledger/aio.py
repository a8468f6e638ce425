"""AsyncLedger: the ledger for event loops, through one thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from . import validation
from .db.caller_transaction import AsyncTransaction, run_in_caller
from .ledger import Ledger
from .model import NewJob, Submitted

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

    async def submit(self, job: NewJob, /, *, tx: AsyncTransaction | None = None) -> Submitted:
        """Submit a job, once for its job key. See `Ledger.submit`.

        Args:
            job: The job.
            tx: Your open async transaction on the ledger's database.

        Returns:
            The job that the key has now.
        """
        return (await self.submit_many((job,), tx=tx))[0]

    async def submit_many(
        self, jobs: Iterable[NewJob], /, *, tx: AsyncTransaction | None = None
    ) -> list[Submitted]:
        """Submit many jobs: all of them or none. See `Ledger.submit_many`.

        Jobs that many tasks submit at the same time are written together.

        Args:
            jobs: The jobs.
            tx: Your open async transaction on the ledger's database.

        Returns:
            The jobs that the keys have now, in the same order.
        """
        batch = list(jobs)
        if tx is not None:
            submit_many = self.ledger.submit_many
            return await run_in_caller(tx, lambda sync_tx: submit_many(batch, tx=sync_tx))
        checked = [validation.check_job(job, self.ledger.max_payload) for job in batch]
        if not checked:
            return []
        # A leader writes even if its own caller was cancelled, because others wait for it.
        submission = await self.ledger.group_commit.submit_from_loop(checked, self._thread)
        return submission.result()

    def close(self) -> None:
        """Close the thread. The ledger itself stays open."""
        self._thread.shutdown(wait=False)
