"""Control: decides which partitions are tried, and when. The only one that can have a failed one tried again."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from sqlalchemy import Select, bindparam, func, select

from ...core.outage import UNCHARGED
from ...core.seconds import Seconds, positive, whole_number
from ...journal.bus import emit
from ...ledger import validation
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import work
from ...ledger.db.session import Session
from ...worker.clocks import Jumps
from ..key import Partition
from ..model import Act, Lease, Return, Source
from ..retry_schedule import Terms
from ..store.frozen_selection import Picked
from ..store.rows import Opened, opened
from . import backfill, markers, release, requeue, source_health, sweeps
from .claim import Desk, Expired, claimed, has_candidates
from .fair_share import Turns
from .requeue import Order, Step
from .sweeps import CANCELLED, RUNNING, Grid, Range

LEASE = 300.0
NONE: Mapping[tuple[int, int], str] = {}
ROUND = 20
"""Steps of one sweep in a tick."""


class Control:
    """The control plane of some datasets. Several at once, in any number of processes, are safe. Threads may share one; a
    forked child makes its own. Its methods block."""

    def __init__(
        self,
        ledger: Opened,
        terms: Iterable[Terms],
        /,
        *,
        draw: Callable[[], float] = random.random,
        lock_seconds: float | None = None,
    ) -> None:
        """Prepare.

        Args:
            ledger: The ledger.
            terms: The datasets.
            draw: Returns a random number from 0 to 1.
            lock_seconds: How long a transaction waits for a lock on Postgres. None: as long as a statement may take.
        """
        self._ledger = opened(ledger)
        self._lock_seconds = lock_seconds
        self._desk = Desk({one.dataset: one for one in terms}, Turns(draw), draw)
        self._lock = Lock()

    @contextmanager
    def _do(self, verb: str) -> Iterator[Session]:
        with (
            self._ledger().connections.write.use() as session,
            session.transaction(f"partition.{verb}", lock_seconds=self._lock_seconds),
        ):
            yield session

    # ---- for a worker ----

    def claim(self, most: int, /, *, worker: str, lease: Seconds = LEASE) -> list[Lease]:
        """Lease what is due, at most so many, each lane by its share; nobody else gets them for so many seconds."""
        validation.check_name("worker", worker, validation.MAX_KIND_BYTES)
        seconds = positive("lease", lease)
        with self._lock, self._ledger().connections.write.use() as session:
            if not has_candidates(session, self._desk, most):
                return []
            with session.transaction("partition.claim", lock_seconds=self._lock_seconds):
                return claimed(session, self._desk, most, worker, seconds)

    @property
    def soon(self) -> float | None:
        """Seconds until a rate lets more begin than the last claim brought; None: no rate was in the way."""
        return self._desk.after

    @property
    def expired(self) -> Sequence[Expired]:
        """Partitions that the last claim gave up because they are too old."""
        return self._desk.expired

    def renew(self, leases: Sequence[Lease], /, *, lease: Seconds = LEASE) -> list[Lease]:
        """Hold these longer; those that are lost, and must not be worked on any more."""
        seconds = positive("lease", lease)
        if not leases:
            return []
        with self._do("renew") as session:
            return release.renewed(session, leases, seconds)

    def give_back(
        self, returns: Sequence[Return], /, *, spare: Mapping[tuple[int, int], str] = NONE, most: int = UNCHARGED
    ) -> int:
        """Back in the queue without a verdict, uncharged; how many were still theirs. A source that is not well rests.

        spare: attempts (partition and number) that were rejected before it was known for an outage, and what is: not charged,
        as long as their partition has had fewer than `most` such attempts.
        """
        if not returns and not spare:
            return 0
        with self._do("return") as session:
            return release.given_back(session, returns, self._desk.terms, spare, self._desk.draw(), most)

    def is_only_customer(self, source: str, customer: str, /) -> bool:
        """Whether a source has no other customer: in its partitions, nor in ranges that have not ended."""
        with self._ledger().connections.read.use() as session:
            return source_health.is_only_customer(session.core, source, customer)

    def reap(self, *, limit: int = 1000) -> list[Partition]:
        """Take back leases that ran out with their workers."""
        with self._do("reap") as session:
            return release.reaped(session, self._desk.terms, limit)

    def tick(self, jumps: Jumps | None = None, /) -> None:
        """What is to be done now and then: leases that ran out, sweeps that go on, end, or were cancelled.

        jumps: passed by a caller that ticks about once a second: tells whether the ledger's clock jumped ahead.
        """
        with self._ledger().connections.read.use() as session:  # a look without a lock: an idle tick holds nobody up
            there = stirs(session)
            under_way = sweeps.running(session, self._desk.terms) if there.running else []
            over = sweeps.cancelled(session.core) if there.cancelled else []
            late = expired_for(session) if there.lost and jumps is not None else 0.0
        if jumps is not None and not there.lost:
            jumps.nothing_expired(monotonic())
        if there.lost and (jumps is None or jumps.trusts(late, monotonic())):
            self.reap()
        for one in under_way:
            if not one.a_grid:
                self._steps(one.id)
        for one in over:
            self._withdrawn(one.id)
        if any(one.cursor >= one.total for one in under_way):
            with self._do("sweep") as session:
                sweeps.finish(session, now_on(session))

    def _steps(self, sweep_id: int) -> None:
        for _ in range(ROUND):
            done = self.step(sweep_id)
            if done.wait or done.sweep.state != "running":
                return

    def _withdrawn(self, sweep_id: int) -> None:
        for _ in range(ROUND):
            with self._do("withdraw") as session:
                if not requeue.withdrawn(session, sweep_id, self._desk.terms):
                    return

    # ---- fresh work ----

    def fire(
        self, source: str, query_name: str, moment: datetime, customers: Collection[str], days: Sequence[date], /, *, cron: str
    ) -> list[Range] | None:
        """The work of one firing of a dataset's cron, once for its moment, whoever asks. None: somebody was first.

        Without days, or customers, it says from when on firings count: for a dataset that is new.
        """
        grids = [Grid.of(source, query_name, customers, day) for day in days] if customers else []
        with self._do("fire") as session:
            return backfill.fire(session, (source, query_name), grids, moment, cron)

    def fired(self, source: str, query_name: str, /) -> datetime | None:
        """The last moment of a dataset's cron whose work is written down."""
        with self._ledger().connections.read.use() as session:
            return backfill.fired(session, source, query_name)

    def seen(self, source: str, query_name: str, moment: datetime, /, *, cron: str) -> datetime:
        """The same; where there is none, this moment is written down: a new dataset does not fire for the time before it."""
        with self._do("fire") as session:
            return backfill.seen(session, source, query_name, moment, cron)

    # ---- for an operator ----

    def begin(self, picked: Picked, /, *, actor: str, because: str, **order: Any) -> Range:
        """Have what was picked tried again: written down as a sweep. Drift: it is not as it was planned. See `Order`."""
        with self._do("sweep") as session:
            return requeue.begin(session, picked, Order(**order), actor, because)

    def step(self, sweep_id: int, /) -> Step:
        """The next of a retry, reprocessing or revalidation. Any number of processes may do this at once."""
        with self._do("sweep") as session:
            done = requeue.step(session, sweep_id, self._desk.draw)
        if done.made:
            sweep = done.sweep
            asked = {"sweep_id": sweep.id, "actor_key": sweep.actor, "reason": sweep.because, "count": done.made}
            emit("requeued", {"operation": sweep.act, **asked})
        return done

    def backfill(self, grid: Grid, /, *, actor: str, because: str, **options: Any) -> Range:
        """Have a range extracted. NotAllowed: another one under way has some of the same. See `backfill.begin`."""
        with self._do("sweep") as session:
            return backfill.begin(session, grid, actor, because, **options)

    def set_share(self, sweep_id: int, share: float, /, *, actor: str, because: str) -> Range:
        """Give a sweep another part of the slots, from the next claim on."""
        with self._do("sweep") as session:
            return backfill.set_share(session, sweep_id, share, actor, because)

    def move(self, sweep_id: int, verb: str, /, *, actor: str, because: str) -> Range:
        """Pause, resume or cancel one. When this returns no lease of it begins. NotAllowed where it does not stand so."""
        ledger = self._ledger()
        ledger.sweeps.move(sweep_id, verb, actor=actor, because=because)
        with ledger.connections.read.use() as session:
            found = sweeps.get(session.core, sweep_id)
        assert found is not None
        return found

    def mark_terminal(self, ids: Collection[int], /, *, actor: str, because: str) -> Act:
        """Not tried any more, until somebody clears it."""
        with self._do("mark") as session:
            return markers.mark_terminal(session, ids, actor, because)

    def clear_terminal(self, ids: Collection[int], /, *, actor: str, because: str, grant: int | None = None) -> Act:
        """Tried again, now. grant: so many new attempts; None: as many as the policy has."""
        if grant is not None:
            whole_number("grant", grant)
        with self._do("mark") as session:
            return markers.clear_terminal(session, ids, actor, because, grant, self._desk.draw)

    def pause(self, ids: Collection[int], /, *, actor: str, because: str) -> Act:
        """Put aside: not tried until somebody says so."""
        with self._do("mark") as session:
            return markers.pause(session, ids, actor, because)

    def unpause(self, ids: Collection[int], /, *, actor: str, because: str) -> Act:
        """Let them be tried again."""
        with self._do("mark") as session:
            return markers.unpause(session, ids, actor, because, self._desk.draw)

    def pause_source(self, source: str, /, *, actor: str, because: str, until: datetime | None = None) -> Source:
        """Start nothing of this source, until then, or until somebody says so."""
        with self._do("source") as session:
            return source_health.pause(session, source, until, actor, because)

    def unpause_source(self, source: str, /, *, actor: str, because: str) -> Source:
        """Let its work go on."""
        with self._do("source") as session:
            return source_health.unpause(session, source, actor, because)


class Stirs(NamedTuple):
    """What there is."""

    lost: bool
    """Leases that have run out."""
    running: bool
    """Sweeps under way, of whatever datasets."""
    cancelled: bool
    """Sweeps whose queued work is still to be taken back."""


def _look(now: object) -> Select[bool, bool, bool]:
    lost = select(work.c.partition_id).where(work.c.lease_until.is_not(None), work.c.lease_until < now)
    return select(lost.exists(), RUNNING.order_by(None).exists(), CANCELLED.order_by(None).exists())


_ON_SQLITE, _ON_POSTGRES = _look(bindparam("now", type_=work.c.lease_until.type)), _look(func.now())


def stirs(session: Session, /) -> Stirs:
    """What there is now; nobody is held up."""
    found = session.core.execute(_ON_SQLITE, {"now": now_on(session)}) if session.sqlite else session.core.execute(_ON_POSTGRES)
    return Stirs._make(found.one())


def expired_for(session: Session, /) -> float:
    """Seconds since the first lease ran out; 0: none has."""
    first = session.core.execute(select(func.min(work.c.lease_until))).scalar()
    return 0.0 if first is None else max(0.0, float((now_on(session) - first).total_seconds()))
