"""Firing: a worker's chore: has fresh partitions extracted, when a dataset's schedule says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from ...commands.cron import Cron
from ...ledger.ledger import Ledger
from ...worker.clocks import Jumps
from ..control.plane import Control
from ..datasets.definition import Extraction


class Firing:
    """Looks which datasets are due, asks for their customers, and hands both to the control plane, once for each moment however
    many workers there are. Belongs to the thread that does the chore.

    A moment is for the day before it, in the schedule's zone. What nobody was there for is made up for, moment by moment.
    """

    name = "datasets"
    every = 2.0

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /) -> None:
        self._scheduled = [one for one in extractions if one.cron is not None]
        self._control = Control(ledger, [one.terms for one in extractions])

    def do(self, now: datetime, /) -> None:
        """Fire what is due. One that cannot say its customers does not hold up the others."""
        problem: Exception | None = None
        for extraction in self._scheduled:
            try:
                self._fire(extraction, now)
            except Exception as error:
                error.add_note(f"the schedule of {extraction.name}")
                problem = problem or error
        if problem is not None:
            raise problem

    def _fire(self, extraction: Extraction, now: datetime) -> None:
        cron = extraction.cron
        assert cron is not None
        source, query = extraction.terms.dataset
        last = self._control.fired(source, query) or self._control.seen(source, query, now, cron=str(cron))
        moments = due(cron, last, now)
        if moments:
            customers = extraction.everyone()
            for moment in moments:
                self._control.fire(source, query, moment, customers, [day_of(cron, moment, 1)], cron=str(cron))


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


class Tending:
    """Takes back leases that ran out, and carries sweeps on. Any number of workers may do it at once."""

    name = "partitions"
    every = 1.0

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /) -> None:
        self._control = Control(ledger, [one.terms for one in extractions])
        self._jumps = Jumps()

    def do(self, _now: datetime, /) -> None:
        """Once."""
        self._control.tick(self._jumps)
