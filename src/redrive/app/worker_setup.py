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
    from ..messages import dead_letter_publisher
    from ..messages import inbox as message_inbox
    from ..messages import reader as message_reader
    from ..messages.source import Source
    from ..partitions.work import dask_executor
    from ..partitions.work import runner as partition_runner
    from ..temporal import mirror as temporal_mirror
    from ..temporal import reconciliation as temporal_reconciliation
    from ..temporal import runner as temporal_runner
else:  # only for apps with event handlers, with datasets or with another engine
    temporal_mirror, temporal_reconciliation, temporal_runner = deferred(
        "redrive.temporal", "mirror", "reconciliation", "runner"
    )
    dead_letter_publisher, message_inbox, message_reader = deferred(
        "redrive.messages", "dead_letter_publisher", "inbox", "reader"
    )
    dask_executor, partition_runner = deferred("redrive.partitions.work", "dask_executor", "runner")


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
        processes: int | None,
        drain: Seconds,
        name: str | None,
        executor: str | None = None,
    ) -> Worker:
        """Return a worker with these job types, not started yet.

        `only` also selects datasets. See `App.worker` for the options.
        """
        tasks = [*self.background_tasks(job_types), *self._dataset_tasks(only)]
        sources = self._work_sources(only, threads, executor)
        temporal, on_temporal = self.registrations.temporal, self._types_on_temporal(job_types)
        if temporal is not None and on_temporal:
            mirror = temporal_mirror.Mirror(temporal, self.ledger)
            names = [job_type.name for job_type in on_temporal]
            job_types = [
                mirror.job_type(each) if each.name in names else each for each in job_types
            ]
            runner = temporal_runner.TemporalRunner(
                temporal.connection, self.ledger, on_temporal, threads=threads, drain=drain
            )
            sources.append(runner)
            tasks.append(
                temporal_reconciliation.ReconciliationTask(
                    temporal, self.ledger, names, runner.set_engine_report
                )
            )
        return Worker(
            self.ledger,
            job_types,
            threads=threads,
            processes=processes,
            drain=drain,
            work_sources=sources,
            background_tasks=tasks,
            name=name,
            parking=self.parking,
            keep=self.keep,
            sources=[
                *(source.name for source in self._read_sources(job_types)),
                *(extraction.limits.source for extraction in self.registrations.extractions(only)),
            ],
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
        for source in self._read_sources(job_types):
            tasks.append(message_reader.SourceReader(inbox, source))
            if source.announces:
                tasks.append(dead_letter_publisher.DeadLetterPublisher(inbox, source))
        retention = retention_seconds(self.keep)
        if retention != KEEP_FOREVER:
            tasks.append(message_inbox.EventRetention(inbox, retention))
        return tasks

    def _read_sources(self, job_types: Sequence[JobType]) -> list[Source]:
        """Return the sources of events that a worker with these job types reads."""
        names = {job_type.name for job_type in job_types}
        return [
            source
            for source in self.registrations.sources
            if message_reader.unread_name(source) in names
        ]

    def _types_on_temporal(self, job_types: Sequence[JobType]) -> list[JobType]:
        commands = self.registrations.commands
        specs = {each.name: commands.spec(each.name) for each in job_types}
        return [
            each
            for each in job_types
            if (spec := specs[each.name]) is not None and commands.engine_of(spec) is not None
        ]

    def _dataset_tasks(self, only: Collection[str] | None) -> list[BackgroundTask]:
        extractions = self.registrations.extractions(only)
        if not extractions:
            return []
        tasks: list[BackgroundTask] = [partition_runner.ControlPlaneTask(self.ledger, extractions)]
        if any(extraction.cron is not None for extraction in extractions):
            tasks.append(partition_runner.ScheduleTask(self.ledger, extractions))
        return tasks

    def _work_sources(
        self, only: Collection[str] | None, threads: int, executor: str | None
    ) -> list[WorkSource]:
        extractions = self.registrations.extractions(only)
        if not extractions:
            return []
        remote = None
        if executor is not None:
            parking = Parking() if self.parking is None else self.parking
            remote = dask_executor.DaskExecutor(executor, extractions, parking)
        runner = partition_runner.PartitionRunner(
            extractions, max_running=threads, parking=self.parking, remote=remote
        )
        return [runner]
