"""Random sequences of operations by all roles, compared with a small model after each step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from redrive.backoff import fixed
from redrive.errors import NotAllowed
from redrive.ledger import Ledger, open_ledger
from redrive.ledger.db.tables import METADATA
from redrive.partitions.key import Partition
from redrive.partitions.model import PartitionFilter, PartitionLease, PartitionView, Release
from redrive.partitions.retry_schedule import Policy
from tests.conformance.partitions.world import AUDIT, DAY, World

FULL = os.environ.get("REDRIVE_FULL") == "1"
CUSTOMERS = ["a", "b", "ü/,c"]
DAYS = 2
AT = st.integers(0, 10**6)


@dataclass
class Model:
    """The expected state of a partition, by the operations on it."""

    attempts: int = 0
    runs: int = 0
    current: PartitionLease | None = None
    held: PartitionLease | None = None
    accepted: list[PartitionLease] = field(default_factory=list)


class Acts(RuleBasedStateMachine):
    ledger: Ledger

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.ledger, policy=Policy(max_attempts=3, max_lost=3, backoff=fixed(60), pause=30, poll=50))
        self.models: dict[Partition, Model] = {}
        self.leases: list[PartitionLease] = []
        self.judged: list[PartitionLease] = []
        self.sweeps: list[int] = []
        self.fired = 0

    @initialize()
    def empty(self) -> None:
        with self.ledger.connections.write.use() as session, session.transaction("caller") as connection:
            for table in METADATA.sorted_tables:
                connection.execute(table.delete())

    # ---- helpers ----

    def known(self) -> list[PartitionView]:
        return self.world.queries.find(PartitionFilter(source="crm"), limit=1000)

    def pick(self, at: int) -> PartitionView | None:
        known = self.known()
        return known[at % len(known)] if known else None

    @contextmanager
    def no_requeue(self) -> Iterator[None]:
        """An operation outside of the control plane: no partition goes from failed to pending."""
        before = {one.partition: one.status for one in self.known()}
        yield
        for one in self.known():
            assert (before[one.partition], one.status) != ("failed", "pending")

    @contextmanager
    def audited(self) -> Iterator[None]:
        """When a partition goes from failed to pending, the audit log has a new entry."""
        before, entries = {one.partition: one.status for one in self.known()}, len(self.world.audited())
        yield
        moved = [one for one in self.known() if (before.get(one.partition), one.status) == ("failed", "pending")]
        if moved:
            assert len(self.world.audited()) > entries

    # ---- the control plane ----

    @rule(at=AT, canary=st.sampled_from([0, 0, 1]), again=st.booleans())
    def backfill(self, at: int, canary: int, again: bool) -> None:
        customers = CUSTOMERS[: 1 + at % 3]
        try:
            self.sweeps.append(self.world.backfill(customers, DAYS, canary=canary, again=again))
        except NotAllowed:
            states = {sweep.state for sweep in self.ledger.sweeps.list(acts=["backfill"])}
            assert states & {"running", "paused", "halted"}

    @rule()
    def fire(self) -> None:
        self.fired += 1
        moment = self.world.ledger.now() + timedelta(days=self.fired)
        self.world.control.enqueue_scheduled(
            "crm", "orders", moment, CUSTOMERS[:2], [DAY + timedelta(days=self.fired % 3)], cron="x"
        )

    @rule(most=st.integers(1, 5))
    def claim(self, most: int) -> None:
        busy = {one.partition for one in self.known() if one.running}
        with self.audited():
            leases = self.world.claim(most)
        assert len(leases) <= most
        for lease in leases:
            assert lease.partition not in busy
            model = self.models.setdefault(lease.partition, Model())
            assert model.held is None
            model.runs += 1
            assert lease.attempt_no == model.runs
            model.held = lease
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(at=AT, cause=st.sampled_from(["not_ready", "rate_limited", "systemic", "stopped"]), outage=st.booleans())
    def give_back(self, at: int, cause: Any, outage: bool) -> None:
        lease = self.leases[at % len(self.leases)]
        model = self.models[lease.partition]
        spare = {(one.partition_id, one.attempt_no): "an outage" for one in self.judged} if outage else {}
        with self.no_requeue():
            mine = self.world.control.release_uncharged([Release(lease, cause, error="e")], refunds=spare)
        assert mine == (model.held is lease)
        if mine:
            model.held = None

    @rule(seconds=st.sampled_from([10.0, 70.0, 500.0]))
    def wait(self, seconds: float) -> None:
        with self.no_requeue():
            self.world.pass_time(seconds)

    @rule()
    def tick(self) -> None:
        with self.audited():
            self.world.control.maintain()
        running = {one.partition for one in self.known() if one.running}
        for key, model in self.models.items():
            if key not in running:
                model.held = None

    # ---- the validator ----

    @precondition(lambda self: self.leases)
    @rule(at=AT, good=st.booleans(), final=st.booleans())
    def judge(self, at: int, good: bool, final: bool) -> None:
        lease = self.leases[at % len(self.leases)]
        model = self.models[lease.partition]
        if lease in self.judged:
            return
        with self.no_requeue():
            (told,) = self.world.accept(lease) if good else self.world.reject(lease, final=final)
        self.judged.append(lease)
        model.attempts += 1
        if model.held is not lease:
            assert told.outcome == "late"
            return
        model.held = None
        assert told.outcome == ("accepted" if good else "rejected")
        if good:
            model.current = lease
            model.accepted.append(lease)

    @precondition(lambda self: self.judged)
    @rule(at=AT, good=st.booleans())
    def judge_again(self, at: int, good: bool) -> None:
        before = self.known()
        lease = self.judged[at % len(self.judged)]
        (told,) = self.world.accept(lease) if good else self.world.reject(lease)
        assert told.outcome == "repeated"
        assert self.known() == before

    @rule(at=AT)
    def roll_back(self, at: int) -> None:
        for model in self.models.values():
            earlier = [one for one in model.accepted if one is not model.current]
            if earlier:
                to = earlier[at % len(earlier)]
                self.world.verdict_writer.rollback(to.partition, to.run_id, **AUDIT)
                model.current = to
                return

    # ---- operators ----

    @rule(at=AT, act=st.sampled_from(["retry", "reprocess", "revalidate"]), clear=st.booleans(), grant=st.sampled_from([None, 1]))
    def requeue(self, at: int, act: Any, clear: bool, grant: int | None) -> None:
        keys = [one.partition for one in self.known()]
        if keys:
            with self.audited():
                self.sweeps.append(self.world.retry(*keys[: 1 + at % len(keys)], act=act, clear_terminal=clear, grant=grant))
            self.tick()

    @rule(at=AT, verb=st.sampled_from(["mark_terminal", "clear_terminal", "pause", "unpause"]))
    def mark(self, at: int, verb: str) -> None:
        one = self.pick(at)
        if one is not None:
            with self.audited():
                getattr(self.world.control, verb)([one.id], **AUDIT)

    @precondition(lambda self: self.sweeps)
    @rule(at=AT, verb=st.sampled_from(["pause", "resume", "cancel"]))
    def steer(self, at: int, verb: str) -> None:
        sweep = self.sweeps[at % len(self.sweeps)]
        try:
            self.world.control.move(sweep, verb, **AUDIT)
        except NotAllowed:
            return
        if verb != "resume":
            assert all(lease.sweep_id != sweep for lease in self._claimed())

    def _claimed(self) -> list[PartitionLease]:
        before = len(self.leases)
        self.claim(3)
        return self.leases[before:]

    @rule(paused=st.booleans())
    def source(self, paused: bool) -> None:
        (self.world.control.pause_source if paused else self.world.control.unpause_source)("crm", **AUDIT)
        if paused:
            assert self._claimed() == []

    # ---- invariants ----

    @invariant()
    def holds(self) -> None:
        world = self.world
        assert world.queries.imbalance() == []
        assert world.wrong() == []
        for one in self.known():
            model = self.models[one.partition]
            assert one.attempt_count == model.attempts
            assert one.dispatch_count == model.runs
            current = model.current
            # Once readable, always readable. The readable run is the one of the validator or of an audited rollback.
            assert one.current_run_id == (current.run_id if current else None)
            assert (one.status == "success") == (current is not None)
            assert one.status in ("pending", "success", "failed")
            assert one.running == (model.held is not None)
            if model.held is not None:
                assert one.run_id == model.held.run_id
            if one.terminal or one.paused:  # except for a requested revalidation, which extracts nothing
                assert one.next_at is None or (one.terminal and one.sweep_id)
        for sweep in self.sweeps:
            done = world.queries.progress(sweep)
            assert done is not None
            parts = (done.ok, done.failed, done.skipped, done.active, done.queued, done.untouched)
            assert min(parts) >= 0
            assert sum(parts) == done.total


def run(ledger: Ledger, examples: int, steps: int) -> None:
    machine = type("Machine", (Acts,), {"ledger": ledger})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.req("P-5")
def test_any_order_of_operations_agrees_with_the_model_on_sqlite() -> None:
    with open_ledger("sqlite://") as ledger:
        run(ledger, 300 if FULL else 6, 35)


@pytest.mark.req("P-5")
def test_any_order_of_operations_agrees_with_the_model_on_postgres(postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger) as ledger:
        run(ledger, 100 if FULL else 3, 25)
