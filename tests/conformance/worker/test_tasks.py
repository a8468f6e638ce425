"""Workers run sweeps at the requested rate."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from redrive.ledger import Ledger
from redrive.worker.maintenance import SWEEP_IDLE_SECONDS, SweepTask
from tests.conformance.ledger.test_dead_letters import die
from tests.conformance.ledger.world import pass_time

NOW = datetime(2026, 11, 17, tzinfo=timezone.utc)


@pytest.mark.req("M-4")
@pytest.mark.parametrize(("rate", "most"), [(500, 0.8), (250, 1.4), (None, 0.1)])
def test_a_detached_sweep_keeps_its_rate(ledger: Ledger, rate: float | None, most: float) -> None:
    many = 300
    for start in range(0, many, 100):
        die(ledger, *(f"k{at}" for at in range(start, start + 100)))
    letters = [letter.id for letter in ledger.dead_letters(limit=many)]
    begun = ledger.sweeps.begin("replay", letters, actor="ann", because="fixed", rate=rate)
    chore, waited = SweepTask(ledger), 0.0
    while (found := ledger.sweeps.get(begun.id)) is not None and found.state == "running":
        chore.do(NOW)
        waited += chore.every
        pass_time(ledger, chore.every)
    chore.do(NOW)
    assert (chore.every, waited - SWEEP_IDLE_SECONDS <= most) == (SWEEP_IDLE_SECONDS, True), waited
