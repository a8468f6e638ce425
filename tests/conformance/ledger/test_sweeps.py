"""Sweeps: bulk operations that survive their process, and can be paused, halted and cancelled."""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from redrive.errors import NotAllowed
from redrive.ledger import Ledger
from redrive.ledger.jobs.sweeps import Sweeps
from redrive.ledger.model import DEAD, DONE
from redrive.ledger.sweep import MAX_STEP_ITEMS, Canary, Sweep, plan_step
from tests.conformance.ledger.test_dead_letters import die
from tests.conformance.ledger.world import claim, pass_time, tally

ANN: dict[str, Any] = {"actor": "ann", "because": "the bug is fixed"}
NOON = datetime(2026, 11, 16, 12, tzinfo=timezone.utc)


def ids(ledger: Ledger, many: int) -> list[int]:
    for start in range(0, many, 100):
        die(ledger, *(f"k{at:03}" for at in range(start, min(many, start + 100))))
    return [letter.id for letter in ledger.dead_letters(status="pending", limit=many)]


def to_the_end(sweeps: Sweeps, sweep_id: int) -> Sweep:
    while (step := sweeps.step(sweep_id)).sweep.state == "running" and not step.wait:
        pass
    return step.sweep


@pytest.mark.req("M-4")
def test_each_item_is_replayed_once_with_its_outcome(ledger: Ledger) -> None:
    letters = ids(ledger, 3)
    ledger.discard([letters[1]], actor="bob", because="not that one")
    begun = ledger.sweeps.begin("replay", letters, **ANN)
    assert (begun.state, begun.total, begun.left) == ("running", 3, 3)
    assert tally(ledger).ready == 0, "nothing is done before the first step"
    step = ledger.sweeps.step(begun.id)
    assert (step.sweep.state, step.sweep.made, step.sweep.skipped) == ("done", 2, 1)
    assert step.skipped == {letters[1]: "discarded"}
    assert tally(ledger).ready == 2
    assert ledger.sweeps.step(begun.id).done == {}
    outcomes = [(item.dead_id, item.outcome, item.note) for item in ledger.sweeps.items(begun.id)]
    assert outcomes == [(letters[0], "made", None), (letters[1], "skipped", "discarded"), (letters[2], "made", None)]
    ledger.settle([lease.done() for lease in claim(ledger)])
    assert ledger.sweeps.jobs(begun.id) == {DONE: 2}


def test_a_sweep_has_one_audit_entry(ledger: Ledger) -> None:
    letters = ids(ledger, 2)
    before = len(ledger.audit())
    begun = ledger.sweeps.begin("discard", letters, **ANN)
    to_the_end(ledger.sweeps, begun.id)
    said = [(entry.actor, entry.action, entry.what) for entry in ledger.audit()[before:]]
    assert said == [
        ("ann", "dead.discard", {"sweep": begun.id, "count": 2, "letters": letters, "rate": None, "canary": 0}),
    ]
    assert ledger.audit_broken() is None


@pytest.mark.req("M-4")
def test_the_selection_is_frozen(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 2), **ANN)
    late = die(ledger, "later")[-1]
    assert to_the_end(ledger.sweeps, begun.id).made == 2
    assert ledger.dead_letters(ids=[late.id])[0].status == "pending"


@pytest.mark.req("M-4")
def test_the_canary_runs_first_and_the_rest_only_if_it_succeeds(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 5), canary=2, **ANN)
    assert len(ledger.sweeps.step(begun.id).done) == 2
    waits = ledger.sweeps.step(begun.id)
    assert (waits.done, waits.wait, waits.sweep.state) == ({}, 1.0, "running")
    first, second = claim(ledger)
    ledger.settle(first.done())
    assert ledger.sweeps.step(begun.id).wait == 1.0
    ledger.settle(second.done())
    assert len(ledger.sweeps.step(begun.id).done) == 3
    assert tally(ledger).ready == 3


@pytest.mark.req("M-4")
def test_a_dead_canary_halts_the_sweep_until_it_is_resumed(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 4), canary=1, **ANN)
    ledger.sweeps.step(begun.id)
    ledger.settle(claim(ledger)[0].dead("attempts", error="still broken"))
    halted = ledger.sweeps.step(begun.id).sweep
    assert (halted.state, halted.reason) == ("halted", "canary failed, 1 of the first 1: still broken")
    assert ledger.sweeps.step(begun.id).done == {}
    assert ledger.audit()[-1].action == "sweep.halt"
    reason: Any = {"actor": "ann", "because": "that one was another bug"}
    with pytest.raises(NotAllowed, match=r"canary failed, .*accept_failed_canary=True.*nothing was changed"):
        ledger.sweeps.move(begun.id, "resume", **reason)
    unchanged = ledger.sweeps.get(begun.id)
    assert unchanged is not None
    assert (unchanged.state, unchanged.passed) == ("halted", False)
    resumed = ledger.sweeps.move(begun.id, "resume", accept_failed_canary=True, **reason)
    assert (resumed.state, resumed.passed, resumed.reason) == ("running", True, None)
    assert to_the_end(ledger.sweeps, begun.id).made == 4
    assert ledger.sweeps.jobs(begun.id)[DEAD] == 1


@pytest.mark.req("M-4")
def test_a_canary_fails_at_its_first_failed_attempt(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 9), canary=3, **ANN)
    ledger.sweeps.step(begun.id)
    first, second, third = claim(ledger)
    ledger.settle([first.done(), second.again(5, reason="again", error="not ready"), third.release()])
    assert ledger.sweeps.step(begun.id).sweep.state == "running", "to come back later is not to fail"
    pass_time(ledger, 10)
    retried = claim(ledger)[0]
    ledger.settle(retried.again(600, error="TimeoutError: still down\nTraceback", reason="failed"))
    halted = ledger.sweeps.step(begun.id).sweep
    said = "canary failed, 1 of the first 3: TimeoutError: still down"
    assert (halted.state, halted.reason, halted.made) == ("halted", said, 3)
    assert ledger.sweeps.canary(halted) == Canary("failed", 3, 1, 1, 0, "TimeoutError: still down")


@pytest.mark.req("M-4")
@pytest.mark.parametrize("reason", ["ledger", "parked"])
def test_an_attempt_that_an_outage_ended_uncharged_does_not_fail_the_canary(ledger: Ledger, reason: str) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 3), canary=1, **ANN)
    ledger.sweeps.step(begun.id)
    ledger.settle(claim(ledger)[0].again(0, error="no connection", reason=reason, free=True))
    waiting = ledger.sweeps.step(begun.id)
    assert (waiting.sweep.state, waiting.done, waiting.wait) == ("running", {}, 1.0)
    assert ledger.sweeps.canary(waiting.sweep) == Canary("running", 1, 0, 0, 0, None)
    ledger.settle(claim(ledger)[0].done())
    assert len(ledger.sweeps.step(begun.id).done) == 2


@pytest.mark.req("M-4")
def test_a_canary_that_fails_stops_the_rest_of_the_canaries(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 9), canary=5, rate=2, **ANN)
    ledger.sweeps.step(begun.id)
    ledger.settle(claim(ledger)[0].again(600, error="still down", reason="failed"))
    assert ledger.sweeps.step(begun.id).sweep.state == "halted", "also before the rate allows more"
    assert ledger.sweeps.get(begun.id) == ledger.sweeps.step(begun.id).sweep


@pytest.mark.req("M-4")
def test_a_canary_that_failed_and_then_succeeded_is_done(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 3), canary=1, **ANN)
    ledger.sweeps.step(begun.id)
    ledger.settle(claim(ledger)[0].again(0, error="busy", reason="failed"))
    ledger.settle(claim(ledger)[0].done())
    assert len(ledger.sweeps.step(begun.id).done) == 2


@pytest.mark.req("M-4")
def test_a_late_step_makes_up_for_a_part_of_its_delay(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 9), rate=3, **ANN)
    pass_time(ledger, 0.1)
    assert ledger.sweeps.step(begun.id).wait <= 0.91
    pass_time(ledger, 60)
    step = ledger.sweeps.step(begun.id)
    assert (len(step.done), step.wait) == (3, 0.75), "a pause is not followed by a burst"


@pytest.mark.req("M-4")
def test_a_sweep_can_be_paused_resumed_and_cancelled(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 3), canary=1, **ANN)
    assert ledger.sweeps.move(begun.id, "pause", **ANN).state == "paused"
    assert ledger.sweeps.step(begun.id).done == {}
    with pytest.raises(NotAllowed, match=f"sweep {begun.id} is already paused; nothing was changed"):
        ledger.sweeps.move(begun.id, "pause", **ANN)
    ledger.sweeps.move(begun.id, "resume", **ANN)
    again = ledger.sweeps.move(begun.id, "resume", actor="bob", because="whoever carried it out was killed")
    assert again.state == "running"
    last = ledger.audit()[-1]
    assert (last.actor, last.action, last.because) == ("bob", "sweep.resume", "whoever carried it out was killed")
    assert len(ledger.sweeps.step(begun.id).done) == 1
    cancelled = ledger.sweeps.move(begun.id, "cancel", **ANN)
    assert (cancelled.state, cancelled.ended_at is None, cancelled.left) == ("cancelled", False, 2)
    assert ledger.sweeps.step(begun.id).done == {}
    with pytest.raises(NotAllowed, match="is cancelled and cannot be resumed"):
        ledger.sweeps.move(begun.id, "resume", **ANN)
    with pytest.raises(NotAllowed, match="sweep 999: not found; `redrive sweeps list`"):
        ledger.sweeps.move(999, "cancel", **ANN)
    assert len(ledger.dead_letters(status="pending")) == 2


@pytest.mark.req("M-4")
def test_the_rate_holds_over_all_processes(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 7), rate=3, **ANN)
    first = ledger.sweeps.step(begun.id)
    assert len(first.done) == 3
    assert 0.75 <= first.wait <= 1.0
    pass_time(ledger, 1)
    assert len(ledger.sweeps.step(begun.id).done) == 3
    pass_time(ledger, 1)
    assert len(ledger.sweeps.step(begun.id).done) == 1


@pytest.mark.req("M-4")
def test_a_step_waits_for_the_rate(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 2), rate=0.01, **ANN)
    first = ledger.sweeps.step(begun.id)
    assert len(first.done) == 1
    assert 99.75 <= first.wait <= 100.0
    early = ledger.sweeps.step(begun.id)
    assert early.done == {}
    assert 0 < early.wait <= 100.0
    pass_time(ledger, 100)
    assert len(ledger.sweeps.step(begun.id).done) == 1


@pytest.mark.req("M-4")
def test_max_replays_skips_items(ledger: Ledger) -> None:
    (letter,) = ids(ledger, 1)
    ledger.replay([letter], **ANN)
    ledger.settle(claim(ledger)[0].dead("attempts"))
    begun = ledger.sweeps.begin("replay", [letter], max_replays=1, **ANN)
    assert ledger.sweeps.step(begun.id).skipped == {letter: "replayed 1 time already"}


@pytest.mark.req("M-4")
def test_concurrent_steps_process_each_item_once(ledger: Ledger) -> None:
    begun = ledger.sweeps.begin("replay", ids(ledger, 2 * MAX_STEP_ITEMS + 50), **ANN)
    done: list[int] = []

    def carry_out() -> None:
        while (step := ledger.sweeps.step(begun.id)).sweep.state == "running" or step.done:
            done.extend(step.done)

    threads = [threading.Thread(target=carry_out) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == len(set(done)) == 2 * MAX_STEP_ITEMS + 50
    assert tally(ledger).ready == 2 * MAX_STEP_ITEMS + 50
    assert ledger.imbalance() == []


def test_a_step_takes_as_many_statements_for_many_dead_letters_as_for_few(ledger: Ledger) -> None:
    statements: list[str] = []

    def note(*call: Any) -> None:
        statements.append(call[2])

    letters, counts = ids(ledger, MAX_STEP_ITEMS + 3), []
    event.listen(Engine, "before_cursor_execute", note)
    try:
        for selected in (letters[:3], letters[3:]):
            begun = ledger.sweeps.begin("replay", selected, **ANN)
            statements.clear()
            assert len(ledger.sweeps.step(begun.id).done) == len(selected)
            counts.append(len(statements))
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert counts[0] == counts[1]


def test_an_empty_sweep_is_done(ledger: Ledger) -> None:
    assert ledger.sweeps.begin("replay", [], **ANN).state == "done"
    assert ledger.sweeps.get(999) is None


def test_sweeps_are_listed_newest_first(ledger: Ledger) -> None:
    first = ledger.sweeps.begin("replay", ids(ledger, 1), **ANN)
    second = ledger.sweeps.begin("discard", [], **ANN)
    assert [one.id for one in ledger.sweeps.list()] == [second.id, first.id]
    assert [one.id for one in ledger.sweeps.list(state="running")] == [first.id]
    assert [one.id for one in ledger.sweeps.list(before=second.id)] == [first.id]


@given(
    total=st.integers(1, 500), made=st.integers(0, 500), canary=st.integers(0, 20), rate=st.none() | st.floats(0.01, 1000),
    done=st.integers(0, 20), failed=st.integers(0, 20), early=st.floats(-5, 5), passed=st.booleans(),
)  # fmt: skip
def test_a_step_never_exceeds_its_limit(
    total: int, made: int, canary: int, rate: float | None, done: int, failed: int, early: float, passed: bool
) -> None:
    now = Sweep(
        1, "replay", "running", "ann", "b", {}, rate, min(canary, total), total, min(made, total), 0, None,
        NOON, NOON, NOON, None, passed,
    )  # fmt: skip
    may = plan_step(now, Canary.of(now, done=done, failed=failed, error=None), early)
    assert 0 <= may.items <= min(MAX_STEP_ITEMS, now.left)
    if rate is not None:
        assert may.items <= max(1, rate)
    if not passed and now.made < now.canary:
        assert now.made + may.items <= now.canary
    if early > 0:
        assert may.items == 0
    if may.halt:
        assert failed
        assert may.items == 0
