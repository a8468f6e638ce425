"""Running: how a worker runs a command."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..ledger.record import Lease
from ..worker.job_type import JobType
from .terms import FIRING, Terms

if TYPE_CHECKING:
    import sqlalchemy


def kind_of(terms: Terms, fn: Callable[..., Any], /) -> JobType:
    """What a worker knows of it."""
    return JobType(
        name=terms.name, run=_RUNS[terms.execution](fn, terms), execution=terms.execution, settings=terms.settings,
        concurrency=terms.concurrency, rate=terms.rate, on_exhausted=terms.spent, fn=fn,
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


def _transaction(fn: Callable[..., Any], terms: Terms) -> Callable[[sqlalchemy.Connection, Lease], bytes | None]:
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
    "thread": _plain,
    "async": _async,
    "transaction": _transaction,
}
