"""Verdicts, and the counts and states that they change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from redrive.backoff import fixed
from redrive.errors import Drift, NotAllowed
from redrive.ledger import Ledger
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.model import PartitionFilter, PartitionLease, Verdict
from redrive.partitions.retry_schedule import Policy
from tests.conformance.partitions.world import AUDIT, World


@pytest.mark.req("P-2")
def test_the_first_verdict_makes_pending_a_success_or_a_failure(world: World) -> None:
    good = world.lease_one("good")
    assert world.facts(world.key("good")).status == "pending"
    (judged,) = world.accept(good, rows=7)
    assert (judged.outcome, judged.status, judged.attempt_count, judged.next_at) == ("accepted", "success", 1, None)
    known = world.facts(world.key("good"))
    assert (known.status, known.current_run_id, known.record_count, known.lane) == ("success", good.run_id, 7, None)

    bad = world.lease_one("bad")
    (judged,) = world.reject(bad)
    assert (judged.outcome, judged.status) == ("rejected", "failed")
    known = world.facts(world.key("bad"))
    assert (known.status, known.current_run_id, known.reason, known.error) == ("failed", None, "row_count", "too few")
    assert known.next_at == judged.next_at


@pytest.mark.req("P-6")
def test_a_repeated_verdict_has_no_effect(world: World) -> None:
    """D4 of the original implementation: the same run validated twice counted twice."""
    lease = world.lease_one()
    world.reject(lease)
    before = world.facts()
    for again in (world.reject(lease), world.accept(lease)):
        assert [one.outcome for one in again] == ["repeated"]
    assert world.facts() == before
    both = world.verdict_writer.apply([Verdict(lease.run_id, "rejected"), Verdict("nobody's", "accepted")])
    assert [one.outcome for one in both] == ["repeated", "unknown"]


@pytest.mark.req("P-5")
def test_a_failed_reprocessing_keeps_the_current_run(world: World) -> None:
    """D3 of the original implementation: a rejected second run made good data unreadable."""
    first = world.lease_one()
    world.accept(first)
    world.retry(world.key(), act="reprocess")
    known = world.facts()
    assert (known.status, known.current_run_id, known.lane) == ("success", first.run_id, "backfill")
    (second,) = world.claim()
    assert (second.kind, second.current_run_id) == ("reprocess", first.run_id)
    assert world.facts().status == "success"
    world.reject(second)
    known = world.facts()
    assert (known.status, known.shade, known.current_run_id, known.record_count) == ("success", "refresh_failed", first.run_id, 5)
    world.pass_time(100)
    (third,) = world.claim()
    world.accept(third, rows=9)
    known = world.facts()
    assert (known.shade, known.current_run_id, known.record_count) == ("success", third.run_id, 9)


@pytest.mark.req("P-4")
def test_terminal_is_a_marker_and_a_grant_is_stored(world: World) -> None:
    """Ruling A2: clearing a terminal partition grants the requested attempts, not zero. A3: at max_attempts."""
    lease = world.lease_one()
    judged = None
    for number in (1, 2, 3):
        (judged,) = world.reject(lease)
        assert judged.status == "failed"
        assert judged.attempt_count == number
        if number < 3:
            world.pass_time(100)
            (lease,) = world.claim()
    assert judged is not None
    assert (judged.terminal, judged.next_at) == ("attempts", None)
    known = world.facts()
    assert (known.status, known.shade, known.next_at) == ("failed", "terminal", None)
    world.pass_time(10_000)
    assert world.claim() == []

    act = world.control.clear_terminal([known.id], grant=2, **AUDIT)
    assert (act.count, act.skipped) == (1, {})
    for number in (4, 5):
        (lease,) = world.claim()
        (judged,) = world.reject(lease)
        assert judged.attempt_count == number
        world.pass_time(100)
    assert judged.terminal == "attempts"
    assert world.facts().attempt_count == 5
    assert "partition.clear_terminal" in world.audited()


@pytest.mark.req("P-7")
def test_a_late_run_does_not_change_a_newer_one(world: World) -> None:
    """T4: a suspended worker resumes after its partition was leased to another."""
    zombie = world.lease_one()
    world.pass_time(1000)
    world.control.maintain()
    (newer,) = world.claim(worker="w2")
    assert newer.attempt_no > zombie.attempt_no
    assert world.control.renew([zombie]) == [zombie]
    assert world.give_back(zombie, "stopped") == 0
    (late,) = world.accept(zombie)
    assert (late.outcome, late.attempt_count, late.status) == ("late", 1, "pending")
    assert world.facts().current_run_id is None
    world.accept(newer)
    assert world.facts().current_run_id == newer.run_id
    assert world.facts().attempt_count == 2
    assert world.states() == ["late", "accepted"]


@pytest.mark.req("P-7")
def test_a_run_that_a_failover_lost_holds_no_other_run_of_the_same_number(world: World) -> None:
    """The new primary has assigned the partition's id and attempt number to another run. Its `run_id` is random."""
    held = world.lease_one()
    lost = replace(held, run_id="20260101T000000-0123456789")
    assert world.control.renew([lost]) == [lost]
    assert world.give_back(lost, "stopped") == 0
    assert world.accept(lost)[0].outcome == "unknown"
    assert world.accept(held)[0].outcome == "accepted"


@pytest.mark.req("P-7")
def test_an_older_run_validated_after_the_newer_one_is_late(world: World) -> None:
    """T5."""
    older = world.lease_one()
    world.pass_time(1000)
    world.control.maintain()
    (newer,) = world.claim()
    world.accept(newer)
    (late,) = world.reject(older)
    assert late.outcome == "late"
    known = world.facts()
    assert (known.status, known.shade, known.current_run_id, known.last_verdict) == (
        "success",
        "success",
        newer.run_id,
        "accepted",
    )


@pytest.mark.req("P-13")
def test_a_verdict_is_stored_with_the_measured_values(world: World) -> None:
    lease = world.lease_one()
    checks = [{"name": "row_count", "ok": False, "value": 3, "limit": 5, "detail": "dröge"}]
    said = Verdict(lease.run_id, "rejected", "orders", "3.2", checks, 3, "row_count", "3 rows, 5 wanted", "sha256:ab")
    world.verdict_writer.apply([said])
    (run,) = world.history()
    assert run.verdict == Verdict(
        lease.run_id, "rejected", "orders", "3.2", tuple(checks), 3, "row_count", "3 rows, 5 wanted", "sha256:ab"
    )
    assert run.verdict_at is not None
    assert world.queries.run(lease.run_id) == run


@pytest.mark.req("P-13")
def test_rollback_goes_to_an_earlier_accepted_run_only(world: World) -> None:
    first = world.lease_one()
    world.accept(first, rows=1)
    world.retry(world.key(), act="reprocess")
    (second,) = world.claim()
    world.reject(second)
    world.pass_time(100)
    (third,) = world.claim()
    world.accept(third, rows=3)

    for run_id, why in ((second.run_id, "rejected"), (third.run_id, "current run"), ("no-such", "no run")):
        with pytest.raises(NotAllowed, match=why):
            world.verdict_writer.rollback(world.key(), run_id, **AUDIT)
    with pytest.raises(NotAllowed, match="nothing is stored"):
        world.verdict_writer.rollback(world.key("else"), first.run_id, **AUDIT)
    with pytest.raises(ValueError, match="why"):
        world.verdict_writer.rollback(world.key(), first.run_id, actor="ann", because=" ")
    back = world.verdict_writer.rollback(world.key(), first.run_id, **AUDIT)
    assert (back.current_run_id, back.record_count, back.current_attempt_no) == (first.run_id, 1, first.attempt_no)
    assert world.audited()[-1] == "partition.rollback"


@pytest.mark.req("P-6")
def test_revalidate_validates_the_same_raw_data_in_a_new_run(world: World) -> None:
    first = world.lease_one()
    world.reject(first)
    world.retry(world.key(), act="revalidate")
    (again,) = world.claim()
    assert (again.kind, again.raw_run_id) == ("revalidate", first.run_id)
    assert again.run_id != first.run_id
    world.accept(again)
    known = world.facts()
    assert (known.current_run_id, known.current_raw_id, known.attempt_count) == (again.run_id, first.run_id, 2)


def accepted_again(world: World, rows: int = 5) -> str:
    """The run of an accepted reprocessing."""
    world.retry(world.key(), act="reprocess")
    (lease,) = world.claim()
    world.accept(lease, rows=rows)
    return lease.run_id


@pytest.mark.req("P-13")
def test_revalidate_after_rollback_validates_the_current_run(world: World) -> None:
    first = world.lease_one()
    world.accept(first, rows=1)
    accepted_again(world, rows=2)
    world.verdict_writer.rollback(world.key(), first.run_id, **AUDIT)
    plan = world.queries.freeze("revalidate", PartitionFilter(keys=[world.key()]))
    assert plan.validates == {str(world.key()): first.run_id}
    world.retry(world.key(), act="revalidate")
    (again,) = world.claim()
    assert again.raw_run_id == first.run_id
    world.accept(again, rows=1)
    assert world.facts().current_raw_id == first.run_id


@pytest.mark.req("P-13")
def test_revalidate_never_returns_to_data_that_was_rolled_back(world: World) -> None:
    first = world.lease_one()
    world.accept(first)
    accepted_again(world)
    world.verdict_writer.rollback(world.key(), first.run_id, **AUDIT)
    world.retry(world.key(), act="reprocess")
    (failed,) = world.claim()
    world.reject(failed, reason="TimeoutError", manifest=False)  # the newest run wrote nothing
    assert world.queries.freeze("revalidate", PartitionFilter(keys=[world.key()])).validates == {str(world.key()): first.run_id}


@pytest.mark.req("P-6")
def test_revalidate_of_a_failed_refresh_validates_the_rejected_run(world: World) -> None:
    world.accept(world.lease_one())
    world.retry(world.key(), act="reprocess")
    (newer,) = world.claim()
    world.reject(newer)  # by a check that is too strict, for example
    assert world.queries.freeze("revalidate", PartitionFilter(keys=[world.key()])).validates == {str(world.key()): newer.run_id}


@pytest.mark.req("O-2")
def test_a_rollback_after_the_plan_is_drift(world: World) -> None:
    first = world.lease_one()
    world.accept(first)
    accepted_again(world)
    plan = world.queries.freeze("revalidate", PartitionFilter(keys=[world.key()]))
    world.verdict_writer.rollback(world.key(), first.run_id, **AUDIT)
    with pytest.raises(Drift, match="1 changed meanwhile"):
        world.control.begin_requeue(plan, **AUDIT)


@pytest.mark.req("P-6")
def test_lost_runs_are_counted_and_limited(world: World) -> None:
    world.backfill(["acme"])
    for number in range(1, 6):
        (lease,) = world.claim()
        assert (lease.attempt_no, lease.lost) == (number, number - 1)
        world.pass_time(1000)
        world.control.maintain()
        world.pass_time(1000)
    assert world.claim() == []
    known = world.facts()
    assert (known.attempt_count, known.dispatch_count, known.status, known.shade) == (0, 5, "pending", "terminal")
    assert known.terminal is not None
    assert known.terminal.startswith("lost")
    assert world.states() == ["lost"] * 5


@pytest.mark.req("P-9")
def test_a_partition_past_max_age_is_not_retried(ledger: Ledger) -> None:
    world = World(ledger, policy=Policy(backoff=fixed(24 * 3600), max_age=timedelta(days=3)))
    now = ledger.now()
    for turn, (customer, age) in enumerate((("older", 3), ("newer", 1))):
        on = now.date() - timedelta(days=age)
        assert world.control.enqueue_scheduled("crm", "orders", now + timedelta(seconds=turn), [customer], [on], cron="x")
    older, newer = sorted(world.claim(), key=lambda one: one.partition.logical_date)
    assert [one.terminal for one in world.reject(older, newer)] == ["age", None]
    world.pass_time(7 * 24 * 3600)  # its run and its wait are seven days old, its day is not
    strict = World(ledger, policy=Policy(max_age=timedelta(seconds=1)))
    assert strict.claim() == []
    known = world.facts(newer.partition)
    assert known.terminal is not None
    assert known.terminal.startswith("age")
    assert world.queries.imbalance() == []


@pytest.mark.req("P-9")
def test_catch_up_work_of_a_schedule_keeps_all_its_attempts(ledger: Ledger) -> None:
    """Exempt from `max_age` when claimed, after a rejection, after a loss, and in the retry lane."""
    world = World(ledger, policy=Policy(max_attempts=3, backoff=fixed(60), max_age=timedelta(days=3)))
    now = ledger.now()
    on = now.date() - timedelta(days=6)
    assert world.control.enqueue_scheduled("crm", "orders", now, ["acme"], [on], cron="x")
    (lease,) = world.claim()
    world.pass_time(1000)
    world.control.maintain()  # its worker is offline
    for number in (1, 2, 3):
        (lease,) = world.claim()
        (judged,) = world.reject(lease)
        assert judged.terminal == (None if number < 3 else "attempts")
        world.pass_time(100)
    assert world.queries.imbalance() == []


@pytest.mark.req("P-9")
@pytest.mark.parametrize("grant", [None, 2])
def test_clear_terminal_is_exempt_from_max_age(ledger: Ledger, grant: int | None) -> None:
    world = World(ledger, policy=Policy(max_attempts=3, backoff=fixed(60), max_age=timedelta(days=3)))
    on = ledger.now().date() - timedelta(days=30)
    world.control.backfill(Grid.of("crm", "orders", ["acme"], on), **AUDIT)
    (lease,) = world.claim()
    world.reject(lease, final=True)
    key = lease.partition
    assert world.control.clear_terminal([lease.partition_id], grant=grant, **AUDIT).count == 1
    for number in range(grant or 3):
        (lease,) = world.claim()
        assert lease.partition == key
        if number == 0:
            world.pass_time(1000)  # its worker is offline
            world.control.maintain()
            world.pass_time(100)
            (lease,) = world.claim()
        (judged,) = world.reject(lease)
        assert judged.terminal == ("attempts" if number + 1 == (grant or 3) else None)
        world.pass_time(100)
    assert world.claim() == []
    assert world.queries.imbalance() == []


@pytest.mark.req("P-9")
def test_unpause_of_one_partition_is_exempt_from_max_age(ledger: Ledger) -> None:
    """When claimed, after a loss and after a rejection. Its number of attempts is unchanged."""
    world = World(ledger, policy=Policy(max_attempts=3, backoff=fixed(60), max_age=timedelta(days=3)))
    on = ledger.now().date() - timedelta(days=30)
    world.control.backfill(Grid.of("crm", "orders", ["acme"], on), **AUDIT)
    (lease,) = world.claim()
    world.reject(lease)
    world.control.pause([lease.partition_id], **AUDIT)
    assert world.control.unpause([lease.partition_id], **AUDIT).count == 1
    (lease,) = world.claim()
    world.pass_time(1000)  # its worker is offline
    world.control.maintain()
    world.pass_time(100)
    for terminal in (None, "attempts"):
        (lease,) = world.claim()
        (judged,) = world.reject(lease)
        assert judged.terminal == terminal
        world.pass_time(100)
    assert world.facts(lease.partition).attempt_count == 3
    assert world.queries.imbalance() == []


OLD = timedelta(days=30)


def last_attempt(ledger: Ledger, act: str) -> tuple[World, int, PartitionLease]:
    """An operator's request for an old day, with its only attempt rejected."""
    world = World(ledger, policy=Policy(max_attempts=1, backoff=fixed(60), max_age=timedelta(days=3)))
    sweep = world.control.backfill(Grid.of("crm", "orders", ["acme"], ledger.now().date() - OLD), **AUDIT).id
    (lease,) = world.claim()
    world.reject(lease)
    if act == "retry":
        sweep = world.retry(lease.partition, act="retry", clear_terminal=True)
        (lease,) = world.claim()
        world.reject(lease)
    return world, sweep, lease


@pytest.mark.req("P-9", "P-10")
@pytest.mark.parametrize("act", ["backfill", "retry"])
def test_a_requeue_after_an_outage_keeps_its_sweep(ledger: Ledger, act: str) -> None:
    world, sweep, lease = last_attempt(ledger, act)
    world.control.release_uncharged([], refunds={(lease.partition_id, lease.attempt_no): "an outage"})
    progress = world.queries.progress(sweep)
    assert progress is not None
    assert (progress.failed, progress.queued) == (0, 1)
    world.control.maintain()
    world.pass_time(1000)
    (again,) = world.claim()
    assert (again.partition, again.lane, again.sweep_id) == (lease.partition, act, sweep)
    world.accept(again)
    world.control.maintain()
    progress = world.queries.progress(sweep)
    assert progress is not None
    assert (progress.ok, progress.failed) == (1, 0)
    assert world.queries.imbalance() == []


@pytest.mark.req("P-9", "P-10")
@pytest.mark.parametrize("act", ["backfill", "retry"])
def test_a_requeue_after_an_outage_stays_a_request_when_its_sweep_is_done(ledger: Ledger, act: str) -> None:
    world, _, lease = last_attempt(ledger, act)
    world.control.maintain()
    world.control.release_uncharged([], refunds={(lease.partition_id, lease.attempt_no): "an outage"})
    world.pass_time(1000)
    (again,) = world.claim()
    assert (again.partition, again.lane, again.sweep_id) == (lease.partition, "backfill", None)


@pytest.mark.req("P-9", "P-10")
def test_a_requeue_after_an_outage_follows_the_policy_when_its_sweep_was_cancelled(ledger: Ledger) -> None:
    world, sweep, lease = last_attempt(ledger, "backfill")
    world.control.move(sweep, "cancel", **AUDIT)
    world.control.release_uncharged([], refunds={(lease.partition_id, lease.attempt_no): "an outage"})
    world.pass_time(1000)
    assert world.claim() == []
    assert [one.partition for one in world.control.expired] == [lease.partition]


@pytest.mark.req("P-10")
@pytest.mark.parametrize("request_by", ["retry", "unpause"])
def test_attempts_given_back_after_an_operators_request_are_bounded(ledger: Ledger, request_by: str) -> None:
    world = World(ledger, policy=Policy(max_attempts=1, backoff=fixed(60)))
    lease = world.lease_one()
    if request_by == "retry":
        world.reject(lease)
        world.retry(lease.partition, clear_terminal=True)
    else:
        world.give_back(lease, "not_ready")
        world.control.pause([lease.partition_id], **AUDIT)
        world.control.unpause([lease.partition_id], **AUDIT)
    runs = 0
    while leases := world.claim():
        runs += 1
        assert runs < 10
        world.reject(*leases)
        attempts = {(one.partition_id, one.attempt_no): "an outage" for one in leases}
        world.control.release_uncharged([], refunds=attempts, max_uncharged=3)
        world.pass_time(1000)
    assert runs == 4  # three of them do not count
    assert world.facts().shade == "terminal"


@pytest.mark.req("P-9")
def test_the_control_plane_names_partitions_that_it_gave_up_for_their_age(ledger: Ledger) -> None:
    world = World(ledger, policy=Policy(max_age=timedelta(microseconds=1)))
    now = ledger.now()
    assert world.control.enqueue_scheduled("crm", "orders", now, ["acme"], [now.date() - timedelta(days=1)], cron="x")
    (lease,) = world.claim()
    world.give_back(lease, "not_ready", error="no export yet")
    world.pass_time(1000)
    assert world.claim() == []
    assert [(one.partition, one.attempts) for one in world.control.expired] == [(lease.partition, 0)]
    assert world.control.expired[0].because.startswith("too old: no retries after ")
    assert world.claim() == []
    assert world.control.expired == []


@pytest.mark.req("P-9")
def test_a_partition_that_is_never_ready_ends_at_its_age(ledger: Ledger) -> None:
    world = World(ledger, policy=Policy(max_age=timedelta(microseconds=1)))
    now = ledger.now()
    assert world.control.enqueue_scheduled("crm", "orders", now, ["acme"], [now.date() - timedelta(days=1)], cron="x")
    (lease,) = world.claim()
    world.give_back(lease, "not_ready", error="no export yet")
    world.pass_time(1000)
    assert world.claim() == []
    known = world.facts(lease.partition)
    assert known.terminal is not None
    assert known.terminal.startswith("age")


@pytest.mark.req("P-4")
def test_a_schema_error_is_terminal_immediately(world: World) -> None:
    lease = world.lease_one()
    (judged,) = world.reject(lease, final=True, reason="stopped")
    assert (judged.terminal, world.facts().shade) == ("error", "terminal")


def test_the_displayed_time_is_the_due_time(world: World) -> None:
    """P-8: jitter comes from a stored seed."""
    lease = world.lease_one()
    (judged,) = world.reject(lease)
    shown = world.facts().next_at
    assert shown == judged.next_at
    assert shown is not None
    early = (shown - world.ledger.now()).total_seconds() - 5
    world.pass_time(early)
    assert world.claim() == []
    world.pass_time(6)
    assert [one.partition for one in world.claim()] == [lease.partition]


def test_many_verdicts_are_one_transaction(world: World) -> None:
    world.backfill(250)
    leases = world.claim()
    assert len(leases) == 250
    judged = world.verdict_writer.apply(
        [Verdict(lease.run_id, "rejected" if number % 5 == 0 else "accepted", reason="r") for number, lease in enumerate(leases)]
    )
    assert [one.outcome for one in judged].count("rejected") == 50
    assert world.queries.counts() == {("crm", "orders"): {"success": 200, "failed": 50}}
    (cell,) = world.queries.calendar("2026-03-01")
    assert cell.shades == {"success": 200, "failed": 50}
