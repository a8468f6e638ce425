"""Backfills, retries and reprocessings: ranges and sweeps, changed while they run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import Drift, NotAllowed
from redrive.ledger import Ledger
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.model import PartitionFilter
from tests.conformance.partitions.world import AUDIT, DAY, World


@pytest.mark.req("P-10")
def test_a_backfill_is_a_range_and_not_a_million_rows(world: World) -> None:
    grid = Grid.of("crm", "orders", [f"c{number}" for number in range(1000)], DAY, DAY + timedelta(days=999))
    plan = world.queries.plan_grid(grid)
    assert (plan.total, plan.new, plan.overlaps) == (1_000_000, 1_000_000, ())
    sweep = world.control.backfill(grid, **AUDIT).id
    assert world.queries.counts() == {}
    leases = world.claim(7)
    assert [lease.partition for lease in leases] == [grid.at(place) for place in range(7)]
    assert world.queries.counts() == {("crm", "orders"): {"pending": 7}}
    progress = world.queries.progress(sweep)
    assert progress is not None
    assert (progress.total, progress.active, progress.untouched, progress.state) == (1_000_000, 7, 999_993, "running")


@pytest.mark.req("P-10")
def test_every_partition_of_a_finished_backfill_is_accounted_for(world: World) -> None:
    world.accept(world.lease_one("c0"))
    sweep = world.backfill(10, days=2)
    leases = world.claim()
    assert len(leases) == 19
    world.reject(*leases[:4], final=True)
    world.accept(*leases[4:])
    world.control.maintain()
    done = world.queries.progress(sweep)
    assert done is not None
    assert (done.state, done.ok, done.failed, done.skipped, done.skips) == ("done", 15, 4, 1, {"accepted already": 1})
    assert done.ok + done.failed + done.skipped + done.active + done.queued + done.untouched == done.total == 20
    assert world.ledger.sweeps.get(sweep) is not None


@pytest.mark.req("P-10")
def test_pause_resume_and_cancel_take_effect_immediately(world: World) -> None:
    sweep = world.backfill(30)
    first = world.claim(5)
    world.control.move(sweep, "pause", **AUDIT)
    assert world.claim() == []
    world.reject(first[0])  # it continues for started partitions
    world.pass_time(100)
    assert world.claim() == []
    world.control.move(sweep, "resume", **AUDIT)
    assert len(world.claim(6)) == 6
    world.control.move(sweep, "cancel", **AUDIT)
    assert world.claim() == []
    with pytest.raises(NotAllowed, match="cancelled"):
        world.control.move(sweep, "resume", **AUDIT)
    world.accept(*first[1:])
    world.control.maintain()
    # A cancelled backfill can be started again, for exactly the unfinished partitions.
    again = world.backfill(30)
    keys = {lease.partition.customer_id for lease in world.claim()}
    assert keys.isdisjoint({lease.partition.customer_id for lease in first[1:]})
    assert world.queries.progress(again) is not None
    assert world.audited().count("sweep.cancel") == 1


def test_partitions_of_a_cancelled_retry_return_to_their_policy(world: World) -> None:
    """airflow#72337: a cancelled backfill left its runs unschedulable permanently."""
    world.control.enqueue_scheduled("crm", "orders", world.ledger.now(), ["a", "b"], [DAY], cron="x")
    world.reject(*world.claim())
    before = world.facts(world.key("a")).next_at
    sweep = world.retry(world.key("a"), world.key("b"))
    assert world.facts(world.key("a")).status == "pending"
    world.control.move(sweep, "cancel", **AUDIT)
    assert world.claim() == []
    world.control.maintain()
    known = world.facts(world.key("a"))
    assert (known.status, known.lane, known.sweep_id) == ("failed", "retry", None)
    assert known.next_at == before
    world.pass_time(100)
    assert len(world.claim()) == 2


@pytest.mark.req("P-10")
def test_an_overlapping_backfill_is_rejected(world: World) -> None:
    sweep = world.backfill(10, days=10)
    with pytest.raises(NotAllowed, match=rf"sweep {sweep} \(running\) has 10 of them"):
        world.control.backfill(Grid.of("crm", "orders", ["c1", "c2", "zz"], DAY + timedelta(5), DAY + timedelta(20)), **AUDIT)
    assert world.queries.plan_grid(world.grid(1)).overlaps == (sweep,)
    world.control.backfill(Grid.of("crm", "orders", ["zz"], DAY), **AUDIT)
    world.control.backfill(Grid.of("crm", "orders", ["c1"], DAY - timedelta(1)), **AUDIT)
    world.control.move(sweep, "cancel", **AUDIT)
    world.backfill(10, days=10)


@pytest.mark.req("P-10")
def test_a_failed_canary_halts_the_sweep(world: World) -> None:
    sweep = world.backfill(20, canary=3)
    first = world.claim()
    assert len(first) == 3
    world.accept(*first[:2])
    assert world.claim() == []
    world.accept(first[2])
    assert len(world.claim(5)) == 5

    other = world.backfill([f"x{number}" for number in range(20)], canary=2)
    leases = [lease for lease in world.claim(100) if lease.sweep_id == other]
    world.accept(leases[0])
    world.reject(leases[1])
    world.pass_time(100)
    world.claim()
    halted = world.queries.progress(other)
    assert halted is not None
    assert (halted.state, halted.reason) == ("halted", "canary failed, 1 of the first 2")
    with pytest.raises(NotAllowed, match=r"canary failed, 1 of the first 2; to start the other 18 without another canary"):
        world.control.move(other, "resume", **AUDIT)
    assert len([lease for lease in world.claim() if lease.sweep_id == other]) == 0
    world.control.move(other, "resume", accept_failed_canary=True, **AUDIT)
    assert len([lease for lease in world.claim() if lease.sweep_id == other]) == 19
    assert sweep != other


@pytest.mark.req("P-10")
def test_a_sweep_halts_on_its_failure_rate(world: World) -> None:
    sweep = world.backfill(100, halt_on=0.2)
    leases = world.claim(20)
    world.reject(*leases[:5])
    world.accept(*leases[5:])
    assert world.claim() == []
    halted = world.queries.progress(sweep)
    assert halted is not None
    assert halted.reason is not None
    assert halted.reason.startswith("5 of 20 verdicts are rejections")
    assert "sweep.halt" in world.audited()
    world.control.move(sweep, "resume", **AUDIT)
    assert len(world.claim(50)) == 50


@pytest.mark.req("P-10")
def test_a_share_changes_with_the_next_claim(world: World) -> None:
    sweep = world.backfill(1000, share=0.5)
    world.control.enqueue_scheduled("crm", "orders", world.ledger.now(), [f"f{number}" for number in range(500)], [DAY], cron="x")
    taken = [lease.lane for lease in world.claim(100)]
    assert 45 <= taken.count("backfill") <= 55
    world.control.set_share(sweep, 0.1, **AUDIT)
    taken = [lease.lane for lease in world.claim(200)]
    assert 15 <= taken.count("backfill") <= 25
    with pytest.raises(ValueError, match="part of one"):
        world.control.set_share(sweep, 1.5, **AUDIT)


def test_a_rate_is_kept(world: World) -> None:
    world.backfill(100, rate=0.01)  # no machine is slow enough for a test to reach the next one
    assert len(world.claim()) == 1
    assert world.claim() == []
    assert world.control.seconds_until_room is not None
    assert 50 < world.control.seconds_until_room <= 100, "it says when to look again"
    world.pass_time(101)
    assert len(world.claim()) == 1


@pytest.mark.req("O-2")
def test_only_planned_partitions_are_changed(world: World) -> None:
    """T6."""
    world.backfill(10)
    leases = world.claim()
    world.reject(*leases)
    plan = world.queries.freeze("retry", PartitionFilter(source="crm", shades=["failed"]))
    assert (plan.count, plan.reasons, plan.skipped, plan.readable, plan.without_raw) == (10, {"row_count": 10}, {}, 0, 0)
    world.control.mark_terminal([world.facts(world.key("c3")).id], **AUDIT)
    with pytest.raises(Drift, match="1 gave up meanwhile"):
        world.control.begin_requeue(plan, **AUDIT)
    sweep = world.control.begin_requeue(plan, accept_drift=True, **AUDIT).id
    world.control.maintain()
    done = world.queries.progress(sweep)
    assert done is not None
    assert (done.queued, done.skipped, done.skips) == (9, 1, {"terminal": 1})
    assert len(world.claim()) == 9
    with pytest.raises(ValueError, match="no partitions selected"):
        world.queries.freeze("retry", PartitionFilter())


@pytest.mark.req("O-2")
def test_running_and_accepted_partitions_are_skipped_and_listed(world: World) -> None:
    world.backfill(5)
    leases = world.claim()
    world.accept(leases[0])
    world.reject(leases[1], reason="Timeout", manifest=False)
    plan = world.queries.freeze("retry", PartitionFilter(source="crm"))
    assert plan.count == 1
    assert plan.skipped == {"accepted already": 1, "running now": 3}
    assert plan.without_raw == 1
    assert world.queries.freeze("reprocess", PartitionFilter(source="crm")).count == 1
    sweep = world.retry(leases[1].partition, act="revalidate")
    done = world.queries.progress(sweep)
    assert done is not None
    assert done.skips == {"no raw data": 1}


def test_two_retries_in_a_row_use_the_stored_keys(world: World) -> None:
    """T16: dbt's second retry reran everything."""
    world.backfill(4)
    leases = world.claim()
    world.accept(*leases[:2])
    world.reject(*leases[2:])
    for _ in range(2):
        world.retry(*(lease.partition for lease in leases))
        again = world.claim()
        assert {lease.partition for lease in again} == {lease.partition for lease in leases[2:]}
        world.reject(*again)
    assert world.audited().count("partition.retry") == 2


def test_a_retry_with_a_grant_and_cleared_terminals(world: World) -> None:
    lease = world.lease_one()
    world.reject(lease, final=True)
    assert world.queries.freeze("retry", PartitionFilter(keys=[world.key()])).skipped == {"terminal": 1}
    world.retry(world.key(), clear_terminal=True, grant=1)
    (lease,) = world.claim()
    (judged,) = world.reject(lease)
    assert (judged.terminal, judged.attempt_count) == ("attempts", 2)


def test_a_sweep_advances_in_steps_of_several_processes(ledger: Ledger) -> None:
    world = World(ledger)
    world.backfill(1500)
    while leases := world.claim(1000):
        world.reject(*leases)
    plan = world.queries.freeze("retry", PartitionFilter(source="crm", query_name="orders"))
    sweep = world.control.begin_requeue(plan, **AUDIT).id
    step = world.control.requeue_next(sweep)
    assert (step.made, step.sweep.cursor) == (1000, 1000)
    other = world.plane(3)
    other.maintain()
    done = world.queries.progress(sweep)
    assert done is not None
    assert (done.queued, done.untouched) == (1500, 0)
    assert world.queries.imbalance() == []
    assert len(other.claim(5000, worker="w")) == 1500
