"""Chore: something periodic that a worker does for its app, beside the jobs: cron schedules, source readers."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Chore(Protocol):
    """Each has a thread of its own in the worker. Several workers do it at once: it must be safe then."""

    @property
    def name(self) -> str:
        """For records and threads."""

    @property
    def every(self) -> float:
        """Seconds from the end of one time to the beginning of the next."""

    def do(self, now: datetime, /) -> None:
        """Once. now: by the ledger's clock. What it raises is recorded, and it is done again, later and later."""
