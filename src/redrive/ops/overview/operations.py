"""Operations that show the state of a ledger: problems, failures, schedules and log records.

Their cost does not grow with the number of jobs, dead letters and partitions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from ...ledger.db import secret_names
from ...ledger.db.partition_tables import work
from ...ledger.db.tables import audit, sweep, worker
from ...ledger.jobs.pauses import read_pauses
from ...ledger.ledger import Ledger
from ...ledger.queries import overview as stored_overview
from ...ledger.stats import counters
from ..context import QUIET, OperatorContext
from ..partitions.overview import Rejection, rejections
from .activity import Activity, activity
from .failures import Failure, FailureReport, failure, failures
from .journal import JournalEntry, Tail, journal
from .overview import Overview, overview
from .schedules import Schedule, schedules

MAX_WORK_ROWS = 500
"""Queued and running partitions that the change token reads."""


@dataclass(frozen=True, slots=True)
class OverviewOperations:
    """Operations that show the state of a ledger, as `Operator.overview`. Threads may share one."""

    _context: OperatorContext

    def summary(self, *, quiet: float = QUIET, busy: bool = True) -> Overview:
        """Return the state of every job type and the problems that were found.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.
            busy: For late jobs, also read whether all threads of the workers are busy.

        Returns:
            The overview.
        """
        return overview(self._context.ledger, quiet=quiet, busy=busy)

    def activity(
        self,
        *,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        with_details: bool = True,
        now: datetime | None = None,
    ) -> Activity:
        """Return throughput, queue wait, run time and failures by cause over time.

        Workers write their counts every 5 s. A killed worker loses the counts of its last seconds.

        Args:
            kind: Job type, or dataset such as `"crm/orders"`. None: the whole app.
            since: Start. Default: 24 hours before the end.
            until: End. Default: now.
            with_details: Also read the job types and the failures by cause.
            now: Time of the ledger's clock, if it was read before. It saves a query.

        Returns:
            At most 90 points. Percentiles are at most 9.1 % off.

        Raises:
            ValueError: The range is empty, or longer than 90 days.
        """
        return activity(
            self._context.ledger,
            kind=kind,
            since=since,
            until=until,
            with_details=with_details,
            now=now,
        )

    def failures(
        self,
        *,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> list[Failure]:
        """Return failures of jobs, grouped by job type and signature.

        See `rejections` for partitions.

        Args:
            kind: Job type.
            since: Not older than this.
            until: Older than this.
            limit: Maximum number.

        Returns:
            The failures, the most frequent first.
        """
        return failures(self._context.ledger, kind=kind, since=since, until=until, limit=limit)

    def failure(self, kind: str, signature: str, /, *, limit: int = 50) -> FailureReport | None:
        """Return one failure with its latest dead letters.

        Args:
            kind: Job type.
            signature: Signature of the error.
            limit: Maximum number of dead letters.

        Returns:
            The report, or None.
        """
        return failure(self._context.ledger, kind, signature, limit=limit)

    def rejections(
        self,
        *,
        dataset: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> list[Rejection]:
        """Return failures of partitions, grouped by dataset and reason, the latest first.

        Args:
            dataset: Name of a dataset, such as `"crm/orders"`.
            since: Not older than this.
            until: Older than this.
            limit: Maximum number.

        Returns:
            The rejections.
        """
        return rejections(
            self._context.ledger, dataset=dataset, since=since, until=until, limit=limit
        )

    def schedules(self) -> list[Schedule]:
        """Return the schedules of commands and of datasets, with next and last runs.

        A schedule of a command is known after a worker stored its first run. A schedule of a
        dataset is known to its app, and to the ledger after a worker has seen it.

        Returns:
            The schedules, by name.
        """
        return schedules(self._context.app)

    def journal(
        self,
        *,
        kind: str | None = None,
        events: Collection[str] = (),
        since: datetime | None = None,
        limit: int = 100,
    ) -> list[JournalEntry]:
        """Return log records of all jobs, decisions and rejected partitions, newest first.

        Args:
            kind: Job type.
            events: Only these kinds of records.
            since: Not older than this.
            limit: Maximum number.

        Returns:
            The records.
        """
        return journal(self._context.ledger, kind=kind, events=events, since=since, limit=limit)

    def tail(
        self, *, kind: str | None = None, events: Collection[str] = (), limit: int = 20
    ) -> Tail:
        """Follow the log records: each read returns the new ones.

        Args:
            kind: Job type.
            events: Only these kinds of records.
            limit: Maximum number of the first read.

        Returns:
            An object to read from.
        """
        return Tail(self._context.ledger, kind=kind, events=events, limit=limit)

    def change_token(self) -> str:
        """Return a text that changes whenever something changed that an operator can see.

        Returns:
            The text.
        """
        return change_token(self._context.ledger)


def change_token(ledger: Ledger, /) -> str:
    """Return a digest of a few small rows, which change with jobs, decisions, sweeps and workers.

    For partitions it reads the first queued and running ones, where every change shows.
    """
    running = select(sweep.c.id, sweep.c.made, sweep.c.skipped).where(sweep.c.state == "running")
    queued = select(work.c.partition_id, work.c.due_at, work.c.attempt_no).limit(MAX_WORK_ROWS)
    online = select(func.count()).select_from(worker).where(worker.c.ended_at.is_(None))
    with ledger.reading() as connection:
        # A worker may have stored names of secret fields since the console started.
        secret_names.learn(connection)
        facts = [
            sorted(counters.counts(connection).items()),
            sorted(stored_overview.parked_reasons(connection).items()),
            list(read_pauses(connection, ledger.now())),
            connection.execute(select(func.max(audit.c.number))).scalar(),
            connection.execute(running).all(),
            connection.execute(select(func.max(sweep.c.id))).scalar(),
            connection.execute(queued).all(),
            connection.execute(online).scalar(),
        ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
