"""Letter: a dead letter, as it stands in a list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .state import Status


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, without what is in it. Immutable."""

    id: int
    kind: str
    key: str
    status: Status
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
        """When it died last: a replay may have died too. `created_at` is the first time."""
        if self.status == "pending":
            return self.updated_at
        return max(self.created_at, self.last_attempt_at or self.created_at)
