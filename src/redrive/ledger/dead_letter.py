"""DeadLetter: a job that gave up and needs a decision.

Free of SQLAlchemy, so that every part of Redrive can import it. `ledger/jobs/dead_letters.py`
replays and discards dead letters, and `ledger/queries/dead_letters.py` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from .model import stored_mapping

DeadLetterStatus: TypeAlias = Literal["pending", "replaying", "replayed", "discarded"]


class DeadLetter(NamedTuple):
    """A job that gave up and needs a decision: replay or discard. Immutable.

    Attributes:
        id: Id of the dead letter.
        kind: Job type.
        key: Job key.
        job_id: The job that died.
        replay_job_id: The job that replays it.
        status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`.
        reason: Why the job died.
        blocked: True if it waits for something outside.
        blocked_until: When it is replayed automatically.
        error: The error.
        signature: What errors of this kind have in common.
        attempts: Number of attempts.
        replay_count: Number of replays.
        version: Version of the payload's envelope.
        payload: Stored bytes.
        headers_stored: Headers, as stored. Use `headers`.
        ids_stored: Correlation ids, as stored. Use `ids`.
        source: Source of the message.
        source_id: Id of the message in its source.
        last_attempt_at: When the last attempt ended.
        created_at: When it became a dead letter.
        updated_at: When it last changed.
    """

    id: int
    kind: str
    key: str
    job_id: int | None
    replay_job_id: int | None
    status: DeadLetterStatus
    reason: str
    blocked: bool
    blocked_until: datetime | None
    error: str | None
    signature: str | None
    attempts: int
    replay_count: int
    version: int
    payload: bytes
    headers_stored: str | None
    ids_stored: str | None
    source: str | None
    source_id: str | None
    last_attempt_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def ids(self) -> dict[str, str]:
        """Correlation ids."""
        return stored_mapping(self.ids_stored)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the payload."""
        return stored_mapping(self.headers_stored)


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """A dead letter without its payload, as lists show it. Immutable."""

    id: int
    kind: str
    key: str
    status: DeadLetterStatus
    reason: str
    blocked: bool
    blocked_until: datetime | None
    error: str | None
    signature: str | None
    attempts: int
    replay_count: int
    job_id: int | None
    replay_job_id: int | None
    source: str | None
    source_id: str | None
    last_attempt_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def died_at(self) -> datetime:
        """When it died last. Unlike `created_at`, this includes a replay that died."""
        if self.status == "pending":
            return self.updated_at
        return max(self.created_at, self.last_attempt_at or self.created_at)
