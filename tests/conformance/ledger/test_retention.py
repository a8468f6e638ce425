"""Prune: done jobs by age. A key stays done until its own expiry, and dead letters stay."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger, NewJob
from tests.conformance.ledger.world import KIND, claim, new, pass_time, tally

DAY = 86_400


def finish(ledger: Ledger, *jobs: NewJob) -> None:
    ledger.submit_many(jobs)
    leases = claim(ledger)
    ledger.settle([lease.again(0, error="once") for lease in leases])
    ledger.settle([lease.done(b"result") for lease in claim(ledger)])


@pytest.mark.req("L-10")
def test_done_jobs_are_pruned_by_age_and_nothing_else_is(ledger: Ledger) -> None:
    ledger.submit_many(new("dead", "leased", "waiting"))
    ledger.settle([lease.dead("x") for lease in claim(ledger) if lease.key == "dead"])
    finish(ledger, *new("old"))
    pass_time(ledger, 10 * DAY)
    finish(ledger, *new("young"))
    assert ledger.prune(5 * DAY) == 1
    assert ledger.prune(5 * DAY) == 0
    old, young = ledger.find(KIND, "old"), ledger.find(KIND, "young")
    assert old is not None
    assert young is not None
    assert (old.state, old.shown, old.payload, old.result) == ("pruned", "done", b"", None)
    assert ledger.attempts(old.id) == []
    assert (young.state, len(ledger.attempts(young.id))) == ("done", 1)
    pass_time(ledger, 1000 * DAY)
    ledger.prune(0)
    assert len(ledger.dead_letters()) == 1
    assert ledger.dead_letters()[0].payload == b"dead"
    assert tally(ledger).pruned == 2


@pytest.mark.req("L-2", "L-10")
def test_a_done_key_stays_done_after_pruning_until_its_own_expiry(ledger: Ledger) -> None:
    finish(ledger, NewJob(KIND, "short", keep=3 * DAY), NewJob(KIND, "ever"))
    first = ledger.find(KIND, "short")
    assert first is not None
    pass_time(ledger, 2 * DAY)
    assert ledger.prune(1 * DAY) == 2
    assert [ledger.submit(*new(key)).created for key in ("short", "ever")] == [False, False]
    assert ledger.submit(*new("short")).state == "pruned"
    pass_time(ledger, 2 * DAY)
    ledger.prune(1 * DAY)
    again = ledger.submit(*new("short"))
    assert again.created
    assert again.id > first.id
    assert not ledger.submit(*new("ever")).created
    assert tally(ledger) == (3, 1, 0, 0, 0, 0, 2, 0, 0)


@pytest.mark.req("L-10")
def test_prune_is_bounded(ledger: Ledger) -> None:
    finish(ledger, *new(*(str(number) for number in range(30)), keep=0.0))
    pass_time(ledger, DAY)
    assert [ledger.prune(60, limit=20) for _ in range(3)] == [20, 10, 0]
    assert ledger.find(KIND, "3") is None
    assert tally(ledger) == (30, 0, 0, 0, 0, 0, 30, 0, 0)


def test_ids_are_never_reused(ledger: Ledger) -> None:
    """Trap 8: SQLite reuses ids by default, and (id, fence) would identify two leases."""
    finish(ledger, *new("a", keep=0.0))
    job = ledger.find(KIND, "a")
    assert job is not None
    pass_time(ledger, DAY)
    ledger.prune(0)
    assert ledger.find(KIND, "a") is None
    assert ledger.submit(*new("a")).id > job.id
