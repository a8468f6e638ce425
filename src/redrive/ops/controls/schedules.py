"""Operations on schedules: list them, and fire one now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex

from ...commands.registry import KEEP_SECONDS, next_run
from ...core.key import Key
from ...errors import NotAllowed
from ...ledger.jobs import schedule_runs
from ...ledger.model import NewJob
from ...ledger.queries import overview
from ...partitions.control import backfill
from ...partitions.control.sweeps import Grid
from ...partitions.datasets.dataset import Extraction
from ...partitions.work.runner import day_before
from ..context import OperatorContext, check_reason
from ..overview.schedules import Schedule, schedules
from ..partitions.datasets import find_extraction
from ..project.target import scheduled_commands
from .pauses import check_known_name


@dataclass(frozen=True, slots=True)
class FiredRun:
    """A run that was started by hand."""

    schedule: str
    job_id: int | None
    """Id of its job. None for a dataset."""
    sweep_id: int | None
    """Id of the bulk operation over its partitions. None for a command."""


@dataclass(frozen=True, slots=True)
class ScheduleOperations:
    """Operations on schedules, as `Operator.schedules`. Threads may share one."""

    _context: OperatorContext

    def find(self) -> list[Schedule]:
        """Return the schedules of commands and of datasets, with next and last runs.

        Returns:
            The schedules, by name.
        """
        return schedules(self._context.app)

    def fire(self, name: str, /, *, because: str) -> FiredRun:
        """Start a run of a schedule now. Its planned runs stay as they are.

        It also works while the schedule is paused. If its job type is paused, the job is queued.
        The run of a dataset is for the day before today, in the time zone of the schedule.

        Args:
            name: Job type of the command, or name of the dataset such as `crm/orders`.
            because: Why, for the audit log.

        Returns:
            The run.

        Raises:
            NotAllowed: The schedule is unknown, or only its app can start it. Nothing was changed.
        """
        check_reason(because)
        self._context.require("fire", name)
        known = {schedule.kind: schedule for schedule in self.find()}
        specs = {spec.name: spec for spec in scheduled_commands(self._context.app)}
        names = sorted({*known, *specs})
        check_known_name("schedule", name, names, forced="`redrive schedules list` lists them")
        schedule = known.get(name)
        if schedule is not None and schedule.of == "dataset":
            return self._fire_dataset(schedule, because)
        ledger = self._context.ledger
        now = ledger.now()
        run = next_run(specs[name], now) if name in specs else self._stored_run(name)
        run = run._replace(key=fired_key(name, now), due=None)
        submitted = schedule_runs.fire(
            ledger.connections, run, actor=self._context.actor, because=because
        )
        ledger.notify()
        return FiredRun(name, submitted.id, None)

    def _stored_run(self, name: str) -> NewJob:
        """Return a copy of the newest run that a worker has stored."""
        ledger = self._context.ledger
        with ledger.reading() as connection:
            (newest, *_) = overview.scheduled_jobs(connection, [name], 1)[name]
        job = ledger.get(newest.id)
        if job is None:
            raise NotAllowed(f"schedule {name}: its last run was pruned; nothing was changed")
        return NewJob(
            kind=name,
            key=job.key,
            payload=job.payload,
            priority=job.priority,
            max_attempts=job.max_attempts,
            keep=KEEP_SECONDS,
            ids={},
            headers=dict(job.headers),
            version=job.version,
        )

    def _fire_dataset(self, schedule: Schedule, because: str) -> FiredRun:
        app = self._context.app
        dataset = (schedule.source or "", schedule.query or "")
        extraction: Extraction | None = find_extraction(app, *dataset)
        if extraction is None or extraction.cron is None:
            raise NotAllowed(
                f"schedule {schedule.kind}: only its app knows its customers; pass the app as "
                "--ledger module:app; nothing was changed"
            )
        customers = extraction.current_customers()
        if not customers:
            raise NotAllowed(f"schedule {schedule.kind}: no customers; nothing was changed")
        ledger, actor = self._context.ledger, self._context.actor
        day = day_before(extraction.cron, ledger.now())
        grid = Grid.of(*dataset, customers, day)
        with ledger.connections.write.use() as session, session.transaction("partition.fire"):
            sweep = backfill.fire_now(session, grid, actor, because)
        return FiredRun(schedule.kind, None, sweep.id)


def fired_key(name: str, now: datetime, /) -> str:
    """Return the job key of a run that is fired by hand. It sorts by time among planned runs."""
    at = f"{now.strftime(schedule_runs.RUN_TIME)}-fired-{now:%f}-{token_hex(4)}"
    return str(Key("cron", "", at, name))
