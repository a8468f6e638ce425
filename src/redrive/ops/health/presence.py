"""Presence: whether any worker is online, and since when not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..defaults import QUIET
from ..render import ago

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger


def nobody(seen_at: datetime | None, now: datetime, /) -> str:
    """That no worker is online, and since when."""
    if seen_at is None:
        return "No worker is online (none seen so far)"
    return f"No worker is online (last seen {ago(seen_at, now).replace('now', 'just now')})"


def missing(ledger: Ledger, /, *, quiet: float = QUIET) -> str | None:
    """That no worker is online, and since when, in a sentence; None: at least one is."""
    now = ledger.now()
    seen = ledger.workers()
    if any(one.ended_at is None and one.seen_at >= now - timedelta(seconds=quiet) for one in seen):
        return None
    return nobody(max((one.seen_at for one in seen), default=None), now)
