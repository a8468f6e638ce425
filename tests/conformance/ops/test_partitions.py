"""The operator of partitions: plans are applied as previewed, limits hold, and every decision is in the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from redrive.backoff import fixed
from redrive.errors import Drift, NotAllowed
from redrive.ledger import Ledger
from redrive.ops.operator import Operator
from redrive.ops.partitions.selection import PartitionFilter, select_partitions
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.key import Partition
from redrive.partitions.model import Verdict
from redrive.partitions.retry_schedule import DatasetLimits, Policy
from tests.conformance.partitions.world import DAY, World

ALL = PartitionFilter(source="crm", query_name="orders")
WHY: dict[str, Any] = {"because": "the CRM is back"}


@pytest.fixture
def world(ledger: Ledger) -> Iterator[World]:
    made = World(ledger)
    yield made
    assert made.queries.imbalance() == []
    assert made.wrong() == []


@pytest.fixture
def mixed_world(world: World) -> World:
    """ok-1, ok-2 accepted; bad-1, bad-2 failed; none: failed without raw data; over: terminal; busy: running."""
    world.backfill(["ok-1", "ok-2", "bad-1", "bad-2", "none", "over", "busy"])
    leases = {lease.partition.customer_id: lease for lease in world.claim()}
    world.accept(leases["ok-1"], leases["ok-2"])
    world.reject(leases["bad-1"])
    world.reject(leases["bad-2"], reason="unique")
    world.reject(leases["none"], reason="TimeoutError", manifest=False)
    world.reject(leases["over"], final=True)
    return world


def keys(*customers: str) -> PartitionFilter:
    return PartitionFilter(keys=[Partition("crm", one, "orders", DAY) for one in customers])


def actions(ann: Operator) -> list[str]:
    return [one.action for one in reversed(ann.audit.find(actor="ann"))]  # the policy also decides


@pytest.mark.req("O-2")
@pytest.mark.req("O-5")
@pytest.mark.req("P-3")
def test_failed_partitions_are_planned_and_queued(mixed_world: World, ann: Operator) -> None:
    before = actions(ann)
    plan = ann.partitions.retry(ALL)
    assert (plan.act, plan.count, plan.kinds) == ("retry", 3, {"crm/orders": 3})
    assert plan.reasons == {"row_count": 1, "unique": 1, "TimeoutError": 1}
    assert plan.partitions is not None
    assert plan.partitions.left == {"accepted already": 2, "terminal": 1, "running now": 1}
    assert plan.skipped == {f"crm/busy/orders/{DAY}": "running now, by w1"}
    assert plan.partitions.without_raw == 0  # an extraction that failed has ended
    assert actions(ann) == before  # a preview changes nothing
    done = ann.apply(plan, because="the CRM is back")
    assert (done.sweep.made, done.sweep.skipped, done.sweep.act) == (3, 0, "retry")
    assert actions(ann) == [*before, "partition.retry"]
    assert {lease.partition.customer_id for lease in mixed_world.claim()} == {"bad-1", "bad-2", "none"}
    assert mixed_world.facts(mixed_world.key("busy")).running


@pytest.mark.req("O-2")
def test_a_dataset_is_selected_by_name_and_days(mixed_world: World, ann: Operator) -> None:
    assert ann.partitions.retry("crm/orders", DAY).count == 3
    assert ann.partitions.retry("crm/orders", str(DAY), DAY + timedelta(days=3), customers=["bad-1", "ok-1"]).count == 1
    assert ann.partitions.retry("crm/orders", DAY - timedelta(days=3), DAY - timedelta(days=1)).count == 0
    assert ann.partitions.retry("crm/orders", DAY, clear_terminal=True).count == 4
    assert ann.partitions.reprocess("crm/orders", DAY).count == 2
    with pytest.raises(TypeError, match="no first day"):
        ann.partitions.retry("crm/orders")
    with pytest.raises(TypeError, match="not one text"):
        ann.partitions.retry("crm/orders", DAY, customers="bad-1")
    with pytest.raises(TypeError, match="already has days"):
        ann.partitions.retry(ALL, DAY)


@pytest.mark.req("O-2")
def test_invalid_selections_are_rejected(mixed_world: World, ann: Operator) -> None:
    ahead = mixed_world.ledger.now().date() + timedelta(days=3)
    for wrong, says in (
        (PartitionFilter(), "no partitions selected"),
        (PartitionFilter(source="crmm"), r"unknown source 'crmm' \(did you mean 'crm'\?\); known: crm"),
        (PartitionFilter(source="crm", query_name="order"), r"unknown query 'order' of source 'crm' \(did you mean 'orders'\?\)"),
        (PartitionFilter(source="crm", until=ahead), f"{ahead} is in the future"),
        (keys_on(ahead), "is in the future"),
    ):
        for verb in (ann.partitions.retry, ann.partitions.reprocess, ann.partitions.revalidate):
            with pytest.raises(ValueError, match=says):
                verb(wrong)
        with pytest.raises(ValueError, match=says):
            ann.partitions.chosen("pause", wrong)
    with pytest.raises(ValueError, match="range is reversed"):
        ann.partitions.retry("crm/orders", DAY, DAY - timedelta(days=1))
    with pytest.raises(ValueError, match="not a valid date"):
        ann.partitions.retry("crm/orders", "2026-02-30")
    with pytest.raises(ValueError, match="use source/query"):
        ann.partitions.retry("crm", DAY)
    for nothing in ("", "  "):
        with pytest.raises(ValueError, match="because= must say why"):
            ann.apply(ann.partitions.retry(ALL), because=nothing)


def keys_on(day: date) -> PartitionFilter:
    return PartitionFilter(keys=[Partition("crm", "acme", "orders", day)])


@pytest.mark.req("O-2")
def test_a_revalidation_needs_raw_data(mixed_world: World, ann: Operator) -> None:
    with pytest.raises(NotAllowed, match="no raw data to validate"):
        ann.apply(ann.partitions.revalidate(keys("none")), **WHY)
    plan = ann.partitions.revalidate(keys("none", "bad-1", "ok-1"))
    assert plan.partitions is not None
    assert plan.partitions.missing_raw == {f"crm/none/orders/{DAY}": "no extraction has written data"}
    done = ann.apply(plan, **WHY)
    assert (done.sweep.made, done.sweep.skipped) == (2, 1)
    assert {lease.kind for lease in mixed_world.claim()} == {"revalidate"}


@pytest.mark.req("O-2")
@pytest.mark.parametrize("act", ["retry", "clear_terminal"])
def test_a_partition_whose_extraction_failed_is_retried(world: World, ann: Operator, act: str) -> None:
    world.reject(world.lease_one("none"), reason="HTTP 500", manifest=False, final=True)
    if act == "retry":
        ann.apply(ann.partitions.retry(ALL, clear_terminal=True), **WHY)
    else:
        ann.partitions.steer(ann.partitions.chosen("clear_terminal", ALL), **WHY)
    assert [lease.partition.customer_id for lease in world.claim()] == ["none"]


@pytest.fixture
def unended_world(world: World) -> World:
    """bad: gave up after a verdict; lost: gave up, and none of its extractions has ended."""
    world.backfill(["bad", "lost"])
    leases = {lease.partition.customer_id: lease for lease in world.claim()}
    world.reject(leases["bad"], final=True)
    world.give_back(leases["lost"], "stopped")
    (number,) = [facts.id for facts in world.queries.find(keys("lost"))]
    world.control.mark_terminal([number], actor="policy", because="lost too often")
    return world


@pytest.mark.req("O-2")
def test_a_retry_skips_a_partition_of_which_no_extraction_ended(unended_world: World, ann: Operator) -> None:
    plan = ann.partitions.retry(keys("bad", "lost"), clear_terminal=True)
    assert plan.partitions is not None
    assert plan.partitions.missing_raw == {f"crm/lost/orders/{DAY}": "no extraction has ended"}
    done = ann.apply(plan, **WHY)
    assert (done.sweep.made, done.sweep.skipped) == (1, 1)
    assert {lease.partition.customer_id for lease in unended_world.claim()} == {"bad"}
    report = ann.backfills.progress(done.sweep.id)
    assert report is not None
    assert report.progress.skips == {"no raw data": 1}
    assert report.progress.untouched == 0
    with pytest.raises(NotAllowed, match="the partition has no raw data.*no extraction has ended.*--without-raw"):
        ann.apply(ann.partitions.retry(keys("lost"), clear_terminal=True), **WHY)
    done = ann.apply(ann.partitions.retry(keys("lost"), clear_terminal=True), because="go on", without_raw=True)
    assert done.sweep.made == 1
    assert ann.audit.find()[0].because == "go on (without raw data too)"


@pytest.mark.req("O-1")
def test_a_marked_partition_without_a_verdict_has_a_reason(unended_world: World, ann: Operator) -> None:
    reasons = {"row_count": 1, "marked as given up": 1}
    assert ann.partitions.reasons() == reasons
    report = ann.backfills.progress(unended_world.facts(unended_world.key("bad")).sweep_id or 1)
    assert report is not None
    assert report.reasons == reasons


@pytest.mark.req("O-2")
def test_clear_terminal_skips_a_partition_of_which_no_extraction_ended(unended_world: World, ann: Operator) -> None:
    plan = ann.partitions.chosen("clear_terminal", keys("bad", "lost"))
    assert (plan.count, plan.left) == (1, {"no raw data": 1})
    plan = ann.partitions.chosen("clear_terminal", keys("bad", "lost"), without_raw=True)
    assert (plan.count, plan.left) == (2, {})
    ann.partitions.steer(plan, **WHY)
    assert len(unended_world.claim()) == 2


@pytest.mark.req("O-2")
def test_a_plan_detects_partitions_changed_meanwhile(mixed_world: World, ann: Operator) -> None:
    plan, other = ann.partitions.retry(keys("bad-1", "bad-2")), ann.partitions.retry(keys("bad-1", "bad-2"))
    assert plan.digest == other.digest
    ann.apply(ann.partitions.retry(keys("bad-1")), **WHY)
    (lease,) = mixed_world.claim()
    mixed_world.accept(lease)
    with pytest.raises(Drift, match="partitions changed since the plan: 1 accepted meanwhile"):
        ann.apply(plan, **WHY)
    assert mixed_world.claim() == []
    with pytest.raises(Drift, match="the plan has changed"):
        ann.begin(ann.partitions.retry(keys("bad-1", "bad-2")), because="x", seen=plan.digest)
    done = ann.apply(plan, because="only the other", accept_drift=True)
    assert (done.sweep.made, done.sweep.skipped) == (1, 1)
    assert [lease.partition.customer_id for lease in mixed_world.claim()] == ["bad-2"]


@pytest.mark.req("P-5")
@pytest.mark.req("O-2")
def test_accepted_partitions_are_requeued_only_by_reprocess(mixed_world: World, ann: Operator) -> None:
    plan = ann.partitions.retry(keys("ok-1"))
    assert (plan.count, plan.partitions and plan.partitions.left) == (0, {"accepted already": 1})
    again = ann.partitions.reprocess(keys("ok-1", "bad-1"))
    assert again.partitions is not None
    assert (again.count, again.partitions.readable, again.partitions.left) == (1, 1, {"never accepted": 1})
    run = mixed_world.facts(mixed_world.key("ok-1")).current_run_id
    ann.apply(again, because="a column was added")
    (lease,) = mixed_world.claim()
    assert lease.kind == "reprocess"
    mixed_world.reject(lease)
    facts = mixed_world.facts(mixed_world.key("ok-1"))
    assert (facts.status, facts.shade, facts.current_run_id) == ("success", "refresh_failed", run)
    shown = ann.partitions.explain(mixed_world.key("ok-1"))
    assert shown.in_force is not None
    assert (shown.in_force.run_id, shown.last and shown.last.state, shown.assumed) == (run, "rejected", True)


@pytest.mark.req("P-10")
def test_a_backfill_ends_today_in_the_time_zone_of_a_stored_schedule(world: World, ann: Operator) -> None:
    world.accept(world.lease_one("a"))
    now = world.ledger.now()
    world.control.start_schedule_at("crm", "orders", now, cron="0 2 * * * Etc/GMT+12")
    today = (now - timedelta(hours=12)).date()
    assert ann.backfills.plan("crm/orders", today, today, customers=["a"]).count == 1
    with pytest.raises(ValueError, match=rf"the last day to extract is {today} \(today in Etc/GMT\+12\)"):
        ann.backfills.plan("crm/orders", today, today + timedelta(days=1), customers=["a"])


@pytest.mark.req("P-10")
@pytest.mark.req("O-3")
def test_a_backfill_from_plan_to_end(world: World, ann: Operator) -> None:
    with pytest.raises(ValueError, match="unknown source 'crm'.*no dataset is registered"):
        ann.backfills.plan("crm/orders", DAY, DAY, customers=["a"])
    world.accept(world.lease_one("a"))
    world.control.maintain()
    last = DAY + timedelta(days=9)
    with pytest.raises(ValueError, match="customers of crm/orders are unknown"):
        ann.backfills.plan("crm/orders", DAY, last)
    with pytest.raises(ValueError, match="range is reversed"):
        ann.backfills.plan("crm/orders", last, DAY, customers=["a"])
    with pytest.raises(ValueError, match="is in the future"):
        ann.backfills.plan("crm/orders", DAY, "2999-01-01", customers=["a"])
    with pytest.raises(ValueError, match="share"):
        ann.backfills.plan("crm/orders", DAY, last, customers=["a"], share=1.5)
    plan = ann.backfills.plan("crm/orders", DAY, last, customers=["a", "b", "c"], share=0.3)
    assert plan.partitions is not None
    assert (plan.count, plan.partitions.total, plan.partitions.left) == (29, 30, {"accepted already": 1})
    begun = ann.apply(plan, because="new dataset").sweep
    assert (begun.act, begun.state, begun.total) == ("backfill", "running", 30)
    assert actions(ann)[-1] == "partition.backfill"
    with pytest.raises(NotAllowed, match=f"backfill {begun.id} has some of these"):
        ann.backfills.plan("crm/orders", last, last, customers=["c"])
    leases = world.claim(25)
    world.accept(*leases[:21])
    world.reject(leases[21], final=True)
    report = ann.backfills.progress(begun.id)
    assert report is not None
    assert (report.progress.ok, report.progress.failed, report.progress.active) == (21, 1, 3)
    assert report.left is not None
    assert report.said == f"crm/orders × 3 customers × {DAY} to {last} = 30"
    assert report.reasons == {"row_count": 1}
    ann.backfills.set_share(begun.id, 0.5, because="hurry")
    ann.sweeps.pause(begun.id, because="the CRM is slow")
    assert world.claim() == []
    ann.sweeps.resume(begun.id, because="fast again")
    ann.sweeps.cancel(begun.id, because="enough")
    assert world.claim() == []
    assert actions(ann)[-4:] == ["sweep.share", "sweep.pause", "sweep.resume", "sweep.cancel"]
    assert [one.id for one in ann.backfills.find()] == [begun.id, 1]
    assert ann.backfills.progress(99) is None
    with pytest.raises(NotAllowed):
        ann.backfills.set_share(begun.id, 0.5, because="too late")


@pytest.mark.req("P-4")
@pytest.mark.req("O-1")
def test_terminal_is_marked_and_cleared_with_a_grant(mixed_world: World, ann: Operator) -> None:
    desk = ann.partitions
    chosen = desk.chosen("mark_terminal", keys("bad-1", "ok-1"))
    assert chosen.count == 2
    done = desk.steer(chosen, because="never comes back")
    assert (done.count, done.skipped) == (1, {f"crm/ok-1/orders/{DAY}": "accepted already"})
    assert [str(one.partition.customer_id) for one in desk.failures(terminal=True)] == ["over", "bad-1"]
    assert [one.partition.customer_id for one in desk.failures()] == ["over", "none", "bad-2", "bad-1"]
    cleared = desk.steer(desk.chosen("clear_terminal", keys("bad-1", "over")), because="it did", grant=1)
    assert cleared.count == 2
    for lease in mixed_world.claim():
        mixed_world.reject(lease)
    assert {one.partition.customer_id for one in desk.failures(terminal=True)} == {"bad-1", "over"}  # one attempt was granted
    assert actions(ann)[-2:] == ["partition.mark_terminal", "partition.clear_terminal"]
    with pytest.raises(TypeError, match="clear_terminal"):
        desk.steer(desk.chosen("pause", keys("bad-1")), because="x", grant=2)


@pytest.mark.req("O-1")
def test_partitions_and_sources_are_paused(mixed_world: World, ann: Operator) -> None:
    desk = ann.partitions
    desk.steer(desk.chosen("pause", keys("bad-1")), because="being looked at")
    ann.sources.pause("crm", because="the CRM moves house")
    assert [(one.source, one.paused, one.actor) for one in ann.sources.find()] == [("crm", True, "ann")]
    (finding,) = [one for one in ann.health.check().findings if one.name == "source paused"]
    assert (finding.severity, finding.mend) == ("warning", 'redrive resume source crm --because "..."')
    mixed_world.pass_time(3600)
    assert mixed_world.claim() == []
    said = desk.explain(mixed_world.key("bad-2"))
    assert any("source crm is paused by ann until it is unpaused: the CRM moves house" in line for line in said.explanation.why)
    ann.sources.unpause("crm", because="it has moved")
    assert {lease.partition.customer_id for lease in mixed_world.claim()} == {"bad-2", "none"}
    desk.steer(desk.chosen("unpause", keys("bad-1")), because="looked at")
    assert [lease.partition.customer_id for lease in mixed_world.claim()] == ["bad-1"]
    assert actions(ann)[-4:] == ["partition.pause", "source.pause", "source.unpause", "partition.unpause"]
    with pytest.raises(ValueError, match="unknown source 'cmr'"):
        ann.sources.pause("cmr", because="x")


@pytest.mark.req("O-1")
@pytest.mark.req("P-14")
def test_partitions_are_listed_counted_and_explained(mixed_world: World, ann: Operator) -> None:
    desk = ann.partitions
    assert desk.datasets() == [("crm", "orders")]
    assert desk.counts() == {("crm", "orders"): {"success": 2, "failed": 3, "terminal": 1, "pending": 1}}
    assert desk.counts(since="2026-03-02") == {}
    calendar = desk.calendar(DAY, DAY)
    assert [(row.query, dict(row.days)) for row in calendar.rows] == [("orders", {DAY: desk.counts()["crm", "orders"]})]
    assert desk.calendar().rows == ()  # the last eight weeks
    assert desk.reasons() == {"row_count": 2, "TimeoutError": 1, "unique": 1}
    found = desk.inspect(select_partitions(source="crm", status="failed", error="row_count"))
    assert [one.partition.customer_id for one in found] == ["bad-1", "over"]
    first = desk.inspect(ALL, limit=4)
    rest = desk.inspect(ALL, after=first[-1].id, limit=4)
    assert len({one.id for one in (*first, *rest)}) == 7
    history = desk.history(f"crm/bad-1/orders/{DAY}")
    assert history is not None
    assert [(run.state, run.verdict and run.verdict.reason) for run in history.runs] == [("rejected", "row_count")]
    assert desk.history(f"crm/nobody/orders/{DAY}") is None
    nobody = desk.explain(f"crm/nobody/orders/{DAY}")
    assert nobody.explanation.facts is None
    assert "never requested" in nobody.explanation.why[0]
    with pytest.raises(ValueError, match="unknown query 'ordres' of source 'crm'"):
        desk.explain(f"crm/acme/ordres/{DAY}")


@pytest.mark.req("P-13")
def test_a_ledger_without_a_store_does_not_roll_back(world: World, ann: Operator) -> None:
    world.accept(world.lease_one("acme"))
    key = world.key("acme")
    with pytest.raises(NotAllowed, match="no accepted run before the current run"):
        ann.partitions.rollback(key, because="x")
    ann.apply(ann.partitions.reprocess(keys("acme")), **WHY)
    (lease,) = world.claim()
    world.accept(lease)
    with pytest.raises(NotAllowed, match="does not know the store"):
        ann.partitions.rollback(key, because="x")
    with pytest.raises(NotAllowed, match="is already the current run"):
        ann.partitions.rollback(key, lease.run_id, because="x")
    with pytest.raises(NotAllowed, match="no accepted run no-such; other accepted runs: "):
        ann.partitions.rollback(key, "no-such", because="x")


@pytest.mark.req("P-14")
def test_the_doctor_compares_the_calendar_with_the_rows(world: World, ann: Operator) -> None:
    world.accept(world.lease_one("acme"))
    assert ann.health.check().findings == ()
    with world.ledger.connections.write.use() as session, session.transaction("test"):
        session.core.exec_driver_sql("UPDATE redrive_partition_rollup SET n = n + 2")
    (finding,) = ann.health.check().findings
    assert (finding.name, finding.severity) == ("calendar", "critical")
    assert "success is counted 2 too many" in finding.says
    with world.ledger.connections.write.use() as session, session.transaction("test"):
        session.core.exec_driver_sql("UPDATE redrive_partition_rollup SET n = n - 2")


@pytest.mark.req("P-10")
def test_a_rejected_canary_halts_a_backfill_until_an_operator_resumes_it(world: World, ann: Operator) -> None:
    world.accept(world.lease_one("a"))
    world.control.maintain()
    plan = ann.backfills.plan("crm/orders", DAY, DAY + timedelta(days=4), customers=["b"])
    begun = ann.apply(plan, because="history", canary=2).sweep
    leases = world.claim()
    assert len(leases) == 2
    world.reject(*leases)
    world.pass_time(3600)
    world.control.maintain()
    assert world.claim(0) == []
    world.claim()
    report = ann.backfills.progress(begun.id)
    assert report is not None
    assert (report.sweep.state, report.sweep.reason) == ("halted", "canary failed, 2 of the first 2")
    with pytest.raises(NotAllowed, match=r"cancel the backfill and start a new backfill with a canary; nothing was changed"):
        ann.sweeps.resume(begun.id, because="go on")
    assert world.claim() == []
    because = "looked at: the first days are empty"
    assert ann.sweeps.resume(begun.id, because=because, accept_failed_canary=True).state == "running"
    assert len(world.claim()) > 0


@pytest.mark.req("O-2")
def test_marked_partitions_are_skipped_unless_they_are_named_or_included(world: World, ann: Operator) -> None:
    world.backfill(["a", "b", "left"])
    world.reject(*world.claim(), final=True)
    every, named = PartitionFilter(source="crm"), PartitionFilter(keys=(world.key("left"),))
    ann.partitions.steer(ann.partitions.chosen("mark_terminal", named), because="customer left")
    reason = {"marked as given up by ann: customer left": 1}

    plan = ann.partitions.retry(every, clear_terminal=True)
    assert plan.partitions is not None
    assert (plan.count, plan.partitions.left) == (2, reason)
    assert ann.partitions.retry(every, clear_terminal=True, include_marked=True).count == 3
    assert ann.partitions.retry(named, clear_terminal=True).count == 1

    clear = ann.partitions.chosen("clear_terminal", every)
    assert (clear.count, clear.left) == (2, reason)
    assert ann.partitions.chosen("clear_terminal", every, include_marked=True).count == 3
    assert ann.partitions.chosen("clear_terminal", named).count == 1

    world.control.maintain()
    backfill = ann.backfills.plan("crm/orders", DAY, DAY, customers=["a", "left"], clear_terminal=True)
    assert backfill.partitions is not None
    assert (backfill.count, backfill.partitions.left) == (1, reason)
    begun = ann.apply(backfill, because="again").sweep
    assert [lease.partition.customer_id for lease in world.claim()] == ["a"]
    report = ann.backfills.progress(begun.id)
    assert report is not None
    assert report.progress.skips == {"marked as given up": 1}


@pytest.mark.req("O-2")
def test_a_plan_covers_several_datasets(ledger: Ledger, ann: Operator) -> None:
    """Customers whose partitions have interleaved ids."""
    both = [
        DatasetLimits("crm", query, Policy(max_attempts=3, backoff=fixed(60)), concurrency=100)
        for query in ("orders", "customers")
    ]
    control, authority = ControlPlane(ledger, both, draw=lambda: 0.5), VerdictWriter(ledger, both)
    for at in range(6):
        one = Grid.of("crm", both[at % 2].query_name, ["acme"], DAY + timedelta(days=at))
        control.backfill(one, actor="ann", because="a test")
        (lease,) = control.claim(1, worker="w1")
        authority.apply([Verdict(lease.run_id, "rejected", reason="row_count", manifest="sha")])
    plan = ann.partitions.retry(PartitionFilter(source="crm"))
    assert (plan.count, plan.kinds) == (6, {"crm/orders": 3, "crm/customers": 3})
    done = ann.apply(plan, **WHY)
    assert (done.sweep.made, done.sweep.skipped) == (6, 0)


@pytest.mark.req("Q-12")
def test_customers_of_a_day_are_listed_in_pages(ledger: Ledger, world: World, ann: Operator) -> None:
    names = [f"c{number:02}" for number in range(12)]
    world.backfill(names, 5)
    leases = world.claim()
    bad = [lease for lease in leases if lease.partition.customer_id == "c03"]
    world.reject(*bad)
    world.accept(*(lease for lease in leases if lease not in bad and lease.partition.logical_date != DAY))
    world.backfill(["late"], 1)
    until = DAY + timedelta(days=6)
    first = ann.partitions.customers("crm", "orders", DAY, until, limit=5)
    assert [row.customer for row in first.rows] == names[:5]
    assert (first.next_after, first.since, first.until) == ("c04", DAY, until)
    assert set(first.rows[3].days.values()) == {"failed"}
    assert first.rows[0].days == {DAY: "pending"} | {DAY + timedelta(days=day): "success" for day in range(1, 5)}
    second = ann.partitions.customers("crm", "orders", DAY, until, after="c04", limit=50)
    assert ([row.customer for row in second.rows][:7], second.next_after) == (names[5:], None)
    assert ann.partitions.customers("crm", "orders", DAY + timedelta(days=50), DAY + timedelta(days=60)).rows == ()
    with pytest.raises(ValueError, match="more than 100 days"):
        ann.partitions.customers("crm", "orders", DAY, DAY + timedelta(days=100))
