"""All interleavings of two workers, a reaper and an operator on one job: their properties, and the ledger beside the model."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from redrive.errors import LeaseLost
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db.tables import METADATA
from redrive.ledger.model import Lease
from tests.conformance.ledger.lease_model import (
    ENDED,
    LONE_CRASHES,
    WORKERS,
    Action,
    Explored,
    LeaseState,
    explore,
    successors,
)
from tests.conformance.ledger.world import KIND, pass_time, session

FULL = os.environ.get("REDRIVE_FULL") == "1"
DEPTH = 16
"""Actions of the interleavings whose properties are checked."""
LEDGER_DEPTH = 8 if FULL else 5
"""Actions of the interleavings that run on the real ledger."""
KEY = "k"
LEASE = 155.0
ACT = {"actor": "ann", "because": "a test"}


@pytest.fixture(scope="module")
def explored() -> Explored:
    return explore(DEPTH)


def steps(explored: Explored) -> Iterator[tuple[LeaseState, Action, LeaseState]]:
    for state, actions in explored.edges.items():
        for action, after in actions.items():
            yield state, action, after


def test_many_states_are_explored(explored: Explored) -> None:
    assert len(explored.paths) > 1_000
    assert {state.job for state in explored.paths} == {"ready", "leased", "done", "dead", "cancelled", "dropped"}


@pytest.mark.req("L-4", "Z-2")
def test_at_most_one_worker_holds_the_job(explored: Explored) -> None:
    for state in explored.paths:
        assert sum(state.holds(worker) for worker in range(len(WORKERS))) == (state.job == "leased")


@pytest.mark.req("L-4", "Z-2")
def test_a_late_worker_changes_nothing(explored: Explored) -> None:
    for state, action, after in steps(explored):
        if action.actor in WORKERS and action.verb != "claim" and not state.holds(WORKERS.index(action.actor)):
            assert visible(after) == visible(state), f"{action} in {state}"


@pytest.mark.req("L-2", "Z-2")
def test_each_claim_has_a_fence_of_its_own(explored: Explored) -> None:
    for state, action, after in steps(explored):
        if after.generation == state.generation:
            is_claimed = action.verb == "claim" and state.job == "ready"
            assert after.fence == state.fence + is_claimed
            assert after.attempts == state.attempts + is_claimed


@pytest.mark.req("L-2", "Z-2")
def test_a_job_that_has_ended_stays_as_it_is(explored: Explored) -> None:
    for state, action, after in steps(explored):
        if state.job in ENDED:
            assert visible(after) == visible(state), f"{action} in {state}"


@pytest.mark.req("L-2", "Z-2")
def test_no_state_is_a_dead_end(explored: Explored) -> None:
    """From every state, one worker and the reaper can end the job, or make it a dead letter."""
    for state in explored.paths:
        current = state
        for _ in range(8):
            if current.job == "leased" and not current.holds(0):
                verbs = [Action("time", "passes"), Action("reaper", "reaps")]
            else:
                verbs = [Action("ann", "claim" if current.leases[0] is None else "done")]
            choices = dict(successors(current))
            current = choices[next(verb for verb in verbs if verb in choices)]
            if current.job in (*ENDED, "dead"):
                break
        assert current.job in (*ENDED, "dead"), state


def visible(state: LeaseState) -> tuple[object, ...]:
    """Return what the ledger stores. The workers' own knowledge is not in it."""
    return (state.job, state.attempts, state.crashes, state.fence, state.letter, state.is_cancelled)


class LedgerRun:
    """The actions of the model on a real ledger."""

    def __init__(self, ledger: Ledger) -> None:
        with session(ledger) as held:
            for table in METADATA.sorted_tables:
                held.core.execute(table.delete())
        self._ledger = ledger
        self._leases: dict[str, Lease] = {}
        ledger.submit(NewJob(KIND, KEY, b"p"))

    def act(self, action: Action, before: LeaseState) -> None:
        """Do it. Workers that lose their lease forget it, as in the model."""
        ledger, (actor, verb) = self._ledger, action
        if actor == "time":
            pass_time(ledger, LEASE + 10)
        elif actor == "reaper":
            ledger.reap()
        elif actor == "operator":
            self._operate(verb)
        elif verb == "claim":
            is_alone = before.crashes >= LONE_CRASHES
            for lease in ledger.claim({KIND: 1}, worker=actor, lease=LEASE, alone=is_alone):
                self._leases[actor] = lease
        elif verb == "renew":
            if ledger.renew([self._leases[actor]], lease=LEASE):
                del self._leases[actor]
        else:
            self._settle(self._leases.pop(actor), verb)

    def _settle(self, lease: Lease, outcome: str) -> None:
        settlements = {"done": lease.done(b"r"), "again": lease.again(0.0, error="e"), "dead": lease.dead("reason", error="e")}
        try:
            self._ledger.settle(settlements[outcome])
        except LeaseLost:
            pass

    def _operate(self, verb: str) -> None:
        if verb == "cancels":
            job = self._ledger.find(KIND, KEY)
            assert job is not None
            self._ledger.control.cancel([job.id], **ACT)
            return
        (letter,) = self._ledger.dead_letters(limit=10)
        act = self._ledger.replay if verb == "replays" else self._ledger.discard
        assert list(act([letter.id], **ACT).done) == [letter.id]

    def visible(self) -> tuple[object, ...]:
        """Return the same as `visible` of the model."""
        job = self._ledger.find(KIND, KEY)
        assert job is not None
        letters: list[str] = [letter.status for letter in self._ledger.dead_letters(limit=10)]
        is_cancelled = job.state == "leased" and job.cancel_at is not None
        return (job.state, job.attempts, job.crashes, job.fence, *(letters or [""]), is_cancelled)


@pytest.mark.req("L-2", "L-4", "Z-2")
def test_the_ledger_does_what_the_model_says() -> None:
    """Every action in every state within the depth, each on a fresh job that was brought into that state."""
    explored = explore(LEDGER_DEPTH)
    with open_ledger("sqlite://") as ledger:
        for state, action, after in steps(explored):
            run, current = LedgerRun(ledger), LeaseState()
            for done in explored.paths[state]:
                run.act(done, current)
                current = explored.edges[current][done]
            run.act(action, state)
            path = ", ".join(map(str, (*explored.paths[state], action)))
            assert run.visible() == visible(after), path
            assert ledger.imbalance() == [], path
