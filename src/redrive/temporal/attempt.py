"""One attempt at an activity: what `current()` is inside it, and how its function is called."""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import Any, NoReturn, TypeAlias

from ..core.codec import codec, from_bytes, misfit, to_bytes
from ..core.context import IDS, SLOT, ContextSlot, Scope
from ..core.seconds import Seconds
from ..engine.current_job import RunningJob
from ..ledger.model import Lease
from ..ledger.validation import MAX_PAYLOAD_BYTES, check_payload
from ..worker.attempt import AttemptResult, attempt_key, run_in_time
from ..worker.job_type import JobType
from ..worker.progress import MAX_NOTE_CHARS
from .activity import ActivityEnvelope, ActivityRef

AttemptName: TypeAlias = tuple[ActivityRef, int]
"""A run of an activity, with the number of the attempt."""
UTC = timezone.utc
_ANY = codec(Any)
NEEDS_LEDGER = (
    "{act} needs the ledger, and this command runs on Temporal; name the command in "
    "Temporal(on_ledger=[{kind!r}])"
)


@dataclass(slots=True)
class Notes:
    """What an activity remembers from attempt to attempt, in its heartbeat details.

    Threads may share it: each change replaces one field.

    Attributes:
        ended: Attempts that have reported their end.
        uncharged: Attempts that do not count.
        lost: Attempts that were lost with their worker.
        progress: The part that is done, with the note.
        checkpoint: Last checkpoint, as stored.
    """

    ended: int = 0
    uncharged: int = 0
    lost: int = 0
    progress: tuple[float, str | None] | None = None
    checkpoint: str | None = None

    @classmethod
    def of(cls, details: Any, /) -> Notes:
        """Return the notes of the last heartbeat. Unknown details are ignored."""
        stored = details[0] if details else None
        if not isinstance(stored, dict):
            return cls()
        notes = cls(**{name: stored[name] for name in cls.__slots__ if name in stored})
        if notes.progress is not None:
            notes.progress = (notes.progress[0], notes.progress[1])
        return notes

    def as_details(self) -> dict[str, Any]:
        """Return the form that is sent with a heartbeat."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class ActivityAttempt:
    """One attempt at an activity, as retries and `current()` inside it see it.

    Threads may share it.

    Attributes:
        job_type: Its job type.
        lease: The job.
        ref: The run of the activity.
        envelope: What came with its arguments.
        notes: What it remembers.
        beat: Sends a heartbeat with the notes. Any thread may call it.
        cancelled: The job was asked to stop.
    """

    job_type: JobType
    lease: Lease
    ref: ActivityRef
    envelope: ActivityEnvelope
    notes: Notes
    beat: Callable[[], None]
    cancelled: bool = False

    @property
    def job_id(self) -> str:
        """Id of the job: its number, if it was submitted through the ledger."""
        return str(self.envelope.ledger_job or self.ref)

    @property
    def name(self) -> AttemptName:
        """What tells it from other attempts at the activity."""
        return self.ref, self.lease.fence

    @property
    def operation(self) -> str:
        """The job type."""
        return self.job_type.name

    @property
    def max_attempts(self) -> int:
        """The limit of the job, or else of its type."""
        own = self.lease.max_attempts
        return self.job_type.settings.max_attempts if own is None else own

    @property
    def running_job(self) -> RunningJob:
        """What the code of the job can do."""
        return ActivityJob(self)


class ActivityJob:
    """The job of an attempt with its reports, as `current()` uses it. Threads may share it."""

    def __init__(self, attempt: ActivityAttempt, /) -> None:
        self._attempt = attempt

    def step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any:
        """Raise RuntimeError: a heartbeat is not durable when it returns, as a step must be."""
        self._refuse(f"step {name!r}")

    def sleep(self, duration: timedelta, name: str | None, /) -> None:
        """Raise RuntimeError."""
        self._refuse("sleep")

    async def asleep(self, duration: timedelta, name: str | None, /) -> None:
        """Raise RuntimeError."""
        self._refuse("sleep")

    def wait_for(self, name: str, timeout: Seconds, /) -> Any:
        """Raise RuntimeError."""
        self._refuse(f"signal {name!r}")

    async def await_for(self, name: str, timeout: Seconds, /) -> Any:
        """Raise RuntimeError."""
        self._refuse(f"signal {name!r}")

    @property
    def reports(self) -> ActivityJob:
        """The progress and the checkpoint of the job."""
        return self

    def _refuse(self, act: str) -> NoReturn:
        raise RuntimeError(NEEDS_LEDGER.format(act=act, kind=self._attempt.lease.kind))

    def progress(self, part: float, note: str | None, /) -> None:
        """Report which part of the work is done, with the next heartbeat."""
        if isinstance(part, bool) or not isinstance(part, (int, float)):
            raise TypeError(f"progress must be a number from 0 to 1, not {part!r}")
        if not 0 <= part <= 1 or math.isnan(part):
            raise ValueError(f"progress must be from 0 to 1: {part!r}; pass done / total")
        text = None if note is None else str(note)[:MAX_NOTE_CHARS]
        self._attempt.notes.progress = (float(part), text)
        self._attempt.beat()

    def checkpoint(self, value: Any, /) -> None:
        """Send a value for the next attempt with a heartbeat."""
        try:
            stored = to_bytes(_ANY.dump(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"checkpoint: the value cannot be stored: {misfit(error)}") from None
        check_payload("checkpoint: the value", stored, MAX_PAYLOAD_BYTES)
        self._attempt.notes.checkpoint = stored.decode()
        self._attempt.beat()

    async def acheckpoint(self, value: Any, /) -> None:
        """Send a value for the next attempt with a heartbeat."""
        self.checkpoint(value)

    def last_checkpoint(self, default: Any, /) -> Any:
        """Return the value of the last checkpoint."""
        stored = self._attempt.notes.checkpoint
        return default if stored is None else from_bytes(stored.encode())

    async def alast_checkpoint(self, default: Any, /) -> Any:
        """Return the value of the last checkpoint."""
        return self.last_checkpoint(default)


def time_limit(attempt: ActivityAttempt, /) -> float:
    """Return the seconds that an attempt may take, or infinity."""
    timeout = attempt.job_type.settings.attempt_timeout
    limit = math.inf if timeout is None else timeout
    deadline = attempt.lease.deadline
    if deadline is None:
        return limit
    return min(limit, (deadline - datetime.now(UTC)).total_seconds())


def enter(attempt: ActivityAttempt, limit: float, /) -> None:
    """Set the deadline, layer, key and correlation ids of an attempt in the current context."""
    lease = attempt.lease
    end, number = monotonic() + limit, max(1, lease.attempt)
    scope: Scope = (end, number, attempt, attempt_key(lease), None)
    SLOT.set(ContextSlot(scope, get_ident()))
    IDS.set(lease.ids)


def run_sync(context: Context, attempt: ActivityAttempt, limit: float, /) -> AttemptResult:
    """Make an attempt in this thread, in a copy of the worker's context."""
    return context.copy().run(_perform, attempt, limit)


def _perform(attempt: ActivityAttempt, limit: float) -> AttemptResult:
    started_at = monotonic()
    enter(attempt, limit)
    job_type, lease = attempt.job_type, attempt.lease
    try:
        result = job_type.run(lease)
        return AttemptResult(job_type, lease, result, None, monotonic() - started_at)
    except BaseException as error:  # SystemExit too: it ends this job, not the worker
        return AttemptResult(job_type, lease, None, error, monotonic() - started_at)


async def run_async(attempt: ActivityAttempt, limit: float, /) -> AttemptResult:
    """Make an attempt in this task, which has a copy of the worker's context."""
    started_at = monotonic()
    enter(attempt, limit)
    job_type, lease = attempt.job_type, attempt.lease
    try:
        result = await run_in_time(job_type.run(lease), limit, job_type.name, lease.attempt)
        return AttemptResult(job_type, lease, result, None, monotonic() - started_at)
    except BaseException as error:
        return AttemptResult(job_type, lease, None, error, monotonic() - started_at)
