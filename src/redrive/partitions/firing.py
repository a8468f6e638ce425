"""Firing: a worker's chore: has fresh partitions extracted, when a dataset's schedule says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ..ledger.ledger import Ledger
from .control import Control
from .extraction import Extraction
from .fresh import day_of, due


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
