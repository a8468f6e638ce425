"""TaskEnd: how a Celery task ended, and what that means for its dead letter."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from celery.exceptions import (
    MaxRetriesExceededError,
    NotRegistered,
    TimeLimitExceeded,
    WorkerLostError,
)

from ..core.classification.signature import signature, signature_of
from ..core.job_reasons import DeadReason
from ..core.text import safe_str
from ..ledger.validation import storable_text
from ..worker.job_type import EndedElsewhere, Undecodable
from ..worker.outcome import describe_error


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ended. Immutable.

    Attributes:
        outcome: `"done"`, `"dead"` (it failed for good) or `"cancelled"` (it was revoked).
        reason: Reason of the dead letter.
        error: Text of the error, without secrets.
        signature: Signature of the error.
        attempts: Executions of the task: the first one and its retries.
        worker: Name of the Celery worker.
    """

    outcome: Literal["done", "dead", "cancelled"]
    reason: str = ""
    error: str | None = None
    signature: str | None = None
    attempts: int = 1
    worker: str | None = None

    @classmethod
    def of_failure(cls, task: Any, request: Any, error: BaseException, /) -> Self:
        """Return the end of a task that failed for good.

        Args:
            task: The task. None: no worker knows it.
            request: `celery.app.task.Context`.
            error: What it raised, or what Celery says about it.
        """
        text, name = describe_error(error), signature(error)
        original = getattr(error, "exc_cls_name", None)
        if original is not None:  # Celery wraps errors that cannot be pickled
            text, name = safe_str(error), signature_of(str(original), safe_str(error))
        retries = request.retries or 0
        return cls(
            "dead",
            _reason_of(task, retries, error),
            storable_text(text),
            name,
            retries + 1,
            request.hostname,
        )

    @classmethod
    def of_signal(cls, payload: object, /) -> Self:
        """Return the end that a Celery worker reported. Unknown fields are ignored.

        Raises:
            Undecodable: It is not a report, but a signal of another program.
        """
        stored = payload if isinstance(payload, dict) else {}
        fields = {name: stored[name] for name in cls.__slots__ if name in stored}
        if fields.get("outcome") not in ("done", "dead", "cancelled"):
            raise Undecodable("the signal is not the report of a Celery worker")
        return cls(**fields)

    def as_signal(self) -> dict[str, Any]:
        """Return the report for the job that waits for it."""
        return asdict(self)

    def as_error(self) -> EndedElsewhere | None:
        """Return the error that settles the job as the task ended. None: it succeeded."""
        if self.outcome == "done":
            return None
        if self.outcome == "cancelled":
            return EndedElsewhere("cancelled", "cancelled", self.error)
        details = (self.reason, self.error, self.signature, None, self.attempts)
        return EndedElsewhere("dead", *details)


def _reason_of(task: Any, retries: int, error: BaseException) -> DeadReason:
    if isinstance(error, WorkerLostError):
        return "crashed_worker"
    if isinstance(error, NotRegistered):
        return "undecodable"
    most = getattr(task, "max_retries", None)
    if isinstance(error, MaxRetriesExceededError) or (most and retries >= most):
        return "attempts"
    return "not_retryable"


def is_requeued(task: Any, error: BaseException, /) -> bool:
    """Return whether Celery returns the message to its queue, so that the failure is not final.

    From version 5.7 on, Celery also reports a task that ran too long and goes back.
    """
    is_timeout = isinstance(error, TimeLimitExceeded)
    return is_timeout and task.acks_late and not getattr(task, "acks_on_timeout", True)
