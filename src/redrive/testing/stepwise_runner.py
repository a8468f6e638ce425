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
from ..partitions.control.plane import Control
from ..partitions.control.source_health import Outages
from ..partitions.control.sweeps import ACTS
from ..partitions.control.verdicts import Authority
from ..partitions.datasets.definition import Extraction
from ..partitions.key import Partition
from ..partitions.model import Return, Verdict
from ..partitions.work.attempt import Done, Held, coroutine, ended, plain
from ..partitions.work.events import tell_expired, tell_judged, tell_returned
from ..partitions.work.tasks import Firing

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
        run_coroutine: Callable[[Coroutine[Any, Any, Done]], Done],
        /,
    ) -> None:
        terms = [extraction.terms for extraction in extractions]
        self._ledger = ledger
        self._control = Control(ledger, terms, draw=lambda: 0.0)
        self._authority = Authority(ledger, terms)
        self._firing = Firing(ledger, extractions)
        self._extractions = {extraction.terms.dataset: extraction for extraction in extractions}
        self._run_coroutine = run_coroutine
        self._outages = Outages(PARKING, self._control.is_only_customer)

    def step(self, now: datetime, /, *, worker: str, is_killed: bool) -> bool:
        """Extract one due partition. Return False if there is none.

        Args:
            now: The time.
            worker: Name of the worker.
            is_killed: The worker dies before it can store the verdict.
        """
        self._firing.do(now)
        self._control.tick()
        leases = self._control.claim(1, worker=worker, lease=LEASE_SECONDS)
        for expired in self._control.expired:
            tell_expired(self._extraction_of(expired.partition), expired)
        if not leases:
            return False
        held = Held(self._extraction_of(leases[0].partition), leases[0])
        done: Done = copy_context().run(self._extract, held)
        found = ended(done, now, PARKING, stopping=False)
        if is_killed or found is None:
            return True
        spare: dict[tuple[int, int], str] = {}
        if isinstance(found, Verdict):
            outage = self._outages.add(
                held.lease, found, now.timestamp(), answered=done.verdict is not None
            )
            if outage is not None:
                own = (held.lease.partition_id, held.lease.attempt_no)
                spare = {attempt: outage.says for attempt in outage.attempts if attempt != own}
            if outage is None or found.charged:
                judged = self._authority.judge([found])[0]
                if judged.outcome != "spared":
                    tell_judged(done, found, judged, now)
                    self._control.give_back([], spare=spare)
                    return True
            says = found.message if outage is None else outage.says
            found = Return(
                held.lease, "systemic", error=says, after=found.after, signature=found.signature
            )
        self._control.give_back([found], spare=spare)
        tell_returned(done, found)
        return True

    def _extraction_of(self, partition: Partition) -> Extraction:
        return self._extractions[partition.source, partition.query_name]

    def _extract(self, held: Held) -> Done:
        if held.extraction.execution == "async":
            return self._run_coroutine(coroutine(held))
        return plain(held)

    def next_due(self, now: datetime, /) -> datetime | None:
        """Return the next time with something to do, apart from schedules."""
        with self._ledger.connections.read.use() as session:
            times = _due_times(session.core)
        if self._control.soon is not None:
            times.append(now + timedelta(seconds=self._control.soon))
        return min((time for time in times if time is not None and time > now), default=None)


def _due_times(connection: Connection) -> list[datetime | None]:
    queries = (
        select(work.c.due_at).where(work.c.lease_until.is_(None)).order_by(work.c.due_at),
        select(func.min(work.c.lease_until)),
        select(source.c.paused_until).where(source.c.paused_at.is_not(None)),
        select(sweep.c.next_at).where(sweep.c.state == "running", sweep.c.act.in_(ACTS)),
    )
    return [time for query in queries for time in connection.execute(query).scalars()]
