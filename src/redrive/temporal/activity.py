"""How a job is written as a standalone activity: its id, its input and its options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import Any, NamedTuple, Self

from temporalio.api.common.v1 import Payload
from temporalio.common import Priority, RawValue

from ..ledger.mirrors import RUN_HEADER
from ..ledger.model import PRIORITIES, Lease, NewJob
from ..native.temporal_retry import retry_policy
from ..worker.job_type import JobType
from .engine import Temporal

MAX_FAIRNESS_BYTES = 64
MIN_TIMEOUT_SECONDS = 0.001
"""Of a job whose deadline has passed when it is submitted."""
MAX_TIMEOUT_SECONDS = 10 * 365 * 86_400.0
TIMEOUT_MARGIN_SECONDS = 5.0
"""The worker's own attempt timeout ends first. The server's is for a function that ignores it."""
UTC = timezone.utc


class ActivityRef(NamedTuple):
    """One run of one activity. Its text is the id of the job. Immutable."""

    activity_id: str
    run_id: str

    def __str__(self) -> str:
        return f"{self.activity_id}#{self.run_id}"

    @classmethod
    def parse(cls, text: str, /) -> Self | None:
        """Return the run of a job id, or None if it is not one."""
        activity_id, separator, run_id = text.rpartition("#")
        return cls(activity_id, run_id) if separator and activity_id and run_id else None


@dataclass(frozen=True, slots=True)
class ActivityEnvelope:
    """What travels with the arguments of an activity: the second part of its input. Immutable.

    Attributes:
        key: Job key.
        version: Version of the arguments' envelope.
        max_attempts: Maximum number of attempts.
        deadline: Time after which the job is not started any more.
        ids: Correlation ids.
        headers: Headers of the job.
        tags: Values by which a dead letter is found.
        tenant: Tenant of the job.
        priority: Priority of the job.
        keep: Seconds for which the ledger keeps the job key.
        ledger_job: Job in the ledger that waits for this activity.
        dead_id: Dead letter that it replays.
    """

    key: str
    version: int = 1
    max_attempts: int | None = None
    deadline: str | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    tenant: str | None = None
    priority: int = 0
    keep: float | None = None
    ledger_job: int | None = None
    dead_id: int | None = None

    @classmethod
    def of(cls, job: NewJob, ledger_job: int | None, dead_id: int | None, /) -> Self:
        """Return the envelope of a job."""
        return cls(
            key=job.key,
            version=job.version,
            max_attempts=job.max_attempts,
            deadline=None if job.deadline is None else job.deadline.astimezone(UTC).isoformat(),
            ids=dict(job.ids or {}),
            headers=dict(job.headers or {}),
            tags=dict(job.tags or {}),
            tenant=job.tenant,
            priority=job.priority,
            keep=job.keep,
            ledger_job=ledger_job,
            dead_id=dead_id,
        )

    @classmethod
    def decode(cls, data: bytes, /) -> Self:
        """Return a stored envelope. Fields of a newer version are ignored."""
        stored = json.loads(data)
        return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})

    def encode(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @property
    def deadline_at(self) -> datetime | None:
        """The deadline."""
        return None if self.deadline is None else datetime.fromisoformat(self.deadline)

    def lease(self, kind: str, payload: bytes, attempt: int, fence: int, due: datetime) -> Lease:
        """Return the job as a lease, which is how a job type takes it."""
        return Lease(
            job_id=self.ledger_job or 0,
            fence=fence,
            kind=kind,
            key=self.key,
            attempt=attempt,
            crashes=0,
            max_attempts=self.max_attempts,
            version=self.version,
            dead_id=self.dead_id,
            due_stored=due,
            deadline_stored=self.deadline_at,
            ids_stored=self.ids,
            headers_stored=self.headers,
            payload=payload,
        )

    def new_job(self, kind: str, payload: bytes, run_id: str) -> NewJob:
        """Return the job as the ledger stores it when it is a dead letter."""
        return NewJob(
            kind=kind,
            key=self.key,
            payload=payload,
            priority=self.priority if self.priority in PRIORITIES else 0,
            max_attempts=self.max_attempts,
            keep=self.keep,
            deadline=self.deadline_at,
            ids=self.ids,
            headers={**self.headers, RUN_HEADER: run_id},
            version=self.version,
            tags=self.tags or None,
            tenant=self.tenant,
        )


def raw_json(data: bytes, /) -> RawValue:
    """Return bytes of JSON as a value that the server's UI can show."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


def start_options(
    engine: Temporal, job_type: JobType, job: NewJob, now: datetime, /
) -> dict[str, Any]:
    """Return the options of `Client.start_activity` for a job.

    The worker decides about each failure, with a delay of its own. The retry policy of the server
    applies to attempts that were lost with their worker.
    """
    settings = job_type.settings
    timeout = settings.attempt_timeout
    attempt_seconds = engine.attempt_seconds
    if timeout is not None:
        attempt_seconds = timeout + TIMEOUT_MARGIN_SECONDS
    delay = job.delay if job.due is None else (job.due - now).total_seconds()
    options: dict[str, Any] = {
        "task_queue": engine.queue_of(job_type.execution),
        "start_to_close_timeout": timedelta(seconds=min(attempt_seconds, MAX_TIMEOUT_SECONDS)),
        "heartbeat_timeout": timedelta(seconds=engine.heartbeat_seconds),
        # No limit: the server counts attempts that do not count here (`Again(free=True)`). The
        # worker counts the others, also those that were lost.
        "retry_policy": replace(retry_policy(settings.policy), maximum_attempts=0),
        "priority": Priority(
            priority_key=job.priority - PRIORITIES[0] + 1,
            fairness_key=None if job.tenant is None else _fairness_key(job.tenant),
        ),
    }
    if delay > 0:
        options["start_delay"] = timedelta(seconds=delay)
    if job.deadline is not None:
        # The server counts this time from the end of the delay.
        left = (job.deadline - now).total_seconds() - max(0.0, delay)
        seconds = max(MIN_TIMEOUT_SECONDS, left)
        options["schedule_to_close_timeout"] = timedelta(seconds=seconds)
    return options


def _fairness_key(tenant: str) -> str:
    """Return the tenant as a fairness key, which is at most 64 bytes."""
    if len(tenant.encode()) <= MAX_FAIRNESS_BYTES:
        return tenant
    return sha256(tenant.encode()).hexdigest()[:MAX_FAIRNESS_BYTES]
