"""The state of one job type in an overview."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .trend import Trend


@dataclass(frozen=True, slots=True)
class KindLine:
    """The jobs of one type: of a command, or of a handler of events."""

    name: str
    waiting: int
    """Queued jobs, retries included."""
    due_since: datetime | None
    """Due time of the oldest job that is due. None: none is."""
    next_due: datetime | None
    """Due time of the first job, if none is due yet."""
    running: int
    retry_wait: int
    """Queued jobs that are retries. With `retry_more`: at least that many."""
    retry_more: bool
    dead: int
    """Dead letters without a decision, blocked ones included."""
    blocked: int
    failed: Trend
    """Failed attempts over time."""
    died: Trend
    """New dead letters over time. A replay that fails again counts again."""
    parked: str | None
    """Why it is paused after an outage. None: it is not."""
    parked_since: datetime | None
    workers: int
    """Number of online workers that run it."""
    done: int
    submitted: int
    probe_at: datetime | None = None
    """When one job may probe the service, while it is paused after an outage."""

    paused: str | None = None
    """Who paused it by hand, until when and why. None: it is not, or only with the whole app."""

    suspended: int = 0
    """Queued jobs that sleep or wait for a signal, counted up to 1,000."""
    cancelled: int = 0
    """Cancelled jobs that are not pruned yet."""

    @property
    def first_attempts(self) -> int:
        """Queued jobs for their first attempt. With `retry_more`: at most that many."""
        return max(0, self.waiting - self.retry_wait - self.suspended)
