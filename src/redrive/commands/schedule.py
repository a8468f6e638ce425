"""Schedule: sees to it that the next firing of every scheduled command is in the ledger, before it is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from ..core.key import Key
from ..ledger.ledger import Ledger
from ..ledger.record import NewJob
from ..worker.job_type import JobType
from .envelope import VERSION
from .terms import FIRING, Terms

WEEK = 7 * 86_400.0


class Schedule:
    """A worker's chore: writes the next firing of each schedule down, once for its moment, however many workers there are.

    Since it is written down beforehand, a firing that nobody was there for is run as soon as somebody is: once, however many
    moments were missed. Belongs to the thread that does the chore.
    """

    name = "schedule"
    every = 2.0

    def __init__(self, ledger: Ledger, scheduled: Sequence[Terms], /) -> None:
        self._ledger = ledger
        self._scheduled = scheduled
        self._next: dict[str, datetime] = {}

    @classmethod
    def of(cls, ledger: Ledger, scheduled: Sequence[Terms], kinds: Sequence[JobType], /) -> list[Self]:
        """The chore of a worker of these kinds, if any of them is scheduled."""
        names = {kind.name for kind in kinds}
        its = [terms for terms in scheduled if terms.name in names]
        return [cls(ledger, its)] if its else []

    def do(self, now: datetime, /) -> None:
        """Write down what is not there yet."""
        fallen = [terms for terms in self._scheduled if terms.name not in self._next or self._next[terms.name] <= now]
        if not fallen:
            return
        jobs = [firing(terms, now) for terms in fallen]
        self._ledger.submit_many(jobs)
        for job in jobs:
            assert job.due is not None
            self._next[job.kind] = job.due


def firing(terms: Terms, now: datetime, /) -> NewJob:
    """The next one after this moment, as a job: its key is the command's name and the moment."""
    assert terms.cron is not None
    due = terms.cron.after(now)
    return NewJob(
        kind=terms.name,
        key=str(Key("cron", "", f"{due:%Y%m%dT%H%M%SZ}", terms.name)),
        payload=terms.envelope.payload((), {}),
        priority=terms.priority,
        due=due,
        max_attempts=terms.settings.max_attempts,
        keep=WEEK,
        ids={},
        headers={FIRING: str(terms.cron)},
        version=VERSION,
    )
