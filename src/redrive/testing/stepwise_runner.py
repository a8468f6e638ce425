"""StepwiseRunner: extracts partitions one at a time, for tests without a worker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from ..core.outage import Parking
from ..ledger.db.partition_tables import source, work
from ..ledger.db.tables import sweep
from ..ledger.ledger import Ledger
from ..partitions.control.plane import ControlPlane
from ..partitions.control.source_health import OutageDetector, only_customer_check
from ..partitions.control.verdicts import VerdictWriter
from ..partitions.datasets.dataset import Extraction
from ..partitions.key import Partition
from ..partitions.model import Release, Verdict
from ..partitions.store.sweeps import ACTS
from ..partitions.work.attempt import (
    ExtractionAttempt,
    ExtractionResult,
    extract_in_thread,
    extract_on_loop,
    verdict_or_release,
)
from ..partitions.work.runner import ScheduleTask, log_expired, log_release, log_verdict

LEASE_SECONDS = 8.0
PARKING = Parking()


class StepwiseRunner:
    """Does the work of a worker for datasets, one partition in a step. Belongs to the test.

    Args:
        ledger: The ledger.
        extractions: The datasets.
        run_coroutine: Runs a coroutine and returns its result.
    """

    def __init__(
        self,
        ledger: Ledger,
        extractions: Sequence[Extraction],
        run_coroutine: Callable[[Coroutine[Any, Any, ExtractionResult]], ExtractionResult],
        /,
    ) -> None:
        terms = [extraction.limits for extraction in extractions]
        self._ledger = ledger
        self._control = ControlPlane(ledger, terms, draw=lambda: 0.0)
        self._authority = VerdictWriter(ledger, terms)
        self._firing = ScheduleTask(ledger, extractions)
        self._extractions = {extraction.limits.dataset: extraction for extraction in extractions}
        self._run_coroutine = run_coroutine
        self._outages = OutageDetector(PARKING, only_customer_check(ledger))

    def step(self, now: datetime, /, *, worker: str, is_killed: bool) -> bool:
        """Extract one due partition. Return False if there is none.

        Args:
            now: The time.
            worker: Name of the worker.
            is_killed: The worker dies before it can store the verdict.
        """
        self._firing.do(now)
        self._control.maintain()
        leases = self._control.claim(1, worker=worker, lease=LEASE_SECONDS)
        for expired in self._control.expired:
            log_expired(self._extraction_of(expired.partition), expired)
        if not leases:
            return False
        held = ExtractionAttempt(self._extraction_of(leases[0].partition), leases[0])
        done: ExtractionResult = copy_context().run(self._extract, held)
        found = verdict_or_release(done, now, PARKING, is_stopping=False)
        if is_killed or found is None:
            return True
        spare: dict[tuple[int, int], str] = {}
        if isinstance(found, Verdict):
            outage = self._outages.add(
                held.lease, found, now.timestamp(), has_data=done.verdict is not None
            )
            if outage is not None:
                own = (held.lease.partition_id, held.lease.attempt_no)
                spare = {attempt: outage.reason for attempt in outage.attempts if attempt != own}
            if outage is None or found.charged:
                judged = self._authority.apply([found])[0]
                if judged.outcome != "spared":
                    log_verdict(done, found, judged, now)
                    self._control.release_uncharged([], refunds=spare)
                    return True
            says = found.message if outage is None else outage.reason
            found = Release(
                held.lease, "systemic", error=says, after=found.after, signature=found.signature
            )
        self._control.release_uncharged([found], refunds=spare)
        log_release(done, found)
        return True

    def _extraction_of(self, partition: Partition) -> Extraction:
        return self._extractions[partition.source, partition.query_name]

    def _extract(self, held: ExtractionAttempt) -> ExtractionResult:
        if held.extraction.execution == "async":
            return self._run_coroutine(extract_on_loop(held))
        return extract_in_thread(held)

    def next_due(self, now: datetime, /) -> datetime | None:
        """Return the next time with something to do, apart from schedules."""
        with self._ledger.connections.read.use() as session:
            times = _due_times(session.core)
        if self._control.seconds_until_room is not None:
            times.append(now + timedelta(seconds=self._control.seconds_until_room))
        return min((time for time in times if time is not None and time > now), default=None)


def _due_times(connection: Connection) -> list[datetime | None]:
    queries = (
        select(work.c.due_at).where(work.c.lease_until.is_(None)).order_by(work.c.due_at),
        select(func.min(work.c.lease_until)),
        select(source.c.paused_until).where(source.c.paused_at.is_not(None)),
        select(sweep.c.next_at).where(sweep.c.state == "running", sweep.c.act.in_(ACTS)),
    )
    return [time for query in queries for time in connection.execute(query).scalars()]
