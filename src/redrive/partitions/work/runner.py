"""PartitionRunner: the work source of a worker that extracts and validates due partitions."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from contextvars import copy_context
from datetime import datetime
from time import monotonic

from ...core.context import clock_around
from ...core.outage import Parking
from ...ledger.failpoint import crash_point
from ...ledger.ledger import Ledger
from ...worker.work_source import SourceExecutors
from ..control.plane import Control
from ..control.source_health import Outages
from ..control.verdicts import Authority
from ..datasets.definition import Extraction
from ..model import Return, Verdict
from .attempt import Done, Held, coroutine, ended, plain
from .events import tell_expired, tell_judged, tell_late, tell_returned

LEASE_SECONDS = 60.0
"""Lease of a partition, renewed four times in that time."""
POLL_SECONDS = 1.0
"""Time between two claims while nothing happens."""
OUTCOMES = ("accepted", "rejected", "terminal", "returned", "late")
"""Outcomes of extractions, as they are counted."""


class PartitionRunner:
    """Extracts due partitions. Used by the ledger thread of a worker.

    Each sync extraction has a thread of its own, and async ones run on the worker's event loop. Any
    number of runners may work on one ledger: a partition has one lease at a time, and a late result
    changes nothing.
    """

    name = "extractions"

    def __init__(
        self,
        extractions: Sequence[Extraction],
        /,
        *,
        max_running: int,
        lease_seconds: float = LEASE_SECONDS,
        parking: Parking | None = None,
    ) -> None:
        """Prepare.

        Args:
            extractions: The datasets to extract.
            max_running: Maximum number of extractions at the same time.
            lease_seconds: How long a partition stays leased without a renewal.
            parking: When failures count as an outage of the source.
        """
        self._extractions = {extraction.terms.dataset: extraction for extraction in extractions}
        self._max_running, self._lease_seconds = max_running, lease_seconds
        self._held: dict[str, Held] = {}
        """Leases by run."""
        self._results: deque[Done] = deque()
        self._verdicts: list[tuple[Done, Verdict]] = []
        """Not written yet."""
        self._returns: list[tuple[Done, Return]] = []
        """Leases to release, not written yet."""
        self._parking = Parking() if parking is None else parking
        self._refunds: dict[tuple[int, int], str] = {}
        """Rejected attempts that an outage caused, with its reason."""
        self._counts: Counter[str] = Counter()
        self._next_retry: datetime | None = None
        """When a partition that was rejected here is due again."""
        self._renewed_at = monotonic()
        self._context = copy_context()

    # ---- for the dispatcher ----

    def attach(
        self,
        worker: str,
        ledger: Ledger,
        executors: SourceExecutors,
        /,
        *,
        lock_seconds: float | None = None,
    ) -> None:
        """Set the name of the worker, its ledger and its executors, before the first turn.

        Args:
            worker: Name of the worker.
            ledger: For the ledger thread only.
            executors: Run the extractions.
            lock_seconds: How long a transaction may wait for the row of a source or partition.
        """
        self._worker, self._executors = worker, executors
        terms = [extraction.terms for extraction in self._extractions.values()]
        self._control = Control(ledger, terms, lock_seconds=lock_seconds)
        self._authority = Authority(ledger, terms, lock_seconds=lock_seconds)
        self._outages = Outages(self._parking, self._control.is_only_customer)

    @property
    def running(self) -> int:
        """Number of extractions that run, or are not settled yet."""
        return len(self._held)

    @property
    def running_async(self) -> int:
        """How many of them can be cancelled."""
        return sum(held.extraction.execution == "async" for held in self._held.values())

    @property
    def has_results(self) -> bool:
        """Whether an extraction has ended that is not settled yet."""
        return bool(self._results)

    @property
    def counts(self) -> dict[str, int]:
        """Running extractions, and ended ones by outcome. Any thread may read it."""
        return {"running": len(self._held)} | {name: self._counts[name] for name in OUTCOMES}

    def turn(self, now: datetime, /, *, is_stopping: bool = False) -> float:
        """Renew leases, settle ended extractions, and claim as many partitions as fit.

        Returns:
            Seconds until the next turn if nothing happens before.
        """
        # Leases first: to renew them needs no row of a source, which another process may have locked.
        self._renew()
        self._settle(now, is_stopping=is_stopping)
        free = self._max_running - len(self._held)
        if not is_stopping and free > 0 and self._claim(free) == free:
            return 0.0
        return self._seconds_until_next_turn()

    def release(self, now: datetime, /) -> None:
        """Release the leases of extractions that have not ended. They do not count as attempts."""
        for held in self._held.values():
            held.lost = True
        queued = {done.held.lease.run_id for done, _ in (*self._returns, *self._verdicts)}
        self._returns += [
            (Done(held, None, None, monotonic() - held.began), Return(held.lease, "stopped"))
            for held in self._held.values()
            if held.lease.run_id not in queued
        ]
        self._settle(now, is_stopping=True)

    def _seconds_until_next_turn(self) -> float:
        waits = [POLL_SECONDS, self._lease_seconds / 8]
        if self._next_retry is not None:
            waits.append(max(0.0, (self._next_retry - clock_around().now()).total_seconds()))
            self._next_retry = None
        if self._control.soon is not None:
            waits.append(self._control.soon)
        return min(waits)

    # ---- leases ----

    def _claim(self, free: int) -> int:
        leases = self._control.claim(free, worker=self._worker, lease=self._lease_seconds)
        for expired in self._control.expired:
            self._counts["terminal"] += 1
            key = expired.partition
            tell_expired(self._extractions[key.source, key.query_name], expired)
        if leases:
            crash_point("extract.claimed")
        for at, lease in enumerate(leases):
            key = lease.partition
            held = Held(self._extractions[key.source, key.query_name], lease)
            try:
                self._start(held)
            except Exception:  # no thread can be started now: release this lease and the rest
                rest = [Held(held.extraction, unstarted) for unstarted in leases[at:]]
                self._returns += [(Done(each, None, None, 0.0), Return(each.lease, "stopped")) for each in rest]
                raise
        return len(leases)

    def _start(self, held: Held) -> None:
        run_id, context = held.lease.run_id, self._context.copy()
        if held.extraction.execution == "async":
            self._executors.run_on_loop(run_id, lambda: self._extract_async(held), context)
        else:
            name = f"{self._worker}-{run_id}"
            self._executors.run_in_thread(name, lambda: self._extract(held), context)
        self._held[run_id] = held

    def _extract(self, held: Held) -> None:
        self._on_finished(plain(held))

    async def _extract_async(self, held: Held) -> None:
        self._on_finished(await coroutine(held))

    def _on_finished(self, done: Done) -> None:
        self._results.append(done)
        self._executors.wake()

    def _renew(self) -> None:
        """Renew the leases of running extractions. A sync function far beyond its timeout cannot be
        stopped, and its lease expires.
        """
        now = monotonic()
        if now - self._renewed_at < self._lease_seconds / 4 or not self._held:
            return
        live = [held.lease for held in self._held.values() if not held.lost and now < held.end + self._lease_seconds]
        lost = self._control.renew(live, lease=self._lease_seconds) if live else []
        self._renewed_at = now
        for lease in lost:
            if held := self._held.get(lease.run_id):
                held.lost = True
                self._executors.cancel(lease.run_id)

    # ---- results ----

    def _settle(self, now: datetime, *, is_stopping: bool) -> None:
        """Write the results of ended extractions. Results that cannot be written now are kept."""
        while self._results:
            done = self._results.popleft()
            result = ended(done, now, self._parking, stopping=is_stopping)
            if isinstance(result, Verdict):
                self._verdicts.append((done, result))
                self._detect_outage(done, result)
            elif result is not None:
                self._returns.append((done, result))
            else:
                self._counts["late"] += 1
                tell_late(done)
                self._held.pop(done.held.lease.run_id, None)
        # First the returns: if they pause the source, rejections for the same fault do not count.
        self._release_leases()
        if self._verdicts:
            self._write_verdicts(now)
        self._release_leases()

    def _write_verdicts(self, now: datetime) -> None:
        judged = self._authority.judge([verdict for _, verdict in self._verdicts])
        for (done, verdict), result in zip(self._verdicts, judged, strict=True):
            if result.outcome == "spared":
                self._returns.append((done, _systemic_return(done, verdict, verdict.message)))
                continue
            self._held.pop(done.held.lease.run_id, None)
            self._counts["terminal" if result.terminal is not None else result.outcome] += 1
            tell_judged(done, verdict, result, now)
            if result.next_at is not None:
                known = self._next_retry
                self._next_retry = result.next_at if known is None else min(known, result.next_at)
        self._verdicts = []

    def _detect_outage(self, done: Done, verdict: Verdict) -> None:
        """If this verdict completes an outage, neither it nor the ones before it count as attempts."""
        outage = self._outages.add(done.held.lease, verdict, monotonic(), answered=done.verdict is not None)
        if outage is None:
            return
        attempts = set(outage.attempts)
        caused = [pair for pair in self._verdicts if _attempt_of(pair[0]) in attempts and not pair[1].charged]
        unwritten = {_attempt_of(each) for each, _ in self._verdicts}
        self._verdicts = [pair for pair in self._verdicts if pair not in caused]
        self._returns += [(each, _systemic_return(each, judged, outage.says)) for each, judged in caused]
        self._refunds |= {attempt: outage.says for attempt in outage.attempts if attempt not in unwritten}

    def _release_leases(self) -> None:
        if not self._returns and not self._refunds:
            return
        returns = [returned for _, returned in self._returns]
        self._control.give_back(returns, spare=self._refunds, most=self._parking.uncharged)
        for done, returned in self._returns:
            self._held.pop(done.held.lease.run_id, None)
            self._counts["returned"] += 1
            tell_returned(done, returned)
        self._returns, self._refunds = [], {}


def _attempt_of(done: Done) -> tuple[int, int]:
    return done.held.lease.partition_id, done.held.lease.attempt_no


def _systemic_return(done: Done, verdict: Verdict, says: str | None) -> Return:
    """Return the lease of an extraction that failed because the source is down."""
    return Return(done.held.lease, "systemic", error=says, after=verdict.after, signature=verdict.signature)
