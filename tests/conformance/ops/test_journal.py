"""The journal of a ledger: the last records of jobs, and decisions of operators."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from tests.conformance.ops.world import SECRET, TIMEOUT, die


@pytest.mark.req("O-3", "O-4", "J-3")
def test_the_journal_lists_attempts_and_decisions_without_secrets(ledger: Ledger, ann: Operator) -> None:
    (letter,) = die(ledger, "a", ids={"request_id": "r-1"})
    ledger.submit(NewJob("mail", "b"))
    (lease,) = ledger.claim({"mail": 1}, worker="w2")
    ledger.settle(lease.done())
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(letter,))), because="it was a test")
    found = ann.overview.journal()
    assert [one.event for one in found] == [
        "dead.discard", "done", "submitted", *sorted(one.event for one in found[3:5]), "submitted",
    ]  # fmt: skip
    assert {one.event for one in found[3:5]} == {"failed", "dead"}
    decided, done, *_ = found
    assert (decided.actor, decided.reason, decided.job_id) == ("ann", "it was a test", None)
    assert (done.kind, done.worker, done.attempt, done.seconds is not None) == ("mail", "w2", 1, True)
    failed = next(one for one in found if one.event == "failed")
    assert (failed.ids, failed.reason, failed.kind) == ({"request_id": "r-1"}, "attempts", "crm.sync")
    assert SECRET not in str(found)
    assert TIMEOUT.startswith("TimeoutError")
    assert [one.event for one in ann.overview.journal(events=["decided"])] == ["dead.discard"]
    assert {one.event for one in ann.overview.journal(events=["dead", "failed"])} == {"dead", "failed"}
    assert {one.kind for one in ann.overview.journal(kind="mail")} == {"mail"}
    assert ann.overview.journal(since=ledger.now() + timedelta(seconds=1)) == []
    assert len(ann.overview.journal(limit=2)) == 2
    with pytest.raises(ValueError, match="did you mean 'failed'"):
        ann.overview.journal(events=["faild"])


@pytest.mark.req("O-3", "J-3")
def test_a_tail_returns_each_record_once(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", str(each)) for each in range(5)])
    tail = ann.overview.tail(limit=3)
    assert [one.event for one in tail.look()] == ["submitted"] * 3
    assert tail.look() == []
    ledger.submit(NewJob("mail", "new"))
    for lease in ledger.claim({"mail": 1}, worker="w1"):
        ledger.settle(lease.again(1, error="e"))
    fresh = tail.look()
    assert {one.event for one in fresh} == {"submitted", "failed"}
    assert [one.at for one in fresh] == sorted(one.at for one in fresh)
    assert tail.look() == []
