"""Failed partitions beside failed jobs: in the failures, in the journal, and in the lists of workers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from redrive.ledger import Ledger, NewJob
from redrive.ledger.jobs.lease_recovery import expire_leases_of_dead_workers
from redrive.ops.operator import Operator
from redrive.ops.partitions import overview
from redrive.ops.partitions.selection import select_partitions
from tests.conformance.partitions.world import AUDIT, DAY, World


@pytest.fixture
def world(ledger: Ledger) -> Iterator[World]:
    made = World(ledger)
    yield made
    assert made.wrong() == []


@pytest.mark.req("O-4")
def test_rejections_are_grouped_by_dataset_and_reason(world: World, ann: Operator) -> None:
    assert ann.overview.rejections() == []
    world.backfill(["fine", "few-1", "few-2", "over", "away", "given"])
    leases = {lease.partition.customer_id: lease for lease in world.claim()}
    world.accept(leases["fine"])
    world.reject(leases["few-1"])
    world.reject(leases["few-2"])
    world.reject(leases["over"], final=True)
    world.reject(leases["away"], reason="TimeoutError")
    world.control.mark_terminal([leases["given"].partition_id], **AUDIT)
    world.retry(world.key("fine"), act="reprocess")
    (again,) = world.claim()
    world.reject(again)
    few, away, given = sorted(ann.overview.rejections(), key=lambda one: -one.many)
    assert (few.name, few.why, few.many, few.terminal, few.readable, few.more) == ("crm/orders", "row_count", 4, 1, 1, False)
    assert (few.partition, few.error) == (f"crm/fine/orders/{DAY}", "too few")  # the last one
    assert few.last_at is not None
    assert {(one.why, one.many) for one in (away, given)} == {("TimeoutError", 1), ("gave up", 1)}
    assert ann.overview.rejections(dataset="crm/orders") == ann.overview.rejections()
    assert ann.overview.rejections(dataset="mail.send") == []
    assert ann.overview.rejections(since=few.last_at + timedelta(seconds=1)) == []
    assert ann.overview.rejections(until=few.last_at - timedelta(hours=1)) == []
    assert len(ann.overview.rejections(until=few.last_at + timedelta(seconds=1))) == 2  # without those that were not validated
    assert len(ann.overview.rejections(limit=1)) == 1


def test_only_the_last_rejections_of_a_dataset_are_read(world: World, ann: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MAX_PER_DATASET", 3)
    world.backfill(5)
    world.reject(*world.claim())
    (few,) = ann.overview.rejections()
    assert (few.many, few.more) == (3, True)


@pytest.mark.req("J-1", "O-3")
def test_the_journal_lists_rejections_until_they_are_fixed(world: World, ann: Operator) -> None:
    world.ledger.submit(NewJob("mail", "a"))
    tail = ann.overview.tail()
    assert [one.event for one in tail.look()] == ["submitted"]
    world.backfill(["acme", "fine"])
    leases = {lease.partition.customer_id: lease for lease in world.claim()}
    world.accept(leases["fine"])
    world.reject(leases["acme"])
    assert {one.event for one in tail.look()} >= {"rejected"}
    (seen,) = ann.overview.journal(events=["rejected"])
    assert (seen.kind, seen.key, seen.job_id) == ("crm/orders", f"crm/acme/orders/{DAY}", None)
    assert (seen.attempt, seen.reason, seen.error, seen.actor) == (1, "row_count", "too few", None)
    assert seen in ann.overview.journal()
    assert ann.overview.journal(kind="crm/orders") == [seen]
    assert {one.event for one in ann.overview.journal(events=["rejected", "submitted"])} == {"rejected", "submitted"}
    assert ann.overview.journal(events=["rejected"], since=seen.at + timedelta(seconds=1)) == []
    assert "rejected" not in {one.event for one in tail.look()}  # reported once
    world.pass_time(61)
    (lease,) = world.claim()
    world.reject(lease)
    assert [(one.event, one.attempt) for one in tail.look() if one.event == "rejected"] == [("rejected", 2)]
    world.pass_time(61)
    world.accept(*world.claim())
    assert ann.overview.journal(events=["rejected"]) == []


@pytest.mark.req("O-4")
def test_a_worker_lists_its_running_partitions(world: World, ann: Operator) -> None:
    world.ledger.maintenance.heartbeat("w1", {"kinds": []})
    world.backfill(["acme"])
    world.claim(worker="w1")
    (one,) = ann.workers.find().workers
    assert (one.hands, [each.partition for each in one.partitions]) == (1, [f"crm/acme/orders/{DAY}"])
    assert one.longest_since == one.partitions[0].started_at


@pytest.mark.req("O-4")
def test_a_killed_worker_is_lost_and_not_stopped(ledger: Ledger, ann: Operator) -> None:
    for name in ("killed", "left", "alive"):
        ledger.maintenance.heartbeat(name)
    ledger.maintenance.deregister_worker("left")
    with ledger.connections.write.use() as session:
        expire_leases_of_dead_workers(session, ["killed"])  # as another worker on the machine does when the process has ended
    found = [(one.name, one.presence) for one in ann.workers.find().workers]
    assert found == [("alive", "alive"), ("killed", "lost"), ("left", "ended")]


@pytest.mark.req("O-4")
def test_the_change_token_changes_with_partitions(world: World, ann: Operator) -> None:
    world.backfill(["acme"])
    seen = [ann.overview.change_token()]
    (lease,) = world.claim()
    seen.append(ann.overview.change_token())
    world.reject(lease)
    seen.append(ann.overview.change_token())
    world.pass_time(61)
    world.accept(*world.claim())
    seen.append(ann.overview.change_token())
    assert len(set(seen)) == 4
    assert ann.overview.change_token() == seen[-1]


@pytest.mark.req("O-4")
def test_the_overview_warns_about_failing_partitions(world: World, ann: Operator) -> None:
    world.ledger.maintenance.heartbeat("w1", {"kinds": []})
    world.backfill(12)
    leases = world.claim()
    world.reject(*leases[:9])
    assert ann.overview.summary().findings == ()
    world.reject(*leases[9:])
    (one,) = ann.overview.summary().findings
    assert (one.name, one.says) == ("partitions failing", "crm/orders: 12 partitions rejected in the last hour")
    (line,) = ann.overview.summary().datasets
    assert (line.failed, line.lately, line.pending) == (12, 12, 0)
    world.pass_time(7200)
    world.ledger.maintenance.heartbeat("w1")
    assert ann.overview.summary().findings == (), "it is over, or known"


def test_the_overview_distinguishes_running_jobs_and_extracted_partitions(world: World, ann: Operator) -> None:
    world.ledger.maintenance.heartbeat("w1", {"kinds": ["mail"]})
    assert ann.overview.summary().says == "No problems found. 1 worker online; nothing running"
    world.backfill(["acme"])
    world.claim()
    assert ann.overview.summary().says == "No problems found. 1 worker online; 1 partition running"
    world.ledger.submit(NewJob("mail", "a"))
    world.ledger.claim({"mail": 1}, worker="w1")
    assert ann.overview.summary().says == "No problems found. 1 worker online; 1 job and 1 partition running"


def test_the_overview_names_partitions_that_gave_up(world: World, ann: Operator) -> None:
    world.ledger.maintenance.heartbeat("w1", {"kinds": []})
    world.reject(world.lease_one(), final=True)
    world.control.maintain()
    decision = "No new problems; 1 given-up partition. 1 worker online; nothing running"
    assert ann.overview.summary().says == decision


def test_a_rejected_newer_run_that_is_not_retried_is_reported(world: World, ann: Operator) -> None:
    world.ledger.maintenance.heartbeat("w1", {"kinds": []})
    world.accept(world.lease_one())
    world.retry(world.key(), act="reprocess")
    world.reject(*world.claim())
    world.control.maintain()
    assert [finding.name for finding in ann.health.check().findings] == [], "a retry is scheduled"
    for _ in range(2):
        world.pass_time(3600)
        world.reject(*world.claim())
    world.ledger.maintenance.heartbeat("w1", {"kinds": []})
    (finding,) = ann.health.check().findings
    assert (finding.name, finding.severity, finding.count) == ("newer runs rejected", "warning", 1)
    assert finding.says.startswith("Partitions: the newer run of 1 was rejected (1 crm/orders) and is not retried")
    assert ann.overview.summary().says.startswith("No new problems; 1 rejected newer run. ")
    chosen = ann.partitions.chosen("mark_terminal", select_partitions(["crm"]))
    assert (chosen.count, chosen.changes, chosen.kept) == (1, 1, 1)
    assert ann.partitions.steer(chosen, because="the old data is right").count == 1
    facts = world.facts()
    assert (facts.shade, facts.reason, facts.current_run_id is not None) == ("success", None, True)
    assert ann.health.check().findings == ()
    assert ann.partitions.steer(chosen, because="again").skipped == {f"crm/acme/orders/{DAY}": "accepted already"}


def test_the_doctor_skips_partitions_given_up_by_an_operator(world: World, ann: Operator) -> None:
    def given_up() -> list[int]:
        return [finding.count for finding in ann.health.check().findings if finding.name == "partitions given up"]

    world.backfill(["acme", "globex"])
    world.reject(*world.claim(), final=True)
    world.control.maintain()
    assert given_up() == [2]
    chosen = ann.partitions.chosen("mark_terminal", select_partitions(["crm/globex/orders/*"]))
    assert (chosen.count, chosen.changes) == (1, 1)
    assert ann.partitions.steer(chosen, because="the customer left").count == 1
    assert given_up() == [1]
    assert ann.partitions.chosen("mark_terminal", select_partitions(["crm/globex/orders/*"])).changes == 0
