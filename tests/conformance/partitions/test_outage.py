"""What an outage was first taken for is made up for; while a source rests, what fails for the same is nobody's charge."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from redrive import App, Parking
from redrive.backoff import fixed
from redrive.ledger import Ledger
from redrive.partitions import Partition, Sink
from redrive.partitions.control import Control
from redrive.partitions.grid import Grid
from redrive.partitions.policy import Policy
from redrive.partitions.record import Lease, Return, Verdict
from redrive.partitions.runner import Runner

from .world import DAY, SAID, World

DOWN = "ConnectionError: no answer"
SAYS = "2 partitions failed for one reason: ConnectionError: no answer"


def failed(world: World, *leases: Lease, signature: str = DOWN) -> list[str]:
    said = [Verdict(one.run_id, "rejected", reason="ConnectionError", message="no answer", signature=signature) for one in leases]
    return [one.outcome for one in world.authority.judge(said)]


def test_rejections_of_an_outage_are_counted_and_not_charged(ledger: Ledger) -> None:
    world = World(ledger, policy=Policy(max_attempts=1, backoff=fixed(60)))
    world.backfill(["a", "b"])
    first, second = sorted(world.claim(), key=lambda one: one.partition.customer_id)
    assert failed(world, first) == ["rejected"]
    assert world.facts(first.partition).shade == "terminal"
    spare = {(first.partition_id, first.attempt_no): SAYS}
    for _ in range(2):  # said twice: once is what it is worth
        world.control.give_back([_systemic(second)], spare=spare)
    facts = world.facts(first.partition)
    assert (facts.shade, facts.status, facts.attempt_count, facts.terminal) == ("failed", "failed", 1, None)
    assert world.history(first.partition)[0].note == f"not charged: {SAYS}"
    assert world.register.explain(first.partition, world.terms).budget == (
        "1 of 1 attempt left since the grant by redrive; 1 verdict and 1 run in all"
    )
    assert [one.because for one in world.register.sources()] == [SAYS]
    assert world.wrong() == []
    world.pass_time(70)
    (probe,) = world.claim()
    world.accept(probe)
    world.accept(*world.claim())
    assert world.register.counts()["crm", "orders"] == {"success": 2}
    assert world.register.imbalance() == []


def test_what_somebody_granted_meanwhile_is_not_granted_twice(world: World) -> None:
    world.backfill(["a", "b"])
    first, second = sorted(world.claim(), key=lambda one: one.partition.customer_id)
    failed(world, first)
    world.control.mark_terminal([first.partition_id], **SAID)
    world.control.clear_terminal([first.partition_id], grant=2, **SAID)
    world.control.give_back([_systemic(second)], spare={(first.partition_id, first.attempt_no): SAYS})
    budget = world.register.explain(first.partition, world.terms).budget
    assert budget is not None
    assert budget.startswith("2 of 2 attempts left since the grant by ann")


def test_while_a_source_rests_the_same_fault_is_nobodys_charge(world: World) -> None:
    world.backfill(["a", "b", "c", "d"])
    one, two, three, four = world.claim()
    world.control.give_back([_systemic(one)])
    assert failed(world, two) == ["spared"]
    assert world.facts(two.partition).attempt_count == 0
    assert world.give_back(two, "systemic", error="no answer", signature=DOWN) == 1
    assert failed(world, three, signature="TimeoutError") == ["rejected"], "another fault is its own"
    assert world.register.sources()[0].paused
    world.pass_time(100)
    (probe,) = world.claim()
    assert failed(world, probe, signature="TimeoutError") == ["spared"], "a probe without an answer is no answer"
    world.give_back(probe, "systemic", error="no answer", signature="TimeoutError")
    assert world.register.sources()[0].paused
    world.accept(four)
    assert not world.register.sources()[0].paused


@pytest.mark.req("P-10")
def test_a_worker_recognises_an_outage_and_another_ones_probe_ends_it(ledger: Ledger, tmp_path: Path) -> None:
    """Ten customers of a source that is down. Threads of the workers' own; nothing waits for time to pass."""
    down = threading.Event()
    down.set()

    def orders(partition: Partition, out: Sink) -> None:
        if down.is_set():
            raise ConnectionError(f"no answer for {partition.customer_id!r}")
        out.rows([{"n": 1}])

    customers = [f"c{number}" for number in range(10)]
    with App(ledger, stores={"raw": {"type": "local", "options": {"root": str(tmp_path / "raw")}}}) as app:
        app.dataset("crm", "orders", raw="raw", customers=customers, checks=[], max_age=None, concurrency=3)(orders)
        (extraction,) = app.datasets
        world = World(ledger)
        Control(ledger, [extraction.terms]).backfill(Grid.of("crm", "orders", customers, DAY), **SAID)
        workers = [Runner(ledger, [extraction], places=2, name=name, parking=Parking(least=5)) for name in ("one", "two")]
        _until_idle(workers[0], ledger)
        (source,) = world.register.sources()
        assert (source.paused, source.actor) == (True, "redrive")
        assert source.because == "5 partitions failed for one reason: ConnectionError: no answer for …"
        _uncharged(world, customers, extraction.terms.policy.max_attempts)
        for _ in range(2):
            world.pass_time(1000)
            _until_idle(workers[1], ledger)  # it never saw the outage; the probe is its first
        assert world.register.sources()[0].paused
        _uncharged(world, customers, extraction.terms.policy.max_attempts)
        down.clear()
        for _ in range(2):
            world.pass_time(10_000)
            _until_idle(workers[1], ledger)
        assert not world.register.sources()[0].paused
        assert world.register.counts()["crm", "orders"] == {"success": 10}
        for one in workers:
            one.drain(lambda: 0.0)
    assert world.wrong() == []


def _uncharged(world: World, customers: list[str], most: int) -> None:
    for customer in customers:
        budget = world.register.explain(world.key(customer), None).budget
        assert budget is None or budget.startswith(f"{most} of {most} attempts left"), budget


def _until_idle(runner: Runner, ledger: Ledger) -> None:
    while runner.turn(ledger.now()) or runner.busy:
        runner.rest(0.5)


def _systemic(lease: Lease) -> Return:
    return Return(lease, "systemic", error=SAYS, signature=DOWN)
