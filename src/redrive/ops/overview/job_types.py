"""Standing: how the jobs of one kind stand, at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .trend import Trend


@dataclass(frozen=True, slots=True)
class KindLine:
    """The jobs of one kind: of a command, or of a handler of events."""

    name: str
    waiting: int
    due_since: datetime | None
    """Since when the oldest one is due; None: none is."""
    next_due: datetime | None
    """When the first falls due, where none is yet."""
    running: int
    retry_wait: int
    """Of those that wait, for another attempt; where `retry_more`, that many at least."""
    retry_more: bool
    dead: int
    """Pending dead letters, blocked ones included."""
    blocked: int
    failed: Trend
    """Attempts that failed."""
    died: Trend
    """Dead letters that came."""
    parked: str | None
    """Why it is not handed out for now; None: it is."""
    parked_since: datetime | None
    workers: int
    """Living ones that take it."""
    done: int
    submitted: int
