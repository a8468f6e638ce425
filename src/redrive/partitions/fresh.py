"""Fresh: which firings of a dataset's cron are to be written down. Pure."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from ..commands.cron import Cron

MOST = 366
"""Firings that are caught up with at once."""


def due(cron: Cron, last: datetime | None, now: datetime, /, *, most: int = MOST) -> list[datetime]:
    """The firings after the last one that was written down, up to now; of a new dataset none before now.

    Those that nobody was there for are all there: each has a day of its own.
    """
    if last is None:
        return []
    found: list[datetime] = []
    moment = cron.after(last)
    while moment <= now and len(found) < most:
        found.append(moment)
        moment = cron.after(moment)
    return found


def day_of(cron: Cron, moment: datetime, lag: int, /) -> date:
    """The day that a firing is for: by the cron's own time zone, so many days before."""
    return moment.astimezone(cron.zone).date() - timedelta(days=lag)
