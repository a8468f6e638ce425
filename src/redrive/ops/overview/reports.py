"""Watching: what an operator sees before doing anything. Costs the same however much is in the ledger."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from ...core.lazy import deferred
from ..defaults import QUIET
from ..target.target import ledger_of

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...ledger.model import Tally
    from .. import schedules, workers
    from ..health import presence
    from ..partitions import rejections
    from ..partitions.rejections import Rejection
    from ..schedules import Schedule
    from ..target.target import Operated
    from ..workers import Workers
    from . import failures, journal, overview
    from .failures import Failure, FailureReport
    from .journal import Happening, Tail
    from .overview import Overview
else:  # as operator.py has it
    failures, journal, overview, presence, rejections, schedules, workers = deferred(
        "redrive.ops",
        "overview.failures",
        "overview.journal",
        "overview.overview",
        "health.presence",
        "partitions.rejections",
        "schedules",
        "workers",
    )


class Watching:
    """What there is to see. A facet of Operator, which says who may share it."""

    _app: Operated

    @property
    def _ledger(self) -> Ledger:
        """What is looked after; an app's is opened at first use."""
        return ledger_of(self._app)

    @property
    def url(self) -> str:
        """Address of the ledger, without its password."""
        return self._ledger.url

    def now(self) -> datetime:
        """Return the time of the ledger's clock.

        Returns:
            The time, in UTC.
        """
        return self._ledger.now()

    def counts(self) -> dict[str, Tally]:
        """Return the number of jobs of each job type, by state.

        Returns:
            A tally for each job type.
        """
        return self._ledger.counts()

    def overview(self, *, quiet: float = QUIET, busy: bool = True) -> Overview:
        """Return the state of every job type and the problems that were found.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.
            busy: For late jobs, also read whether all threads of the workers are busy.

        Returns:
            The overview.
        """
        return overview.overview(self._ledger, quiet=quiet, busy=busy)

    def failures(
        self, *, kind: str | None = None, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> list[Failure]:
        """Return failures of jobs, grouped by job type and signature. See `rejections` for partitions.

        Args:
            kind: Job type.
            since: Not older than this.
            until: Older than this.
            limit: Maximum number.

        Returns:
            The failures, the most frequent first.
        """
        return failures.failures(self._ledger, kind=kind, since=since, until=until, limit=limit)

    def failure(self, kind: str, signature: str, /, *, limit: int = 50) -> FailureReport | None:
        """Return one failure with its latest dead letters.

        Args:
            kind: Job type.
            signature: Signature of the error.
            limit: Maximum number of dead letters.

        Returns:
            The report, or None.
        """
        return failures.failure(self._ledger, kind, signature, limit=limit)

    def rejections(
        self, *, dataset: str | None = None, since: datetime | None = None, until: datetime | None = None, limit: int = 100
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
        return rejections.rejections(self._ledger, dataset=dataset, since=since, until=until, limit=limit)

    def workers(self, *, quiet: float = QUIET) -> Workers:
        """Return the workers, online and offline, and their running jobs.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.

        Returns:
            The workers.
        """
        return workers.workers(self._ledger, quiet=quiet)

    def nobody(self, *, quiet: float = QUIET) -> str | None:
        """Return a sentence that no worker is online, and since when.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.

        Returns:
            The sentence, or None if a worker is online.
        """
        return presence.missing(self._ledger, quiet=quiet)

    def schedules(self) -> list[Schedule]:
        """Return the schedules of commands and of datasets, with next and last runs.

        A schedule of a command is known after a worker stored its first run. A schedule of a
        dataset is known to its app, and to the ledger after a worker has seen it.

        Returns:
            The schedules, by name.
        """
        return schedules.schedules(self._app)

    def journal(
        self, *, kind: str | None = None, events: Collection[str] = (), since: datetime | None = None, limit: int = 100
    ) -> list[Happening]:
        """Return log records of all jobs, decisions and rejected partitions, newest first.

        Args:
            kind: Job type.
            events: Only these kinds of records.
            since: Not older than this.
            limit: Maximum number.

        Returns:
            The records.
        """
        return journal.journal(self._ledger, kind=kind, events=events, since=since, limit=limit)

    def tail(self, *, kind: str | None = None, events: Collection[str] = (), limit: int = 20) -> Tail:
        """Follow the log records: each read returns the new ones.

        Args:
            kind: Job type.
            events: Only these kinds of records.
            limit: Maximum number of the first read.

        Returns:
            An object to read from.
        """
        return journal.Tail(self._ledger, kind=kind, events=events, limit=limit)
