"""Random operations: the ledger against a small model, and one database against the other."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from redrive.errors import LeaseLost
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db.tables import METADATA
from redrive.ledger.model import Lease, Settlement, lease_key
from redrive.ledger.store.protocol import TenantCursors
from tests.conformance.ledger.model import Model
from tests.conformance.ledger.world import KIND, pass_time, session, tally

FULL = os.environ.get("REDRIVE_FULL") == "1"
KEYS = [f"k{number}" for number in range(6)]
TENANTS = {"k0": "a", "k1": "b", "k2": "a", "k3": "b", "k5": "c"}
SEQUENCES = {"k0": "s", "k1": "s", "k2": "s", "k3": "t", "k4": "t"}
"""By the first part of a key."""
OUTCOMES = ("done", "again", "free", "dead", "blocked")
# No sum of the waits below: no operation falls exactly on a limit, where a microsecond decides.
LEASE = 155.0


def settlement(lease: Lease, outcome: str) -> Settlement:
    if outcome == "done":
        return lease.done(b"r")
    if outcome == "dead":
        return lease.dead("reason", error="e")
    if outcome == "blocked":
        return lease.blocked("reason")
    return lease.again(100.0, error="e" if outcome == "again" else None, free=outcome == "free")


@pytest.fixture(autouse=True)
def all_fair_claims_are_fair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every eighth fair claim of a store ignores tenants, which the model does not count. Tests of tenants cover it."""
    monkeypatch.setattr(TenantCursors, "count_claim", lambda _cursors, _kind: False)


class Acts:
    """Runs operations on a ledger and on its model, and returns the results."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.model = Model()
        self.leases: list[Lease] = []

    def submit(self, keys: list[str], delay: float, max_attempts: int | None) -> Any:
        places = [(TENANTS.get(key.split("-")[0]), SEQUENCES.get(key.split("-")[0])) for key in keys]
        jobs = [
            NewJob(KIND, key, b"p", delay=delay, max_attempts=max_attempts, tenant=tenant, sequence=sequence)
            for key, (tenant, sequence) in zip(keys, places, strict=True)
        ]
        found = [one.created for one in self.ledger.submit_many(jobs)]
        assert found == [self.model.submit(key, delay, max_attempts, *place) for key, place in zip(keys, places, strict=True)]
        return found

    def claim(self, most: int, start: bool, alone: bool, fair: bool = False) -> Any:
        due, tenants = self.model.due(alone=alone), self.model.due_tenants()
        fair = fair and not alone
        leases = self.ledger.claim({KIND: most}, worker="w", lease=LEASE, start=start, alone=alone, fair=fair)
        claimed = {lease.key for lease in leases}
        if fair and most >= len(tenants):
            assert tenants <= {self.model.jobs[key].tenant for key in claimed}, "each tenant gets a job"
        assert claimed <= due
        assert len(leases) == len(claimed) == min(len(due), min(most, 1) if alone else most)
        for lease in leases:
            self.model.claimed(lease, LEASE, start=start)
        self.leases += leases
        return sorted(claimed)

    def start(self, at: int) -> Any:
        lease = self.leases[at]
        begun = self.ledger.start([lease])
        assert bool(begun) is self.model.start(lease)
        if begun:
            self.leases[at] = begun[0]
        return bool(begun)

    def settle(self, at: int, outcome: str) -> Any:
        lease = self.leases[at]
        settled = settlement(lease, outcome)
        try:
            self.ledger.settle(settled)
            done = True
        except LeaseLost:
            done = False
        assert done is self.model.settle(lease, settled)
        return done

    def turn(self, ats: list[int], most: int, starts: Sequence[int] = ()) -> Any:
        settled = [settlement(self.leases[at], "done") for at in ats]
        held = [self.model.settle(self.leases[at], one) for at, one in zip(ats, settled, strict=True)]
        starting = {at: self.leases[at] for at in starts if at not in ats}
        startable = [self.model.start(lease) for lease in starting.values()]
        due = self.model.due(alone=False)
        turn = self.ledger.turn(settled, {KIND: most}, worker="w", lease=LEASE, starts=list(starting.values()))
        started = {lease_key(lease): lease for lease in turn.started}
        assert [lease_key(lease) in started for lease in starting.values()] == startable
        self.leases = [started.get(lease_key(lease), lease) for lease in self.leases]
        assert [one for one, good in zip(settled, held, strict=True) if not good] == turn.late
        assert {lease.key for lease in turn.leases} <= due
        assert len(turn.leases) == min(len(due), most)
        for lease in turn.leases:
            self.model.claimed(lease, LEASE, start=True)
        self.leases += turn.leases
        return len(turn.late), sorted(lease.key for lease in turn.leases), startable

    def renew(self, at: int) -> Any:
        lease = self.leases[at]
        lost = self.ledger.renew([lease], lease=LEASE)
        assert (not lost) is self.model.holds(lease)
        if not lost:
            self.model.jobs[lease.key].until = self.model.now + LEASE
        return len(lost)

    def reap(self) -> Any:
        lost = self.model.reap()
        assert len(self.ledger.reap()) == len(lost)
        return sorted(lost)

    def letters(self, verb: str, keys: list[str]) -> Any:
        numbers = {letter.key: letter.id for letter in self.ledger.dead_letters(limit=1000)}
        known = [key for key in keys if key in numbers]
        act = self.ledger.replay if verb == "replay" else self.ledger.discard
        acted = act([numbers[key] for key in known], actor="ann", because="so")
        done = {key for key in known if (self.model.replay if verb == "replay" else self.model.discard)(key)}
        assert set(acted.done) == {numbers[key] for key in done}
        assert set(acted.skipped) == {numbers[key] for key in set(known) - done}
        return sorted(done)

    def prune(self, older: float) -> Any:
        pruned = self.ledger.prune(older)
        assert pruned == self.model.prune(older)
        return pruned

    def wait(self, seconds: float) -> Any:
        pass_time(self.ledger, seconds)
        self.model.now += seconds

    def check(self) -> Any:
        """The visible state, in a form that is equal on both databases."""
        assert tally(self.ledger) == self.model.tally()
        assert self.ledger.imbalance() == []
        letters = {letter.key: (letter.status, letter.replay_count) for letter in self.ledger.dead_letters(limit=1000)}
        seen = []
        for key, expected in sorted(self.model.jobs.items()):
            job = self.ledger.find(KIND, key)
            assert job is not None
            assert (job.state, job.attempts, job.crashes, job.fence) == (
                expected.state, expected.attempts, expected.crashes, expected.fence,
            )  # fmt: skip
            assert letters.get(key, ("", 0)) == (expected.letter, expected.replays)
            rows = [(one.number, one.outcome, one.reason) for one in self.ledger.attempts(job.id)]
            seen.append((key, job.shown, job.attempts, job.crashes, job.fence, letters.get(key), rows))
        return seen


class Machine(RuleBasedStateMachine):
    """Operations in any order."""

    ledger: Ledger

    @initialize()
    def empty(self) -> None:
        with session(self.ledger) as held:
            for table in METADATA.sorted_tables:
                held.core.execute(table.delete())
        self.acts = Acts(self.ledger)

    keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
    at = st.integers(0, 10**6)

    def _at(self, at: int) -> int:
        return at % len(self.acts.leases)

    @rule(keys=keys, delay=st.sampled_from([0.0, 100.0]), most=st.sampled_from([None, 1, 2]))
    def submit(self, keys: list[str], delay: float, most: int | None) -> None:
        self.acts.submit(keys, delay, most)

    @rule(most=st.integers(0, 4), start=st.booleans(), alone=st.booleans(), fair=st.booleans())
    def claim(self, most: int, start: bool, alone: bool, fair: bool) -> None:
        self.acts.claim(most, start, alone, fair)

    @precondition(lambda self: self.acts.leases)
    @rule(at=at)
    def start(self, at: int) -> None:
        self.acts.start(self._at(at))

    @precondition(lambda self: self.acts.leases)
    @rule(at=at, outcome=st.sampled_from(OUTCOMES))
    def settle(self, at: int, outcome: str) -> None:
        self.acts.settle(self._at(at), outcome)

    @precondition(lambda self: self.acts.leases)
    @rule(ats=st.lists(at, max_size=3), most=st.integers(0, 3), starts=st.lists(at, max_size=3))
    def turn(self, ats: list[int], most: int, starts: list[int]) -> None:
        self.acts.turn([self._at(at) for at in ats], most, [self._at(at) for at in starts])

    @precondition(lambda self: self.acts.leases)
    @rule(at=at)
    def renew(self, at: int) -> None:
        self.acts.renew(self._at(at))

    @rule()
    def reap(self) -> None:
        self.acts.reap()

    @rule(verb=st.sampled_from(["replay", "discard"]), keys=keys)
    def letters(self, verb: str, keys: list[str]) -> None:
        self.acts.letters(verb, keys)

    @rule(older=st.sampled_from([0.0, 255.0]))
    def prune(self, older: float) -> None:
        self.acts.wait(50.0)
        self.acts.prune(older)

    @rule(seconds=st.sampled_from([60.0, 110.0, 500.0]))
    def wait(self, seconds: float) -> None:
        self.acts.wait(seconds)

    @invariant()
    def as_the_model_says(self) -> None:
        if hasattr(self, "acts"):
            self.acts.check()


@pytest.mark.req("L-8", "L-2", "L-4", "Q-6", "Q-7")
def test_any_order_of_operations_agrees_with_the_model(ledger: Ledger, request: pytest.FixtureRequest) -> None:
    machine = type("Machine", (Machine,), {"ledger": ledger})
    examples = (6 if "postgres" in request.node.name else 15) * (20 if FULL else 1)
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)),
    )


def trace(ledger: Ledger, seed: int, length: int) -> Iterator[Any]:
    """Run the operations of a seed, and return their results."""
    dice = random.Random(seed)
    acts = Acts(ledger)
    for step in range(length):
        verb = dice.choice(
            ["submit"] * 3
            + ["claim"] * 3
            + ["turn"] * 3
            + ["settle"] * 3
            + ["start", "renew", "reap", "letters", "prune", "wait"]
        )
        some = dice.sample(KEYS * 3, 3)
        at = dice.randrange(10**6)
        if verb == "submit":
            yield (
                verb,
                acts.submit(
                    [f"{key}-{step // 40}" for key in dict.fromkeys(some)], dice.choice([0.0, 100.0]), dice.choice([None, 2])
                ),
            )
        elif verb == "claim":
            # All due jobs, so that equal times are not left to chance.
            start, fair = dice.random() < 0.7, dice.random() < 0.5
            yield verb, acts.claim(1000, start, False, fair), acts.claim(1, True, True)
        elif verb == "letters":
            yield verb, acts.letters(dice.choice(["replay", "discard"]), [f"{key}-{step // 40}" for key in KEYS])
        elif verb == "reap":
            yield verb, acts.reap()
        elif verb == "prune":
            acts.wait(50.0)
            yield verb, acts.prune(135.0)
        elif verb == "wait":
            acts.wait(dice.choice([60.0, 110.0, 500.0]))
        elif acts.leases:
            at = -1 - at % min(len(acts.leases), 8)
            acts.leases.sort(key=lambda lease: (lease.key, lease.fence))
            if verb == "turn":
                yield verb, acts.turn([at], 1000, range(-1, -1 - len(acts.leases), -1)[:4])
            elif verb == "settle":
                yield verb, acts.settle(at, dice.choice(OUTCOMES))
            else:
                yield verb, getattr(acts, verb)(at)
        if step % 10 == 0:
            yield acts.check()


@pytest.mark.req("L-1", "Q-6", "Q-7")
@pytest.mark.parametrize("seed", range(4))
def test_both_databases_agree_on_the_same_operations(on_postgres: Ledger, seed: int) -> None:
    with open_ledger("sqlite://") as on_sqlite:
        for step, (one, other) in enumerate(zip(trace(on_sqlite, seed, 150), trace(on_postgres, seed, 150), strict=True)):
            assert one == other, step
