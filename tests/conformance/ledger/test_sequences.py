"""Sequences: jobs of one type and sequence run one after another (Q-7)."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.ledger.model import Lease
from tests.conformance.ledger.world import pass_time

pytestmark = pytest.mark.req("Q-7")
KIND = "account.apply"


def submit(ledger: Ledger, *keys: str, sequence: str = "acc") -> list[str]:
    """Submit jobs in this order, and return their states."""
    return [each.state for each in ledger.submit_many([NewJob(KIND, key, sequence=sequence) for key in keys])]


def claim(ledger: Ledger, most: int = 10) -> list[Lease]:
    """Claim jobs."""
    return sorted(ledger.claim({KIND: most}, worker="w"))


def keys(leases: list[Lease]) -> list[str]:
    """Return the keys of leases."""
    return [lease.key for lease in leases]


def test_only_the_first_job_of_a_sequence_is_claimed(ledger: Ledger) -> None:
    assert submit(ledger, "c", "a", "b") == ["ready", "held", "held"]
    assert submit(ledger, "x", sequence="other") == ["ready"]
    assert keys(claim(ledger)) == ["c", "x"]
    assert claim(ledger) == []


def test_each_end_releases_the_next_job_in_the_order_of_submission(ledger: Ledger) -> None:
    submit(ledger, "c", "a", "b")
    order = []
    while leases := claim(ledger):
        assert len(leases) == 1
        order += keys(leases)
        ledger.settle(leases[0].done())
    assert order == ["c", "a", "b"]


def test_a_failing_head_holds_its_sequence_back(ledger: Ledger) -> None:
    submit(ledger, "a", "b")
    (head,) = claim(ledger)
    ledger.settle(head.again(3600, error="no"))
    assert claim(ledger) == []


@pytest.mark.parametrize("end", ["dead", "blocked"])
def test_a_dead_job_releases_its_sequence(ledger: Ledger, end: str) -> None:
    submit(ledger, "a", "b")
    (head,) = claim(ledger)
    ledger.settle(getattr(head, end)("broken"))
    assert keys(claim(ledger)) == ["b"]


def test_a_turn_settles_a_sequenced_job_and_claims_the_next(ledger: Ledger) -> None:
    submit(ledger, "a", "b")
    (head,) = claim(ledger)
    turn = ledger.turn([head.done()], {KIND: 5}, worker="w")
    assert keys(turn.leases) == ["b"]


def test_settling_in_a_transaction_releases_at_its_commit(ledger: Ledger) -> None:
    submit(ledger, "a", "b")
    (head,) = claim(ledger)
    with ledger.begin() as tx:
        ledger.settle(head.done(), tx=tx)
    assert keys(claim(ledger)) == ["b"]


def test_jobs_submitted_in_a_transaction_keep_their_order(ledger: Ledger) -> None:
    with ledger.begin() as tx:
        states = [ledger.submit(NewJob(KIND, key, sequence="acc"), tx=tx).state for key in ("b", "a")]
    assert states == ["ready", "held"]
    assert keys(claim(ledger)) == ["b"]


def test_a_duplicate_at_the_front_does_not_hold_the_others(ledger: Ledger) -> None:
    submit(ledger, "a")
    (head,) = claim(ledger)
    ledger.settle(head.done())
    submitted = ledger.submit_many([NewJob(KIND, key, sequence="acc") for key in ("a", "b", "c")])
    assert [each.created for each in submitted] == [False, True, True]
    assert keys(claim(ledger)) == ["b"]


def test_a_replay_joins_its_sequence_at_the_end(ledger: Ledger) -> None:
    submit(ledger, "a", "b", "c")
    (head,) = claim(ledger)
    ledger.settle(head.dead("broken"))
    (letter,) = ledger.dead_letters()
    ledger.replay([letter.id], actor="ann", because="fixed")
    order = []
    while leases := claim(ledger):
        assert len(leases) == 1
        order += keys(leases)
        ledger.settle(leases[0].done())
    assert order == ["b", "c", "a"]


def test_a_job_whose_worker_crashed_for_good_releases_its_sequence(ledger: Ledger) -> None:
    ledger.submit_many([NewJob(KIND, key, sequence="acc", max_attempts=1) for key in ("a", "b")])
    ledger.claim({KIND: 1}, worker="w", lease=1)
    pass_time(ledger, 2)
    assert len(ledger.reap()) == 1
    assert keys(claim(ledger)) == ["b"]


def test_held_jobs_count_as_queued(ledger: Ledger) -> None:
    submit(ledger, "a", "b")
    assert ledger.counts()[KIND].ready == 2
    held = ledger.jobs("held")
    assert [job.shown for job in held] == ["queued"]


def test_a_cancelled_job_releases_its_sequence(ledger: Ledger) -> None:
    a, b, _ = ledger.submit_many([NewJob(KIND, key, sequence="acc") for key in ("a", "b", "c")])
    ledger.control.cancel([a.id, b.id], actor="ann", because="not needed")
    assert keys(claim(ledger)) == ["c"]
