"""FailureDetails: why an activity failed, as its worker or the server reported it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Self

from temporalio.exceptions import ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from ..core.classification.signature import signature_of
from ..core.text import safe_str
from ..ledger.validation import storable_text
from ..worker.outcome import JobOutcome

FAILURE_TYPE = "RedriveFailure"
"""Type of the failures that a worker reports."""


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """Why an activity failed. Immutable.

    Attributes:
        reason: Reason of the dead letter, or of the retry.
        error: Text of the error.
        signature: Signature of the error.
        is_blocked: The job is blocked.
        until: When a blocked job is replayed, as text.
        attempts: Attempts that count. 0: not known.
        worker: Worker of the attempt.
    """

    reason: str
    error: str | None = None
    signature: str | None = None
    is_blocked: bool = False
    until: str | None = None
    attempts: int = 0
    worker: str | None = None

    @classmethod
    def of_outcome(cls, outcome: JobOutcome, attempts: int, worker: str, /) -> Self:
        """Return the details of an attempt that failed."""
        settlement = outcome.settlement
        return cls(
            reason=settlement.reason or "failed",
            error=storable_text(settlement.error),  # without secrets
            signature=settlement.signature,
            is_blocked=settlement.outcome == "blocked",
            until=None if settlement.until is None else settlement.until.isoformat(),
            attempts=attempts,
            worker=worker,
        )

    @classmethod
    def of(cls, error: BaseException | None, /) -> Self:
        """Return the details of the final failure of an activity."""
        if isinstance(error, ApplicationError):
            if error.type == FAILURE_TYPE and error.details:
                stored = error.details[0]  # fields of a newer version are ignored
                return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})
            return cls("not_retryable", error.message, signature_of("Failure", error.message))
        if isinstance(error, ActivityTimeout):
            return cls._of_timeout(error)
        text = "no failure was reported" if error is None else safe_str(error)
        return cls("not_retryable", text, signature_of("Failure", text))

    @classmethod
    def _of_timeout(cls, error: ActivityTimeout) -> Self:
        last = error.cause
        because = f"; last failure: {safe_str(last)}" if last is not None else ""
        if error.type in (TimeoutType.SCHEDULE_TO_CLOSE, TimeoutType.SCHEDULE_TO_START):
            return cls("deadline", f"the deadline had passed{because}", "deadline")
        name = "unknown" if error.type is None else error.type.name.lower()
        text = f"the server ended the last attempt: {name} timeout{because}"
        return cls("crashed_worker", text, "crashed_worker")

    def with_attempts(self, attempts: int, /) -> Self:
        """Return the same failure with the attempts that the server has counted."""
        return replace(self, attempts=attempts)

    @property
    def until_at(self) -> datetime | None:
        """When a blocked job is replayed."""
        return None if self.until is None else datetime.fromisoformat(self.until)

    def as_details(self) -> dict[str, Any]:
        """Return the form that is stored with the failure."""
        return asdict(self)
