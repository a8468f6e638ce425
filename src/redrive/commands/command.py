"""Command: a registered function. Submitted, a worker runs it, surely; `run` runs it here and now."""

from __future__ import annotations

import copy
import functools
import sys
import warnings
from asyncio import _get_running_loop  # 30 ns; the public one raises where there is none
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar

from ..core.context import job_around, scope_around
from ..core.key import KeyLike
from ..core.seconds import Seconds
from ..errors import BlockingCall, DirectCall
from .job import Desk, Job
from .options import NONE

if TYPE_CHECKING:
    import sqlalchemy
    import sqlalchemy.ext.asyncio

    from ..ledger.aio import AsyncLedger
    from ..ledger.db.caller_transaction import Transaction
    from ..ledger.record import NewJob, Submitted
    from .terms import Terms

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Post(Desk, Protocol):
    """The desk, with a way in for async code."""

    @property
    def aio(self) -> AsyncLedger:
        """Opened at first use."""


class Work(Generic[R_co]):
    """A command with its arguments, not submitted yet. Immutable: anything may share it."""

    __slots__ = ("_terms", "job", "post")

    def __init__(self, post: Post, terms: Terms, job: NewJob) -> None:
        self.post = post
        self.job = job
        self._terms = terms

    def held(self, submitted: Submitted, /) -> Job[R_co]:
        """The job that it became."""
        return Job(self.post, self._terms.envelope, submitted, self._terms.due(self.job))

    def __repr__(self) -> str:
        return f"<Work {self.job.kind} {self.job.key}>"


class Command(Generic[P, R_co]):
    """A registered function. `submit` enqueues it as a job, `run` calls it here.

    Immutable: threads, event loops and forked children may share one.

    Attributes:
        name: Name of the job type.
    """

    def __init__(self, post: Post, fn: Callable[..., Any], terms: Terms, /) -> None:
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]  # it is no function itself, but wears its name
        self.name = terms.name
        self._post = post
        self._fn = fn
        self._terms = terms
        self._options = NONE
        self._warned: set[type[Warning]] = set()
        """Warnings that were issued. Copies by `using` share it."""

    # ---- submit ----

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Enqueue the function as a job, once for its job key.

        Args:
            args: Positional arguments of the function. They are checked against its signature.
            kwargs: Keyword arguments of the function.

        Returns:
            A handle to the job. If the job key exists, the handle of that job, with `created`
                False.

        Raises:
            TypeError: The arguments do not fit the function, or cannot be stored.
        """
        if _get_running_loop() is not None and not hasattr(sys, "ps1"):  # a notebook's loop runs around every cell
            called = getattr(self._fn, "__name__", self.name)
            self._warn(BlockingCall, f"{self.name}.submit() blocks the event loop; use `await {called}.asubmit(...)`")
        work = self._work(args, kwargs)
        return work.held(self._post.ledger.submit(work.job, tx=self._options.tx))

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Enqueue the function as a job, from async code.

        `using(tx=...)` takes an `AsyncConnection` or `AsyncSession` here.

        Args:
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.

        Returns:
            A handle to the job.
        """
        work = self._work(args, kwargs)
        return work.held(await self._post.aio.submit(work.job, tx=self._options.tx))

    def using(
        self, *, key: KeyLike | None = None, tx: Transaction | sqlalchemy.ext.asyncio.AsyncConnection
        | sqlalchemy.ext.asyncio.AsyncSession | None = None, delay: Seconds | None = None, due: datetime | None = None,
        priority: int | None = None, deadline: datetime | None = None,
    ) -> Self:  # fmt: skip
        """Return a copy with options for the next submissions.

        Args:
            key: Job key, instead of the one of the decorator.
            tx: Your open transaction on the ledger's database. The job exists when you commit it.
            delay: Seconds until the job is due, or a `timedelta`.
            due: Time at which the job is due, instead of a delay.
            priority: From -2 (first) to 2 (last).
            deadline: Time after which the job is not started any more.

        Returns:
            The copy.
        """
        other = copy.copy(self)
        other._options = self._options.with_(key=key, tx=tx, delay=delay, due=due, priority=priority, deadline=deadline)
        return other

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Work[R_co]:
        """Return a submission for `app.submit_many`.

        Args:
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.

        Returns:
            The submission, not stored yet.

        Raises:
            TypeError: This command has a transaction. Pass it to `submit_many` instead.
        """
        if self._options.tx is not None:
            raise TypeError("bind() takes no transaction; pass it to app.submit_many(..., tx=...)")
        return self._work(args, kwargs)

    def job(self, job_id: str | int, /) -> Job[R_co]:
        """Return a handle to a job that was submitted before, here or elsewhere.

        Args:
            job_id: Id of the job.

        Returns:
            The handle.

        Raises:
            LookupError: This command has no such job.
        """
        from ..ledger.record import Submitted  # noqa: PLC0415  # SQLAlchemy, an extra

        found = self._post.ledger.get(int(job_id))
        if found is None or found.kind != self.name:
            raise LookupError(f"{self.name} has no job {job_id}")
        held = Submitted(found.id, found.kind, found.key, found.state, created=False, request_hash=found.request_hash)
        return Job(self._post, self._terms.envelope, held, found.due_at)

    def _called(self) -> None:
        """Warn once that a call is not a submission; inside of a job it is one of its steps."""
        if DirectCall not in self._warned and job_around(scope_around()) is None:
            way = "call `.submit(...)` to enqueue it, or `.run(...)` to run it here"
            self._warn(DirectCall, f"{self.name} was called directly, without key, ledger or deduplication; {way}")

    def _warn(self, category: type[Warning], says: str) -> None:
        if category not in self._warned:
            self._warned.add(category)
            warnings.warn(f"redrive: {says}", category, stacklevel=4 if category is DirectCall else 3)

    def _work(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work[R_co]:
        return Work(self._post, self._terms, self._terms.new_job(self._options, args, kwargs))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._terms.place}>"


class PlainCommand(Command[P, R_co]):
    """A command of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now; warns once outside of a job. `run` is the same without the warning."""
        self._called()
        return self._fn(*args, **kwargs)  # type: ignore[no-any-return]

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now, without key, ledger or deduplication."""
        return self._fn(*args, **kwargs)  # type: ignore[no-any-return]


class AsyncCommand(Command[P, R_co]):
    """A command of an async function."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now; warns once outside of a job. `run` is the same without the warning."""
        self._called()
        return await self._fn(*args, **kwargs)  # type: ignore[no-any-return]

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now, without key, ledger or deduplication."""
        return await self._fn(*args, **kwargs)  # type: ignore[no-any-return]


class TxCommand(Command[P, R_co]):
    """Runs inside the transaction that settles it: its writes and its end commit together."""

    def __call__(self, tx: sqlalchemy.Connection, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now, in your transaction; warns once outside of a job. `run` is the same without the warning."""
        self._called()
        return self._fn(tx, *args, **kwargs)  # type: ignore[no-any-return]

    def run(self, tx: sqlalchemy.Connection, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now, in your transaction, without key, ledger or deduplication."""
        return self._fn(tx, *args, **kwargs)  # type: ignore[no-any-return]


def made(post: Post, fn: Callable[..., Any], terms: Terms, /) -> Command[..., Any]:
    """The command of a function, for its execution."""
    classes: dict[str, type[Command[..., Any]]] = {"thread": PlainCommand, "async": AsyncCommand, "transaction": TxCommand}
    return classes[terms.execution](post, fn, terms)
