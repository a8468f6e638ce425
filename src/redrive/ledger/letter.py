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
