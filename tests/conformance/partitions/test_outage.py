"""Outages: rejected attempts are refunded, and faults of a paused source are not charged."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App, Blocked, Parking, retry
from redrive.backoff import fixed
from redrive.ledger import Ledger
from redrive.partitions import Partition, Sink
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.model import PartitionLease, Release, Verdict
from redrive.partitions.retry_schedule import DatasetLimits, Policy
from tests.partition_runner import SteppedRunner, stepped_runner

from .world import AUDIT, DAY, World

DOWN = "ConnectionError: no answer"
SAYS = "attempts of 2 partitions failed for one reason: ConnectionError: no answer"


def failed(world: World, *leases: PartitionLease, signature: str | None = DOWN) -> list[str]:
    said = [Verdict(one.run_id, "rejected", reason="ConnectionError", message="no answer", signature=signature) for one in leases]
    return [one.outcome for one in world.verdict_writer.apply(said)]


def test_rejections_of_an_outage_are_counted_and_not_charged(ledger: Ledger) -> None:
    world = World(ledger, policy=Policy(max_attempts=1, backoff=fixed(60)))
    world.backfill(["a", "b"])
    first, second = sorted(world.claim(), key=lambda one: one.partition.customer_id)
    assert failed(world, first) == ["rejected"]
    assert world.facts(first.partition).shade == "terminal"
    spare = {(first.partition_id, first.attempt_no): SAYS}
    for _ in range(2):  # reported twice, counted once
        world.control.release_uncharged([_systemic(second)], refunds=spare)
    facts = world.facts(first.partition)
    assert (facts.shade, facts.status, facts.attempt_count, facts.terminal) == ("failed", "failed", 1, None)
    assert world.history(first.partition)[0].note == f"not charged: {SAYS}"
    assert world.queries.explain(first.partition, world.limits).budget == (
        "1 of 1 attempt left since the grant by redrive; 1 verdict and 1 run in total"
    )
    assert [one.because for one in world.queries.sources()] == [SAYS]
    assert world.wrong() == []
    world.pass_time(70)
    (probe,) = world.claim()
    world.accept(probe)
    world.accept(*world.claim())
    assert world.queries.counts()["crm", "orders"] == {"success": 2}
    assert world.queries.imbalance() == []


def test_partitions_are_due_after_an_operator_unpauses_their_source(world: World) -> None:
    world.backfill(["a", "b", "late"])
    first, second, late = world.claim()
    world.reject(late)
    world.control.release_uncharged([_systemic(first), _systemic(second)])
    assert world.claim() == []
    world.control.unpause_source("crm", **AUDIT)
    facts = world.facts(first.partition)
    assert facts.strategy == "source unpaused by ann"
    assert {lease.partition for lease in world.claim()} == {first.partition, second.partition}  # not the backoff of the third


def test_attempts_granted_meanwhile_are_not_refunded(world: World) -> None:
    world.backfill(["a", "b"])
    first, second = sorted(world.claim(), key=lambda one: one.partition.customer_id)
    failed(world, first)
    world.control.mark_terminal([first.partition_id], **AUDIT)
    world.control.clear_terminal([first.partition_id], grant=2, **AUDIT)
    world.control.release_uncharged([_systemic(second)], refunds={(first.partition_id, first.attempt_no): SAYS})
    budget = world.queries.explain(first.partition, world.limits).budget
    assert budget is not None
    assert budget.startswith("2 of 2 attempts left since the grant by ann")


def test_the_fault_of_a_paused_source_is_not_charged(world: World) -> None:
    world.backfill(["a", "b", "c", "d"])
    one, two, three, four = world.claim()
    world.control.release_uncharged([_systemic(one)])
    assert failed(world, two) == ["spared"]
    assert world.facts(two.partition).attempt_count == 0
    assert world.give_back(two, "systemic", error="no answer", signature=DOWN) == 1
    assert failed(world, three, signature="TimeoutError") == ["rejected"], "another fault is its own"
    assert world.queries.sources()[0].paused
    world.pass_time(100)
    (probe,) = world.claim()
    assert failed(world, probe, signature="TimeoutError") == ["spared"], "a probe without an answer is no answer"
    world.give_back(probe, "systemic", error="no answer", signature="TimeoutError")
    assert world.queries.sources()[0].paused
    world.accept(four)
    assert not world.queries.sources()[0].paused


@pytest.mark.req("P-10")
def test_a_worker_detects_an_outage_and_the_probe_of_another_ends_it(ledger: Ledger, tmp_path: Path) -> None:
    """Ten customers of a source that is down, with the threads of the workers. Nothing waits for real time."""
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
        ControlPlane(ledger, [extraction.limits]).backfill(Grid.of("crm", "orders", customers, DAY), **AUDIT)
        workers = [
            SteppedRunner(ledger, [extraction], worker=name, max_running=2, parking=Parking(least=5)) for name in ("one", "two")
        ]
        workers[0].run_until_idle(ledger)
        (source,) = world.queries.sources()
        assert (source.paused, source.actor) == (True, "redrive")
        assert source.because == "attempts of 5 partitions failed for one reason: ConnectionError: no answer for …"
        _uncharged(world, customers, extraction.limits.policy.max_attempts)
        for _ in range(2):
            world.pass_time(1000)
            workers[1].run_until_idle(ledger)  # it never saw the outage, and the probe is its first attempt
        assert world.queries.sources()[0].paused
        _uncharged(world, customers, extraction.limits.policy.max_attempts)
        down.clear()
        for _ in range(2):
            world.pass_time(10_000)
            workers[1].run_until_idle(ledger)
        assert not world.queries.sources()[0].paused
        assert world.queries.counts()["crm", "orders"] == {"success": 10}
        for one in workers:
            one.close()
    assert world.wrong() == []


def refused(status: int) -> Exception:
    """As an HTTP client raises it."""
    request = httpx.Request("GET", "https://crm.example.com/orders")
    return httpx.HTTPStatusError(f"{status}", request=request, response=httpx.Response(status, request=request))


class Extracting:
    """A dataset of twenty customers, and runners that extract it. Each runner is a new process for the rule."""

    def __init__(self, ledger: Ledger, tmp_path: Path, extract: Any, **options: Any) -> None:
        self.ledger, self.world = ledger, World(ledger)
        self.customers = options.pop("customers", [f"c{number:02}" for number in range(20)])
        self.parking = options.pop("parking", Parking())
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._extract = extract
        self.app = App(ledger, stores={"raw": {"type": "local", "options": {"root": str(tmp_path / "raw")}}})
        self.app.dataset(
            "crm", "orders", raw="raw", customers=self.customers, checks=[], max_age=None, concurrency=4,
            retry=retry(max_attempts=3, backoff=fixed(60)), **options,
        )(self.orders)  # fmt: skip
        (self.extraction,) = self.app.datasets
        self.max_attempts = 3

    def orders(self, partition: Partition, out: Sink) -> None:
        with self._lock:
            self.asked[partition.customer_id] += 1
        self._extract(partition)
        out.rows([{"n": 1}])

    def backfill(self, days: int = 1) -> None:
        grid = Grid.of("crm", "orders", self.customers, DAY, DAY + timedelta(days=days - 1))
        ControlPlane(self.ledger, [self.extraction.limits]).backfill(grid, **AUDIT)

    def run(self, *, passed: float = 0) -> None:
        """Extract all due partitions in a new runner."""
        if passed:
            self.world.pass_time(passed)
        with stepped_runner(self.ledger, [self.extraction], max_running=4, parking=self.parking) as runner:
            runner.run_until_idle(self.ledger)

    @property
    def counts(self) -> Any:
        return self.world.queries.counts()["crm", "orders"]

    @property
    def is_paused(self) -> bool:
        return any(one.paused for one in self.world.queries.sources())


@pytest.mark.req("P-10")
def test_one_revoked_customer_does_not_pause_the_source(ledger: Ledger, tmp_path: Path) -> None:
    def extract(partition: Partition) -> None:
        if partition.customer_id == "c03":
            raise refused(403)

    crm = Extracting(ledger, tmp_path, extract)
    crm.backfill(days=2)
    crm.run()
    assert crm.counts == {"success": 38, "failed": 2}, "the others were not delayed"
    assert not crm.is_paused
    for _ in range(6):
        crm.run(passed=100)
    assert crm.counts == {"success": 38, "terminal": 2}
    assert crm.asked["c03"] == 2 * crm.max_attempts
    assert not crm.is_paused
    assert crm.world.audited().count("source.pause") == 0
    assert crm.world.wrong() == []


@pytest.mark.req("P-10")
def test_a_credential_rejected_for_all_customers_is_not_charged(ledger: Ledger, tmp_path: Path) -> None:
    is_revoked = threading.Event()
    is_revoked.set()

    def extract(_partition: Partition) -> None:
        if is_revoked.is_set():
            raise refused(401)

    crm = Extracting(ledger, tmp_path, extract)
    crm.backfill()
    crm.run()
    assert crm.is_paused
    assert crm.asked.total() <= 8, "those that ran when two were refused"
    for _ in range(3):
        before = crm.asked.total()
        crm.run(passed=10_000)
        assert crm.asked.total() == before + 1, "one probe at a time"
    is_revoked.clear()
    crm.run(passed=10_000)  # the first success resumes the source
    crm.run(passed=10_000)
    assert not crm.is_paused
    assert crm.counts == {"success": 20}
    _uncharged(crm.world, crm.customers, crm.max_attempts, accepted=1)


@pytest.mark.req("P-10")
@pytest.mark.parametrize("error", [refused(401), ConnectionError("no answer"), Blocked("closed", systemic=True)])
def test_a_permanent_outage_ends_every_partition(ledger: Ledger, tmp_path: Path, error: Exception) -> None:
    """Within max_attempts and the number of attempts that are not charged, counted across processes."""

    def extract(_partition: Partition) -> None:
        raise error

    crm = Extracting(ledger, tmp_path, extract, customers=["a", "b", "c"], parking=Parking(least=2, uncharged=3))
    crm.backfill()
    for _ in range(40):
        crm.run(passed=10_000)
        if crm.counts == {"terminal": 3}:
            break
    assert crm.counts == {"terminal": 3}
    assert max(crm.asked.values()) <= crm.max_attempts + 3
    assert crm.world.wrong() == []


@pytest.mark.req("P-10")
def test_bugs_are_always_charged(ledger: Ledger, tmp_path: Path) -> None:
    def extract(_partition: Partition) -> None:
        raise KeyError("order_id")

    crm = Extracting(ledger, tmp_path, extract)
    crm.backfill()
    for _ in range(3):
        crm.run(passed=100)
    assert crm.counts == {"terminal": 20}
    assert set(crm.asked.values()) == {crm.max_attempts}
    assert not crm.is_paused


@pytest.mark.req("P-10")
def test_a_fault_of_the_ledger_is_not_charged(ledger: Ledger, tmp_path: Path) -> None:
    """Twenty partitions that use another app's ledger, which is offline for some time."""
    is_away = threading.Event()
    is_away.set()

    def extract(_partition: Partition) -> None:
        if is_away.is_set():
            use_a_ledger_that_is_away()

    crm = Extracting(ledger, tmp_path, extract)
    crm.backfill()
    for turn in range(1, 5):
        crm.run(passed=100)
        assert crm.counts == {"pending": 20}
        assert not crm.is_paused
        assert min(crm.asked.values()) >= turn  # on a slow machine the 1 s passes within a run
    runs = crm.world.history(crm.world.key("c00"))
    assert {run.state for run in runs} == {"returned"}
    assert all(run.note is not None and run.note.startswith("ledger: ") for run in runs)
    is_away.clear()
    crm.run(passed=100)
    assert crm.counts == {"success": 20}
    _uncharged(crm.world, crm.customers, crm.max_attempts, accepted=1)
    assert crm.world.audited().count("source.pause") == 0
    assert crm.world.wrong() == []


@pytest.mark.req("P-10")
def test_a_permanent_ledger_fault_ends_every_partition(ledger: Ledger, tmp_path: Path) -> None:
    """Within max_attempts and the number of attempts that are not charged, counted from the stored runs."""

    def extract(_partition: Partition) -> None:
        use_a_ledger_that_is_away()

    crm = Extracting(ledger, tmp_path, extract, customers=["a", "b", "c"], parking=Parking(least=2, uncharged=3))
    crm.backfill()
    for _ in range(crm.max_attempts + 3):
        crm.run(passed=10_000)
    assert crm.counts == {"terminal": 3}
    assert set(crm.asked.values()) == {crm.max_attempts + 3}
    assert not crm.is_paused, "also a charged one is not evidence"
    assert crm.world.wrong() == []


def test_a_probe_with_a_ledger_fault_keeps_the_pause(world: World) -> None:
    world.backfill(["a", "b", "c"])
    world.control.release_uncharged([_systemic(world.claim(1)[0])])
    world.pass_time(100)
    (probe,) = world.claim()
    world.control.release_uncharged([Release(probe, "ledger", error="LedgerUnavailable: away", after=60.0)])
    (source,) = world.queries.sources()
    assert source.paused, "neither that it is well"
    (next_probe,) = world.claim()  # nor that it is down: the next probe starts immediately
    assert next_probe.partition != probe.partition
    world.accept(next_probe)
    assert not world.queries.sources()[0].paused


def test_a_probe_whose_worker_stopped_is_followed_immediately(world: World) -> None:
    world.backfill(["a", "b", "c"])
    world.control.release_uncharged([_systemic(world.claim(1)[0])])
    world.pass_time(100)
    (probe,) = world.claim()
    world.control.release_uncharged([Release(probe, "stopped")])
    (source,) = world.queries.sources()
    assert source.paused, "the probe said nothing of the source"
    (next_probe,) = world.claim()
    world.accept(next_probe)
    assert not world.queries.sources()[0].paused


def use_a_ledger_that_is_away() -> None:
    """Raises LedgerUnavailable: its database rejects the connection."""
    with App("postgresql://127.0.0.1:1/none") as away:
        away.ledger.now()


def test_a_probe_that_fails_for_its_own_reason_is_followed_immediately(world: World) -> None:
    world.backfill(["a", "b", "c"])
    world.control.release_uncharged([_systemic(world.claim(1)[0])])
    world.pass_time(100)
    (probe,) = world.claim()
    assert failed(world, probe, signature=None) == ["rejected"], "a bug is charged"
    assert world.queries.sources()[0].paused, "and says nothing of the source"
    (next_probe,) = world.claim()
    assert next_probe.partition != probe.partition
    world.reject(next_probe)  # by a check: the source returned data
    assert not world.queries.sources()[0].paused


def _uncharged(world: World, customers: list[str], most: int, *, accepted: int = 0) -> None:
    """All attempts are left, except for accepted partitions."""
    terms = DatasetLimits("crm", "orders", Policy(max_attempts=most))
    for customer in customers:
        budget = world.queries.explain(world.key(customer), terms).budget
        assert budget is None or budget.startswith(f"{most - accepted} of {most} attempts left"), budget


def _systemic(lease: PartitionLease) -> Release:
    return Release(lease, "systemic", error=SAYS, signature=DOWN)
