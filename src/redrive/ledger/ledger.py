"""Ledger: the durable memory of keys, jobs and attempts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection

from ..core.lazy import deferred
from ..core.seconds import Seconds, lasting, seconds
from ..errors import LeaseLost, LedgerUnavailable
from . import counts, find, hidden, limits
from .address import Address, parse
from .caller import Driven, Transaction, runner, same_database
from .connections import Connections
from .crashpoint import crash_point
from .gathering import Gathering, distinct
from .hot import Demand, Hot
from .now import now_on
from .record import Attempt, DeadLetter, Entry, Job, Lease, NewJob, Settlement, Submitted, Tally, Turn, new_token
from .session import NO_LIMIT
from .state import PRIORITIES, QUARANTINE, State, Status
from .statement import Many
from .sweeps import Sweeps
from .wake import Bell, Wake

if TYPE_CHECKING:
    from . import audit, failures, letters, prune, reap, recount, schema, workers
    from .letters import Sorted
    from .workers import Worker
else:  # most programs need few of them, and each builds its statements when it is imported
    audit, failures, letters, prune, reap, recount, schema, workers = deferred(
        __package__, "audit", "failures", "letters", "prune", "reap", "recount", "schema", "workers"
    )

LEASE = 60.0
DAY = 86_400.0
BATCH = 1000


class Ledger:
    """The durable memory of keys, jobs and attempts; open one by `open_ledger`. Context manager.

    Threads may share one, and so may forked children, which get connections of their own (one in memory excepted, which
    is its process's alone). Its methods block: event loops go through `AsyncLedger`.
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
        """See `open_ledger`."""
        return cls(parse(url), migrate=migrate, max_payload=limits.MAX_PAYLOAD if max_payload is None else max_payload)

    def beside(self) -> Ledger:
        """The same ledger with connections of its own, for who must never wait for others'; on SQLite there is one writer."""
        return self if self.connections.on_sqlite else Ledger(self._address, migrate=False, max_payload=self.max_payload)

    @cached_property
    def _hot(self) -> Hot:
        return self.connections.hot

    def _gather(self) -> None:
        self._pid = os.getpid()
        self._gathering = Gathering(self._written)

    @property
    def gathering(self) -> Gathering:
        """Who submits at the same time."""
        if self._pid != os.getpid():
            self._gather()  # in a forked child nobody would ever finish what the parent's threads had begun
        return self._gathering

    def hide(self, names: Collection[str], /) -> None:
        """Keep names of secret fields in the ledger: every program that opens it hides them."""
        with self._write.use() as session:
            hidden.remember(session, names)

    # ---- submit ----

    def submit(self, job: NewJob, /, *, tx: Transaction | None = None) -> Submitted:
        """Write a job down, once for its key. In the caller's own open transaction, where one is given."""
        if tx is not None:
            return self.submit_many((job,), tx=tx)[0]
        self._write.outside()  # whoever writes for all would wait for this thread, and this thread for it
        return self.gathering.submit((limits.checked(job, self.max_payload),))[0]

    def submit_many(self, jobs: Iterable[NewJob], /, *, tx: Transaction | None = None) -> list[Submitted]:
        """Many at once, all or none; what comes back is in their order."""
        checked = [limits.checked(job, self.max_payload) for job in jobs]
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
        """Something was written by other means: whoever waits for work in this process may look."""
        self._bell.ring()

    def joined(self, tx: Any, /) -> Many:
        """A caller's open transaction, made ready for statements of ours; TypeError or ValueError where it cannot be."""
        if id(tx) in self._lent:
            return Driven(tx)
        run = runner(tx, self._address.dialect)
        same_database(run, self._address)
        return run

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction of the ledger's own, for effects of yours that shall commit with what you submit or settle."""
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
        start_last: bool = True,
    ) -> Turn:  # fmt: skip
        """A worker's turn: settle what it has, claim what it can take. Settlements that come too late are counted.

        kinds: the most to take of each kind; total: of all of them. lease: seconds for which nobody else gets them.
        start: False where they will wait in the worker; `start` them then, one by one: a crash counts for started ones only.
        alone: one of those that were running when their worker died; run nothing beside it.
        token: of the leases, see `new_token` (default: a new one).
        start_last: False leaves jobs' last attempts unstarted (`Lease.started`): `start` them before they run.
        """
        most = sum(kinds.values()) if total is None else total
        limits.name("worker", worker, limits.MAX_KIND)
        limits.settlements(settlements, self.max_payload)
        most = min(most, 1) if alone else most
        drawn = new_token() if token is None else token
        demand = Demand(kinds, worker, lasting("lease", lease), most, start, alone, drawn, start_last)
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
        """Lease what is due, kind by kind, the most urgent first. See `turn`."""
        return self.turn((), kinds, worker=worker, lease=lease, total=total, start=start, alone=alone).leases

    def start(self, leases: Sequence[Lease], /) -> list[Lease]:
        """Write that these attempts begin, before they do; those that may (the others' leases are lost)."""
        if not leases:
            return []
        with self._write.use() as session:
            return self._hot.start(session, leases)

    def renew(self, leases: Sequence[Lease], /, *, lease: Seconds = LEASE) -> list[Lease]:
        """Hold these longer; those that are lost, and must not be worked on any more."""
        until = lasting("lease", lease)
        if not leases:
            return []
        with self._write.use() as session:
            return self._hot.renew(session, leases, until)

    def settle(self, settlements: Settlement | Sequence[Settlement], /, *, tx: Transaction | None = None) -> None:
        """Say what became of attempts. LeaseLost where one came too late: that one changed nothing, and was counted.

        In a transaction of the caller's a late one raises before it is counted: roll back, then call `count_late`.
        """
        given = [settlements] if isinstance(settlements, Settlement) else list(settlements)
        limits.settlements(given, self.max_payload)
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
            raise LeaseLost(f"settled too late, or for the second time; somebody else's now, nothing was changed: job {named}")

    def count_late(self, settlements: Sequence[Settlement], /) -> None:
        """Count settlements that were refused inside a caller's transaction, which took their count with it."""
        with self._write.use() as session, session.transaction("settle"):
            for one in settlements:
                counts.add(session, {one.kind: {"late": 1}})

    def reap(self, *, limit: int = BATCH) -> list[int]:
        """Take back leases that ran out; the ids of their jobs. Any worker does this now and then."""
        with self._write.use() as session:
            return reap.reap(session, limit)

    def beat(self, worker: str, info: Mapping[str, Any] | None = None, /) -> datetime:
        """The worker is alive: leases that it loses from now on are lost, but it did not crash."""
        with self._write.use() as session:
            return workers.beat(session, worker, info)

    def leave(self, worker: str, /) -> None:
        """The worker ends, in order, and holds nothing any more."""
        with self._write.use() as session:
            workers.leave(session, worker)

    def wake(self) -> Wake:
        """What tells a worker that something was submitted; close it when done. Belongs to one thread."""
        return self.connections.wake(self._bell)

    def next_due(self, kinds: Sequence[str], /, *, alone: bool = False) -> datetime | None:
        """When the next of these falls due: nothing tells a worker, it has to look by then."""
        with self._read.use() as session:
            return find.next_due(session.core, kinds, (QUARANTINE,) if alone else PRIORITIES)

    # ---- dead letters ----

    def dead_letters(
        self, *, ids: Sequence[int] | None = None, status: Status | None = None, kind: str | None = None,
        reason: str | None = None, error: str | None = None, signature: str | None = None, job_id: int | None = None,
        since: datetime | None = None, source: str | None = None, after: int = 0, limit: int = 100, newest: bool = False,
    ) -> list[DeadLetter]:  # fmt: skip
        """Dead letters in the order they came, from behind the one numbered `after`; or the newest first.

        error: words that its error has in it, whatever their case; or its signature. source: of messages; "*": of any source.
        """
        with self._read.use() as session:
            return letters.letters(
                session.core, ids=ids, status=status, kind=kind, reason=reason, error=error, signature=signature, job_id=job_id,
                since=since, source=source, after=after, limit=limit, newest=newest,
            )  # fmt: skip

    def replay(self, ids: Sequence[int], /, *, actor: str, because: str, max_replays: int | None = None) -> Sorted:
        """Give dead letters a new job each, in the old one's place and under its key."""
        with self._write.use() as session:
            done = letters.replay(session, ids, actor=actor, because=because, max_replays=max_replays)
        self._bell.ring()
        return done

    def discard(self, ids: Sequence[int], /, *, actor: str, because: str) -> Sorted:
        """Drop dead letters for good; their keys stay taken."""
        with self._write.use() as session:
            return letters.discard(session, ids, actor=actor, because=because)

    def unblock(self, *, limit: int = BATCH) -> Sorted:
        """Replay what was blocked until a moment that has come. Any worker does this now and then."""
        with self._write.use() as session:
            return letters.unblock(session, limit)

    # ---- look ----

    def get(self, job_id: int, /) -> Job | None:
        """A job by its id."""
        with self._read.use() as session:
            return find.by_id(session.core, (job_id,)).get(job_id)

    def find(self, kind: str, key: str, /) -> Job | None:
        """The job that a key has now."""
        with self._read.use() as session:
            return find.by_key(session.core, kind, key)

    def jobs(self, state: State, /, *, kind: str | None = None, limit: int = 100) -> list[Job]:
        """Some jobs in a state."""
        with self._read.use() as session:
            return find.page(session.core, state, kind=kind, limit=limit)

    def attempts(self, job_id: int, /) -> list[Attempt]:
        """The attempts of a job that did not end well."""
        with self._read.use() as session:
            return find.attempts(session.core, job_id)

    def counts(self) -> dict[str, Tally]:
        """How many jobs of each kind there are, by where they are."""
        with self._read.use() as session:
            return counts.counts(session.core)

    def imbalance(self) -> list[str]:
        """What does not add up; empty where all is well. Reads every row."""
        with self.reading() as connection:
            return counts.imbalance(connection) + failures.imbalance(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One moment of the whole ledger, to read from; nobody who writes is held up meanwhile."""
        with self._read.use() as session, session.snapshot() as connection:
            yield connection

    def workers(self) -> list[Worker]:
        """Who is at it, and when each was last seen."""
        with self._read.use() as session:
            return workers.workers(session.core)

    def now(self) -> datetime:
        """The moment, by the clock that leases go by."""
        with self._read.use() as session:
            return now_on(session)

    def audit(self, *, after: int = 0, limit: int = 100) -> list[Entry]:
        """What people and automations decided, in order."""
        with self._read.use() as session:
            return audit.entries(session.core, after=after, limit=limit)

    def audit_broken(self) -> int | None:
        """The first audit entry that was tampered with; None: the chain holds."""
        with self._read.use() as session, session.snapshot(bound=NO_LIMIT) as connection:
            return audit.broken(connection)

    def record(self, *, actor: str, action: str, because: str, what: Mapping[str, Any]) -> Entry:
        """Add to the audit what somebody decided elsewhere."""
        with self._write.use() as session, session.transaction("caller"):
            return audit.write(session, actor=actor, action=action, because=because, what=what)

    # ---- keep ----

    def prune(self, older: Seconds = 30 * DAY, /, *, limit: int = BATCH) -> int:
        """Empty done jobs that ended so long ago, and free keys whose own time has come; how many jobs. Dead letters stay."""
        with self._write.use() as session:
            return prune.prune(session, seconds("older", older), limit)

    def fold(self) -> int:
        """Sum up what changes left behind (on Postgres); how many rows. Any worker does this now and then."""
        with self._write.use() as session:
            return counts.fold(session) + failures.fold(session)

    def recount(self, *, actor: str, because: str) -> dict[str, dict[str, int]]:
        """Set the counts right by the rows, where somebody changed rows by hand; what was added. Reads every row."""
        self.connections.own_sessions("counts cannot be set right")
        with self._write.use() as session:
            return recount.recount(session, actor=actor, because=because)

    def migrate(self) -> None:
        """Bring the tables up to this code."""
        with self._write.use() as session:
            schema.migrate(session)

    def close(self) -> None:
        """Close all connections. What is in use is closed when it comes back."""
        self.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.url}>"
