"""Stepped: partitions extracted one at a time, here and now: for tests, which have no worker and move the clock themselves."""

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
from ..partitions.model import Return, Verdict
from ..partitions.work.attempt import Done, Held, coroutine, ended, plain
from ..partitions.work.events import tell_expired, tell_judged, tell_returned
from ..partitions.work.tasks import Firing

LEASE = 8.0
PARKING = Parking()


class Stepped:
    """Does what a worker does for datasets, a step at a time. Belongs to the code of the test."""

    def __init__(
        self, ledger: Ledger, extractions: Sequence[Extraction], awaited: Callable[[Coroutine[Any, Any, Done]], Done], /
    ) -> None:
        """awaited: what a coroutine gives."""
        terms = [one.terms for one in extractions]
        self._ledger = ledger
        self._control = Control(ledger, terms, draw=lambda: 0.0)
        self._authority = Authority(ledger, terms)
        self._firing = Firing(ledger, extractions)
        self._known = {one.terms.dataset: one for one in extractions}
        self._awaited = awaited
        self._outages = Outages(PARKING, self._control.is_only_customer)

    def step(self, now: datetime, /, *, worker: str, killed: bool) -> bool:
        """Extract one that is due; False: there is none. killed: its worker dies before it can write down what came of it."""
        self._firing.do(now)
        self._control.tick()
        leases = self._control.claim(1, worker=worker, lease=LEASE)
        for expired in self._control.expired:
            tell_expired(self._known[expired.partition.source, expired.partition.query_name], expired)
        if not leases:
            return False
        held = Held(self._known[leases[0].partition.source, leases[0].partition.query_name], leases[0])
        done: Done = copy_context().run(self._made, held)
        found = ended(done, now, PARKING, stopping=False)
        if killed or found is None:
            return True
        spare: dict[tuple[int, int], str] = {}
        if isinstance(found, Verdict):
            outage = self._outages.add(held.lease, found, now.timestamp(), answered=done.verdict is not None)
            if outage is not None:
                mine = (held.lease.partition_id, held.lease.attempt_no)
                spare = {attempt: outage.says for attempt in outage.attempts if attempt != mine}
            if outage is None or found.charged:
                judged = self._authority.judge([found])[0]
                if judged.outcome != "spared":
                    tell_judged(done, found, judged, now)
                    self._control.give_back([], spare=spare)
                    return True
            says = found.message if outage is None else outage.says
            found = Return(held.lease, "systemic", error=says, after=found.after, signature=found.signature)
        self._control.give_back([found], spare=spare)
        tell_returned(done, found)
        return True

    def _made(self, held: Held) -> Done:
        return self._awaited(coroutine(held)) if held.extraction.execution == "async" else plain(held)

    def next(self, now: datetime, /) -> datetime | None:
        """When there will be something to do; schedules left out."""
        with self._ledger.connections.read.use() as session:
            moments = _moments(session.core)
        if self._control.soon is not None:
            moments.append(now + timedelta(seconds=self._control.soon))
        return min((moment for moment in moments if moment is not None and moment > now), default=None)


def _moments(connection: Connection) -> list[datetime | None]:
    waiting = select(work.c.due_at).where(work.c.lease_until.is_(None)).order_by(work.c.due_at)
    held = select(func.min(work.c.lease_until))
    paused = select(source.c.paused_until).where(source.c.paused_at.is_not(None))
    swept = select(sweep.c.next_at).where(sweep.c.state == "running", sweep.c.act.in_(ACTS))
    return [moment for query in (waiting, held, paused, swept) for moment in connection.execute(query).scalars()]
