"""Dead letters: replayed as new jobs or discarded, with an actor and a reason in the audit log."""

from __future__ import annotations

import pytest
import sqlalchemy

from redrive.ledger import DeadLetter, Ledger
from redrive.ledger.db.tables import audit
from tests.conformance.ledger.world import KIND, claim, keys, new, pass_time, session, tally


def die(ledger: Ledger, *names: str) -> list[DeadLetter]:
    ledger.submit_many(new(*names))
    ledger.settle([lease.dead("attempts", error="Boom", signature="boom") for lease in claim(ledger)])
    return ledger.dead_letters(status="pending")


@pytest.mark.req("L-2")
def test_a_replay_is_a_new_job_linked_to_the_old_one(ledger: Ledger) -> None:
    (letter,) = die(ledger, "a")
    acted = ledger.replay([letter.id], actor="ann", because="the bug is fixed")
    assert acted.skipped == {}
    old, job = ledger.get(letter.job_id or 0), ledger.find(KIND, "a")
    assert old is not None
    assert job is not None
    assert (job.id, job.replay_of, job.dead_id) == (acted.done[letter.id], old.id, letter.id)
    assert (job.payload, job.attempts, job.shown) == (b"a", 0, "replaying")
    assert (old.state, old.current) == ("dropped", False)
    assert ledger.dead_letters(ids=[letter.id])[0].status == "replaying"
    lease = claim(ledger)[0]
    assert (lease.job_id, lease.dead_id, lease.attempt) == (job.id, letter.id, 1)
    ledger.settle(lease.again(0, error="once more"))
    assert ledger.dead_letters(ids=[letter.id])[0].status == "replaying"
    turn = ledger.turn([claim(ledger)[0].done(b"yes")], {}, worker="w1")
    assert turn.late == []
    after = ledger.dead_letters(ids=[letter.id])[0]
    assert (after.status, after.replay_count, after.job_id, after.replay_job_id) == ("replayed", 1, old.id, job.id)
    assert not ledger.submit(*new("a")).created
    assert tally(ledger) == (2, 0, 0, 1, 0, 1, 0, 0, 0)


def test_a_replay_that_fails_is_the_same_dead_letter_again(ledger: Ledger) -> None:
    (letter,) = die(ledger, "a")
    for count in (1, 2):
        ledger.replay([letter.id], actor="ann", because="again")
        ledger.settle(claim(ledger)[0].dead(f"reason {count}", error=f"error {count}"))
        (same,) = ledger.dead_letters()
        assert (same.id, same.status, same.replay_count, same.reason, same.error) == (
            letter.id, "pending", count, f"reason {count}", f"error {count}",
        )  # fmt: skip
        assert same.job_id == same.replay_job_id
    assert tally(ledger) == (3, 0, 0, 0, 1, 2, 0, 0, 0)


@pytest.mark.req("L-3")
def test_a_replay_whose_worker_is_killed_is_the_same_dead_letter_again(ledger: Ledger) -> None:
    (letter,) = die(ledger, "a")
    ledger.replay([letter.id], actor="ann", because="again")
    claim(ledger)
    for alone in (False, True, True):
        pass_time(ledger, 3600)
        ledger.reap()
        claim(ledger, alone=alone)
    (same,) = ledger.dead_letters()
    assert (same.id, same.status, same.reason) == (letter.id, "pending", "crashed_worker")


def test_replay_skips_dead_letters_that_are_not_pending(ledger: Ledger) -> None:
    one, two, three = die(ledger, "a", "b", "c")
    ledger.discard([two.id], actor="ann", because="of no use")
    ledger.replay([one.id], actor="ann", because="first")
    acted = ledger.replay([one.id, two.id, three.id, 999], actor="bob", because="all of them")
    assert list(acted.done) == [three.id]
    assert acted.skipped == {one.id: "replaying", two.id: "discarded", 999: "not found"}
    assert tally(ledger).submitted == 5


def test_max_replays_skips_dead_letters(ledger: Ledger) -> None:
    (letter,) = die(ledger, "a")
    ledger.replay([letter.id], actor="ann", because="x", max_replays=1)
    ledger.settle(claim(ledger)[0].dead("again"))
    acted = ledger.replay([letter.id], actor="ann", because="x", max_replays=1)
    assert acted.done == {}
    assert acted.skipped == {letter.id: "replayed 1 time already"}


def test_a_discarded_dead_letter_keeps_its_key(ledger: Ledger) -> None:
    (letter,) = die(ledger, "a")
    assert ledger.discard([letter.id], actor="ann", because="a test order").done == {letter.id: letter.job_id}
    again = ledger.submit(*new("a"))
    assert (again.created, again.state) == (False, "dropped")
    job = ledger.get(letter.job_id or 0)
    assert job is not None
    assert job.shown == "discarded"
    assert tally(ledger) == (1, 0, 0, 0, 0, 1, 0, 0, 0)


def test_dead_letters_are_filtered(ledger: Ledger) -> None:
    letters = die(ledger, "a", "b", "c")
    ledger.submit_many(new("x", kind="other"))
    ledger.settle(claim(ledger, kind="other")[0].dead("stopped", signature="s2"))
    assert [letter.key for letter in ledger.dead_letters(kind="other")] == ["x"]
    assert [letter.key for letter in ledger.dead_letters(signature="s2")] == ["x"]
    assert len(ledger.dead_letters(reason="attempts")) == 3
    assert [letter.id for letter in ledger.dead_letters(after=letters[0].id, limit=2)] == [letters[1].id, letters[2].id]
    assert ledger.dead_letters(job_id=letters[0].job_id)[0].id == letters[0].id
    assert ledger.dead_letters(since=ledger.now()) == []
    assert ledger.dead_letters(ids=[]) == []


@pytest.mark.req("O-5")
def test_every_decision_is_in_the_audit_log(ledger: Ledger) -> None:
    one, two = die(ledger, "a", "b")
    ledger.replay([one.id], actor="ann", because="fixed")
    ledger.discard([two.id], actor="bob", because="a test")
    ledger.record(actor="eve", action="grant", because="asked", what={"n": 3})
    entries = ledger.audit()
    assert [(entry.number, entry.actor, entry.action, entry.because) for entry in entries] == [
        (1, "ann", "dead.replay", "fixed"), (2, "bob", "dead.discard", "a test"), (3, "eve", "grant", "asked"),
    ]  # fmt: skip
    assert entries[1].what == {"jobs": {str(two.id): two.job_id}}
    assert entries[1].previous == entries[0].hash
    assert ledger.audit_broken() is None
    assert ledger.audit(after=2)[0].action == "grant"


@pytest.mark.req("O-5")
@pytest.mark.parametrize(
    ("change", "number"),
    [
        (sqlalchemy.update(audit).where(audit.c.number == 2).values(actor="nobody"), 2),
        (sqlalchemy.update(audit).where(audit.c.number == 3).values(what="{}"), 3),
        (sqlalchemy.delete(audit).where(audit.c.number == 1), 1),
        (sqlalchemy.delete(audit).where(audit.c.number == 2), 2),
    ],
)
def test_a_changed_audit_entry_is_detected(ledger: Ledger, change: sqlalchemy.Executable, number: int) -> None:
    for at in range(3):
        ledger.record(actor="ann", action="act", because="so", what={"n": at})
    with session(ledger) as held:
        held.core.execute(change)
    assert ledger.audit_broken() == number


@pytest.mark.parametrize(("actor", "because"), [("", "why"), ("ann", ""), ("ann", "  ")])
def test_actor_and_reason_are_required(ledger: Ledger, actor: str, because: str) -> None:
    (letter,) = die(ledger, "a")
    for act in (ledger.replay, ledger.discard):
        with pytest.raises(ValueError, match="must say"):
            act([letter.id], actor=actor, because=because)
    assert ledger.dead_letters()[0].status == "pending"
    assert ledger.audit() == []
    assert keys(claim(ledger)) == set()
