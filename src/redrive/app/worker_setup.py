"""The worker of an app: job types, background tasks and work sources put together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..commands.registry import CommandScheduleTask
from ..core.lazy import deferred
from ..core.outage import Parking
from ..core.seconds import Seconds
from ..ledger.ledger import Ledger
from ..settings import settings
from ..worker.job_type import JobType
from ..worker.maintenance import KEEP_FOREVER, AuditAnchorTask, BackgroundTask, SweepTask
from ..worker.work_source import WorkSource
from ..worker.worker import Worker, retention_seconds
from .registrations import Registrations

if TYPE_CHECKING:
    from ..messages import inbox as message_inbox
    from ..partitions.work import runner as partition_runner
    from ..partitions.work import tasks as partition_tasks
else:  # only for apps with event handlers, or with datasets
    (message_inbox,) = deferred("redrive.messages", "inbox")
    partition_runner, partition_tasks = deferred("redrive.partitions.work", "runner", "tasks")


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """Makes workers for the registered functions of an app. Immutable.

    Attributes:
        registrations: All that is registered.
        ledger: The ledger of the workers.
        parking: When workers treat failures as an outage.
        keep: How long workers keep done jobs and events.
    """

    registrations: Registrations
    ledger: Ledger
    parking: Parking | None
    keep: Seconds | None

    def make_worker(
        self,
        job_types: Sequence[JobType],
        only: Collection[str] | None,
        /,
        *,
        threads: int,
        drain: Seconds,
        name: str | None,
    ) -> Worker:
        """Return a worker with these job types, not started yet.

        `only` also selects datasets. See `App.worker` for the options.
        """
        return Worker(
            self.ledger,
            job_types,
            threads=threads,
            drain=drain,
            work_sources=self._work_sources(only, threads),
            background_tasks=[*self.background_tasks(job_types), *self._dataset_tasks(only)],
            name=name,
            parking=self.parking,
            keep=self.keep,
        )

    def background_tasks(self, job_types: Sequence[JobType], /) -> list[BackgroundTask]:
        """Return the background tasks of a worker with these job types, except for datasets."""
        tasks: list[BackgroundTask] = [
            *CommandScheduleTask.of(self.ledger, self.registrations.commands.scheduled, job_types),
            SweepTask(self.ledger),
            AuditAnchorTask(self.ledger, settings().worker.anchors),
        ]
        inbox = self.registrations.used_inbox
        if inbox is None:
            return tasks
        names = {job_type.name for job_type in job_types}
        for source in self.registrations.sources:
            if names.issuperset(job_type.name for job_type in source.kinds(inbox)):
                tasks += source.chores(inbox)
        retention = retention_seconds(self.keep)
        if retention != KEEP_FOREVER:
            tasks.append(message_inbox.EventRetention(inbox, retention))
        return tasks

    def _dataset_tasks(self, only: Collection[str] | None) -> list[BackgroundTask]:
        extractions = self.registrations.extractions(only)
        if not extractions:
            return []
        tasks: list[BackgroundTask] = [partition_tasks.ControlPlaneTask(self.ledger, extractions)]
        if any(extraction.cron is not None for extraction in extractions):
            tasks.append(partition_tasks.ScheduleTask(self.ledger, extractions))
        return tasks

    def _work_sources(self, only: Collection[str] | None, threads: int) -> list[WorkSource]:
        extractions = self.registrations.extractions(only)
        if not extractions:
            return []
        return [
            partition_runner.PartitionRunner(extractions, max_running=threads, parking=self.parking)
        ]
