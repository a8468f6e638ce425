"""Cancel, run now, reschedule and reprioritise, on both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.ledger.model import Submitted

from .world import KIND, claim, new, pass_time, rows, tally

ACT: dict[str, Any] = {"actor": "ann", "because": "a test"}


def submit(ledger: Ledger, *keys: str, **fields: Any) -> list[int]:
    return [each.id for each in ledger.submit_many(new(*keys, **fields))]


def resubmit(ledger: Ledger, key: str = "a", **fields: Any) -> Submitted:
    return ledger.submit(new(key, **fields)[0])


def state(ledger: Ledger, job_id: int) -> str:
    job = ledger.get(job_id)
    assert job is not None
    return job.shown


# --- Cancel


@pytest.mark.req("Q-2")
def test_a_queued_job_is_cancelled_immediately(ledger: Ledger) -> None:
    a, b = submit(ledger, "a", "b")
    result = ledger.control.cancel([a], **ACT)
    assert result.done == {a: "cancelled"}
    assert result.skipped == {}
    job = ledger.get(a)
    assert job is not None
    assert (job.state, job.lease_until) == ("cancelled", None)
    assert job.ended_at is not None
    assert [lease.job_id for lease in claim(ledger)] == [b]
    assert tally(ledger).cancelled == 1


@pytest.mark.req("Q-2")
def test_a_scheduled_retry_and_an_unstarted_claim_are_cancelled_immediately(ledger: Ledger) -> None:
    a, b = submit(ledger, "a", "b", max_attempts=5)
    (lease,) = claim(ledger, 1)
    ledger.settle(lease.again(3600, error="not yet", reason="failed"))
    (held,) = claim(ledger, 1, start=False)
    assert ledger.control.cancel([a, b], **ACT).done == {a: "cancelled", b: "cancelled"}
    assert ledger.start([held]) == []
    assert claim(ledger) == []


@pytest.mark.req("Q-2")
def test_a_running_job_is_asked_to_stop(ledger: Ledger) -> None:
    (a,) = submit(ledger, "a")
    (lease,) = claim(ledger)
    assert ledger.control.cancel([a], **ACT).done == {a: "stopping"}
    assert state(ledger, a) == "running"
    assert ledger.control.cancel([a], **ACT).skipped == {a: "asked to stop already"}
    ledger.settle(lease.cancelled())
    assert state(ledger, a) == "cancelled"
    (attempt,) = ledger.attempts(a)
    assert (attempt.outcome, attempt.reason) == ("cancelled", "cancelled")


@pytest.mark.req("Q-2")
@pytest.mark.parametrize("end", ["again", "dead", "blocked", "release"])
def test_a_failed_attempt_of_a_cancelled_job_is_not_retried(ledger: Ledger, end: str) -> None:
    (a,) = submit(ledger, "a")
    (lease,) = claim(ledger)
    ledger.control.cancel([a], **ACT)
    ends = {
        "again": lease.again(0, error="no", reason="failed")._replace(signature="E"),
        "dead": lease.dead("attempts", error="no", signature="E"),
        "blocked": lease.blocked("waits"),
        "release": lease.release(),
    }
    ledger.settle(ends[end])
    assert state(ledger, a) == "cancelled"
    assert ledger.dead_letters() == []
    assert claim(ledger) == []
    assert [each.outcome for each in ledger.attempts(a)] == ["cancelled"]
    assert rows(ledger, "SELECT sum(tries) FROM redrive_failure")[0][0] in (None, 0)


@pytest.mark.req("Q-2")
@pytest.mark.parametrize("by_turn", [True, False])
def test_a_success_after_the_request_wins(ledger: Ledger, by_turn: bool) -> None:
    (a,) = submit(ledger, "a")
    (lease,) = claim(ledger)
    ledger.control.cancel([a], **ACT)
    if by_turn:
        ledger.turn([lease.done()], {KIND: 1}, worker="w1")
    else:
        ledger.settle(lease.done(b"1"))
    job = ledger.get(a)
    assert job is not None
    assert job.state == "done"
    assert job.cancel_at is not None  # the request is stored
    assert ledger.control.cancel([a], **ACT).skipped == {a: "done"}


@pytest.mark.req("Q-2")
def test_a_lost_lease_of_a_cancelled_job_ends_it(ledger: Ledger) -> None:
    a, b = submit(ledger, "a", "b")
    claim(ledger, 2, lease=1)
    ledger.control.cancel([a], **ACT)
    pass_time(ledger, 10)
    assert sorted(ledger.reap()) == [a, b]
    assert (state(ledger, a), state(ledger, b)) == ("cancelled", "retry_wait")
    assert [each.outcome for each in ledger.attempts(a)] == ["lost"]


@pytest.mark.req("Q-2")
def test_ended_and_unknown_jobs_are_skipped_and_nothing_changes(ledger: Ledger) -> None:
    done, dead, gone, cancelled = submit(ledger, "done", "dead", "gone", "cancelled")
    ledger.control.cancel([cancelled], **ACT)
    for lease in claim(ledger):
        ledger.settle(lease.done() if lease.key == "done" else lease.dead("broken"))
    letter = next(each for each in ledger.dead_letters() if each.key == "gone")
    ledger.discard([letter.id], **ACT)
    before = rows(ledger, "SELECT * FROM redrive_job ORDER BY id")
    entries = len(ledger.audit())
    result = ledger.control.cancel([done, dead, gone, cancelled, 99], **ACT)
    assert result.done == {}
    assert result.skipped == {
        done: "done",
        dead: "a dead letter; discard it instead with `redrive dead discard`",
        gone: "discarded",
        cancelled: "cancelled already",
        99: "not found",
    }
    assert rows(ledger, "SELECT * FROM redrive_job ORDER BY id") == before
    assert len(ledger.audit()) == entries


@pytest.mark.req("Q-2")
def test_a_cancel_is_audited(ledger: Ledger) -> None:
    (a,) = submit(ledger, "a")
    ledger.control.cancel([a], actor="ann", because="wrong order")
    entry = ledger.audit()[-1]
    assert (entry.actor, entry.action, entry.because) == ("ann", "job.cancel", "wrong order")
    assert entry.what == {"jobs": {str(a): "cancelled"}}


# --- The key of a cancelled job


@pytest.mark.req("Q-2")
def test_the_key_of_a_cancelled_job_is_free_for_a_new_job(ledger: Ledger) -> None:
    (a,) = submit(ledger, "a")
    ledger.control.cancel([a], **ACT)
    current = ledger.find(KIND, "a")
    assert current is not None
    assert current.id == a  # until the key is submitted again
    again = resubmit(ledger)
    assert again.created
    assert again.id != a
    current = ledger.find(KIND, "a")
    assert current is not None
    assert current.id == again.id
    assert state(ledger, a) == "cancelled"
    assert not resubmit(ledger).created


@pytest.mark.req("Q-2")
def test_the_key_is_free_in_a_batch_and_in_a_callers_transaction(ledger: Ledger) -> None:
    ids = submit(ledger, "a", "b", "c")
    ledger.control.cancel(ids[:2], **ACT)
    batch = ledger.submit_many(new("a", "c", "d"))
    assert [each.created for each in batch] == [True, False, True]
    with ledger.begin() as tx:
        assert ledger.submit(new("b")[0], tx=tx).created
    assert {lease.key for lease in claim(ledger)} == {"a", "b", "c", "d"}


@pytest.mark.req("Q-2")
def test_a_repeated_submission_of_a_schedule_keeps_the_cancelled_run(ledger: Ledger) -> None:
    run = NewJob(KIND, "12:00", delay=3600, keeps_cancelled=True)
    first = ledger.submit(run)
    ledger.control.cancel([first.id], **ACT)
    again = ledger.submit(run)
    assert (again.id, again.state, again.created) == (first.id, "cancelled", False)


@pytest.mark.req("Q-2")
def test_a_cancelled_replay_makes_its_dead_letter_pending_again(ledger: Ledger) -> None:
    submit(ledger, "a", "b")
    for lease in claim(ledger):
        ledger.settle(lease.dead("broken", error="no", signature="E"))
    letters = [each.id for each in ledger.dead_letters()]
    replays = ledger.replay(letters, **ACT).done
    (lease,) = claim(ledger, 1)
    assert set(ledger.control.cancel(list(replays.values()), **ACT).done.values()) == {"cancelled", "stopping"}
    ledger.settle(lease.again(0, error="no", reason="failed"))
    pending = ledger.dead_letters(status="pending")
    assert {each.id: each.job_id for each in pending} == dict(replays)
    again = ledger.replay(letters, **ACT)
    assert set(again.done) == set(letters)
    for lease in claim(ledger):
        ledger.settle(lease.done())
    assert {each.status for each in ledger.dead_letters()} == {"replayed"}


@pytest.mark.req("Q-2")
def test_a_dead_letter_whose_key_has_a_newer_job_can_only_be_discarded(ledger: Ledger) -> None:
    submit(ledger, "a")
    (lease,) = claim(ledger)
    ledger.settle(lease.dead("broken"))
    (letter,) = ledger.dead_letters()
    ledger.control.cancel(list(ledger.replay([letter.id], **ACT).done.values()), **ACT)
    assert resubmit(ledger).created
    assert ledger.replay([letter.id], **ACT).skipped == {letter.id: "its replay was cancelled, and its key has a newer job"}
    assert list(ledger.discard([letter.id], **ACT).done) == [letter.id]


@pytest.mark.req("Q-2")
def test_cancelled_jobs_are_pruned_by_age(ledger: Ledger) -> None:
    a, _b = submit(ledger, "a", "b")
    ledger.control.cancel([a], **ACT)
    assert ledger.prune(60) == 0
    pass_time(ledger, 100)
    assert ledger.prune(60) == 1
    assert ledger.get(a) is None
    assert resubmit(ledger, "a").created
    assert (tally(ledger).cancelled, tally(ledger).pruned) == (1, 0)  # it stays counted


# --- Run now, reschedule, reprioritise


@pytest.mark.req("Q-3")
def test_run_now_makes_a_scheduled_job_and_a_retry_due(ledger: Ledger) -> None:
    (a,) = submit(ledger, "a", delay=3600)
    (b,) = submit(ledger, "b")
    (lease,) = claim(ledger)
    ledger.settle(lease.again(3600, error="no", reason="failed"))
    assert claim(ledger) == []
    result = ledger.control.run_now([a, b], **ACT)
    assert result.done == {a: "due now", b: "due now"}
    assert {lease.job_id for lease in claim(ledger)} == {a, b}
    entry = ledger.audit()[-1]
    assert (entry.action, entry.what) == ("job.run_now", {"jobs": {str(a): "due now", str(b): "due now"}})


@pytest.mark.req("Q-3")
def test_run_now_skips_due_running_and_ended_jobs(ledger: Ledger) -> None:
    (due,) = submit(ledger, "due", priority=2)
    (running,) = submit(ledger, "running", priority=-2)
    claim(ledger, 1)
    assert ledger.control.run_now([due, running, 99], **ACT).skipped == {
        due: "due already",
        running: "running",
        99: "not found",
    }


@pytest.mark.req("Q-3")
def test_a_wait_for_a_signal_is_not_run_now_but_can_be_rescheduled(ledger: Ledger) -> None:
    a, b = submit(ledger, "a", "b", delay=3600)
    rows_of = {a: "'approved'", b: "''"}
    with ledger.connections.write.use() as session:
        for job_id, waits_for in rows_of.items():
            session.core.exec_driver_sql(f"UPDATE redrive_job SET waits_for = {waits_for} WHERE id = {job_id}")
    result = ledger.control.run_now([a, b], **ACT)
    assert result.done == {b: "due now"}
    assert result.skipped[a].startswith("waits for the signal 'approved'")
    assert ledger.control.reschedule([a], ledger.now(), **ACT).done == {a: "rescheduled"}


@pytest.mark.req("Q-3")
def test_reschedule_moves_a_queued_job(ledger: Ledger) -> None:
    (a,) = submit(ledger, "a")
    later = (ledger.now() + timedelta(hours=1)).replace(microsecond=0)
    assert ledger.control.reschedule([a], later, **ACT).done == {a: "rescheduled"}
    assert claim(ledger) == []
    job = ledger.get(a)
    assert job is not None
    assert job.due_at == later


@pytest.mark.req("Q-3")
def test_reschedule_beyond_the_deadline_is_rejected(ledger: Ledger) -> None:
    (a,) = submit(ledger, "a", deadline=ledger.now() + timedelta(minutes=5))
    result = ledger.control.reschedule([a], ledger.now() + timedelta(hours=1), **ACT)
    assert result.done == {}
    assert result.skipped[a].startswith("its deadline, ")


@pytest.mark.req("Q-3")
def test_prioritise_changes_the_order(ledger: Ledger) -> None:
    a, b = submit(ledger, "a", "b")
    assert ledger.control.prioritise([b], -2, **ACT).done == {b: "priority -2"}
    assert [lease.job_id for lease in claim(ledger, 1)] == [b]
    assert ledger.control.prioritise([a], 0, **ACT).done == {a: "priority 0"}


@pytest.mark.req("Q-3")
def test_a_quarantined_job_keeps_its_quarantine(ledger: Ledger) -> None:
    (a,) = submit(ledger, "a")
    for _ in range(2):
        claim(ledger, lease=1)
        pass_time(ledger, 10)
        ledger.reap()
    result = ledger.control.prioritise([a], -2, **ACT)
    assert result.skipped[a].startswith("quarantined")
    assert ledger.control.reschedule([a], ledger.now() + timedelta(hours=1), **ACT).done
    assert ledger.control.run_now([a], **ACT).done
    job = ledger.get(a)
    assert job is not None
    assert job.priority == 9


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("priority", [3, -3, 9, True, "high", None])
def test_an_invalid_priority_is_rejected(ledger: Ledger, priority: object) -> None:
    (a,) = submit(ledger, "a")
    with pytest.raises(ValueError, match="invalid priority .*: use a whole number from -2"):
        ledger.control.prioritise([a], priority, **ACT)  # type: ignore[arg-type]
