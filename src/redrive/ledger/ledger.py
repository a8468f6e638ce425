"""Ledger: the durable memory of keys, jobs and attempts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection

from ..core.lazy import deferred
from ..core.seconds import Seconds, dated_duration, seconds
from ..errors import LeaseLost, LedgerUnavailable
from . import validation
from .db.address import Address, parse
from .db.caller_transaction import Driven, Transaction, runner, same_database
from .db.clock import now_on
from .db.compiled import Many
from .db.connections import Connections
from .db.session import NO_LIMIT
from .failpoint import crash_point
from .jobs import secret_names
from .jobs.group_commit import Gathering, distinct
from .jobs.sweeps import Sweeps
from .notify import Bell, Wake
from .queries import jobs as find
from .record import Attempt, DeadLetter, Entry, Job, Lease, NewJob, Settlement, Submitted, Tally, Turn, new_token
from .state import PRIORITIES, QUARANTINE, State, Status
from .stats import counters
from .store.protocol import Demand, Hot

if TYPE_CHECKING:
    from . import audit
    from .db import schema
    from .jobs import dead_letters as letters
    from .jobs import lease_recovery as reap
    from .jobs import retention as prune
    from .jobs import workers
    from .jobs.dead_letters import Sorted
    from .jobs.workers import Worker
    from .stats import failures, recount
else:  # most programs need few of them, and each builds its statements when it is imported
    audit, failures, recount, schema = deferred(__package__, "audit", "stats.failures", "stats.recount", "db.schema")
    letters, prune, reap, workers = deferred(f"{__package__}.jobs", "dead_letters", "retention", "lease_recovery", "workers")

LEASE = 60.0
DAY = 86_400.0
BATCH = 1000


class Ledger:
    """The database of jobs, attempts, leases, dead letters and idempotency records.

    Open one with `open_ledger`. It is a context manager. Its methods block: use `AsyncLedger` in
    async code.

    Threads may share one. Forked children may share one and get their own connections. A ledger in
    memory belongs to its process.
    """

    def __init__(self, address: Address, *, migrate: bool, max_payload: int) -> None:
        self.url = address.shown
        self.max_payload = max_payload
        self.connections = Connections(address, migrate=migrate)
        """What it keeps open. For parts of redrive with tables beside the ledger's, not for users."""
        self._address = self.connections.address
        self._write, self._read = self.connections.write, self.connections.read
        self._bell = Bell()
        self.sweeps = Sweeps(self._write, self._read, self._bell.ring)
        self._lent: set[int] = set()
        self._gather()

    @classmethod
    def opened(cls, url: str, /, *, migrate: bool = False, max_payload: int | None = None) -> Self:
        """Open a ledger. See `open_ledger`."""
        return cls(parse(url), migrate=migrate, max_payload=validation.MAX_PAYLOAD if max_payload is None else max_payload)

    def beside(self) -> Ledger:
        """Return the same ledger with its own connections, so that its calls do not queue behind others."""
        return self if self.connections.on_sqlite else Ledger(self._address, migrate=False, max_payload=self.max_payload)

    @cached_property
    def _hot(self) -> Hot:
        return self.connections.hot

    def _gather(self) -> None:
        self._pid = os.getpid()
        self._gathering = Gathering(self._written)

    @property
    def gathering(self) -> Gathering:
        """Submissions that run at the same time."""
        if self._pid != os.getpid():
            self._gather()  # in a forked child nobody would ever finish what the parent's threads had begun
        return self._gathering

    def hide(self, names: Collection[str], /) -> None:
        """Store names of secret fields in the ledger. Every program that opens it hides them."""
        with self._write.use() as session:
            secret_names.remember(session, names)

    # ---- submit ----

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
        self._write.outside()  # whoever writes for all would wait for this thread, and this thread for it
        return self.gathering.submit((validation.checked(job, self.max_payload),))[0]

    def submit_many(self, jobs: Iterable[NewJob], /, *, tx: Transaction | None = None) -> list[Submitted]:
        """Submit many jobs: all of them or none.

        Args:
            jobs: The jobs.
            tx: Your open transaction on the ledger's database.

        Returns:
            The jobs that the keys have now, in the same order.
        """
        checked = [validation.checked(job, self.max_payload) for job in jobs]
        if not checked:
            return []
        if tx is not None:
            found = distinct(checked, lambda new: self._hot.submit_in(self.joined(tx), new))
            crash_point("submit.in_caller")
            return found
        self._write.outside()
        return self.gathering.submit(checked)

    def _written(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        try:
            found = self._write_once(jobs)
        except LedgerUnavailable as error:
            if not error.stale:
                raise
            # The idle connection was gone, or leads to a demoted primary. A job is written once for its key: a second
            # attempt is safe even where the first one was executed.
            found = self._write_once(jobs)
        self._bell.ring()
        return found

    def _write_once(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        with self.connections.gathered.use() as session:
            return distinct(jobs, lambda new: self._hot.submit(session, new))

    def ring(self) -> None:
        """Wake the workers of this process, because something was written by other means."""
        self._bell.ring()

    def joined(self, tx: Any, /) -> Many:
        """Prepare a caller's open transaction for the ledger's statements. TypeError or ValueError says why not."""
        if id(tx) in self._lent:
            return Driven(tx)
        run = runner(tx, self._address.dialect)
        same_database(run, self._address)
        return run

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction of the ledger, for your own changes that commit together with jobs.

        Yields:
            The connection. Pass it as `tx=`.
        """
        with self._write.use(lent=True) as session, session.transaction("caller") as connection:
            self._lent.add(id(connection))
            try:
                yield connection
            finally:
                self._lent.discard(id(connection))

    # ---- work ----

    def turn(
        self, settlements: Sequence[Settlement], kinds: Mapping[str, int], /, *, worker: str, lease: Seconds = LEASE,
        total: int | None = None, start: bool = True, alone: bool = False, token: int | None = None,
        start_last: bool = True, starts: Sequence[Lease] = (),
    ) -> Turn:  # fmt: skip
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

        Returns:
            New leases, settlements that were too late, and the leases of `starts` that were started.
        """
        if alone and starts:
            raise ValueError(f"starts: {len(starts)} leases together with alone=True; start them by a turn before it")
        most = sum(kinds.values()) if total is None else total
        validation.name("worker", worker, validation.MAX_KIND)
        validation.settlements(settlements, self.max_payload)
        most = min(most, 1) if alone else most
        drawn = new_token() if token is None else token
        demand = Demand(kinds, worker, dated_duration("lease", lease), most, start, alone, drawn, start_last, starts)
        # `with` and a look at the file would cost as much as the claim. Who only claims does look.
        session = self._write.take(checked=not settlements)
        try:
            return self._hot.turn(session, settlements, demand)
        except Exception as error:
            session.explain(error)
            raise
        finally:
            self._write.give(session)

    def claim(
        self, kinds: Mapping[str, int], /, *, worker: str, lease: Seconds = LEASE, total: int | None = None, start: bool = True,
        alone: bool = False,
    ) -> list[Lease]:  # fmt: skip
        """Claim due jobs, the most urgent first. See `turn`.

        Args:
            kinds: Maximum number of jobs to claim of each job type.
            worker: Name of the worker.
            lease: Seconds for which no other worker gets the jobs.
            total: Maximum number of jobs over all types.
            start: False if the jobs will wait in the worker.
            alone: Claim one job that was running when its worker died.

        Returns:
            The leases.
        """
        return self.turn((), kinds, worker=worker, lease=lease, total=total, start=start, alone=alone).leases

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
            return self._hot.start(session, leases)

    def renew(self, leases: Sequence[Lease], /, *, lease: Seconds = LEASE) -> list[Lease]:
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
            return self._hot.renew(session, leases, until)

    def settle(self, settlements: Settlement | Sequence[Settlement], /, *, tx: Transaction | None = None) -> None:
        """Write the results of attempts.

        In your own transaction, a late settlement raises before it is counted. Roll back, then call
        `count_late`.

        Args:
            settlements: One or many, made by the methods of a `Lease`.
            tx: Your open transaction on the ledger's database.

        Raises:
            LeaseLost: A settlement came too late. It changed nothing and was counted.
        """
        given = [settlements] if isinstance(settlements, Settlement) else list(settlements)
        validation.settlements(given, self.max_payload)
        if not given:
            return
        if tx is not None:
            late = self._hot.settle_in(self.joined(tx), given)
            crash_point("settle.in_caller")
        else:
            with self._write.use() as session:
                late = self._hot.settle(session, given)
        if late:
            named = ", ".join(f"{one.job_id} ({one.kind}, fence {one.fence})" for one in late)
            raise LeaseLost(
                f"settled too late or twice, and the lease is no longer this worker's; nothing was changed: job {named}"
            )

    def count_late(self, settlements: Sequence[Settlement], /) -> None:
        """Count settlements that were rejected inside a caller's transaction."""
        with self._write.use() as session, session.transaction("settle"):
            for one in settlements:
                counters.add(session, {one.kind: {"late": 1}})

    def reap(self, *, limit: int = BATCH, trusts: Callable[[datetime], bool] | None = None) -> list[int]:
        """Take back expired leases. Workers do this regularly.

        Args:
            limit: Maximum number of leases.
            trusts: Whether leases may be measured by this time of the ledger's clock. If not, none is
                taken back.

        Returns:
            The ids of the jobs.
        """
        with self._write.use() as session:
            return reap.reap(session, limit, trusts=trusts)

    def beat(self, worker: str, info: Mapping[str, Any] | None = None, /) -> datetime:
        """Write the heartbeat of a worker. A worker with a fresh heartbeat has not crashed."""
        with self._write.use() as session:
            return workers.beat(session, worker, info)

    def leave(self, worker: str, /) -> None:
        """Remove a worker that has ended in order."""
        with self._write.use() as session:
            workers.leave(session, worker)

    def wake(self) -> Wake:
        """Return an object that tells a worker when a job was submitted. Close it. It belongs to one thread."""
        return self.connections.wake(self._bell)

    def next_due(self, kinds: Sequence[str], /, *, alone: bool = False) -> datetime | None:
        """Return when the next job of these types is due, or None."""
        with self._read.use() as session:
            return find.next_due(session.core, kinds, (QUARANTINE,) if alone else PRIORITIES)

    # ---- dead letters ----

    def dead_letters(
        self, *, ids: Sequence[int] | None = None, status: Status | None = None, kind: str | None = None,
        reason: str | None = None, error: str | None = None, signature: str | None = None, job_id: int | None = None,
        since: datetime | None = None, until: datetime | None = None, source: str | None = None, after: int = 0,
        limit: int = 100, newest: bool = False,
    ) -> list[DeadLetter]:  # fmt: skip
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
        with self._read.use() as session:
            return letters.letters(
                session.core, ids=ids, status=status, kind=kind, reason=reason, error=error, signature=signature, job_id=job_id,
                since=since, until=until, source=source, after=after, limit=limit, newest=newest,
            )  # fmt: skip

    def replay(self, ids: Sequence[int], /, *, actor: str, because: str, max_replays: int | None = None) -> Sorted:
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
            done = letters.replay(session, ids, actor=actor, because=because, max_replays=max_replays)
        self._bell.ring()
        return done

    def discard(self, ids: Sequence[int], /, *, actor: str, because: str) -> Sorted:
        """Discard dead letters for good. Their job keys stay taken.

        Args:
            ids: Ids of dead letters.
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            The dead letters that were discarded, and those that were skipped with the reason.
        """
        with self._write.use() as session:
            return letters.discard(session, ids, actor=actor, because=because)

    def unblock(self, *, limit: int = BATCH) -> Sorted:
        """Replay blocked jobs whose time has come. Workers do this regularly."""
        with self._write.use() as session:
            return letters.unblock(session, limit)

    # ---- look ----

    def get(self, job_id: int, /) -> Job | None:
        """Return a job by its id.

        Args:
            job_id: Id of the job.

        Returns:
            The job, or None.
        """
        with self._read.use() as session:
            return find.by_id(session.core, (job_id,)).get(job_id)

    def find(self, kind: str, key: str, /) -> Job | None:
        """Return the current job of a job key.

        Args:
            kind: Job type.
            key: Job key.

        Returns:
            The job, or None.
        """
        with self._read.use() as session:
            return find.by_key(session.core, kind, key)

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
            return find.page(session.core, state, kind=kind, limit=limit)

    def attempts(self, job_id: int, /) -> list[Attempt]:
        """Return the attempts of a job that failed, were lost, or do not count.

        Args:
            job_id: Id of the job.

        Returns:
            The attempts.
        """
        with self._read.use() as session:
            return find.attempts(session.core, job_id)

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

    def workers(self) -> list[Worker]:
        """Return the workers and their last heartbeats.

        Returns:
            The workers.
        """
        with self._read.use() as session:
            return workers.workers(session.core)

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
            return audit.broken(connection)

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

    # ---- keep ----

    def prune(self, older: Seconds = 30 * DAY, /, *, limit: int = BATCH) -> int:
        """Empty done jobs and free expired job keys. Dead letters are kept.

        Args:
            older: Minimum number of seconds since the job ended.
            limit: Maximum number of jobs.

        Returns:
            The number of jobs that were pruned.
        """
        with self._write.use() as session:
            return prune.prune(session, seconds("older", older), limit).jobs

    def fold(self) -> int:
        """Sum up rows of changed counters (on Postgres), and return how many. Workers do this regularly."""
        with self._write.use() as session:
            return counters.fold(session) + failures.fold(session)

    def recount(self, *, actor: str, because: str) -> dict[str, dict[str, int]]:
        """Correct the counters from the rows, after rows were changed by hand. Reads every row.

        Args:
            actor: Who does this, for the audit log.
            because: Why, for the audit log.

        Returns:
            The corrections by job type.
        """
        self.connections.own_sessions("counts cannot be corrected")
        with self._write.use() as session:
            return recount.recount(session, actor=actor, because=because)

    def migrate(self) -> None:
        """Create or upgrade the tables."""
        with self._write.use() as session:
            schema.migrate(session, shown=self._address.shown)

    def close(self) -> None:
        """Close all connections. Connections in use are closed when they are returned."""
        self.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.url}>"
