"""Ledger: the database of jobs, attempts, leases, dead letters and idempotency records."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection

from ..core.lazy import deferred
from ..core.seconds import Seconds, dated_duration, seconds
from ..errors import LeaseLost
from . import validation
from .db import secret_names
from .db.address import Address
from .db.caller_transaction import Transaction
from .db.connections import Connections
from .failpoint import crash_point
from .jobs.group_commit import GroupCommit, StepCommit, submit_deduplicated, write_jobs
from .model import Entry, Lease, NewJob, Settlement, Submitted, Turn, new_token
from .notify import LocalNotifier, Wake
from .reader import LedgerReader
from .store.protocol import ClaimOptions

if TYPE_CHECKING:
    from . import audit
    from .db import schema
    from .jobs import dead_letters, job_changes, lease_recovery, retention, sweeps, workers
    from .jobs.dead_letters import BulkResult
    from .jobs.sweeps import Sweeps
    from .stats import counters
else:  # see reader.py
    audit, schema, counters = deferred(__package__, "audit", "db.schema", "stats.counters")
    job_changes, dead_letters, lease_recovery, retention, sweeps, workers = deferred(
        f"{__package__}.jobs",
        "job_changes",
        "dead_letters",
        "lease_recovery",
        "retention",
        "sweeps",
        "workers",
    )

LEASE_SECONDS = 60.0
DAY = 86_400.0
MAX_BATCH = 1000
MAX_UNBLOCKED = 1000


class LedgerMaintenance:
    """Heartbeats, counters and blocked jobs, for workers.

    Threads and forked children may share one.
    """

    def __init__(self, connections: Connections) -> None:
        self._write = connections.write

    def heartbeat(self, worker: str, info: Mapping[str, Any] | None = None, /) -> datetime:
        """Write the heartbeat of a worker. A worker with a fresh heartbeat has not crashed.

        Returns:
            The time of the ledger's clock.
        """
        with self._write.use() as session:
            return workers.heartbeat(session, worker, info)

    def deregister_worker(self, worker: str, /) -> None:
        """Write that a worker has stopped."""
        with self._write.use() as session:
            workers.deregister(session, worker)

    def unblock(self, *, limit: int = MAX_UNBLOCKED) -> BulkResult:
        """Replay blocked dead letters whose time has come."""
        with self._write.use() as session:
            return dead_letters.unblock(session, limit)

    def fold_counters(self) -> int:
        """Sum up rows of changed counters (on Postgres), and return how many."""
        with self._write.use() as session:
            return counters.fold(session)

    def count_late(self, settlements: Sequence[Settlement], /) -> None:
        """Count settlements that were rejected inside a caller's transaction."""
        with self._write.use() as session, session.transaction("settle"):
            for settlement in settlements:
                counters.add(session, {settlement.kind: {"late": 1}})

    def hide(self, names: Collection[str], /) -> None:
        """Store names of secret fields. Every program that opens the ledger redacts them."""
        with self._write.use() as session:
            secret_names.remember(session, names)


class Ledger(LedgerReader):
    """The database of jobs, attempts, leases, dead letters and idempotency records.

    Open one with `open_ledger`. It is a context manager. Its methods block: use `AsyncLedger` in
    async code.

    Threads may share one. Forked children may share one and get their own connections. A ledger in
    memory belongs to its process.
    """

    def __init__(self, address: Address, *, migrate: bool, max_payload: int) -> None:
        super().__init__(Connections(address, migrate=migrate))
        self.url = address.shown
        self.max_payload = max_payload
        self.maintenance = LedgerMaintenance(self.connections)
        self._address = self.connections.address
        self._write = self.connections.write
        self._notifier = LocalNotifier()
        self.control = job_changes.JobControl(self.connections, self._notifier.notify)
        """Cancels, reschedules and reprioritises jobs that have not ended."""
        self._group_commit: tuple[int, GroupCommit[NewJob, Submitted]] | None = None
        """With the process that made it."""
        self.step_commit = StepCommit(self.connections)

    def with_own_connections(self) -> Ledger:
        """Return the same ledger with its own pool, for threads that must not wait for others."""
        if self.connections.on_sqlite:
            return self
        return Ledger(self._address, migrate=False, max_payload=self.max_payload)

    # --- Submit

    @property
    def group_commit(self) -> GroupCommit[NewJob, Submitted]:
        """Submissions that run at the same time. A forked child gets its own."""
        pid = os.getpid()
        if self._group_commit is None or self._group_commit[0] != pid:
            write = partial(write_jobs, self.connections, self._notifier.notify)
            self._group_commit = (pid, GroupCommit(write))
        return self._group_commit[1]

    def submit(self, job: NewJob, /, *, tx: Transaction | None = None) -> Submitted:
        """Submit a job, once for its job key.

        Args:
            job: The job.
            tx: Your open transaction on the ledger's database. The job exists when you commit it.

        Returns:
            The job that the key has now. `created` is False if the key existed.
        """
        if tx is not None:
            return self.submit_many((job,), tx=tx)[0]
        # The group-commit leader would wait for this thread, and this thread for the leader.
        self._write.assert_not_nested()
        return self.group_commit.submit((validation.check_job(job, self.max_payload),))[0]

    def submit_many(
        self, jobs: Iterable[NewJob], /, *, tx: Transaction | None = None
    ) -> list[Submitted]:
        """Submit many jobs: all of them or none.

        Args:
            jobs: The jobs.
            tx: Your open transaction on the ledger's database.

        Returns:
            The jobs that the keys have now, in the same order.
        """
        checked = [validation.check_job(job, self.max_payload) for job in jobs]
        if not checked:
            return []
        if tx is not None:
            run = self.connections.adopt_transaction(tx)
            submit_in = self.connections.store.submit_in
            submitted = submit_deduplicated(checked, lambda new: submit_in(run, new))
            crash_point("submit.in_caller")
            return submitted
        self._write.assert_not_nested()
        return self.group_commit.submit(checked)

    def notify(self) -> None:
        """Wake the workers of this process, because jobs were written by other means."""
        self._notifier.notify()

    def listen(self) -> Wake:
        """Return an object that wakes a worker when jobs are submitted.

        It belongs to one thread. Close it.
        """
        return self.connections.listen(self._notifier)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction of the ledger, for your own changes that commit together with jobs.

        Yields:
            The connection. Pass it as `tx=`.
        """
        with (
            self._write.use(lent=True) as session,
            session.transaction("caller") as connection,
            self.connections.lending(connection),
        ):
            yield connection

    # --- Work

    def turn(
        self,
        settlements: Sequence[Settlement],
        kinds: Mapping[str, int],
        /,
        *,
        worker: str,
        lease: Seconds = LEASE_SECONDS,
        total: int | None = None,
        start: bool = True,
        alone: bool = False,
        token: int | None = None,
        start_last: bool = True,
        starts: Sequence[Lease] = (),
        fair: bool = False,
    ) -> Turn:
        """Settle attempts, start claimed jobs and claim due jobs, in one transaction.

        Settlements that arrive too late are counted and change nothing.

        Args:
            settlements: Results of attempts.
            kinds: Maximum number of jobs to claim of each job type.
            worker: Name of the worker.
            lease: Seconds for which no other worker gets the jobs.
            total: Maximum number of jobs over all types.
            start: False if the jobs will wait in the worker. Call `start` for them later. A crash
                counts as an attempt only for started jobs.
            alone: Claim one job that was running when its worker died. Run nothing beside it.
            token: Token of the leases. Default: a new one.
            start_last: False leaves a job's last attempt unstarted. Call `start` before it runs.
            starts: Claimed leases to start in the same transaction.
            fair: The tenants of the job type take turns. For one job type.

        Returns:
            New leases, settlements that were too late, and the leases of `starts` that started.
        """
        if alone and starts:
            raise ValueError(
                f"starts: {len(starts)} leases together with alone=True; "
                "start them by a turn before it"
            )
        limit = sum(kinds.values()) if total is None else total
        validation.check_name("worker", worker, validation.MAX_KIND_BYTES)
        validation.check_settlements(settlements, self.max_payload)
        options = ClaimOptions(
            kinds,
            worker,
            dated_duration("lease", lease),
            min(limit, 1) if alone else limit,
            start,
            alone,
            new_token() if token is None else token,
            start_last,
            starts,
            fair and len(kinds) == 1,
        )
        # `with` and the check of the file would cost as much as the claim. A turn without
        # settlements makes the check.
        session = self._write.acquire(checked=not settlements)
        try:
            return self.connections.store.turn(session, settlements, options)
        except Exception as error:
            session.explain(error)
            raise
        finally:
            self._write.release(session)

    def claim(
        self,
        kinds: Mapping[str, int],
        /,
        *,
        worker: str,
        lease: Seconds = LEASE_SECONDS,
        total: int | None = None,
        start: bool = True,
        alone: bool = False,
        fair: bool = False,
    ) -> list[Lease]:
        """Claim due jobs, the most urgent first. See `turn`.

        Args:
            kinds: Maximum number of jobs to claim of each job type.
            worker: Name of the worker.
            lease: Seconds for which no other worker gets the jobs.
            total: Maximum number of jobs over all types.
            start: False if the jobs will wait in the worker.
            alone: Claim one job that was running when its worker died.
            fair: The tenants of the job type take turns. For one job type.

        Returns:
            The leases.
        """
        turn = self.turn(
            (), kinds, worker=worker, lease=lease, total=total, start=start, alone=alone, fair=fair
        )
        return turn.leases

    def start(self, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that attempts start, before they do.

        Args:
            leases: Leases that were claimed with `start=False`.

        Returns:
            The leases that may start. The others are lost.
        """
        if not leases:
            return []
        with self._write.use() as session:
            return self.connections.store.start(session, leases)

    def renew(self, leases: Sequence[Lease], /, *, lease: Seconds = LEASE_SECONDS) -> list[Lease]:
        """Extend leases.

        Args:
            leases: The leases.
            lease: Seconds from now.

        Returns:
            The leases that are lost. Stop working on their jobs.
        """
        until = dated_duration("lease", lease)
        if not leases:
            return []
        with self._write.use() as session:
            return self.connections.store.renew(session, leases, until)

    def settle(
        self, settlements: Settlement | Sequence[Settlement], /, *, tx: Transaction | None = None
    ) -> None:
        """Write the results of attempts.

        In your own transaction, a late settlement raises before it is counted.

        Args:
            settlements: One or many, made by the methods of a `Lease`.
            tx: Your open transaction on the ledger's database.

        Raises:
            LeaseLost: A settlement came too late. It changed nothing and was counted.
        """
        batch = [settlements] if isinstance(settlements, Settlement) else list(settlements)
        validation.check_settlements(batch, self.max_payload)
        if not batch:
            return
        if tx is not None:
            run = self.connections.adopt_transaction(tx)
            late = self.connections.store.settle_in(run, batch).late
            crash_point("settle.in_caller")
        else:
            with self._write.use() as session:
                late = self.connections.store.settle(session, batch).late
        if late:
            names = ", ".join(f"{each.job_id} ({each.kind}, fence {each.fence})" for each in late)
            raise LeaseLost(
                "settled too late or twice, and the lease is no longer this worker's; "
                f"nothing was changed: job {names}"
            )

    def reap(
        self, *, limit: int = MAX_BATCH, trusts: Callable[[datetime], bool] | None = None
    ) -> list[int]:
        """Take back expired leases. Workers do this regularly.

        Args:
            limit: Maximum number of leases.
            trusts: Whether leases may be measured by this time of the ledger's clock. If not, none
                is taken back.

        Returns:
            The ids of the jobs.
        """
        with self._write.use() as session:
            return lease_recovery.reap(session, limit, trusts=trusts)

    def replay(
        self, ids: Sequence[int], /, *, actor: str, because: str, max_replays: int | None = None
    ) -> BulkResult:
        """Create a new job for each dead letter, under the same job key.

        Args:
            ids: Ids of dead letters.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.
            max_replays: Skip dead letters that were replayed this often. None: no limit.

        Returns:
            The new jobs, and the dead letters that were skipped with the reason.
        """
        with self._write.use() as session:
            options = dead_letters.ReplayOptions(max_replays)
            result = dead_letters.replay(
                session, ids, actor=actor, because=because, options=options
            )
        self._notifier.notify()
        return result

    def discard(self, ids: Sequence[int], /, *, actor: str, because: str) -> BulkResult:
        """Discard dead letters for good. Their job keys stay taken.

        Args:
            ids: Ids of dead letters.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            The dead letters that were discarded, and those that were skipped with the reason.
        """
        with self._write.use() as session:
            return dead_letters.discard(session, ids, actor=actor, because=because)

    def record(self, *, actor: str, action: str, because: str, what: Mapping[str, Any]) -> Entry:
        """Add an entry to the audit log.

        Args:
            actor: Who decided.
            action: What was done.
            because: Why.
            what: Details.

        Returns:
            The entry.
        """
        with self._write.use() as session, session.transaction("caller"):
            return audit.write(session, actor=actor, action=action, because=because, what=what)

    # --- Keep

    def prune(self, older: Seconds = 30 * DAY, /, *, limit: int = MAX_BATCH) -> int:
        """Empty done jobs and free expired job keys. Dead letters are kept.

        Args:
            older: Minimum number of seconds since the job ended.
            limit: Maximum number of jobs.

        Returns:
            The number of jobs that were pruned.
        """
        with self._write.use() as session:
            return retention.prune(session, seconds("older", older), limit).jobs

    def recount(self, *, actor: str, because: str) -> dict[str, dict[str, int]]:
        """Correct the counters from the rows, after rows were changed by hand. Reads every row.

        Args:
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            The corrections by job type.
        """
        self.connections.require_own_sessions("counts cannot be corrected")
        with self._write.use() as session:
            return counters.recount(session, actor=actor, because=because)

    def migrate(self) -> None:
        """Create or upgrade the tables."""
        with self._write.use() as session:
            schema.migrate(session, shown=self._address.shown)

    def close(self) -> None:
        """Close all connections. Connections in use are closed when they are returned."""
        self.connections.close()

    @cached_property
    def sweeps(self) -> Sweeps:
        """The bulk operations on dead letters and partitions."""
        return sweeps.Sweeps(self.connections, self._notifier.notify)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.url}>"
