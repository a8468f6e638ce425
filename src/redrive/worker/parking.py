"""Parking: job types are parked during an outage, probed, and released by the first success.

`core/outage.py` has the rule. This module applies it to the jobs of a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import cast

from ..core.outage import WINDOW, DetectedOutage, End, Parking, Recent, Verdict, is_charged
from ..journal.bus import emit
from ..ledger.jobs import lease_recovery as pardon
from ..ledger.jobs import parking as kinds
from ..ledger.jobs.parking import ParkedKind
from ..ledger.ledger import Ledger
from ..ledger.model import Lease
from .attempt import AttemptResult
from .job_type import JobType
from .outcome import JobOutcome

__all__ = ["WINDOW", "Parking", "ParkedTypes"]

LAST_PROBE = "; the last probe ended with "


class ParkedTypes:
    """The parked job types, and the failures that may park more. Used by the ledger thread only.

    Failures of the ledger while it parks, probes or refunds are ignored here: the next failure
    parks the job type, the next probe releases it, and refunds are repeated for 600 s.
    """

    def __init__(
        self,
        ledger: Ledger,
        job_types: Iterable[JobType],
        parking: Parking,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._parking = parking
        self._now = now
        self._recent = {
            job_type.name: Recent(parking)
            for job_type in job_types
            if job_type.parks_on_outage and parking.enabled
        }
        self.parked: dict[str, ParkedKind] = {}
        self._refunds: dict[int, tuple[tuple[int, ...], float]] = {}
        """Fences of the attempts to refund to each job, and when to give up (monotonic clock)."""

    # ---- what attempts say ----

    def record_successes(self, leases: Iterable[Lease], /) -> None:
        """Note first attempts that succeeded, of job types that are not parked."""
        by_type: dict[str, list[Lease]] = {}
        for lease in leases:
            by_type.setdefault(lease.kind, []).append(lease)
        now = monotonic()
        for name, succeeded in by_type.items():
            if name in self._recent:
                last = succeeded[-2 * self._parking.least :]
                self._recent[name].add_successes(
                    [_end_of(lease, "success", None, now) for lease in last]
                )

    def record(self, result: AttemptResult, outcome: JobOutcome, /, *, is_probe: bool) -> None:
        """Note the end of an attempt. It may park its job type, or release it."""
        name, lease = result.job_type.name, result.lease
        recent = self._recent.get(name)
        if recent is None:
            return
        with suppress(Exception):
            parked = self.parked.get(name)
            end = _end_of(lease, outcome.verdict, outcome.signature, monotonic())
            outage = recent.add(end if parked is None else end._replace(attempts=()))
            if parked is None:
                if outage is not None:
                    self._park(name, outage)
            elif outcome.verdict == "success" and (is_probe or self._started_after(result, parked)):
                self._release(name)
            elif outcome.verdict == "charged" and is_probe:
                self._repeat_probe(name, parked, outcome.settlement.signature or "")

    def is_refunded(self, outcome: JobOutcome, name: str, uncharged: int, /) -> bool:
        """Return whether a failure does not count as an attempt, because of an outage.

        Args:
            outcome: The outcome if it counted.
            name: The job type.
            uncharged: Attempts of the job so far that did not count.
        """
        is_outage = name in self.parked and name in self._recent
        return outcome.can_be_refunded and not is_charged(
            outcome.verdict, self._parking, outage=is_outage, uncharged=uncharged
        )

    def uncharged_attempts(self, job_ids: set[int], /) -> dict[int, int]:
        """Return how many attempts of these jobs did not count so far.

        Empty if the ledger is away.
        """
        if job_ids:
            with suppress(Exception), self._ledger.connections.read.use() as session:
                return pardon.count_refunded(session, job_ids)
        return {}

    @property
    def max_uncharged(self) -> int:
        """Attempts of one job that do not count because of outages."""
        return self._parking.uncharged

    def _started_after(self, result: AttemptResult, parked: ParkedKind) -> bool:
        """Return whether the attempt started after the job type was parked."""
        return self._now() - timedelta(seconds=result.seconds) > parked.since

    # ---- what the ledger knows ----

    def refresh(self, parked: dict[str, ParkedKind], /) -> None:
        """Take over the job types that are parked now, by this worker or another.

        The failures that this worker saw of a newly parked job type are refunded.
        """
        new = [name for name in parked if name not in self.parked and name in self._recent]
        self.parked = parked
        for name in new:
            for end in self._recent[name].take_failures(monotonic()):
                job_id = cast(int, end.key)
                fences, _ = self._refunds.get(job_id, ((), 0.0))
                self._refunds[job_id] = (*fences, *end.attempts), monotonic() + WINDOW
        self._refund()

    def _refund(self) -> None:
        """Refund attempts that failed in an outage.

        Those that cannot be refunded yet are kept for 600 s.
        """
        refunds = list(self._refunds.items())
        for first in range(0, len(refunds), pardon.MAX_REFUND_JOBS):
            attempts = {
                job_id: fences
                for job_id, (fences, _) in refunds[first : first + pardon.MAX_REFUND_JOBS]
            }
            with suppress(Exception):
                with self._ledger.connections.write.use() as session:
                    pending = pardon.refund_attempts(
                        session, attempts, most=self._parking.uncharged
                    )
                for job_id in attempts:
                    _, until = self._refunds.pop(job_id)
                    if job_id in pending:
                        self._refunds[job_id] = tuple(pending[job_id]), until
        now = monotonic()
        self._refunds = {
            job_id: (fences, until)
            for job_id, (fences, until) in self._refunds.items()
            if until > now
        }

    # ---- parking and probes ----

    def _park(self, name: str, outage: DetectedOutage) -> None:
        reason = (
            f"{len(outage.ends)} jobs failed transiently, most of them with: {outage.signature}"
        )
        with self._ledger.connections.write.use() as session:
            wait = self._parking.wait(0)
            if kinds.park(session, name, signature=outage.signature, reason=reason, seconds=wait):
                emit("parked", {"operation": name, "reason": reason})
            parked = kinds.parked_kinds(session)
        self.refresh(parked)

    def _release(self, name: str) -> None:
        parked = self.parked.pop(name, None)
        with self._ledger.connections.write.use() as session:
            if kinds.unpark(session, name, because="a job succeeded") and parked is not None:
                emit("unparked", {"operation": name, "reason": parked.reason})

    def due_probes(self) -> list[str]:
        """Return the parked job types that may be probed now."""
        return [name for name, parked in self.parked.items() if parked.probe_at <= self._now()]

    def next_probes(self, now: float, /) -> list[float]:
        """Return when parked job types may be probed next, on the monotonic clock."""
        waits = [(parked.probe_at - self._now()).total_seconds() for parked in self.parked.values()]
        return [now + wait for wait in waits if wait > 0]

    def reserve_probe(self, name: str, /) -> bool:
        """Reserve the next probe of a job type. Return False if another worker has it."""
        parked_type = self.parked.get(name)
        if parked_type is None:
            return False
        with self._ledger.connections.write.use() as session:
            wait = self._parking.wait(parked_type.probes + 1)
            is_ours = kinds.probe(session, name, seconds=wait)
            parked = kinds.parked_kinds(session)
        self.refresh(parked)
        return is_ours

    def _repeat_probe(self, name: str, parked: ParkedKind, signature: str) -> None:
        """Let another job probe after the same wait: this probe failed for a reason of its own.

        Operators see that reason: the service may be back, and refuse these jobs for good.
        """
        reason = f"{parked.reason.partition(LAST_PROBE)[0]}{LAST_PROBE}{signature}"
        with self._ledger.connections.write.use() as session:
            wait = self._parking.wait(max(0, parked.probes - 1))
            kinds.probe_again(session, name, probes=parked.probes, seconds=wait, reason=reason)
            now_parked = kinds.parked_kinds(session)
        self.refresh(now_parked)

    def return_probes(self, names: Iterable[str], /) -> None:
        """Let these job types be probed at once. The worker ends before its probes do."""
        for name in sorted(names):
            parked = self.parked.get(name)
            if parked is not None:
                with self._ledger.connections.write.use() as session:
                    kinds.probe_again(session, name, probes=parked.probes, seconds=0.0)


def _end_of(lease: Lease, verdict: Verdict, signature: str | None, now: float) -> End:
    return End(lease.job_id, verdict, signature or "", _customer_of(lease), now, (lease.fence,))


def _customer_of(lease: Lease) -> str | None:
    """Return the customer of a job: the correlation id `user_id`, or the user part of its key.

    The keys of events have their source in that place.
    """
    if lease.ids_stored and "user_id" in lease.ids_stored:
        return lease.ids.get("user_id") or None
    parts: Sequence[str] = lease.key.split(":", 4)
    return parts[1] or None if len(parts) == 5 and parts[0] != "event" else None
