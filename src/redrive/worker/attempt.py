"""One attempt at a job: its context, its time limit, and the three ways to run it."""

from __future__ import annotations

import asyncio
import math
from _thread import get_ident
from collections.abc import Callable, Mapping
from contextvars import Context
from datetime import datetime
from time import monotonic
from typing import NamedTuple

from ..core.context import IDS, SLOT, ContextSlot, Scope
from ..core.key import Key, KeyLike
from ..errors import AttemptTimeout, LeaseLost
from ..ledger.ledger import Ledger
from ..ledger.model import Lease
from .job_type import JobType
from .outcome import after_success

NO_IDS: Mapping[str, str] = {}
FULL_KEY_COLONS = 4
"""Colons of a key that has all of its parts."""


class AttemptResult(NamedTuple):
    """An attempt that has ended. Immutable.

    Attributes:
        job_type: Its job type.
        lease: Its lease.
        result: What `JobType.run` returned.
        error: What it raised.
        seconds: How long it took.
        is_settled: The transaction of the attempt has settled the job already.
        is_late: The transaction of the attempt was rolled back, because the lease was lost.
        is_expired: The deadline of the job passed before the attempt started.
    """

    job_type: JobType
    lease: Lease
    result: bytes | None
    error: BaseException | None
    seconds: float
    is_settled: bool = False
    is_late: bool = False
    is_expired: bool = False


class AttemptContext(NamedTuple):
    """What all attempts of a worker share. Threads may share it.

    Attributes:
        context: The context in which the worker was started. Each attempt gets a copy.
        now: Returns the time by the ledger's clock.
    """

    context: Context
    now: Callable[[], datetime]

    def time_limit(self, job_type: JobType, lease: Lease) -> float:
        """Return the seconds that an attempt may take, or infinity."""
        timeout = job_type.settings.attempt_timeout
        limit = math.inf if timeout is None else timeout
        if lease.deadline_stored is None:
            return limit
        deadline = lease.deadline
        assert deadline is not None
        return min(limit, (deadline - self.now()).total_seconds())


class DurableLayer:
    """The job, as retries and `current()` inside an attempt see it. Immutable."""

    __slots__ = ("_job_type", "_lease")

    def __init__(self, job_type: JobType, lease: Lease) -> None:
        self._job_type, self._lease = job_type, lease

    @property
    def operation(self) -> str:
        """The job type."""
        return self._job_type.name

    @property
    def max_attempts(self) -> int:
        """The limit of the job, or else of its type."""
        own = self._lease.max_attempts
        return self._job_type.settings.max_attempts if own is None else own

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return str(self._lease.job_id)


def run_sync(
    context: AttemptContext, ledger: Ledger, job_type: JobType, lease: Lease
) -> AttemptResult:
    """Make an attempt in this thread, in a copy of the worker's context."""
    started_at, limit = monotonic(), math.inf
    if job_type.settings.attempt_timeout is not None or lease.deadline_stored is not None:
        limit = context.time_limit(job_type, lease)
        if limit <= 0:
            return AttemptResult(job_type, lease, None, None, 0.0, is_expired=True)
    if job_type.execution == "transaction":
        return context.context.copy().run(
            _perform_in_transaction, ledger, job_type, lease, limit, started_at
        )
    return context.context.copy().run(_perform, job_type, lease, limit, started_at)


async def run_async(context: AttemptContext, job_type: JobType, lease: Lease) -> AttemptResult:
    """Make an attempt in this task, which has a copy of the worker's context."""
    started_at = monotonic()
    limit = context.time_limit(job_type, lease)
    if limit <= 0:
        return AttemptResult(job_type, lease, None, None, 0.0, is_expired=True)
    enter_attempt(job_type, lease, limit)
    try:
        work = job_type.run(lease) if limit == math.inf else _with_timeout(job_type, lease, limit)
        return AttemptResult(job_type, lease, await work, None, monotonic() - started_at)
    except BaseException as error:  # SystemExit too: it ends this job, not the event loop
        return AttemptResult(job_type, lease, None, error, monotonic() - started_at)


def _perform(job_type: JobType, lease: Lease, limit: float, started_at: float) -> AttemptResult:
    enter_attempt(job_type, lease, limit)
    try:
        return AttemptResult(job_type, lease, job_type.run(lease), None, monotonic() - started_at)
    except BaseException as error:  # SystemExit too: it ends this job, not the worker
        return AttemptResult(job_type, lease, None, error, monotonic() - started_at)


def _perform_in_transaction(
    ledger: Ledger, job_type: JobType, lease: Lease, limit: float, started_at: float
) -> AttemptResult:
    """Run the function and settle its job in one transaction."""
    enter_attempt(job_type, lease, limit)
    is_settling, result = False, None
    try:
        with ledger.begin() as connection:
            result = job_type.run(connection, lease)
            outcome = after_success(lease, result, ledger.max_payload)
            if outcome.reason is not None:
                raise _RollBack
            is_settling = True
            ledger.settle(outcome.settlement, tx=connection)
            is_settling = False
        return AttemptResult(
            job_type, lease, result, None, monotonic() - started_at, is_settled=True
        )
    except _RollBack:  # the completer makes a dead letter of it
        return AttemptResult(job_type, lease, result, None, monotonic() - started_at)
    except LeaseLost as error:
        return AttemptResult(
            job_type, lease, None, error, monotonic() - started_at, is_late=is_settling
        )
    except BaseException as error:
        return AttemptResult(job_type, lease, None, error, monotonic() - started_at)


class _RollBack(Exception):
    """The result cannot be stored: leave the transaction without a commit."""


async def _with_timeout(job_type: JobType, lease: Lease, limit: float) -> bytes | None:
    timer = asyncio.timeout(limit)
    try:
        async with timer:
            result: bytes | None = await job_type.run(lease)
            return result
    except TimeoutError as error:
        if timer.expired():
            raise AttemptTimeout(
                f"{job_type.name}: attempt {lease.attempt} took longer than {limit:.6g} s"
            ) from error
        raise


def enter_attempt(job_type: JobType, lease: Lease, limit: float) -> None:
    """Set the deadline, layer, key and correlation ids of an attempt in the current context."""
    key = lease.key if lease.key.count(":") >= FULL_KEY_COLONS else attempt_key(lease)
    layer = DurableLayer(job_type, lease)
    scope: Scope = (monotonic() + limit, max(1, lease.attempt), layer, key, None)
    SLOT.set(ContextSlot(scope, get_ident()))
    ids = lease.ids_stored
    IDS.set(lease.ids if isinstance(ids, str) else ids or NO_IDS)


def attempt_key(lease: Lease) -> KeyLike | None:
    """Return the idempotency key for calls in the attempt: the job's own, completed if short."""
    if lease.key.count(":") >= FULL_KEY_COLONS:
        return lease.key
    try:
        return Key("job", "", lease.key, lease.kind.replace(":", "."))
    except ValueError:
        return None
