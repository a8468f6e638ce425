"""ControlPlane: decides which partitions are extracted, and when.

Only it queues a failed partition again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from threading import Lock
from time import monotonic
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...core.outage import UNCHARGED
from ...core.seconds import Seconds, positive, whole_number
from ...journal.bus import emit
from ...ledger import validation
from ...ledger.db.clock import now_on
from ...ledger.db.session import Session
from ...ledger.jobs.clocks import Jumps
from ...ledger.ledger import Ledger
from ..key import Partition
from ..model import Act, PartitionLease, Release, SourceView
from ..retry_schedule import DatasetLimits
from ..store.frozen_selection import FrozenSelection
from ..store.queue import read_pending_maintenance, seconds_since_expiry
from ..store.sweeps import PartitionSweep, load_cancelled, load_running, load_sweep
from . import backfill, release, requeue, source_health, sweeps
from .backfill import BackfillOptions
from .claim import ClaimState, ExpiredPartition, claim_partitions, has_candidates
from .lanes import FairShare
from .markers import change_markers
from .requeue import RequeueOptions, RequeueStep
from .sweeps import Grid

P = ParamSpec("P")
R = TypeVar("R")
LEASE_SECONDS = 300.0
NO_REFUNDS: Mapping[tuple[int, int], str] = {}
MAX_STEPS = 20
"""Steps of one sweep in a round of maintenance."""


class ControlPlane:
    """The control plane of some datasets.

    Any number of them may work on one ledger at the same time, in any number of processes. Threads
    may share one; a forked child makes its own. Its methods block.
    """

    def __init__(
        self,
        ledger: Ledger,
        datasets: Iterable[DatasetLimits],
        /,
        *,
        draw: Callable[[], float] = random.random,
        lock_seconds: float | None = None,
    ) -> None:
        """Prepare.

        Args:
            draw: Returns a random number from 0 to 1.
            lock_seconds: How long a transaction waits for a lock on Postgres. None: as long as a
                statement may take.
        """
        self._ledger = ledger
        self._datasets = {dataset.dataset: dataset for dataset in datasets}
        self._draw = draw
        self._claims = ClaimState(self._datasets, FairShare(draw), draw)
        self._lock_seconds = lock_seconds
        self._claim_lock = Lock()

    @contextmanager
    def _transaction(self, verb: str) -> Iterator[Session]:
        with (
            self._ledger.connections.write.use() as session,
            session.transaction(f"partition.{verb}", lock_seconds=self._lock_seconds),
        ):
            yield session

    def _write(
        self,
        verb: str,
        act: Callable[Concatenate[Session, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        with self._transaction(verb) as session:
            return act(session, *args, **kwargs)

    # ---- for a worker ----

    def claim(
        self, limit: int, /, *, worker: str, lease: Seconds = LEASE_SECONDS
    ) -> list[PartitionLease]:
        """Lease due partitions, of each lane by its share."""
        validation.check_name("worker", worker, validation.MAX_KIND_BYTES)
        seconds = positive("lease", lease)
        with self._claim_lock, self._ledger.connections.write.use() as session:
            if not has_candidates(session, self._claims, limit):
                return []
            with session.transaction("partition.claim", lock_seconds=self._lock_seconds):
                return claim_partitions(session, self._claims, limit, worker, seconds)

    @property
    def seconds_until_room(self) -> float | None:
        """When a rate allows more than the last claim leased. None: no rate limited it."""
        return self._claims.wait

    @property
    def expired(self) -> Sequence[ExpiredPartition]:
        """Partitions that gave up in the last claim because they are too old."""
        return self._claims.expired

    def renew(
        self, leases: Sequence[PartitionLease], /, *, lease: Seconds = LEASE_SECONDS
    ) -> list[PartitionLease]:
        """Renew leases. Return those that are lost, whose work must stop."""
        seconds = positive("lease", lease)
        if not leases:
            return []
        return self._write("renew", release.renew_leases, leases, seconds)

    def release_uncharged(
        self,
        releases: Sequence[Release],
        /,
        *,
        refunds: Mapping[tuple[int, int], str] = NO_REFUNDS,
        max_uncharged: int = UNCHARGED,
    ) -> int:
        """Queue partitions again without counting an attempt. A source with an outage is paused.

        Args:
            refunds: Attempts (partition and number) that were rejected before the outage was known,
                and the reason. They are not charged either.
            max_uncharged: Attempts of one partition that are not charged, in total.

        Returns:
            How many leases were still valid.
        """
        if not releases and not refunds:
            return 0
        return self._write(
            "return",
            release.release_leases,
            releases,
            self._datasets,
            refunds,
            seed=self._draw(),
            max_uncharged=max_uncharged,
        )

    def recover_expired(self, *, limit: int = 1000) -> list[Partition]:
        """Queue partitions again whose lease has expired."""
        return self._write("reap", release.recover_expired, self._datasets, limit)

    def maintain(self, jumps: Jumps | None = None, /) -> None:
        """Recover expired leases, and advance, finish and withdraw sweeps.

        Args:
            jumps: Passed by a caller that runs about once a second: tells whether the ledger's
                clock jumped ahead.
        """
        # Without a lock, so that an idle round delays nothing.
        with self._ledger.connections.read.use() as session:
            pending = read_pending_maintenance(session)
            running = load_running(session, self._datasets) if pending.running else []
            cancelled = load_cancelled(session.core) if pending.cancelled else []
            has_expired = pending.lost and jumps is not None
            late_seconds = seconds_since_expiry(session) if has_expired else 0.0
        if jumps is not None and not pending.lost:
            jumps.nothing_expired(monotonic())
        if pending.lost and (jumps is None or jumps.trusts(late_seconds, monotonic())):
            self.recover_expired()
        for sweep in running:
            if not sweep.is_range:
                self._requeue_steps(sweep.id)
        for sweep in cancelled:
            for _ in range(MAX_STEPS):
                if not self._write("withdraw", requeue.withdraw_queued, sweep.id, self._datasets):
                    break
        if any(sweep.cursor >= sweep.total for sweep in running):
            with self._transaction("sweep") as session:
                sweeps.finish_sweeps(session, now_on(session))

    def _requeue_steps(self, sweep_id: int) -> None:
        for _ in range(MAX_STEPS):
            step = self.requeue_next(sweep_id)
            if step.wait or step.sweep.state != "running":
                return

    # ---- schedules ----

    def enqueue_scheduled(
        self,
        source: str,
        query_name: str,
        run_at: datetime,
        customers: Collection[str],
        days: Sequence[date],
        /,
        *,
        cron: str,
    ) -> list[PartitionSweep] | None:
        """Store the work of a dataset's schedule, once for each time.

        Without days or customers it only stores the time.

        Returns:
            The sweeps. None: another worker was first.
        """
        grids = [Grid.of(source, query_name, customers, day) for day in days] if customers else []
        return self._write(
            "fire", backfill.enqueue_scheduled, (source, query_name), grids, run_at, cron
        )

    def last_fired_at(self, source: str, query_name: str, /) -> datetime | None:
        """Return the last time of a schedule whose work is stored."""
        with self._ledger.connections.read.use() as session:
            return backfill.last_fired_at(session, source, query_name)

    def start_schedule_at(
        self, source: str, query_name: str, run_at: datetime, /, *, cron: str
    ) -> datetime:
        """Return the last time of a schedule. A new schedule starts at `run_at`."""
        return self._write("fire", backfill.start_schedule_at, source, query_name, run_at, cron)

    # ---- for an operator ----

    def begin_requeue(
        self, planned: FrozenSelection, /, *, actor: str, because: str, **options: Any
    ) -> PartitionSweep:
        """Queue planned partitions again, as a sweep. See `RequeueOptions`.

        Raises:
            Drift: Partitions have changed since the plan.
        """
        return self._write(
            "sweep", requeue.begin_requeue, planned, RequeueOptions(**options), actor, because
        )

    def requeue_next(self, sweep_id: int, /) -> RequeueStep:
        """Queue the next partitions of a sweep. Several processes may do this at the same time."""
        with self._transaction("sweep") as session:
            step = requeue.requeue_next(session, sweep_id, self._draw)
        if step.made:
            sweep = step.sweep
            fields = {"sweep_id": sweep.id, "actor_key": sweep.actor, "reason": sweep.because}
            emit("requeued", {"operation": sweep.act, **fields, "count": step.made})
        return step

    def backfill(
        self, grid: Grid, /, *, actor: str, because: str, **options: Any
    ) -> PartitionSweep:
        """Extract a range. See `BackfillOptions`.

        Raises:
            NotAllowed: An unfinished backfill has some of the same partitions.
        """
        return self._write(
            "sweep", backfill.begin_backfill, grid, BackfillOptions(**options), actor, because
        )

    def set_share(
        self, sweep_id: int, share: float, /, *, actor: str, because: str
    ) -> PartitionSweep:
        """Change the share of a sweep, from the next claim on."""
        return self._write("sweep", backfill.set_share, sweep_id, share, actor, because)

    def move(
        self, sweep_id: int, verb: str, /, *, actor: str, because: str, **options: bool
    ) -> PartitionSweep:
        """Pause, resume or cancel a sweep. After a pause none of its partitions starts.

        Args:
            sweep_id: Id of the sweep.
            verb: `pause`, `resume` or `cancel`.
            actor: Who does it.
            because: Why.
            options: `accept_failed_canary=True` resumes a sweep whose canary failed.

        Raises:
            NotAllowed: The state of the sweep does not allow it, or its canary failed.
        """
        self._ledger.sweeps.move(sweep_id, verb, actor=actor, because=because, **options)
        with self._ledger.connections.read.use() as session:
            sweep = load_sweep(session.core, sweep_id)
        assert sweep is not None
        return sweep

    def mark_terminal(self, ids: Collection[int], /, *, actor: str, because: str) -> Act:
        """Let partitions give up until they are cleared."""
        return self._write("mark", change_markers, "mark_terminal", ids, actor, because, self._draw)

    def clear_terminal(
        self, ids: Collection[int], /, *, actor: str, because: str, grant: int | None = None
    ) -> Act:
        """Queue partitions that gave up, with new attempts. None: as many as the policy has."""
        if grant is not None:
            whole_number("grant", grant)
        return self._write(
            "mark", change_markers, "clear_terminal", ids, actor, because, self._draw, grant
        )

    def pause(self, ids: Collection[int], /, *, actor: str, because: str) -> Act:
        """Do not start partitions until they are unpaused."""
        return self._write("mark", change_markers, "pause", ids, actor, because, self._draw)

    def unpause(self, ids: Collection[int], /, *, actor: str, because: str) -> Act:
        """Queue paused partitions."""
        return self._write("mark", change_markers, "unpause", ids, actor, because, self._draw)

    def pause_source(
        self, source: str, /, *, actor: str, because: str, until: datetime | None = None
    ) -> SourceView:
        """Start nothing of a source, until a time or until it is unpaused."""
        return self._write("source", source_health.pause_by_operator, source, until, actor, because)

    def unpause_source(self, source: str, /, *, actor: str, because: str) -> SourceView:
        """Start extractions of a source again."""
        return self._write("source", source_health.unpause_by_operator, source, actor, because)
