"""Operations on workers: which are online, which are offline, and what each is running."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from ..ledger.jobs.workers import WorkerRecord
from ..ledger.jobs.workers import list_workers as read_workers
from ..ledger.ledger import Ledger
from ..ledger.queries import overview
from ..partitions.store.overview import leased_partitions as held_partitions
from .context import QUIET, OperatorContext
from .render import ago

MAX_RUNNING = 500
"""Running jobs, and running partitions, that are read."""
Presence: TypeAlias = Literal["alive", "silent", "lost", "ended"]
"""Silent: no heartbeat. Lost: the process was killed or crashed."""
TASK_VERBS = {
    "datasets": "start scheduled extractions",
    "extractions": "extract partitions",
    "partitions": "recover partitions and continue backfills",
    "schedule": "start scheduled jobs",
    "sweeps": "continue bulk operations",
    "temporal": "run activities",
    "temporal.reconcile": "read failed activities",
    "audit anchors": "write audit anchors",
}
"""What background tasks of a worker do, after "cannot". Other tasks have a verb as their name."""
ORDER: tuple[Presence, ...] = ("alive", "silent", "lost", "ended")


@dataclass(frozen=True, slots=True)
class InHand:
    """A job that a worker has leased."""

    id: int
    kind: str
    key: str
    attempt: int
    started_at: datetime | None
    """None: it is leased, but has not started."""
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class InExtraction:
    """A partition that a worker extracts or validates."""

    partition: str
    attempt: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker as of its last heartbeat."""

    name: str
    presence: Presence
    host: str | None
    pid: int | None
    version: str | None
    """Version of Redrive."""
    state: str | None
    """State in its last heartbeat: working or draining."""
    threads: int | None
    kinds: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None
    jobs: tuple[InHand, ...]
    partitions: tuple[InExtraction, ...] = ()

    @property
    def hands(self) -> int:
        """Number of its jobs and partitions."""
        return len(self.jobs) + len(self.partitions)

    @property
    def longest_since(self) -> datetime | None:
        """Start of its longest-running job or partition. None: it runs nothing."""
        jobs = [job.started_at for job in self.jobs if job.started_at is not None]
        return min([*jobs, *(lease.started_at for lease in self.partitions)], default=None)


@dataclass(frozen=True, slots=True)
class Workers:
    """All workers of the last week."""

    now: datetime
    quiet: float
    """Seconds without a heartbeat after which a worker counts as silent."""
    workers: tuple[WorkerLine, ...]
    """Online workers first, then silent, lost and ended ones."""

    @property
    def alive(self) -> int:
        """Number of online workers."""
        return sum(worker.presence == "alive" for worker in self.workers)

    @property
    def missing_text(self) -> str:
        """The sentence that no worker is online."""
        return describe_missing(
            max((worker.seen_at for worker in self.workers), default=None), self.now
        )


@dataclass(frozen=True, slots=True)
class WorkerOperations:
    """Operations on workers, as `Operator.workers`. Threads may share one."""

    _context: OperatorContext

    def find(self, *, quiet: float = QUIET) -> Workers:
        """Return the workers, online and offline, and their running jobs.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.

        Returns:
            The workers.
        """
        ledger = self._context.ledger
        now = ledger.now()
        with ledger.reading() as connection:
            stored = read_workers(connection)
            leased_jobs = overview.leased_jobs(connection, MAX_RUNNING)
            leased_partitions = held_partitions(connection, MAX_RUNNING)
        jobs: dict[str, list[InHand]] = {}
        for job in leased_jobs:
            line = InHand(job.id, job.kind, job.key, job.attempts, job.started_at, job.lease_until)
            jobs.setdefault(job.worker, []).append(line)
        partitions: dict[str, list[InExtraction]] = {}
        for lease in leased_partitions:
            extraction = InExtraction(str(lease.partition), lease.attempt_no, lease.leased_at)
            partitions.setdefault(lease.worker, []).append(extraction)
        silent_before = now - timedelta(seconds=quiet)
        lines = [
            _line(worker, silent_before, jobs.get(worker.name, []), partitions.get(worker.name, []))
            for worker in stored
        ]
        lines.sort(key=lambda line: ORDER.index(line.presence))
        return Workers(now, quiet, tuple(lines))

    def last_heartbeat(self) -> datetime | None:
        """Return when a worker that has not ended was last seen.

        Returns:
            The time, or None for an unknown worker.
        """
        workers = self._context.ledger.workers()
        return max((each.seen_at for each in workers if each.ended_at is None), default=None)

    def missing(self, *, quiet: float = QUIET) -> str | None:
        """Return a sentence that no worker is online, and since when.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.

        Returns:
            The sentence, or None if a worker is online.
        """
        return missing_worker(self._context.ledger, quiet=quiet)


def registered_job_types(ledger: Ledger, /, *, quiet: float = QUIET) -> set[str]:
    """Return the job types that online workers report."""
    return _read_reports(ledger, "kinds", quiet)


def registered_sources(ledger: Ledger, /, *, quiet: float = QUIET) -> set[str]:
    """Return the sources of events and datasets that online workers report."""
    return _read_reports(ledger, "sources", quiet)


def _read_reports(ledger: Ledger, names: str, quiet: float) -> set[str]:
    silent_before = ledger.now() - timedelta(seconds=quiet)
    return {
        name
        for worker in ledger.workers()
        if worker.ended_at is None and worker.seen_at >= silent_before
        for name in worker.info.get(names, ())
    }


def missing_worker(ledger: Ledger, /, *, quiet: float = QUIET) -> str | None:
    """Return a sentence that no worker is online, and since when. None: a worker is online."""
    now = ledger.now()
    workers = ledger.workers()
    silent_before = now - timedelta(seconds=quiet)
    if any(worker.ended_at is None and worker.seen_at >= silent_before for worker in workers):
        return None
    return describe_missing(max((worker.seen_at for worker in workers), default=None), now)


def describe_missing(seen_at: datetime | None, now: datetime, /) -> str:
    """Return the sentence that no worker is online, and when one was last seen."""
    if seen_at is None:
        return "No worker is online (none seen so far)"
    return f"No worker is online (last seen {ago(seen_at, now).replace('now', 'just now')})"


def _line(
    worker: WorkerRecord,
    silent_before: datetime,
    jobs: list[InHand],
    partitions: list[InExtraction],
) -> WorkerLine:
    return WorkerLine(
        name=worker.name,
        presence=_presence(worker, silent_before),
        host=worker.host,
        pid=worker.pid,
        version=worker.info.get("version"),
        state=worker.info.get("state"),
        threads=worker.info.get("threads"),
        kinds=tuple(worker.info.get("kinds", ())),
        started_at=worker.started_at,
        seen_at=worker.seen_at,
        ended_at=worker.ended_at,
        jobs=tuple(jobs),
        partitions=tuple(partitions),
    )


def _presence(worker: WorkerRecord, silent_before: datetime) -> Presence:
    if worker.ended_at is not None:
        return "lost" if worker.lost else "ended"
    return "silent" if worker.seen_at < silent_before else "alive"
