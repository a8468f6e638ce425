"""Settle: done, again, dead and blocked. A late settlement changes nothing and is counted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import LeaseLost
from redrive.ledger import Ledger, NewJob
from tests.conformance.ledger.world import KIND, claim, keys, new, pass_time, tally


def test_done_settles_the_job(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    ledger.settle(claim(ledger)[0].done(b"answer"))
    job = ledger.find(KIND, "a")
    assert job is not None
    assert (job.state, job.shown, job.result, job.lease_until, job.worker) == ("done", "done", b"answer", None, "w1")
    assert job.ended_at is not None
    assert ledger.attempts(job.id) == []


def test_again_schedules_a_retry_and_records_the_attempt(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    lease = claim(ledger)[0]
    ledger.settle(lease.again(30, error="ConnectionError: no", reason="transient"))
    job = ledger.get(lease.job_id)
    assert job is not None
    assert (job.state, job.shown, job.attempts, job.error, job.reason) == (
        "ready", "retry_wait", 1, "ConnectionError: no", "transient",
    )  # fmt: skip
    assert claim(ledger) == []
    pass_time(ledger, 31)
    second = claim(ledger)[0]
    assert (second.attempt, second.fence) == (2, 2)
    ledger.settle(second.done())
    (failed,) = ledger.attempts(lease.job_id)
    assert (failed.number, failed.fence, failed.outcome, failed.worker, failed.error) == (
        1,
        1,
        "failed",
        "w1",
        "ConnectionError: no",
    )
    assert failed.started_at is not None
    assert failed.started_at <= failed.ended_at


def test_uncharged_and_released_attempts_do_not_count(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b", "c"))
    one, two, three = claim(ledger)
    ledger.settle([one.again(0, free=True), two.release(), three.again(0, error="parked", free=True)])
    for lease, rows in ((one, 0), (two, 0), (three, 1)):
        job = ledger.get(lease.job_id)
        assert job is not None
        assert (job.attempts, job.crashes, job.state) == (0, 0, "ready")
        assert len(ledger.attempts(lease.job_id)) == rows
    assert {lease.attempt for lease in claim(ledger)} == {1}


def test_releasing_a_claimed_job_refunds_nothing(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    ledger.settle(claim(ledger)[0].again(0, error="x"))
    ledger.settle(claim(ledger, start=False)[0].release())
    assert claim(ledger)[0].attempt == 2


def test_dead_becomes_a_dead_letter(ledger: Ledger) -> None:
    ledger.submit(NewJob(KIND, "a", b"payload", ids={"trace_id": "t"}, headers={"h": "1"}, version=2))
    lease = claim(ledger)[0]
    ledger.settle(lease.dead("attempts", error="Boom", signature="sig"))
    job = ledger.get(lease.job_id)
    assert job is not None
    assert (job.state, job.shown) == ("dead", "dlq")
    (letter,) = ledger.dead_letters()
    assert (letter.kind, letter.key, letter.job_id, letter.payload, letter.reason) == (
        KIND,
        "a",
        lease.job_id,
        b"payload",
        "attempts",
    )
    assert (letter.error, letter.signature, letter.attempts, letter.status, letter.replay_count) == (
        "Boom",
        "sig",
        1,
        "pending",
        0,
    )
    assert (letter.ids, letter.headers, letter.version, letter.blocked) == ({"trace_id": "t"}, {"h": "1"}, 2, False)
    assert letter.last_attempt_at == job.started_at
    assert [attempt.outcome for attempt in ledger.attempts(job.id)] == ["failed"]
    assert claim(ledger) == []


def test_blocked_creates_a_dead_letter_with_a_time(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b"))
    until = ledger.now() + timedelta(seconds=30)
    first, second = claim(ledger)
    ledger.settle([first.blocked("no credentials", until=until), second.blocked("a person must look")])
    job = ledger.get(first.job_id)
    assert job is not None
    assert (job.state, job.shown) == ("dead", "blocked")
    letters = {letter.job_id: letter for letter in ledger.dead_letters()}
    assert letters[first.job_id].blocked_until == until
    assert (letters[second.job_id].blocked, letters[second.job_id].blocked_until) == (True, None)
    assert ledger.maintenance.unblock().done == {}
    pass_time(ledger, 31)
    assert list(ledger.maintenance.unblock().done) == [letters[first.job_id].id]
    job = ledger.find(KIND, first.key)
    assert job is not None
    assert job.shown == "replaying"
    assert [(entry.actor, entry.action) for entry in ledger.audit()] == [("redrive", "dead.replay")]


@pytest.mark.req("L-4")
def test_a_late_settle_changes_nothing_and_is_counted(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    old = claim(ledger, lease=10)[0]
    pass_time(ledger, 11)
    ledger.reap()
    for late in (old.done(b"late"), old.again(error="late"), old.dead("late"), old.blocked("late")):  # no worker has it
        with pytest.raises(LeaseLost, match="settled too late"):
            ledger.settle(late)
    newer = claim(ledger, worker="w2")[0]
    assert newer.fence == 2
    turn = ledger.turn([old.done(b"late")], {KIND: 1}, worker="w1")  # another worker has it
    assert turn.late == [old.done(b"late")]
    job = ledger.get(old.job_id)
    assert job is not None
    assert (job.state, job.worker, job.fence, job.result) == ("leased", "w2", 2, None)
    ledger.settle(newer.done(b"in time"))
    with pytest.raises(LeaseLost):
        ledger.settle(old.done(b"late"))  # it is done
    job = ledger.get(old.job_id)
    assert job is not None
    assert job.result == b"in time"
    assert tally(ledger).late == 6
    assert ledger.dead_letters() == []


@pytest.mark.req("L-4")
def test_a_second_settle_raises(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b"))
    first, second = claim(ledger)
    ledger.settle(first.done(b"1"))
    with pytest.raises(LeaseLost):
        ledger.settle(first.done(b"2"))
    with pytest.raises(LeaseLost, match=f"job {second.job_id}"):
        ledger.settle([second.done(b"1"), second.dead("2")])  # the first of the two counts
    job = ledger.get(second.job_id)
    assert job is not None
    assert (job.state, job.result) == ("done", b"1")
    assert tally(ledger).late == 2


@pytest.mark.req("L-4", "L-6")
def test_a_late_settlement_does_not_fail_the_rest_of_its_batch(ledger: Ledger) -> None:
    ledger.submit_many(new("a", "b", "c"))
    leases = claim(ledger)
    ledger.settle(leases[1].done())
    turn = ledger.turn([lease.done() for lease in leases], {}, worker="w1")
    assert [one.job_id for one in turn.late] == [leases[1].job_id]
    assert tally(ledger)[2:4] == (0, 3)


def test_a_worker_that_claims_a_lost_job_again_settles_the_newer_lease(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    old = claim(ledger, lease=10)[0]
    pass_time(ledger, 11)
    ledger.reap()
    newer = claim(ledger)[0]
    turn = ledger.turn([old.done(b"old"), newer.done(b"new")], {}, worker="w1")
    assert [one.fence for one in turn.late] == [1]
    job = ledger.get(old.job_id)
    assert job is not None
    assert job.result == b"new"


def test_errors_are_redacted_and_printable(ledger: Ledger) -> None:
    ledger.submit(*new("a"))
    error = "refused: password=hunter2 \x00 \ud800 " + "x" * 20_000
    ledger.settle(claim(ledger)[0].dead("stopped", error=error))
    (letter,) = ledger.dead_letters()
    assert letter.error is not None
    assert "hunter2" not in letter.error
    assert "\x00" not in letter.error
    assert len(letter.error) < 9000


def test_a_settlement_is_made_by_a_lease(ledger: Ledger) -> None:
    with pytest.raises(TypeError, match="a settlement must come from its lease"):
        ledger.settle([(1, 1)])  # type: ignore[list-item]
    ledger.settle([])


def test_outcomes_of_every_type_fit_in_one_batch(ledger: Ledger) -> None:
    ledger.submit_many(new(*"abcdef"))
    leases = {lease.key: lease for lease in claim(ledger)}
    ledger.settle(
        [
            leases["a"].done(), leases["b"].again(5, error="e"), leases["c"].dead("attempts"), leases["d"].blocked("x"),
            leases["e"].release(), leases["f"].done(b"r"),
        ]
    )  # fmt: skip
    assert tally(ledger) == (6, 2, 0, 2, 2, 0, 0, 0, 0)
    assert keys(claim(ledger)) == {"e"}
