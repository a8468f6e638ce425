"""Recovery of expired leases: a crash is recorded, counted and bounded."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger, NewJob
from tests.conformance.ledger.world import KIND, claim, keys, new, pass_time, tally


def crash(ledger: Ledger) -> None:
    """End the worker, and let its leases expire."""
    pass_time(ledger, 3600)
    ledger.reap()


@pytest.mark.req("L-3")
def test_a_crash_counts_only_for_started_attempts(ledger: Ledger) -> None:
    ledger.submit_many(new("begun", "claimed"))
    held = {lease.key: lease for lease in claim(ledger, start=False)}
    ledger.start([held["begun"]])
    crash(ledger)
    begun, claimed = ledger.find(KIND, "begun"), ledger.find(KIND, "claimed")
    assert begun is not None
    assert claimed is not None
    assert (begun.attempts, begun.crashes, begun.shown) == (1, 1, "retry_wait")
    assert (claimed.attempts, claimed.crashes, claimed.shown) == (0, 0, "queued")
    (lost,) = ledger.attempts(begun.id)
    assert (lost.outcome, lost.number, lost.worker) == ("lost", 1, "w1")
    assert ledger.attempts(claimed.id) == []
    assert tally(ledger)[:3] == (2, 2, 0)


@pytest.mark.req("L-3")
def test_a_job_whose_worker_was_killed_once_is_retried_normally(ledger: Ledger) -> None:
    ledger.submit_many([NewJob(KIND, "long", priority=-2), *new("x", "y")])
    claim(ledger, 1)
    crash(ledger)
    assert claim(ledger, alone=True) == []
    assert keys(claim(ledger, 1)) == {"long"}, "with the priority that it had"


@pytest.mark.req("L-3")
def test_a_job_with_two_crashes_runs_alone_and_last(ledger: Ledger) -> None:
    ledger.submit_many([NewJob(KIND, "poison", priority=-2), *new("x", "y")])
    for _ in range(2):
        assert keys(claim(ledger, 1)) == {"poison"}
        crash(ledger)
    assert keys(claim(ledger)) == {"x", "y"}
    assert claim(ledger) == []
    ledger.submit_many(new("z"))
    ledger.submit(NewJob("other", "p"))
    alone = ledger.claim({KIND: 5, "other": 5}, worker="w2", alone=True)
    assert keys(alone) == {"poison"}
    assert alone[0].crashes == 2
    assert ledger.claim({KIND: 5, "other": 5}, worker="w2", alone=True) == []


@pytest.mark.req("L-3")
def test_a_job_with_three_crashes_is_a_dead_letter(ledger: Ledger) -> None:
    ledger.submit(*new("poison"))
    for alone in (False, False, True):
        assert keys(claim(ledger, alone=alone)) == {"poison"}
        crash(ledger)
    (letter,) = ledger.dead_letters()
    assert (letter.reason, letter.attempts, letter.status) == ("crashed_worker", 3, "pending")
    assert letter.error is not None
    assert "w1" in letter.error
    job = ledger.get(letter.job_id or 0)
    assert job is not None
    assert (job.state, job.crashes, job.shown) == ("dead", 3, "dlq")
    assert [attempt.outcome for attempt in ledger.attempts(job.id)] == ["lost"] * 3
    assert claim(ledger, alone=True) == []


@pytest.mark.req("L-3")
def test_a_lost_attempt_may_be_the_last_one(ledger: Ledger) -> None:
    ledger.submit(NewJob(KIND, "a", max_attempts=2))
    ledger.settle(claim(ledger)[0].again(0, error="failed"))
    claim(ledger)
    crash(ledger)
    (letter,) = ledger.dead_letters()
    assert (letter.reason, letter.attempts) == ("attempts", 2)
    assert [attempt.outcome for attempt in ledger.attempts(letter.job_id or 0)] == ["failed", "lost"]


@pytest.mark.req("L-3")
def test_a_worker_that_is_alive_but_slow_has_not_crashed(ledger: Ledger) -> None:
    ledger.submit(*new("slow"))
    lease = claim(ledger, lease=10)[0]
    pass_time(ledger, 60)
    ledger.maintenance.heartbeat("w1")  # it did not renew, but it is online
    assert ledger.reap() == [lease.job_id]
    job = ledger.get(lease.job_id)
    assert job is not None
    assert (job.attempts, job.crashes) == (1, 0)
    assert keys(claim(ledger)) == {"slow"}  # neither alone nor last
    assert [attempt.reason for attempt in ledger.attempts(job.id)] == ["lost_lease"]


@pytest.mark.req("L-3")
def test_a_worker_that_drains_has_not_crashed(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b"))
    ledger.settle([lease.release() for lease in claim(ledger)])
    ledger.maintenance.deregister_worker("w1")
    pass_time(ledger, 3600)
    assert ledger.reap() == []
    assert {lease.attempt for lease in claim(ledger)} == {1}


def test_reap_is_bounded_and_continues(ledger: Ledger) -> None:
    ledger.submit_many(new(*(str(number) for number in range(25))))
    claim(ledger, 25)
    pass_time(ledger, 3600)
    assert [len(ledger.reap(limit=10)) for _ in range(4)] == [10, 10, 5, 0]
    assert tally(ledger).ready == 25


def test_heartbeats_are_listed(ledger: Ledger) -> None:
    ledger.maintenance.heartbeat("w1", {"threads": 8})
    pass_time(ledger, 10)
    ledger.maintenance.heartbeat("w1")
    ledger.maintenance.heartbeat("w2")
    ledger.maintenance.deregister_worker("w2")
    second, first = ledger.workers()
    assert (first.name, first.info, first.ended_at) == ("w1", {"threads": 8}, None)
    assert (first.seen_at - first.started_at).total_seconds() >= 10
    assert second.ended_at is not None
