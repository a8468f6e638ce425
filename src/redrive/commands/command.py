"""Command: a registered function. Called, it runs here and now; submitted, a worker runs it, surely."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ..core.context import clock_around
from ..core.key import KeyLike
from ..core.seconds import Seconds, seconds
from ..ledger.aio import AsyncLedger
from ..ledger.moment import micros
from ..ledger.record import NewJob, Submitted
from ..worker.kind import Kind
from .envelope import VERSION, said
from .job import Desk, Job
from .terms import Terms, urgency

if TYPE_CHECKING:
    import sqlalchemy
    import sqlalchemy.ext.asyncio

    from ..ledger.caller import Transaction
    from ..ledger.record import Lease

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

DAY = 86_400.0
FIRING = "redrive-cron"
"""The header of a scheduled job: the line it was made by."""


class Post(Desk, Protocol):
    """The desk, with a way in for async code."""

    @property
    def aio(self) -> AsyncLedger:
        """Opened at first use."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `using` said of one submission."""

    key: str | None = None
    tx: Any = None
    delay: float = 0.0
    due: datetime | None = None
    priority: int | None = None
    deadline: datetime | None = None


class Work(Generic[R_co]):
    """A command with its arguments, not submitted yet. Immutable: anything may share it."""

    __slots__ = ("command", "job")

    def __init__(self, command: Command[..., R_co], job: NewJob) -> None:
        self.command = command
        self.job = job

    def __repr__(self) -> str:
        return f"<Work {self.job.kind} {self.job.key}>"


class Command(Generic[P, R_co]):
    """A registered function. Call it: it runs here, now, as it always did. Submit it: a worker runs it, surely.

    Immutable: threads, event loops and forked children may share one.
    """

    def __init__(self, post: Post, fn: Callable[..., Any], terms: Terms, /) -> None:
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]  # it is no function itself, but wears its name
        self.name = terms.name
        self._post = post
        self._fn = fn
        self._terms = terms
        self._options = Options()

    # ---- submit ----

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Write it in the ledger, once for its key. Arguments are checked like those of the function itself."""
        job = self._new(args, kwargs)
        return self._held(self._post.ledger.submit(job, tx=self._options.tx), job)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """The same for async code; `using(tx=...)` takes an AsyncConnection or AsyncSession here."""
        job = self._new(args, kwargs)
        return self._held(await self._post.aio.submit(job, tx=self._options.tx), job)

    def using(
        self, *, key: KeyLike | None = None, tx: Transaction | sqlalchemy.ext.asyncio.AsyncConnection
        | sqlalchemy.ext.asyncio.AsyncSession | None = None, delay: Seconds | None = None, due: datetime | None = None,
        priority: int | None = None, deadline: datetime | None = None,
    ) -> Self:  # fmt: skip
        """The same with other options for this submission.

        key: instead of the one that its arguments give. tx: an open transaction of yours on the ledger's database.
        delay, due: not before. priority: from -2, the first, to 2, the last. deadline: when it is of no use any more.
        """
        if delay is not None and due is not None:
            raise TypeError("give delay= or due=, not both")
        for moment in (due, deadline):
            if moment is not None:
                micros(moment)
        given: dict[str, Any] = {
            "key": None if key is None else said(key),
            "tx": tx,
            "delay": None if delay is None else seconds("delay", delay),
            "due": due,
            "priority": None if priority is None else urgency(priority),
            "deadline": deadline,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        if "due" in changes:
            changes["delay"] = 0.0
        elif "delay" in changes:
            changes["due"] = None
        other = copy.copy(self)
        other._options = replace(self._options, **changes)
        return other

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Work[R_co]:
        """For `app.submit_many`."""
        if self._options.tx is not None:
            raise TypeError("bind() has no transaction: give it to app.submit_many(..., tx=...)")
        return Work(self, self._new(args, kwargs))

    def _new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        terms, options = self._terms, self._options
        return NewJob(
            kind=terms.name,
            key=terms.envelope.key(args, kwargs) if options.key is None else options.key,
            payload=terms.envelope.payload(args, kwargs),
            priority=terms.priority if options.priority is None else options.priority,
            delay=options.delay,
            due=options.due,
            max_attempts=terms.settings.max_attempts,
            # What is the same work stays so for ever; a key that is nobody else's need not be remembered.
            keep=None if terms.envelope.keyed or options.key is not None else DAY,
            deadline=options.deadline,
            version=VERSION,
        )

    def _held(self, submitted: Submitted, job: NewJob) -> Job[R_co]:
        due = clock_around().now() + timedelta(seconds=job.delay) if job.due is None else job.due
        return Job(self._post, self._terms.envelope, submitted, due)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._terms.place}>"


class PlainCommand(Command[P, R_co]):
    """A command of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now."""
        return self._fn(*args, **kwargs)  # type: ignore[no-any-return]


class AsyncCommand(Command[P, R_co]):
    """A command of an async function."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now."""
        return await self._fn(*args, **kwargs)  # type: ignore[no-any-return]


class TxCommand(Command[P, R_co]):
    """Runs inside the transaction that settles it: its writes and its end commit together."""

    def __call__(self, tx: sqlalchemy.Connection, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here, now, in your transaction."""
        return self._fn(tx, *args, **kwargs)  # type: ignore[no-any-return]


def made(post: Post, fn: Callable[..., Any], terms: Terms, /) -> Command[..., Any]:
    """The command of a function, of its colour."""
    colours: dict[str, type[Command[..., Any]]] = {"plain": PlainCommand, "async": AsyncCommand, "transaction": TxCommand}
    return colours[terms.colour](post, fn, terms)


def submitted(post: Post, works: Sequence[Work[Any]], tx: Any, /) -> list[Job[Any]]:
    """Many at once, all or none."""
    for work in works:
        if not isinstance(work, Work):
            raise TypeError(f"submit_many takes what `command.bind(...)` gives, not {type(work).__name__}: {work!r}")
        if work.command._post is not post:
            raise ValueError(f"{work.job.kind} is a command of another app")
    found = post.ledger.submit_many([work.job for work in works], tx=tx)
    return [work.command._held(one, work.job) for work, one in zip(works, found, strict=True)]


def kind_of(command: Command[..., Any], /) -> Kind:
    """What a worker knows of it."""
    terms = command._terms
    return Kind(
        name=terms.name, run=_RUNS[terms.colour](command._fn, terms), colour=terms.colour, settings=terms.settings,
        concurrency=terms.concurrency, rate=terms.rate, spent=terms.spent,
    )  # fmt: skip


def _plain(fn: Callable[..., Any], terms: Terms) -> Callable[[Lease], bytes | None]:
    envelope = terms.envelope

    def run(lease: Lease) -> bytes | None:
        args, kwargs = envelope.opened(lease)
        return None if _stale(terms, lease) else envelope.stored(fn(*args, **kwargs))

    return run


def _async(fn: Callable[..., Any], terms: Terms) -> Callable[[Lease], Coroutine[Any, Any, bytes | None]]:
    envelope = terms.envelope

    async def run(lease: Lease) -> bytes | None:
        args, kwargs = envelope.opened(lease)
        return None if _stale(terms, lease) else envelope.stored(await fn(*args, **kwargs))

    return run


def _transaction(fn: Callable[..., Any], terms: Terms) -> Callable[Concatenate[sqlalchemy.Connection, Lease, ...], bytes | None]:
    envelope = terms.envelope

    def run(connection: sqlalchemy.Connection, lease: Lease) -> bytes | None:
        args, kwargs = envelope.opened(lease)
        return envelope.stored(fn(connection, *args, **kwargs))

    return run


def _stale(terms: Terms, lease: Lease) -> bool:
    """A firing of a line that is not in the code any more: the next one was written down before the line was changed."""
    line = lease.headers.get(FIRING)
    return line is not None and line != str(terms.cron)


_RUNS: dict[str, Callable[[Callable[..., Any], Terms], Callable[..., Any]]] = {
    "plain": _plain,
    "async": _async,
    "transaction": _transaction,
}
