"""The control plane: claims, releases, limits, markers and schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from redrive.backoff import fixed
from redrive.errors import NotAllowed
from redrive.ledger import Ledger
from redrive.ledger.db.partition_tables import work
from redrive.ledger.jobs.lease_recovery import expire_leases_of_dead_workers
from redrive.partitions import queries
from redrive.partitions.control import verdicts
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.model import Lane, PartitionFilter, PartitionLease
from redrive.partitions.retry_schedule import DatasetLimits, Policy
from tests.conformance.partitions.world import AUDIT, DAY, World
from tests.conformance.worker.world import record_log


@pytest.mark.req("P-1")
def test_each_attempt_is_a_separate_run(world: World) -> None:
    first = world.lease_one()
    world.reject(first)
    assert world.claim() == []
    world.pass_time(100)
    (second,) = world.claim()
    assert (second.partition, second.kind, second.lane, second.attempts) == (first.partition, "retry", "backfill", 1)
    assert (first.attempt_no, second.attempt_no) == (1, 2)
    assert first.run_id != second.run_id
    assert [one.run_id for one in world.history()] == [second.run_id, first.run_id]


@pytest.mark.req("P-3")
def test_only_the_control_plane_makes_a_failed_partition_pending(world: World) -> None:
    """Roles are objects without methods beyond their rights."""
    verbs = {"claim", "begin_requeue", "requeue_next", "clear_terminal", "unpause", "backfill", "enqueue_scheduled"}
    assert verbs <= set(dir(ControlPlane))
    for role in (PartitionLease, verdicts.VerdictWriter, queries.PartitionQueries):
        assert not {name for name in dir(role) if not name.startswith("_")} & verbs
    assert not set(vars(ControlPlane)) & {"judge", "rollback"}

    lease = world.lease_one()
    world.reject(lease)
    assert world.facts().status == "failed"
    before = world.audited().count("partition.retry")
    world.pass_time(100)
    assert world.facts().status == "failed"
    world.claim()
    assert world.facts().status == "pending"
    assert world.audited().count("partition.retry") == before + 1


@pytest.mark.req("P-3")
def test_retries_of_the_policy_and_of_operators_are_audited(world: World) -> None:
    now = world.ledger.now()
    world.control.enqueue_scheduled("crm", "orders", now, ["acme"], [DAY], cron="0 2 * * *")
    (lease,) = world.claim()
    assert (lease.lane, lease.kind) == ("fresh", "initial")
    world.reject(lease)
    world.pass_time(100)
    (lease,) = world.claim()
    assert lease.lane == "retry"
    assert world.audited() == ["partition.retry"]
    world.reject(lease)
    world.retry(world.key())
    assert world.facts().status == "pending"
    assert world.audited() == ["partition.retry", "partition.retry"]
    (lease,) = world.claim()
    assert lease.lane == "retry"


@pytest.mark.req("P-7")
def test_a_partition_has_one_lease(world: World) -> None:
    world.backfill(["acme"])
    other = world.plane(2)
    assert len(world.claim()) == 1
    assert world.claim() == other.claim(10, worker="w2") == []
    known = world.facts()
    assert known.running
    assert known.worker == "w1"


def test_a_released_lease_is_not_charged(world: World) -> None:
    lease = world.lease_one()
    assert world.give_back(lease, "not_ready", error="no export yet") == 1
    known = world.facts()
    assert (known.status, known.attempt_count, known.dispatch_count) == ("pending", 0, 1)
    assert known.next_at is not None
    assert (known.next_at - world.ledger.now()).total_seconds() > 800
    assert world.history()[0].note == "not_ready: no export yet"
    world.pass_time(1000)
    (lease,) = world.claim()
    world.give_back(lease, "rate_limited", after=50)
    assert world.claim() == []
    world.pass_time(60)
    (lease,) = world.claim()
    world.give_back(lease, "stopped")
    assert len(world.claim()) == 1


def test_a_source_with_an_outage_is_paused_and_probed(world: World) -> None:
    """T14: an outage is charged to no partition."""
    world.backfill(50)
    leases = world.claim(10)
    for lease in leases:
        world.give_back(lease, "systemic", error="401: key revoked", signature="Unauthorized 401")
    (source,) = world.queries.sources()
    assert source.paused
    assert source.because == "401: key revoked"
    assert world.claim() == []
    assert any("paused" in why for why in world.queries.explain(leases[0].partition, world.limits).why)
    world.pass_time(70)
    (probe,) = world.claim()
    assert world.claim() == []
    world.give_back(probe, "systemic", error="401: key revoked", signature="Unauthorized 401")
    world.pass_time(70)
    assert world.claim() == []  # twice as long
    world.pass_time(70)
    (probe,) = world.claim()
    world.accept(probe)
    assert not world.queries.sources()[0].paused
    assert len(world.claim()) == 49
    assert world.queries.counts()["crm", "orders"] == {"success": 1, "pending": 49}
    assert world.audited().count("source.pause") == 2


def test_a_lost_probe_is_followed_by_another(world: World) -> None:
    lease = world.lease_one()
    world.give_back(lease, "systemic", error="down")
    world.pass_time(70)
    assert len(world.claim()) == 1
    world.pass_time(400)
    world.control.maintain()
    assert len(world.claim()) == 1


def test_the_probe_of_a_killed_worker_is_followed_immediately(world: World) -> None:
    world.backfill(3)
    world.give_back(world.claim(1)[0], "systemic", error="down")
    world.pass_time(70)
    assert len(world.claim(worker="killed", lease=3600)) == 1
    assert world.claim() == []
    with world.ledger.connections.write.use() as session:
        expire_leases_of_dead_workers(session, ["killed"])
    world.control.maintain()
    assert len(world.claim()) == 1


def test_an_operator_pauses_and_unpauses_a_source(world: World) -> None:
    world.backfill(3)
    world.control.pause_source("crm", **AUDIT)
    world.pass_time(10_000)
    assert world.claim() == []
    world.control.unpause_source("crm", **AUDIT)
    assert len(world.claim()) == 3
    world.control.pause_source("crm", until=world.ledger.now() + timedelta(seconds=50), **AUDIT)
    world.pass_time(60)
    world.backfill(["x", "y"])
    assert len(world.claim()) == 2


def test_limits_hold_for_a_dataset_and_for_a_source(ledger: Ledger) -> None:
    orders, clicks = (
        DatasetLimits("crm", "orders", concurrency=3, source_concurrency=4),
        DatasetLimits("crm", "clicks", concurrency=3),
    )
    planes = [ControlPlane(ledger, [orders, clicks]) for _ in range(2)]
    world = World(ledger)
    for name in ("orders", "clicks"):
        planes[0].backfill(world.grid(10).__class__.of("crm", name, ["a", "b", "c", "d"], DAY), **AUDIT)
    leases = [lease for plane in planes for lease in plane.claim(10, worker="w")]
    assert len(leases) == 4
    assert max(sum(lease.partition.query_name == name for lease in leases) for name in ("orders", "clicks")) <= 3
    world.verdict_writer.apply([])
    world.accept(leases[0])
    assert len(planes[1].claim(10, worker="w")) == 1


def test_paused_and_terminal_partitions_are_skipped(world: World) -> None:
    world.backfill(["a", "b", "c"])
    leases = {lease.partition.customer_id: lease for lease in world.claim()}
    world.reject(*leases.values())
    ids = {name: world.facts(world.key(name)).id for name in leases}
    assert world.control.pause([ids["a"]], **AUDIT).count == 1
    assert world.control.pause([ids["a"]], **AUDIT).skipped == {str(world.key("a")): "paused already"}
    assert world.control.mark_terminal([ids["b"]], **AUDIT).count == 1
    world.pass_time(100)
    assert [lease.partition.customer_id for lease in world.claim()] == ["c"]
    assert world.facts(world.key("a")).paused == "ann: a test"
    assert world.facts(world.key("b")).shade == "terminal"
    assert world.control.unpause([ids["a"]], **AUDIT).count == 1
    assert world.control.clear_terminal([ids["b"], ids["c"]], **AUDIT).skipped == {str(world.key("c")): "it did not give up"}
    assert {lease.partition.customer_id for lease in world.claim()} == {"a", "b"}
    with pytest.raises(ValueError, match="who"):
        world.control.pause([ids["a"]], actor="", because="x")


def test_an_operator_acknowledges_a_partition_that_gave_up(world: World) -> None:
    world.reject(world.lease_one(), final=True)
    known = world.facts()
    assert known.terminal is not None
    assert not known.terminal.startswith("manual")
    assert world.control.mark_terminal([known.id], **AUDIT).count == 1
    assert (world.facts().shade, world.facts().terminal) == ("terminal", "manual: a test")
    assert world.control.mark_terminal([known.id], **AUDIT).skipped == {str(world.key()): "marked as given up already"}
    assert world.control.clear_terminal([known.id], **AUDIT).count == 1
    assert world.facts().terminal is None


def test_a_partition_marked_while_running_may_be_accepted(world: World) -> None:
    lease = world.lease_one()
    known = world.facts()
    world.control.mark_terminal([known.id], **AUDIT)
    assert world.facts().shade == "terminal"
    world.accept(lease)
    assert (world.facts().status, world.facts().shade) == ("success", "success")


@pytest.mark.req("P-10")
def test_scheduled_work_is_stored_once_for_each_time(world: World) -> None:
    now = world.ledger.now()
    assert world.control.last_fired_at("crm", "orders") is None
    made = world.control.enqueue_scheduled("crm", "orders", now, ["a", "b"], [DAY], cron="15 2 * * *")
    assert made is not None
    assert [one.total for one in made] == [2]
    assert world.plane(2).enqueue_scheduled("crm", "orders", now, ["a", "b"], [DAY], cron="15 2 * * *") is None
    assert world.control.last_fired_at("crm", "orders") == now
    assert {lease.lane for lease in world.claim()} == {"fresh"}


def test_lanes_share_the_slots(world: World) -> None:
    """A backfill of hundreds neither delays retries or fresh work, nor is it delayed by them."""
    fresh = [f"f{number}" for number in range(100)]
    failed = [f"r{number}" for number in range(100)]
    world.control.enqueue_scheduled("crm", "orders", world.ledger.now(), failed, [DAY], cron="x")
    world.reject(*world.claim(200))
    world.pass_time(100)
    world.backfill([f"b{number}" for number in range(300)])
    world.control.enqueue_scheduled("crm", "orders", world.ledger.now() + timedelta(seconds=9), fresh, [DAY], cron="x")
    taken = {"fresh": 0, "retry": 0, "backfill": 0}
    for lease in world.claim(100):
        taken[lease.lane] += 1
    assert 55 <= taken["fresh"] <= 65
    assert 20 <= taken["retry"] <= 30
    assert 10 <= taken["backfill"] <= 20
    rest = world.claim(1000)  # work conserving: any available lane
    assert len(rest) == 400


@pytest.mark.req("P-10")
def test_fresh_work_at_nine_tenths_beside_a_million_keys_of_a_backfill(world: World) -> None:
    """Fresh work wants nine of ten slots, and the backfill gets its share: neither starves."""
    begun = world.backfill(1000, days=1000)
    waits: list[int] = []
    came: dict[str, int] = {}
    taken = 0
    for tick in range(12):
        names = [f"f{tick}-{number}" for number in range(9)]
        came |= dict.fromkeys(names, tick)
        world.control.enqueue_scheduled("crm", "orders", world.ledger.now(), names, [DAY], cron="x")
        leases = world.claim(10)
        assert len(leases) == 10, "no slot is wasted"
        waits += [tick - came[lease.partition.customer_id] for lease in leases if lease.lane == "fresh"]
        taken += sum(lease.lane == "backfill" for lease in leases)
        world.accept(*leases)
        world.pass_time(20)
    assert max(waits) <= 2, "what was passed over once is late, and goes first"
    assert 12 <= taken < 20, "the tenth slot is the backfill's, and little of what fresh work waits for"
    progress = world.queries.progress(begun)
    assert progress is not None
    assert (progress.total, progress.ok) == (1_000_000, taken)


@pytest.mark.req("O-1")
def test_failures_are_listed_newest_first(world: World) -> None:
    for name in ("c", "a", "b"):
        world.reject(world.lease_one(name))
    world.lease_one("d")
    world.control.mark_terminal([world.facts(world.key("d")).id], **AUDIT)
    shades: Any = ["failed", "terminal"]
    for asked in (PartitionFilter(shades=shades), PartitionFilter(shades=shades, since=DAY, until=DAY)):
        found = world.queries.newest(asked)
        assert [one.partition.customer_id for one in found] == ["b", "a", "c", "d"], "who was never judged is behind"
        assert [one.partition.customer_id for one in world.queries.newest(asked, limit=2)] == ["b", "a"]
    assert world.queries.newest(PartitionFilter(shades=["success"])) == []


def test_history_and_find_go_page_by_page(world: World) -> None:
    world.backfill(25, days=2)
    leases = world.claim()
    world.reject(*leases[:10])
    world.accept(*leases[10:])
    failed = world.queries.find(PartitionFilter(source="crm", shades=["failed"]), limit=7)
    rest = world.queries.find(PartitionFilter(source="crm", shades=["failed"]), after=failed[-1].id, limit=7)
    assert (len(failed), len(rest)) == (7, 3)
    assert len(world.queries.find(PartitionFilter(customers=["c1", "c2"]))) == 4
    assert len(world.queries.find(PartitionFilter(since=DAY, until=DAY, query_name="orders"), limit=1000)) == 25
    assert len(world.queries.find(PartitionFilter(reason="row_count", min_attempts=1, lane="backfill"))) == 10
    assert world.queries.find(PartitionFilter(min_attempts=2)) == []
    assert world.queries.find(PartitionFilter(customers=["nobody"])) == []
    assert world.queries.reasons() == {"row_count": 10}
    with world.ledger.reading() as connection:
        lanes = connection.execute(select(work.c.lane, work.c.lease_until)).all()
    assert lanes == [(Lane.BACKFILL, None)] * 10
    days = world.queries.days("crm", "orders", "c1", DAY, DAY + timedelta(days=9))
    assert list(days) == [DAY, DAY + timedelta(days=1)]


def test_explain_names_every_reason(world: World) -> None:
    def why(customer: str) -> str:
        return "\n".join(world.queries.explain(world.key(customer), world.limits).why)

    assert "never requested" in why("acme")
    sweep = world.backfill(["acme", "b"])
    assert f"not queued yet by sweep {sweep}" in why("acme")
    lease, other = world.claim()
    assert "running now" in why("acme")
    world.reject(lease, other)
    found = world.queries.explain(world.key("acme"), world.limits)
    assert "scheduled for" in found.why[0]
    assert "backoff after attempt 1 of 3" in found.why[0]
    assert (found.position, found.queued) in ((1, 2), (2, 2))
    assert found.budget == "2 of 3 attempts left; 1 verdict and 1 run in total"
    world.control.move(sweep, "pause", **AUDIT)
    assert f"sweep {sweep} is paused" in why("acme")
    world.control.mark_terminal([world.facts().id], **AUDIT)
    assert "gave up (manual: a test)" in why("acme")
    world.control.pause([world.facts(world.key("b")).id], **AUDIT)
    assert "paused (ann: a test)" in why("b")


def test_a_failing_reprocessing_stops_at_its_attempts(ledger: Ledger) -> None:
    world = World(ledger, policy=Policy(max_attempts=2, backoff=fixed(1)))
    world.accept(world.lease_one())
    world.retry(world.key(), act="reprocess")
    for _ in range(2):
        (lease,) = world.claim()
        world.reject(lease)
        world.pass_time(10)
    assert world.claim() == []
    assert (world.facts().shade, world.facts().terminal) == ("refresh_failed", None)
    with pytest.raises(NotAllowed):
        world.control.move(99, "cancel", **AUDIT)


@pytest.mark.req("P-7")
def test_a_partition_of_two_ranges_has_one_lease(world: World) -> None:
    """T9: a scheduled run and a backfill of the same day."""
    world.control.enqueue_scheduled("crm", "orders", world.ledger.now(), ["a", "b"], [DAY], cron="x")
    sweep = world.backfill(["a", "b"])
    leases = world.claim()
    assert sorted(lease.partition.customer_id for lease in leases) == ["a", "b"]
    assert world.claim() == []
    world.accept(*leases)
    world.control.maintain()
    done = world.queries.progress(sweep)
    assert done is not None
    assert done.state == "done"
    assert done.ok + done.skipped == 2


@pytest.mark.req("P-10")
def test_a_worker_reports_that_an_operator_unpaused_its_source(world: World) -> None:
    world.backfill(2)
    world.control.pause_source("crm", **AUDIT)
    assert world.claim() == []
    with record_log() as records:
        world.plane(2).unpause_source("crm", **AUDIT)  # in another process
        records.clear()
        assert len(world.claim()) == 2
        world.claim()
    told = [record.fields for record in records if record.kind == "unparked"]
    assert told == [{"operation": "crm", "actor_key": "ann"}]
    assert [(one.paused, one.actor) for one in world.queries.sources()] == [(False, None)]
