"""Claim, start and renew: a lease is exclusive, expires and is fenced."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.ledger.store.sqlite.queries import MAX_LOOKUPS
from tests.conformance.ledger.world import KIND, claim, keys, new, pass_time, tally


@pytest.mark.req("L-2", "L-3")
def test_a_claim_is_exclusive_and_writes_the_attempt_first(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b", "c"))
    first = claim(ledger, 2)
    second = claim(ledger, 2, worker="w2")
    assert len(first) == 2
    assert len(second) == 1
    assert keys(first) | keys(second) == {"a", "b", "c"}
    assert {(lease.attempt, lease.fence) for lease in first} == {(1, 1)}
    job = ledger.get(first[0].job_id)
    assert job is not None
    assert (job.state, job.shown, job.attempts, job.worker) == ("leased", "running", 1, "w1")
    assert job.started_at is not None
    assert job.lease_until is not None
    assert tally(ledger)[:3] == (3, 0, 3)


def test_claim_takes_the_oldest_due_first(ledger: Ledger) -> None:
    for key in ("a", "b", "c"):
        ledger.submit(*new(key))
        pass_time(ledger, 1)
    assert [lease.key for _ in range(3) for lease in claim(ledger, 1)] == ["a", "b", "c"]


def test_claim_takes_the_most_urgent_first(ledger: Ledger) -> None:
    ledger.submit_many([NewJob(KIND, f"p{priority}", priority=priority) for priority in (2, 0, -2, 1, -1)])
    assert [lease.key for _ in range(5) for lease in claim(ledger, 1)] == ["p-2", "p-1", "p0", "p1", "p2"]


def test_one_claim_goes_through_all_priorities(ledger: Ledger) -> None:
    ledger.submit_many([NewJob(KIND, f"p{priority}", priority=priority) for priority in (2, 0, -2, 1, -1)])
    assert keys(claim(ledger, 4)) == {"p-2", "p-1", "p0", "p1"}


def test_limits_hold_for_each_job_type_and_for_all(ledger: Ledger) -> None:
    for kind in ("one", "two", "three"):
        ledger.submit_many([NewJob(kind, str(number), priority=number % 3) for number in range(9)])
    leases = ledger.claim({"one": 2, "two": 5}, worker="w")
    assert sorted(lease.kind for lease in leases) == ["one"] * 2 + ["two"] * 5
    leases = ledger.claim({"two": 3, "three": 8}, worker="w", total=6)
    assert sorted(lease.kind for lease in leases) == ["three"] * 3 + ["two"] * 3
    assert ledger.claim({"three": 0}, worker="w") == []
    assert ledger.claim({}, worker="w") == []
    assert ledger.claim({"unknown": 5}, worker="w") == []


@pytest.mark.req("L-3")
def test_a_claimed_job_is_started_before_it_runs(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b"))
    held = claim(ledger, start=False)
    assert {lease.attempt for lease in held} == {0}
    job = ledger.get(held[0].job_id)
    assert job is not None
    assert (job.attempts, job.started_at, job.shown) == (0, None, "queued")
    begun = ledger.start(held[:1])
    assert [lease.attempt for lease in begun] == [1]
    job = ledger.get(held[0].job_id)
    assert job is not None
    assert (job.attempts, job.shown) == (1, "running")
    assert ledger.start(begun) == []  # it has already begun
    ledger.settle([begun[0].done(), held[1].release()])
    assert ledger.start(held) == []
    assert ledger.start([]) == []


@pytest.mark.req("L-3")
def test_one_turn_settles_starts_and_claims(ledger: Ledger) -> None:
    ledger.submit_many(new(*"abcdef", max_attempts=1))
    first = claim(ledger, 4, start=False)
    (running,) = ledger.start(first[:1])
    lost, waiting = first[1], first[2:]
    ledger.settle(lost.release())
    turn = ledger.turn([running.done()], {KIND: 10}, worker="w", start_last=False, starts=[lost, *waiting])
    assert turn.late == []
    assert [(lease.job_id, lease.attempt, lease.started) for lease in turn.started] == [
        (lease.job_id, 1, True) for lease in waiting
    ]
    assert {(lease.attempt, lease.started) for lease in turn.leases} == {(0, False)}
    assert keys(turn.leases) == {"b", "e", "f"}
    jobs = [ledger.get(lease.job_id) for lease in (running, *waiting)]
    assert [(job.shown, job.attempts) for job in jobs if job is not None] == [("done", 1), ("running", 1), ("running", 1)]
    assert ledger.turn([], {}, worker="w", starts=turn.started).started == []  # these have already started


@pytest.mark.req("L-3")
def test_a_turn_starts_a_newer_lease_and_not_the_lost_one_of_the_same_job(ledger: Ledger) -> None:
    ledger.submit_many(new("a", max_attempts=1))
    (lost,) = claim(ledger, start=False)
    ledger.settle(lost.release())
    (newer,) = claim(ledger, start=False)
    turn = ledger.turn([], {}, worker="w", starts=[lost, newer])
    assert [(lease.fence, lease.token) for lease in turn.started] == [(newer.fence, newer.token)]


def test_a_turn_for_a_quarantined_job_starts_nothing_else(ledger: Ledger) -> None:
    ledger.submit_many(new("a", max_attempts=1))
    leases = claim(ledger, start=False)
    with pytest.raises(ValueError, match="starts: 1 leases together with alone=True"):
        ledger.turn([], {KIND: 1}, worker="w", alone=True, starts=leases)
    ledger.settle([lease.release() for lease in leases])


@pytest.mark.req("L-2")
def test_renew_prevents_reaping_and_returns_lost_leases(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b"))
    mine = claim(ledger, 1, lease=10)
    lost = claim(ledger, 1, lease=10)
    pass_time(ledger, 8)
    assert ledger.renew(mine, lease=10) == []
    pass_time(ledger, 8)
    assert ledger.reap() == [lost[0].job_id]
    assert ledger.renew([*mine, *lost], lease=10) == lost
    assert ledger.renew([]) == []
    ledger.settle(mine[0].done())


def test_an_expired_lease_can_be_renewed_until_it_is_reaped(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    lease = claim(ledger, lease=10)
    pass_time(ledger, 60)
    assert ledger.renew(lease, lease=10) == []
    assert ledger.reap() == []


@pytest.mark.parametrize("seconds", [0, -1, float("inf")])
def test_a_lease_of_zero_seconds_is_rejected(ledger: Ledger, seconds: float) -> None:
    ledger.submit(*new("a"))
    with pytest.raises(ValueError, match="lease"):
        claim(ledger, lease=seconds)
    assert tally(ledger).leased == 0


@pytest.mark.req("L-6")
def test_a_turn_settles_and_claims_immediately(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b", "c", "d"))
    held = claim(ledger, 2)
    turn = ledger.turn([held[0].done(b"x"), held[1].again(60, error="no")], {KIND: 10}, worker="w1")
    assert keys(turn.leases) == {"c", "d"}
    assert turn.late == []
    assert tally(ledger) == (4, 1, 2, 1, 0, 0, 0, 0, 0)
    turn = ledger.turn([lease.done() for lease in turn.leases], {KIND: 10}, worker="w1")
    assert not any(turn)
    assert tally(ledger).done == 3


def test_next_due_is_the_earliest_of_all_priorities(ledger: Ledger) -> None:
    assert ledger.next_due([KIND]) is None
    ledger.submit_many([NewJob(KIND, "a", delay=60.0), NewJob(KIND, "b", delay=30.0, priority=2), NewJob("other", "c")])
    due = ledger.next_due([KIND])
    job = ledger.find(KIND, "b")
    assert job is not None
    assert due == job.due_at
    assert ledger.next_due([*(f"nothing-{number}" for number in range(MAX_LOOKUPS)), KIND]) == due
    assert ledger.next_due([]) is None
