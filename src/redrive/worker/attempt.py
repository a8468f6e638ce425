"""One attempt at a job: its context, its time limit, and the four ways to run it."""

from __future__ import annotations

import asyncio
import math
from _thread import allocate_lock, get_ident
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from datetime import datetime
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection

from ..core.context import IDS, SLOT, ContextSlot, Scope
from ..core.key import Key, KeyLike
from ..errors import AttemptTimeout, LeaseLost
from ..ledger.ledger import Ledger
from ..ledger.model import Lease, Settlement, lease_key
from .job_type import JobType
from .outcome import JobOutcome, after_success
from .progress import ProgressBoard, finish_in_thread
from .steps import JobSteps

T = TypeVar("T")

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
        suspension: The settlement of a job that sleeps or waits. It is in the ledger.
        outcome: What follows from the error, if its process has decided it.
    """

    job_type: JobType
    lease: Lease
    result: bytes | None
    error: BaseException | None
    seconds: float
    is_settled: bool = False
    is_late: bool = False
    is_expired: bool = False
    suspension: Settlement | None = None
    outcome: JobOutcome | None = None


class CancelRequests:
    """The running jobs of a worker that were cancelled.

    Changed by the ledger thread only; other threads may read.
    """

    def __init__(self) -> None:
        self._leases: set[tuple[int, ...]] = set()

    def add(self, leases: Iterable[Lease], /) -> list[Lease]:
        """Note that the jobs of these leases were cancelled. Return the new ones."""
        new = [lease for lease in leases if lease_key(lease) not in self._leases]
        self._leases.update(map(lease_key, new))
        return new

    def remove(self, leases: Iterable[Lease], /) -> None:
        """Forget leases that have ended."""
        if self._leases:
            self._leases.difference_update(map(lease_key, leases))

    def __bool__(self) -> bool:
        return bool(self._leases)

    def __contains__(self, lease: Lease, /) -> bool:
        return bool(self._leases) and lease_key(lease) in self._leases


class AttemptContext(NamedTuple):
    """What all attempts of a worker share. Threads may share it.

    Attributes:
        context: The context in which the worker was started. Each attempt gets a copy.
        now: Returns the time by the ledger's clock.
        ledger: For the steps of jobs.
        cancels: The running jobs that were cancelled.
        board: Takes the progress of running jobs.
        worker: Name of the worker.
    """

    context: Context
    now: Callable[[], datetime]
    ledger: Ledger
    cancels: CancelRequests
    board: ProgressBoard | None = None
    worker: str | None = None

    def time_limit(self, job_type: JobType, lease: Lease) -> float:
        """Return the seconds that an attempt may take, or infinity."""
        timeout = job_type.settings.attempt_timeout
        limit = math.inf if timeout is None else timeout
        if lease.deadline_stored is None or job_type.is_mirror:
            return limit
        deadline = lease.deadline
        assert deadline is not None
        return min(limit, (deadline - self.now()).total_seconds())


class DurableLayer:
    """The job, as retries and `current()` inside an attempt see it. Threads may share it."""

    __slots__ = ("_cancels", "_job_type", "_lease", "_make_job", "_running_job", "worker")

    def __init__(
        self,
        job_type: JobType,
        lease: Lease,
        make_job: Callable[[], JobSteps],
        cancels: CancelRequests | None = None,
        worker: str | None = None,
        /,
    ) -> None:
        self._job_type, self._lease, self._make_job = job_type, lease, make_job
        self._cancels = cancels
        self.worker = worker
        """Name of the worker. None: not known here."""
        self._running_job: JobSteps | None = None

    @property
    def running_job(self) -> JobSteps:
        """The steps of the job, made when the first one is used."""
        with _LAYER_LOCK:
            if self._running_job is None:
                self._running_job = self._make_job()
            return self._running_job

    @property
    def suspended_job(self) -> JobSteps | None:
        """The steps of the job, if a sleep or a wait ended the attempt."""
        job = self._running_job
        return job if job is not None and job.is_suspended else None

    def refuse_unawaited(self) -> None:
        """Raise TypeError if the function has ended without awaiting one of its steps."""
        job = self._running_job
        if job is not None and not job.is_suspended:
            job.unawaited.refuse()

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

    @property
    def is_replay(self) -> bool:
        """Whether the job replays a dead letter."""
        return self._lease.dead_id is not None

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled while this attempt runs."""
        return self._cancels is not None and self._lease in self._cancels


_LAYER_LOCK = allocate_lock()


def run_sync(
    context: AttemptContext, ledger: Ledger, job_type: JobType, lease: Lease
) -> AttemptResult:
    """Make an attempt in this thread, in a copy of the worker's context."""
    started_at, limit = monotonic(), math.inf
    if job_type.settings.attempt_timeout is not None or lease.deadline_stored is not None:
        limit = context.time_limit(job_type, lease)
        if limit <= 0:
            return AttemptResult(job_type, lease, None, None, 0.0, is_expired=True)
    if lease in context.cancels:  # it was cancelled while it waited for this thread
        return AttemptResult(job_type, lease, None, asyncio.CancelledError(), 0.0)
    if job_type.execution == "transaction":
        return context.context.copy().run(
            _perform_in_transaction, context, ledger, job_type, lease, limit, started_at
        )
    return context.context.copy().run(perform, context, job_type, lease, limit, started_at)


async def run_async(context: AttemptContext, job_type: JobType, lease: Lease) -> AttemptResult:
    """Make an attempt in this task, which has a copy of the worker's context."""
    started_at = monotonic()
    limit = context.time_limit(job_type, lease)
    if limit <= 0:
        return AttemptResult(job_type, lease, None, None, 0.0, is_expired=True)
    layer = enter_attempt(context, job_type, lease, limit)
    try:
        work = job_type.run(lease)
        if limit != math.inf:
            work = run_in_time(work, limit, job_type.name, lease.attempt)
        returned = await work
        layer.refuse_unawaited()
        result = AttemptResult(job_type, lease, returned, None, monotonic() - started_at)
    except BaseException as error:  # SystemExit too: it ends this job, not the event loop
        result = AttemptResult(job_type, lease, None, error, monotonic() - started_at)
    job = layer.suspended_job
    return result if job is None else await finish_in_thread(_suspend, job, result)


class RemoteFailure(Exception):
    """An attempt in another process that did not return: it failed, or its job sleeps or waits.

    Attributes:
        outcome: What follows from the error. It was decided there.
        suspension: The settlement of a job that sleeps or waits. It is in the ledger.
        is_late: The lease was lost when the job was to sleep or wait.
    """

    outcome: JobOutcome | None = None
    suspension: Settlement | None = None
    is_late: bool = False

    @classmethod
    def of(cls, error_class: str, text: str, /) -> RemoteFailure:
        """Return a failure whose class has the name of the error's class, for log records."""
        failure: RemoteFailure = type(error_class, (cls,), {"__module__": "builtins"})(text)
        return failure


class ProcessRunner(Protocol):
    """Makes attempts in another process."""

    def run(self, job_type: JobType, lease: Lease, limit: float, now: datetime, /) -> bytes | None:
        """Make an attempt, and return its result. Raises `RemoteFailure` for its error."""


def run_in_process(
    context: AttemptContext, runner: ProcessRunner, job_type: JobType, lease: Lease
) -> AttemptResult:
    """Make an attempt in another process. This thread waits for it."""
    started_at, limit = monotonic(), context.time_limit(job_type, lease)
    if limit <= 0:
        return AttemptResult(job_type, lease, None, None, 0.0, is_expired=True)

    if lease in context.cancels:  # it was cancelled while it waited for this thread
        return AttemptResult(job_type, lease, None, asyncio.CancelledError(), 0.0)

    def call(lease: Lease) -> bytes | None:
        return runner.run(job_type, lease, limit, context.now())

    def attempt() -> AttemptResult:
        enter_attempt(context, job_type, lease, limit)
        ended = AttemptResult(job_type, lease, None, None, 0.0)
        try:
            ended = ended._replace(result=job_type.run(call, lease))
        except RemoteFailure as failure:
            ended = _after_remote_failure(ended, failure)
        except BaseException as error:
            ended = ended._replace(error=error)
        return ended._replace(seconds=monotonic() - started_at)

    return context.context.copy().run(attempt)


def _after_remote_failure(ended: AttemptResult, failure: RemoteFailure) -> AttemptResult:
    if failure.suspension is not None:
        return ended._replace(is_settled=True, suspension=failure.suspension)
    return ended._replace(error=failure, outcome=failure.outcome, is_late=failure.is_late)


def call_process(call: Callable[[Lease], bytes | None], lease: Lease, /) -> bytes | None:
    """Take the place of `JobType.run` in a worker, if the function runs in another process."""
    return call(lease)


def perform(
    context: AttemptContext, job_type: JobType, lease: Lease, limit: float, started_at: float
) -> AttemptResult:
    """Make an attempt in this thread and this context."""
    layer = enter_attempt(context, job_type, lease, limit)
    try:
        result = job_type.run(lease)
        layer.refuse_unawaited()
        ended = AttemptResult(job_type, lease, result, None, monotonic() - started_at)
    except BaseException as error:  # SystemExit too: it ends this job, not the worker
        ended = AttemptResult(job_type, lease, None, error, monotonic() - started_at)
    job = layer.suspended_job
    return ended if job is None else _suspend(job, ended)


def _suspend(job: JobSteps, ended: AttemptResult) -> AttemptResult:
    """Settle a job that sleeps or waits. The function has ended, also if it caught `Suspended`."""
    try:
        suspension = job.suspend()
    except LeaseLost as error:
        return ended._replace(result=None, error=error, is_late=True)
    except Exception as error:  # the ledger is away: the job is retried
        return ended._replace(result=None, error=error)
    return ended._replace(result=None, error=None, is_settled=True, suspension=suspension)


def _perform_in_transaction(
    context: AttemptContext,
    ledger: Ledger,
    job_type: JobType,
    lease: Lease,
    limit: float,
    started_at: float,
) -> AttemptResult:
    """Run the function and settle its job in one transaction."""
    is_settling, result = False, None
    try:
        with ledger.begin() as connection:
            layer = enter_attempt(context, job_type, lease, limit, connection)
            result = job_type.run(connection, lease)
            layer.refuse_unawaited()
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


async def run_in_time(work: Awaitable[T], limit: float, name: str, attempt: int, /) -> T:
    """Return the result of an attempt.

    Raises:
        AttemptTimeout: It took longer than `limit` seconds.
    """
    timer = asyncio.timeout(None if limit == math.inf else limit)
    try:
        async with timer:
            return await work
    except TimeoutError as error:
        if timer.expired():
            raise AttemptTimeout(
                f"{name}: attempt {attempt} took longer than {limit:.6g} s"
            ) from error
        raise


def enter_attempt(
    context: AttemptContext,
    job_type: JobType,
    lease: Lease,
    limit: float,
    connection: Connection | None = None,
) -> DurableLayer:
    """Set the deadline, layer, key and correlation ids of an attempt in the current context."""
    key = lease.key if lease.key.count(":") >= FULL_KEY_COLONS else attempt_key(lease)

    def make_job() -> JobSteps:
        return JobSteps(
            context.ledger, lease, context.now, connection=connection, board=context.board
        )

    layer = DurableLayer(job_type, lease, make_job, context.cancels, context.worker)
    scope: Scope = (monotonic() + limit, max(1, lease.attempt), layer, key, None)
    SLOT.set(ContextSlot(scope, get_ident()))
    ids = lease.ids_stored
    IDS.set(lease.ids if isinstance(ids, str) else ids or NO_IDS)
    return layer


def attempt_key(lease: Lease) -> KeyLike | None:
    """Return the idempotency key for calls in the attempt: the job's own, completed if short."""
    if lease.key.count(":") >= FULL_KEY_COLONS:
        return lease.key
    try:
        return Key("job", "", lease.key, lease.kind.replace(":", "."))
    except ValueError:
        return None
