"""Dead letters of a renamed command or handler, replayed under its new name."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ledger import NewJob
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from tests.conformance.ops.world import die


@pytest.fixture
def app(url: str) -> App:
    app = App(url)

    @app.command("crm.push")
    def push(order_id: int) -> None: ...

    return app


@pytest.fixture
def ops(app: App) -> Operator:
    return Operator(app, actor="ann")


@pytest.mark.req("Q-11")
def test_a_dead_letter_is_replayed_under_the_new_name(app: App, ops: Operator) -> None:
    ledger = app.ledger
    fits, wrong = *die(ledger, "a", payload={"order_id": 17}), *die(ledger, "b", payload={"order": "x"})
    plan = ops.dead_letters.replay(DeadLetterFilter(kind="crm.sync"), as_kind="crm.push")
    assert (plan.ids, plan.as_kind) == ((fits,), "crm.push")
    assert "its payload does not fit crm.push" in plan.skipped[wrong]
    plain = ops.dead_letters.replay(DeadLetterFilter(ids=(fits,)))
    assert plan.digest != plain.digest
    applied = ops.apply(plan, because="renamed")
    job = ledger.get(applied.done[fits])
    assert job is not None
    assert (job.kind, job.key, job.state, job.dead_id) == ("crm.push", "a", "ready", fits)
    counts = ledger.counts()
    assert (counts["crm.sync"].dead, counts["crm.sync"].dropped, counts["crm.sync"].submitted) == (1, 1, 2)
    assert (counts["crm.push"].ready, counts["crm.push"].submitted) == (1, 1)
    assert ledger.imbalance() == []
    assert ledger.audit(limit=100)[-1].what["as"] == "crm.push"


@pytest.mark.req("Q-11")
def test_a_redirected_job_that_fails_again_is_a_dead_letter_of_the_new_name(app: App, ops: Operator) -> None:
    ledger = app.ledger
    (number,) = die(ledger, "a", payload={"order_id": 17})
    ops.apply(ops.dead_letters.replay(DeadLetterFilter(ids=(number,)), as_kind="crm.push"), because="renamed")
    (lease,) = ledger.claim({"crm.push": 1}, worker="w1")
    ledger.settle(lease.dead("attempts", error="again", signature="Again"))
    report = ops.dead_letters.get(number)
    assert report is not None
    assert (report.letter.kind, report.letter.status) == ("crm.push", "pending")
    assert ledger.imbalance() == []
    ledger.maintenance.fold_counters()
    assert ledger.imbalance() == []


@pytest.mark.req("Q-11")
def test_a_key_that_the_new_name_has_already_is_skipped(app: App, ops: Operator) -> None:
    ledger = app.ledger
    (number,) = die(ledger, "a", payload={"order_id": 17})
    taken = ledger.submit(NewJob("crm.push", "a", b'{"order_id": 17}'))
    plan = ops.dead_letters.replay(DeadLetterFilter(ids=(number,)), as_kind="crm.push")
    applied = ops.apply(plan, because="renamed")
    assert applied.skipped == {number: f"crm.push has a job with its key: job {taken.id}"}
    assert ledger.counts()["crm.sync"].dead == 1
    assert ledger.imbalance() == []


@pytest.mark.req("Q-11")
def test_two_dead_letters_with_one_key_become_one_job(app: App, ops: Operator) -> None:
    ledger = app.ledger
    (first,) = die(ledger, "a", payload={"order_id": 17})
    (second,) = die(ledger, "a", kind="crm.other", payload={"order_id": 17})
    plan = ops.dead_letters.replay(DeadLetterFilter(ids=(first, second)), as_kind="crm.push")
    applied = ops.apply(plan, because="renamed")
    assert list(applied.done) == [first]
    assert applied.skipped == {second: f"crm.push has a job with its key: the replay of dead letter {first}"}
    assert ledger.imbalance() == []


@pytest.mark.req("Q-11")
def test_a_redirect_needs_the_app_and_a_known_name(app: App, ops: Operator) -> None:
    (number,) = die(app.ledger, "a", kind="crm.push", payload={"order_id": 17})
    which = DeadLetterFilter(ids=(number,))
    with pytest.raises(ValueError, match=r"as crm.pusch: no such command or handler; did you mean crm.push\?"):
        ops.dead_letters.replay(which, as_kind="crm.pusch")
    with pytest.raises(ValueError, match=r"as crm.push: the app is not known.*--ledger module:app"):
        Operator(app.ledger, actor="ann").dead_letters.replay(which, as_kind="crm.push")
    assert "already; replay it without --as" in ops.dead_letters.replay(which, as_kind="crm.push").skipped[number]
