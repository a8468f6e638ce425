"""Scheduled commands: the next run of each is a job in the ledger, before it is due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from ..core.key import Key
from ..ledger.ledger import Ledger
from ..ledger.model import NewJob
from ..worker.job_type import JobType
from .envelope import ENVELOPE_VERSION
from .spec import CRON_HEADER, CommandSpec

KEEP_SECONDS = 7 * 86_400.0
"""How long the key of a scheduled run is stored."""


class CommandScheduleTask:
    """A background task that submits the next run of each scheduled command.

    The key of a run has its time, so any number of workers submit it once. A run that was due while
    no worker was online starts with the next worker, once for all missed times. Belongs to the
    thread of the task.
    """

    name = "schedule"
    every = 2.0

    def __init__(self, ledger: Ledger, scheduled: Sequence[CommandSpec], /) -> None:
        self._ledger = ledger
        self._scheduled = scheduled
        self._next_due: dict[str, datetime] = {}

    @classmethod
    def of(
        cls, ledger: Ledger, scheduled: Sequence[CommandSpec], job_types: Sequence[JobType], /
    ) -> list[Self]:
        """Return the task of a worker with these job types, if any of them is scheduled."""
        names = {job_type.name for job_type in job_types}
        specs = [spec for spec in scheduled if spec.name in names]
        return [cls(ledger, specs)] if specs else []

    def do(self, now: datetime, /) -> None:
        """Submit the next run of each command whose last submitted run is due."""
        jobs = [
            next_run(spec, now)
            for spec in self._scheduled
            if spec.name not in self._next_due or self._next_due[spec.name] <= now
        ]
        if not jobs:
            return
        self._ledger.submit_many(jobs)
        for job in jobs:
            assert job.due is not None
            self._next_due[job.kind] = job.due


def next_run(spec: CommandSpec, now: datetime, /) -> NewJob:
    """Return the job of the next run after this time. Its key has the name and the time."""
    assert spec.cron is not None
    due = spec.cron.after(now)
    return NewJob(
        kind=spec.name,
        key=str(Key("cron", "", f"{due:%Y%m%dT%H%M%SZ}", spec.name)),
        payload=spec.envelope.encode_arguments((), {}),
        priority=spec.priority,
        due=due,
        max_attempts=spec.settings.max_attempts,
        keep=KEEP_SECONDS,
        ids={},
        headers={CRON_HEADER: str(spec.cron)},
        version=ENVELOPE_VERSION,
    )
