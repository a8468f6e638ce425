"""Read access to a ledger: jobs, attempts, dead letters, counts, workers, the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ..core.lazy import deferred
from .db.clock import now_on
from .db.connections import Connections
from .db.session import NO_LIMIT
from .dead_letter import DeadLetter, DeadLetterStatus
from .filters import DeadLetterConditions
from .model import PRIORITIES, QUARANTINE, Attempt, Entry, Job, State, Tally
from .queries import jobs as job_queries
from .stats import counters

if TYPE_CHECKING:
    from . import audit
    from .jobs import workers
    from .jobs.workers import WorkerRecord
    from .queries import dead_letters
    from .stats import failures
else:  # few programs need them, and each builds its statements when it is imported
    audit, workers, dead_letters, failures = deferred(
        __package__, "audit", "jobs.workers", "queries.dead_letters", "stats.failures"
    )


class LedgerReader:
    """The methods of a `Ledger` that only read. Threads and forked children may share one."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        """The open connections. For other parts of Redrive with tables in the ledger."""
        self._read = connections.read

    def get(self, job_id: int, /) -> Job | None:
        """Return a job by its id.

        Args:
            job_id: Id of the job.

        Returns:
            The job, or None.
        """
        with self._read.use() as session:
            return job_queries.by_id(session.core, (job_id,)).get(job_id)

    def find(self, kind: str, key: str, /) -> Job | None:
        """Return the current job of a job key.

        Args:
            kind: Job type.
            key: Job key.

        Returns:
            The job, or None.
        """
        with self._read.use() as session:
            return job_queries.by_key(session.core, kind, key)

    def jobs(self, state: State, /, *, kind: str | None = None, limit: int = 100) -> list[Job]:
        """Return jobs in a stored state.

        Args:
            state: `"ready"`, `"leased"`, `"done"`, `"dead"`, `"dropped"` or `"pruned"`.
            kind: Job type. Default: all.
            limit: Maximum number.

        Returns:
            The jobs.
        """
        with self._read.use() as session:
            return job_queries.in_state(session.core, state, kind=kind, limit=limit)

    def attempts(self, job_id: int, /) -> list[Attempt]:
        """Return the attempts of a job that failed, were lost, or do not count.

        Args:
            job_id: Id of the job.

        Returns:
            The attempts.
        """
        with self._read.use() as session:
            return job_queries.attempts(session.core, job_id)

    def next_due(self, kinds: Sequence[str], /, *, alone: bool = False) -> datetime | None:
        """Return when the next job of these types is due, or None.

        Args:
            kinds: Job types.
            alone: Only jobs in quarantine.
        """
        priorities = (QUARANTINE,) if alone else PRIORITIES
        with self._read.use() as session:
            return job_queries.next_due(session.core, kinds, priorities)

    def dead_letters(
        self,
        *,
        ids: Sequence[int] | None = None,
        status: DeadLetterStatus | None = None,
        kind: str | None = None,
        reason: str | None = None,
        error: str | None = None,
        signature: str | None = None,
        job_id: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        source: str | None = None,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[DeadLetter]:
        """Return dead letters, oldest first.

        Args:
            ids: Only these.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.
            kind: Job type.
            reason: Why the job died, such as `"attempts"`.
            error: Text in the error, in any case, or the error's signature.
            signature: Signature of the error.
            job_id: The job that died.
            since: Not older than this.
            until: Died last before this time.
            source: Source of the message. `"*"`: any source.
            after: Only dead letters with a higher id.
            limit: Maximum number.
            newest: Newest first.

        Returns:
            The dead letters.
        """
        wanted = DeadLetterConditions(
            ids=ids,
            status=status,
            kind=kind,
            reason=reason,
            error=error,
            signature=signature,
            job_id=job_id,
            since=since,
            until=until,
            source=source,
        )
        with self._read.use() as session:
            return dead_letters.with_payloads(
                session.core, wanted, after=after, limit=limit, newest=newest
            )

    def counts(self) -> dict[str, Tally]:
        """Return the number of jobs of each job type, by state.

        Returns:
            A tally for each job type.
        """
        with self._read.use() as session:
            return counters.counts(session.core)

    def imbalance(self) -> list[str]:
        """Check that no job is lost or counted twice. Reads every row.

        Returns:
            The problems. Empty if there are none.
        """
        with self.reading() as connection:
            return counters.imbalance(connection) + failures.imbalance(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a consistent snapshot of the ledger for reading. Writers are not blocked.

        Yields:
            The connection.
        """
        with self._read.use() as session, session.snapshot() as connection:
            yield connection

    def workers(self) -> list[WorkerRecord]:
        """Return the workers and their last heartbeats.

        Returns:
            The workers.
        """
        with self._read.use() as session:
            return workers.list_workers(session.core)

    def now(self) -> datetime:
        """Return the time of the clock that leases use, in UTC."""
        with self._read.use() as session:
            return now_on(session)

    def audit(self, *, after: int = 0, limit: int = 100) -> list[Entry]:
        """Return entries of the audit log, oldest first.

        Args:
            after: Only entries with a higher number.
            limit: Maximum number.

        Returns:
            The entries.
        """
        with self._read.use() as session:
            return audit.entries(session.core, after=after, limit=limit)

    def audit_broken(self) -> int | None:
        """Verify the hash chain of the audit log.

        Returns:
            The number of the first entry that was changed. None: the chain is intact.
        """
        with self._read.use() as session, session.snapshot(bound=NO_LIMIT) as connection:
            return audit.verify(connection).broken
