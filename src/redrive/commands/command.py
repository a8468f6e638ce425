"""Command: a registered function. `submit` enqueues it as a job, and `run` calls it here."""

from __future__ import annotations

import copy
import functools
import sys
import warnings
from asyncio import _get_running_loop  # 30 ns; the public function raises without a loop
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)

from ..core.context import clock_around, job_around, scope_around
from ..core.key import KeyLike
from ..core.seconds import Seconds
from ..errors import BlockingCall, Cancelled, DirectCall
from .job import CommandGateway, Job
from .options import DEFAULT_SUBMIT_OPTIONS

if TYPE_CHECKING:
    import sqlalchemy

    from ..ledger.db.caller_transaction import AsyncTransaction, Transaction
    from ..ledger.model import NewJob, Submitted
    from ..worker.job_type import JobType
    from .engine import CommandEngine, EngineSubmitted
    from .spec import CommandSpec

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Coro: TypeAlias = Coroutine[Any, Any, R]
MAX_JOB_ID = 2**63 - 1  # of a 64-bit column


class BoundCommand(Generic[R_co]):
    """A command with its arguments, not submitted yet. Immutable: anything may share it."""

    __slots__ = ("_spec", "engine", "gateway", "job")

    def __init__(
        self,
        gateway: CommandGateway,
        spec: CommandSpec,
        job: NewJob,
        engine: CommandEngine | None = None,
    ) -> None:
        self.gateway = gateway
        self.job = job
        self._spec = spec
        self.engine = engine

    def handle(self, submitted: Submitted | EngineSubmitted, /) -> Job[R_co]:
        """Return the handle to the submitted job."""
        job = self.job
        due = job.due  # By the local clock. The clock of the ledger decides.
        if due is None:
            due = clock_around().now() + timedelta(seconds=job.delay)
        return Job(self.gateway, self._spec.envelope, submitted, due, self.engine)

    def accept(self, submitted: Submitted | EngineSubmitted, /) -> Job[R_co]:
        """Return the handle to the submitted job.

        Raises:
            Cancelled: The job of the key is about to be cancelled, so this work would not be done.
        """
        if submitted.is_stopping:
            raise Cancelled(
                f"{submitted.kind}: job {submitted.id} of the key {submitted.key} is running and "
                "was asked to stop; nothing was submitted; submit it again when the job has ended",
                job_id=str(submitted.id),
            )
        return self.handle(submitted)

    def __repr__(self) -> str:
        return f"<BoundCommand {self.job.kind} {self.job.key}>"


class Command(Generic[P, R_co]):
    """A registered function. `submit` enqueues it as a job, `run` calls it here.

    Immutable: threads, event loops and forked children may share one.

    Attributes:
        name: Name of the job type.
    """

    def __init__(
        self, gateway: CommandGateway, fn: Callable[..., Any], spec: CommandSpec, /
    ) -> None:
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]  # not itself a function
        self.name = spec.name
        self._gateway = gateway
        self._fn = fn
        self._spec = spec
        self._options = DEFAULT_SUBMIT_OPTIONS
        self._warned: set[type[Warning]] = set()
        """Warnings that were issued. Copies by `using` share it."""

    @property
    def job_type(self) -> JobType:
        """How a worker runs the command. A process finds its function by it."""
        return self._gateway.job_type(self.name)

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
            Cancelled: The job of the key is running and was asked to stop. Nothing was submitted.
        """
        if _get_running_loop() is not None and not hasattr(sys, "ps1"):  # not in a notebook
            fn_name = getattr(self._fn, "__name__", self.name)
            fix = f"use `await {fn_name}.asubmit(...)`"
            self._warn(BlockingCall, f"{self.name}.submit() blocks the event loop; {fix}")
        bound = self._bind(args, kwargs)
        engine, tx = bound.engine, self._options.tx
        if engine is not None and tx is None:
            return bound.accept(engine.submit(self._spec, bound.job))
        return bound.accept(self._gateway.ledger.submit(bound.job, tx=tx))

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Enqueue the function as a job, from async code.

        `using(tx=...)` takes an async transaction here, such as an `AsyncSession`.

        Args:
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.

        Returns:
            A handle to the job.
        """
        bound = self._bind(args, kwargs)
        engine, tx = bound.engine, self._options.tx
        if engine is not None and tx is None:
            return bound.accept(await engine.asubmit(self._spec, bound.job))
        return bound.accept(await self._gateway.aio.submit(bound.job, tx=tx))

    def using(
        self,
        *,
        key: KeyLike | None = None,
        tx: Transaction | AsyncTransaction | None = None,
        delay: Seconds | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        deadline: datetime | None = None,
    ) -> Self:
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
        other._options = self._options.with_changes(
            key=key, tx=tx, delay=delay, due=due, priority=priority, deadline=deadline
        )
        return other

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundCommand[R_co]:
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
        return self._bind(args, kwargs)

    def job(self, job_id: str | int, /) -> Job[R_co]:
        """Return a handle to a job that was submitted before, here or elsewhere.

        Args:
            job_id: Id of the job.

        Returns:
            The handle.

        Raises:
            LookupError: This command has no such job.
            ValueError: The id is not a number.
        """
        engine = self._engine
        if engine is not None and "#" in str(job_id):
            submitted = engine.find(self.name, str(job_id))
            if submitted is None:
                raise LookupError(f"{self.name} has no job {job_id}")
            now = clock_around().now()
            return Job(self._gateway, self._spec.envelope, submitted, now, engine)
        try:
            number = int(job_id)
        except ValueError:
            raise ValueError(
                f"{self.name}: invalid job id {job_id!r}; pass the `id` of a job, such as '17'"
            ) from None
        row = self._gateway.ledger.get(number) if 0 < number <= MAX_JOB_ID else None
        if row is None or row.kind != self.name:
            raise LookupError(f"{self.name} has no job {job_id}")
        return self._gateway.job(row)

    def _warn_of_direct_call(self) -> None:
        """Warn once that a call does not submit a job. Inside a job, calls are expected."""
        if DirectCall not in self._warned and job_around(scope_around()) is None:
            self._warn(
                DirectCall,
                f"{self.name} was called directly, without key, ledger or deduplication; "
                "call `.submit(...)` to enqueue it, or `.run(...)` to run it here",
            )

    def _warn(self, category: type[Warning], message: str) -> None:
        if category not in self._warned:
            self._warned.add(category)
            level = 4 if category is DirectCall else 3  # the caller of the command
            warnings.warn(f"redrive: {message}", category, stacklevel=level)

    @property
    def _engine(self) -> CommandEngine | None:
        """The engine of the command, if it does not run on the ledger."""
        return self._gateway.engine_of(self._spec)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCommand[R_co]:
        spec = self._spec
        job = spec.new_job(self._options, args, kwargs)
        return BoundCommand(self._gateway, spec, job, self._engine)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._spec.place}>"


class SyncCommand(Command[P, R_co]):
    """A command of a sync function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here. Warns once outside of a job. `run` does the same silently."""
        self._warn_of_direct_call()
        return self._fn(*args, **kwargs)  # type: ignore[no-any-return]

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here, without key, ledger or deduplication."""
        return self._fn(*args, **kwargs)  # type: ignore[no-any-return]


class AsyncCommand(Command[P, R_co]):
    """A command of an async function."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here. Warns once outside of a job. `run` does the same silently."""
        self._warn_of_direct_call()
        return await self._fn(*args, **kwargs)  # type: ignore[no-any-return]

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here, without key, ledger or deduplication."""
        return await self._fn(*args, **kwargs)  # type: ignore[no-any-return]


class TransactionalCommand(Command[P, R_co]):
    """A command that runs in the transaction that settles its job."""

    def __call__(self, tx: sqlalchemy.Connection, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function in your transaction. Warns once outside of a job, `run` does not."""
        self._warn_of_direct_call()
        return self._fn(tx, *args, **kwargs)  # type: ignore[no-any-return]

    def run(self, tx: sqlalchemy.Connection, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function in your transaction, without key, ledger or deduplication."""
        return self._fn(tx, *args, **kwargs)  # type: ignore[no-any-return]


def make_command(
    gateway: CommandGateway, fn: Callable[..., Any], spec: CommandSpec, /
) -> Command[..., Any]:
    """Return the command of a function."""
    classes: dict[str, type[Command[..., Any]]] = {
        "thread": SyncCommand,
        "process": SyncCommand,
        "async": AsyncCommand,
        "transaction": TransactionalCommand,
    }
    return classes[spec.execution](gateway, fn, spec)


# --- Types of the decorators


class CommandDecorator(Protocol):
    """Decorates sync and async functions. A coroutine is also an R, so the async one is first."""

    @overload
    def __call__(self, fn: Callable[P, Coro[R]], /) -> AsyncCommand[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncCommand[P, R]: ...


class ScheduledDecorator(Protocol):
    """Decorates functions without parameters."""

    @overload
    def __call__(self, fn: Callable[[], Coro[R]], /) -> AsyncCommand[[], R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[[], R], /) -> SyncCommand[[], R]: ...


class TxDecorator(Protocol):
    """Decorates functions that take the connection first. Callers of `submit` do not pass it."""

    def __call__(
        self, fn: Callable[Concatenate[sqlalchemy.Connection, P], R], /
    ) -> TransactionalCommand[P, R]: ...
